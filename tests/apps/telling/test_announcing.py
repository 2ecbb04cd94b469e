"""What the kubelet is told of devices of GPUs that are not well, and of claims that were hit."""

import queue

import mig_node
import pytest

from dra_driver import telemetry
from dra_driver.apps.telling import announcing
from dra_driver.logic.health import conditions
from dra_driver.model import devices, health, taints

BROKEN = "XID 95: a memory error that was not contained; the GPU needs a reset"
OURS = "XID 31: a memory access of the application failed"
SECONDS = 60


class Scene:
    """An announcer on a node in this process, and what it tells."""

    def __init__(self, node, writer):
        self.node, self.view, self.said = node, conditions.View(), queue.SimpleQueue()
        self.announcer = announcing.Announcer(
            node.gpus,
            node.store.records,
            writer,
            (),
            telemetry.Metrics(mig_node.DRIVER, mig_node.POOL),
            lambda troubles, notes: self.said.put((troubles, notes)),
            node.sharer.health,
            lambda: self.view,
        )

    def tell(self, *listed):
        """What is wrong with devices, and what is told of others, once this counts."""
        self.view = conditions.View(listed)
        self.announcer.changed()
        troubles, notes = self.said.get(timeout=SECONDS)
        return {name: told for name, told in troubles.items() if told is not None}, notes

    def finding(self, message, effect=taints.NO_SCHEDULE, **fields):
        gpu = devices.GpuUuid(self.node.uuid())
        return health.Finding(gpu, health.Key.XID, "95", effect, message, **fields)


@pytest.fixture
def scene_on(node, scene):
    made = Scene(node, scene.writer)
    made.announcer.start()
    yield made
    made.announcer.stop()


def condition(finding, *claims):
    return health.Condition(finding, "2026-11-30T10:00:00Z", claims)


def test_a_fault_of_a_card_is_told_of_all_its_devices_and_of_no_other_card(scene_on, node):
    wrong, notes = scene_on.tell(condition(scene_on.finding(BROKEN)))
    concerned = {name for name in node.gpus.snapshot.offered if name.startswith("gpu-0")}
    assert len(concerned) > 1
    assert wrong == dict.fromkeys(concerned, BROKEN)
    assert notes == {}
    assert scene_on.tell() == ({}, {})


def test_a_fault_of_a_partition_is_told_of_that_one_and_its_neighbours_go_on(scene_on, node, api):
    node.prepare(api.make(mig_node.FIRST))
    spot = node.gpus.snapshot.offered[mig_node.FIRST].spot
    wrong, notes = scene_on.tell(condition(scene_on.finding(BROKEN, spot=spot)))
    assert (wrong, notes) == ({mig_node.FIRST: BROKEN}, {})


def test_a_fault_in_a_daemon_is_told_of_the_devices_of_the_claims_that_it_hit(scene_on, node, api):
    hit, other = api.make(mig_node.FIRST), api.make(mig_node.SECOND)
    node.prepare(hit)
    node.prepare(other)
    found = scene_on.finding(OURS, taints.NONE, only_claims=True)
    assert scene_on.tell(condition(found, hit.uid)) == ({}, {mig_node.FIRST: OURS})
    assert scene_on.tell(condition(found, hit.uid, other.uid)) == (
        {},
        {mig_node.FIRST: OURS, mig_node.SECOND: OURS},
    )


def test_a_device_that_a_claim_has_is_told_of_though_its_card_is_gone(scene_on, node, api, lose):
    node.prepare(api.make(mig_node.FIRST))
    lose(0)
    node.gpus.look()
    wrong, _ = scene_on.tell(condition(scene_on.finding(BROKEN)))
    assert wrong[mig_node.FIRST].startswith(f"{BROKEN}; its GPU is not there any more")
