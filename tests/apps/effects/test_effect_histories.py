"""Claims that come and go in any order while effects fail: none has less, and nothing is left."""

import contextlib
import math
import pathlib
import tempfile

import effect_claims
import effect_faults
import effort
import hypothesis
import pytest
import sharing_claims
import sharing_node
from hypothesis import strategies

from dra_driver import errors
from dra_driver.apps.offering import inventory
from dra_driver.apps.preparing import preparing
from dra_driver.model import prepared

LISTED = list(effect_claims.CASES)
CLAIMS = len(LISTED) + 1
"""One for each effect, and one that needs them all; some have the same card."""

steps = strategies.one_of(
    strategies.tuples(
        strategies.sampled_from(["prepare", "unprepare"]), strategies.integers(0, CLAIMS - 1)
    ),
    strategies.tuples(
        strategies.sampled_from(["make", "undo"]),
        strategies.sampled_from(LISTED),
        strategies.booleans(),
    ),
    strategies.tuples(strategies.sampled_from(["restart", "settle"])),
)


class History:
    """A node, its claims by number, and which of them are as they were told to be."""

    def __init__(self, root, starter, faults):
        self._root, self._starter, self._faults = root, starter, faults
        self.users = sharing_claims.Claims()
        cases = effect_claims.CASES.values()
        self.refs = [self.users.give(case.device, configs=case.configs) for case in cases]
        self._checks = [case.works for case in cases]
        self.refs.append(effect_claims.everything(self.users))
        self._checks.append(effect_claims.has_everything)
        self.there = set()
        self.nodes = []
        self.restart()

    def restart(self):
        # Also one that could not be ended before.
        self._faults.clear()
        self.node = sharing_node.Node(
            self._root, "h100-80gb-hbm3:3", self.users, self._starter
        ).start()
        self.nodes.append(self.node)

    def settle(self):
        self.node.orphans.settle()

    def prepare(self, number):
        # Nothing is taken from a claim that is prepared already and fails to be so again.
        self.node.prepare(self.refs[number])
        self.there.add(number)

    def unprepare(self, number):
        self.there.discard(number)
        self.node.unprepare(self.refs[number])

    def make(self, kind, is_late):
        self._faults.inject(kind, "make", errors.Rejected("no"), is_late=is_late, times=1)

    def undo(self, kind, is_late):
        self._faults.inject(kind, "undo", errors.Retryable("not now"), is_late=is_late, times=1)

    def run(self, history):
        for name, *arguments in history:
            with contextlib.suppress(errors.DriverError):
                getattr(self, name)(*arguments)
            for number in self.there:
                record = self.node.record(self.refs[number])
                assert record.phase is prepared.Phase.COMPLETED
                assert self._checks[number](self.node, self.refs[number])

    def end(self):
        self._faults.clear()
        for ref in self.refs:
            self.node.unprepare(ref)


@hypothesis.settings(max_examples=effort.examples(15), deadline=None)
@hypothesis.given(strategies.lists(steps, min_size=2, max_size=10))
def test_no_history_takes_from_a_claim_what_it_has_or_leaves_anything(starter, history):
    with (
        pytest.MonkeyPatch.context() as patched,
        tempfile.TemporaryDirectory(prefix="history-", dir="/tmp") as directory,
    ):
        # What may work in a moment is not tried again by the same call.
        patched.setattr(preparing, "LOOK_AGAIN", math.inf)
        patched.setattr(inventory, "LOOK_AGAIN", 0.0)
        story = History(pathlib.Path(directory), starter, effect_faults.Faults(patched))
        try:
            untouched = story.node.hardware()
            story.run(history)
            story.end()
            assert story.node.files() == []
            assert story.node.hardware() == untouched
            assert story.node.is_clean()
        finally:
            for node in story.nodes:
                node.close()
