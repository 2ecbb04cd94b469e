"""What the kubelet is told of devices of GPUs that are not well, and of claims that were hit."""

import dataclasses
import queue

import api_cluster
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
            lambda troubles, notes, _unseen: self.said.put((troubles, notes)),
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
    first, second = (f"{OURS} (claims default/{ref.name})" for ref in (hit, other))
    assert scene_on.tell(condition(found, hit.uid)) == ({}, {mig_node.FIRST: first})
    assert scene_on.tell(condition(found, hit.uid, other.uid)) == (
        {},
        {mig_node.FIRST: first, mig_node.SECOND: second},
    )


def test_a_device_that_a_claim_has_is_told_of_though_its_card_is_gone(scene_on, node, api, lose):
    node.prepare(api.make(mig_node.FIRST))
    lose(0)
    node.gpus.look()
    wrong, _ = scene_on.tell(condition(scene_on.finding(BROKEN)))
    assert wrong[mig_node.FIRST].startswith(f"{BROKEN}; its GPU is not there any more")


def test_of_a_card_that_is_gone_it_is_told_why_where_that_is_known(scene_on, node, lose):
    lose(0)
    node.gpus.look()
    lost = dataclasses.replace(scene_on.finding("the GPU is lost"), key=health.Key.GPU_LOST)
    wrong, _ = scene_on.tell(condition(lost))
    assert wrong.keys() == node.gpus.snapshot.lost.keys()
    assert set(wrong.values()) == {"the GPU is lost"}


def test_what_a_claim_has_of_a_card_that_was_not_seen_since_a_restart_is_told_of(
    node, new_node, api, lose, scene
):
    node.prepare(api.make(mig_node.FIRST))
    lose(0)
    made = Scene(new_node(), scene.writer)
    assert mig_node.FIRST not in {**made.node.gpus.snapshot.lost, **made.node.gpus.snapshot.offered}
    gone = health.Finding(
        node.uuid(), health.Key.GPU_LOST, "", taints.NO_SCHEDULE, "the GPU is lost"
    )
    made.announcer.start()
    try:
        wrong, _ = made.tell(condition(gone))
    finally:
        made.announcer.stop()
    assert wrong == {mig_node.FIRST: "the GPU is lost"}


# The claims of such devices


@pytest.fixture
def claim_on(scene_on, node, scene, served):
    """A claim of the API that is prepared, and how its device is told to be."""
    ref = served.claim(mig_node.FIRST)
    node.api.allocate(ref, mig_node.FIRST)
    node.prepare(ref)

    def healthy():
        [entry] = scene.entries(ref) or [{"conditions": []}]
        return [
            (one["status"], one["reason"])
            for one in entry["conditions"]
            if one["type"] == "Healthy"
        ]

    [record] = scene_on.announcer.known()
    return record, healthy


@pytest.mark.parametrize("is_sick_first", [False, True], ids=["falls ill", "gets well"])
def test_what_changes_right_after_a_claim_was_told_is_told_too(scene_on, claim_on, is_sick_first):
    record, healthy = claim_on
    sick = (condition(scene_on.finding(BROKEN)),)
    before, after = (sick, ()) if is_sick_first else ((), sick)
    scene_on.view = conditions.View(before)
    scene_on.announcer.tell_prepared(record)
    scene_on.tell(*after)
    wanted = [("False", "Xid95")] if after else [("True", "Well")]
    api_cluster.wait_for(lambda: healthy() == wanted, lambda: f"{wanted}; there is {healthy()}")


@pytest.mark.parametrize(
    ("is_here", "is_hit", "wanted"),
    [
        (True, False, ("False", "Xid95")),
        (False, False, ("True", "Well")),
        (False, True, ("True", "Xid31")),
        (True, True, ("False", "Xid95")),
    ],
    ids=["its partition", "another partition", "its daemon", "both, the gravest first"],
)
def test_a_claim_is_told_of_what_is_wrong_with_its_device_or_has_hit_it(
    scene_on, node, claim_on, is_here, is_hit, wanted
):
    record, healthy = claim_on
    where = mig_node.FIRST if is_here else mig_node.SECOND
    listed = [condition(scene_on.finding(BROKEN, spot=node.gpus.snapshot.offered[where].spot))]
    if is_hit:
        hit = scene_on.finding(OURS, taints.NONE, only_claims=True)
        listed.append(condition(dataclasses.replace(hit, value="31"), record.uid))
    scene_on.view = conditions.View(tuple(listed))
    scene_on.announcer.tell_prepared(record)
    api_cluster.wait_for(lambda: healthy() == [wanted], lambda: f"{wanted}; there is {healthy()}")


def test_a_claim_that_somebody_is_about_to_tell_is_told_by_nobody_else(scene_on, claim_on, scene):
    _, healthy = claim_on
    # With the second answer the first is over, and all that it has reported.
    for _ in range(2):
        scene_on.tell(condition(scene_on.finding(BROKEN)))
    assert scene.writer.wait_idle(SECONDS)
    assert healthy() == []


def test_a_claim_that_is_prepared_while_others_are_told_is_told_of_what_changes_later(
    scene_on, node, scene, served
):
    ref = served.claim(mig_node.FIRST)
    node.api.allocate(ref, mig_node.FIRST)
    said = scene_on.announcer._on_health

    def prepares(*told):
        scene_on.announcer._on_health = said
        node.prepare(ref)
        [record] = scene_on.announcer.known()
        scene_on.announcer.tell_prepared(record)
        said(*told)

    scene_on.announcer._on_health = prepares
    scene_on.tell()
    scene_on.tell(condition(scene_on.finding(BROKEN)))

    def entry():
        [found] = scene.entries(ref) or [{"conditions": []}]
        return {one["type"]: one["status"] for one in found["conditions"]}

    api_cluster.wait_for(lambda: entry().get("Healthy") == "False", "the condition")
