"""Whatever happens in whatever order: nothing foreign is touched, and nothing is left."""

import contextlib
import pathlib
import re
import tempfile

import effort
import hypothesis
import mig_node
from hypothesis import strategies

from dra_driver import errors
from dra_driver.sim.gpus import gpu_errors, gpu_faults

PLACES = (
    *("gpu-0-mig-1g10gb-19-0", "gpu-0-mig-1g10gb-19-6", "gpu-0-mig-2g20gb-14-4"),
    *("gpu-1-mig-3g40gb-9-4", "gpu-1"),
)
MODE_PAGE = re.compile(r"gpus/GPU-[0-9a-f-]+\.[0-9a-f]{8}\.mig-mode\.json")
AT_ONCE = 0.0
"""Seconds of a call that has time for one attempt."""

claim_numbers = strategies.integers(0, len(PLACES) - 1)
steps = strategies.one_of(
    strategies.tuples(
        strategies.sampled_from(["prepare", "unprepare", "prepare", "unprepare", "damage"]),
        claim_numbers,
    ),
    strategies.tuples(strategies.sampled_from(["foreign", "withdraw"]), strategies.just(0)),
    strategies.tuples(strategies.sampled_from(["restart", "look", "clean"]), strategies.just(0)),
    strategies.tuples(
        strategies.just("fault"),
        strategies.sampled_from(
            [
                "nvmlDeviceSetMigMode",
                "nvmlDeviceCreateGpuInstanceWithPlacement",
                "nvmlGpuInstanceCreateComputeInstance",
                "nvmlComputeInstanceDestroy",
                "nvmlGpuInstanceDestroy",
            ]
        ),
    ),
)


class History:
    def __init__(self, root):
        self.root, self.api = root, mig_node.Claims()
        self.nodes = []
        self.refs = [self.api.make(place) for place in PLACES]
        self.theirs, self.there_were_others = [], False
        self.restart()

    def restart(self, _=0):
        self.node = mig_node.Node(self.root, "h100-80gb-hbm3:2", self.api)
        self.nodes.append(self.node)
        self.node.recover()

    def prepare(self, number):
        self.node.prepare(self.refs[number], AT_ONCE)

    def unprepare(self, number):
        self.node.unprepare(self.refs[number], AT_ONCE)

    def damage(self, number):
        path = self.root / "claims" / f"{self.refs[number].uid}.json"
        if path.exists():
            path.write_text("damaged")
            self.restart()

    def foreign(self, _):
        gpu_faults.clear(self.root / "simulation")
        self.there_were_others = True
        with contextlib.suppress(gpu_errors.NVMLError):
            self.theirs.append(self.node.foreign("1g.10gb", 2))

    def withdraw(self, _):
        gpu_faults.clear(self.root / "simulation")
        if self.theirs:
            self.node.destroy(self.theirs.pop().id)

    def look(self, _):
        self.node.gpus.look()

    def clean(self, _):
        self.node.clean()

    def fault(self, function):
        gpu_faults.inject(self.root / "simulation", error=999, function=function, times=1)

    def holds(self):
        """What others made is there, and so is whatever a claim was told that it has."""
        cards = [self.node.card(number) for number in (0, 1)]
        assert all(one in cards[0].gpu_instances for one in self.theirs)
        for ref in self.refs:
            record = self.node.record(ref)
            for one in record.partitions if record and record.phase == "completed" else ():
                known = self.node.mig_uuids(one.minor)
                # One that is being given back may be half gone.
                assert one.uuid in known or ref.uid in self.half_gone
            if record and record.phase == "completed" and not record.partitions:
                assert not cards[1].mig_enabled or ref.uid in self.half_gone

    half_gone: frozenset = frozenset()

    def run(self, history):
        for name, argument in history:
            try:
                getattr(self, name)(argument)
            except errors.DriverError:
                if name == "unprepare":
                    self.half_gone = self.half_gone | {self.refs[argument].uid}
            self.holds()

    def end(self):
        gpu_faults.clear(self.root / "simulation")
        for ref in self.refs:
            self.node.unprepare(ref, 10)
            self.api.delete(ref)
        self.node.clean()
        self.node.clean()


@hypothesis.settings(max_examples=effort.examples(40), deadline=None)
@hypothesis.given(strategies.lists(steps, min_size=2, max_size=14))
def test_no_history_touches_what_is_foreign_or_leaves_anything(history):
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        root = pathlib.Path(directory)
        story = History(root)
        try:
            story.run(history)
            story.end()
            assert story.node.card(0).gpu_instances == story.theirs
            assert story.node.card(1).gpu_instances == []
            assert not story.node.card(1).mig_enabled
            if not story.there_were_others:
                assert not story.node.card(0).mig_enabled
            left = [name for name in story.node.files() if "damaged" not in name]
            if story.theirs:
                # With their instances the mode stays, and it is remembered whose it was.
                left = [name for name in left if not MODE_PAGE.fullmatch(name)]
            assert left == []
        finally:
            for node in story.nodes:
                node.held.close()
