"""GPUs for virtual machines in any history: claims, faults of the kernel, restarts and kills.

A card is always bound to exactly what its record says, or is told as stranded.
"""

import contextlib
import errno
import os
import pathlib
import tempfile

import effort
import hypothesis
import mig_node
import pytest
from apps import killed_plugin
from hypothesis import strategies

from dra_driver import errors
from dra_driver.adapters.pci import pci_bus
from dra_driver.apps.effects import handing_over
from dra_driver.apps.offering import inventory
from dra_driver.apps.preparing import preparing
from dra_driver.logic.passthrough import standing
from dra_driver.model import bindings, prepared
from dra_driver.sim.pci import faults

CLAIMS = (
    ("gpu-vfio-0",), ("gpu-vfio-0",), ("gpu-vfio-1",), ("gpu-vfio-0", "gpu-vfio-1"), ("gpu-0",),
    ("gpu-1", "gpu-vfio-0"),
)  # fmt: skip
KILLABLE = ("load", "allow", "unbind", "bind")
numbers = strategies.integers(0, len(CLAIMS) - 1)
operations = strategies.sampled_from(["prepare", "unprepare"])
cards = strategies.integers(0, 1)

calls = strategies.tuples(operations, numbers)
steps = strategies.one_of(
    *[calls] * 5,
    strategies.tuples(
        strategies.just("fail"),
        strategies.sampled_from(["override", "bind", "unbind"]),
        cards,
        strategies.integers(1, 3),
    ),
    strategies.tuples(strategies.just("hang"), strategies.sampled_from(["bind", "unbind"]), cards),
    *[strategies.tuples(strategies.sampled_from(["clear", "restart"]))] * 2,
    strategies.tuples(strategies.just("kill"), operations, numbers, strategies.integers(1, 40)),
    strategies.tuples(strategies.just("kill"), operations, numbers, strategies.integers(1, 40)),
)  # fmt: skip


class History:
    """A node of an H100 and an L4, which has a second function, and its claims by number."""

    def __init__(self, root):
        self.root = root
        self.api = mig_node.Claims()
        self.refs = [self.api.make(*devices) for devices in CLAIMS]
        self.log = root / "steps"
        self.nodes = []
        self.restart()

    def restart(self):
        self.node = mig_node.Node(self.root, "h100-80gb-hbm3:1,l4:1", self.api, vfio="on")
        self.node.recover()
        self.nodes.append(self.node)

    def prepare(self, number):
        self.node.prepare(self.refs[number], seconds=0.0)

    def unprepare(self, number):
        self.node.unprepare(self.refs[number], seconds=0.0)

    def fail(self, action, card, times):
        address = self.node.card(card).pci_address
        faults.fail(self.node.simulation, action, errno.EIO, address=address, times=times)

    def hang(self, action, card):
        faults.hang(self.node.simulation, action, address=self.node.card(card).pci_address)

    def clear(self):
        faults.clear(self.node.simulation)

    def kill(self, operation, number, at):
        """The driver is gone before a step of a call, if it has as many; then it is started."""
        child = os.fork()
        if child == 0:
            folders = [str(self.root / name) for name in ("claims", "cdi", "gpus")]
            killer = killed_plugin.Killer(folders, self.root, self.log, at)
            killer.install()
            for name in KILLABLE:
                killed_plugin.is_a_step(killer, pci_bus.PciBus, name)
            with contextlib.suppress(errors.DriverError):
                getattr(self, operation)(number)
            os._exit(0)
        os.waitpid(child, 0)
        self.restart()

    def run(self, history):
        for name, *arguments in history:
            with contextlib.suppress(errors.DriverError):
                getattr(self, name)(*arguments)
            self.check()

    def check(self):
        """Each function is bound to what the record says, or its card is told as stranded."""
        node = self.node
        # What hung and hangs no more is done at the next look of the kernel.
        for card in (0, 1):
            node.pci.hanging(node.card(card).pci_address)
        bus, leaving = node.pci.scan(), node.preparer.leaving()
        known = list(node.store.records.contents().records.values())
        told = standing.of(
            known,
            bus,
            served={gpu.uuid for gpu in node.discover()},
            leaving=leaving,
            taken=node.books.handed_over(),
        )
        wanted = {
            function.address: one.driver
            for record in known
            if record.phase is prepared.Phase.COMPLETED and record.uid not in leaving
            for one in bindings.of(record)
            for function in one.functions
        }
        uuids = {node.card(card).pci_address.rpartition(".")[0]: node.uuid(card) for card in (0, 1)}
        for address, function in bus.functions.items():
            expected = wanted.get(address, node.bound_at_first[address])
            is_told = uuids[function.slot] in told.stranded
            assert function.driver == expected or is_told, (str(function), expected)
            if function.driver == "vfio-pci":
                assert node.books.handed_over().get(uuids[function.slot])

    def end(self):
        self.clear()
        for ref in self.refs:
            self.node.unprepare(ref)
        assert self.node.is_clean()
        assert all(card.persistence_mode for card in (self.node.card(0), self.node.card(1)))


@hypothesis.settings(max_examples=effort.examples(60), deadline=None)
@hypothesis.given(strategies.lists(steps, min_size=4, max_size=16))
def test_a_card_is_bound_to_what_its_record_says_or_told_as_stranded(history):
    with (
        pytest.MonkeyPatch.context() as patched,
        tempfile.TemporaryDirectory(prefix="history-", dir="/tmp") as directory,
    ):
        patched.setattr(inventory, "LOOK_AGAIN", 0.0)
        patched.setattr(handing_over, "SEEN_SECONDS", 0.0)
        patched.setattr(preparing, "LOOK_AGAIN", 0.01)
        story = History(pathlib.Path(directory))
        try:
            story.run(history)
            story.end()
        finally:
            for node in story.nodes:
                node.held.close()
