"""What metrics tell of the health of GPUs."""

import dataclasses

import health_scene
import pytest

from dra_driver import health_metrics, telemetry
from dra_driver.apps.offering import inventory
from dra_driver.apps.telling import health_figures
from dra_driver.logic.health import conditions, xids
from dra_driver.model import health

XID = health.EventKind.XID
SEEN = health_metrics.STATES[:3]
"""How a device is that NVML tells of."""
NODE = {"driver": "gpu.nvidia.com", "node": "n"}


class Figures:
    """Metrics of a node with two H100s, whose conditions are those that a test puts there."""

    def __init__(self, directory):
        self.scene = health_scene.Scene(directory)
        self.gpus = self.scene.gpus
        self.seconds = 100.0
        self.metrics = telemetry.Metrics(NODE["driver"], NODE["node"])
        self.figures = health_figures.HealthFigures(
            self.scene.inventory,
            lambda: self.scene.health.view,
            self.metrics,
            clock=lambda: self.seconds,
        )

    def value(self, name, **labels):
        return self.metrics.registry.get_sample_value(f"dra_driver_{name}", NODE | labels)

    def devices(self):
        return {state: self.value("devices", health=state) for state in SEEN}

    def spent(self, gpu):
        """Seconds in each state."""
        return [self.value("gpu_health_seconds_total", gpu=gpu, health=state) for state in SEEN]

    def go(self, seconds):
        self.seconds += seconds
        self.figures.changed()

    def heard(self, kind, data=0, gpu=0):
        self.figures.heard(health.Event(kind, self.gpus[gpu].uuid, data))


@pytest.fixture
def node(tmp_path):
    return Figures(tmp_path)


def test_each_event_counts_for_its_gpu_and_an_xid_by_its_number_too(node):
    node.heard(XID, 79)
    node.heard(XID, 79)
    node.heard(XID, 31, gpu=1)
    node.heard(health.EventKind.FATAL_POISON)
    assert node.value("gpu_events_total", gpu="gpu-0", event="xid") == 2
    assert node.value("gpu_events_total", gpu="gpu-0", event="fatal-poison") == 1
    assert node.value("gpu_events_total", gpu="gpu-1", event="xid") == 1
    assert node.value("gpu_xids_total", gpu="gpu-0", xid="79") == 2
    assert node.value("gpu_xids_total", gpu="gpu-1", xid="31") == 1
    assert node.value("gpu_xids_total", gpu="gpu-1", xid="79") is None


def test_numbers_that_nobody_knows_are_one_series(node):
    for number in (100_000, 100_001, -1):
        assert number not in xids.TABLE
        node.heard(XID, number)
    assert node.value("gpu_xids_total", gpu="gpu-0", xid="other") == 3


def test_each_kind_of_event_is_a_label_that_is_told_beforehand(node):
    node.figures.changed()
    for gpu in ("gpu-0", "gpu-1"):
        for kind in health_metrics.EVENTS:
            assert node.value("gpu_events_total", gpu=gpu, event=kind) == 0
    for kind in health.EventKind:
        node.heard(kind, 79)
    counted = [node.value("gpu_events_total", gpu="gpu-0", event=k) for k in health_metrics.EVENTS]
    assert counted == [1.0] * len(health.EventKind)


def test_devices_are_counted_by_what_is_wrong_with_them_when_somebody_asks(node):
    per_card = len(node.scene.cards[0].offers)
    assert node.devices() == {"healthy": 2 * per_card, "informed": 0, "withdrawn": 0}
    node.scene.xid(63)
    assert node.devices() == {"healthy": per_card, "informed": per_card, "withdrawn": 0}
    node.scene.xid(79)
    assert node.devices() == {"healthy": per_card, "informed": 0, "withdrawn": per_card}


def test_a_fault_of_one_instance_is_not_one_of_the_whole_card(node):
    uuid, offer = node.gpus[0].uuid, node.scene.cards[0].offers
    spot = next(one.spot for one in offer.values() if one.spot is not None)
    finding = health.Finding(uuid, health.Key.XID, "48", "NoSchedule", "m", spot=spot)
    view = conditions.View((health.Condition(finding, "2026-11-30T10:00:00Z"),))
    node.scene.health.book.view = view
    assert node.devices()["withdrawn"] == len([one for one in offer.values() if one.spot == spot])
    node.figures.changed()
    node.go(5)
    assert node.spent("gpu-0") == [0, 0, 5]


def test_devices_of_a_gpu_that_is_lost_are_withdrawn(node):
    per_card = len(node.scene.cards[0].offers)
    node.scene.lose(0)
    assert node.devices() == {"healthy": per_card, "informed": 0, "withdrawn": per_card}
    node.go(4)
    assert node.spent("gpu-0") == [0, 0, 4]


def test_time_counts_for_the_state_in_which_a_gpu_was(node):
    node.figures.changed()
    node.go(10)
    assert (node.spent("gpu-0"), node.spent("gpu-1")) == ([10, 0, 0], [10, 0, 0])
    node.scene.xid(63)
    node.go(0)
    node.go(3)
    node.scene.xid(79)
    node.go(1)
    node.go(7)
    assert (node.spent("gpu-0"), node.spent("gpu-1")) == ([10, 4, 7], [21, 0, 0])


def test_time_goes_on_when_metrics_are_read_and_nothing_has_changed(node):
    node.figures.changed()
    node.seconds += 2
    assert node.spent("gpu-0") == [2, 0, 0]
    node.seconds += 3
    assert node.spent("gpu-0") == [5, 0, 0]


def test_time_is_not_lost_with_a_card_and_goes_on_when_it_is_back(node):
    node.figures.changed()
    node.go(5)
    node.scene.inventory.snapshot = inventory.Snapshot()
    node.go(0)
    node.go(100)
    assert node.spent("gpu-0") == [5, 0, 0]
    node.scene.find()
    node.go(0)
    node.go(1)
    assert node.spent("gpu-0") == [6, 0, 0]


def test_what_hits_a_claim_alone_makes_no_device_unwell(node):
    finding = health.Finding(node.gpus[0].uuid, health.Key.XID, "31", "None", "m", only_claims=True)
    condition = health.Condition(finding, "2026-11-30T10:00:00Z", ("uid",))
    node.scene.health.book.view = conditions.View((condition,))
    node.figures.changed()
    node.go(5)
    assert node.spent("gpu-0") == [5, 0, 0]
    assert node.devices()["informed"] == 0


def test_gpus_that_are_not_listened_to_are_counted(node):
    assert node.value("unmonitored_gpus") == 0
    node.scene.health.unwatched({node.gpus[1].uuid: "it tells nothing"})
    node.scene.health.think()
    assert node.value("unmonitored_gpus") == 1


@pytest.mark.parametrize("result", ["done", "refused", "failed"])
def test_resets_are_counted_by_result_from_zero_on(node, result):
    assert node.value("gpu_resets_total", result=result) == 0
    node.metrics.health.reset(result)
    assert node.value("gpu_resets_total", result=result) == 1


def test_of_a_card_that_a_virtual_machine_has_nobody_can_tell_unless_it_was_withdrawn(node):
    per_card = len(node.scene.cards[0].offers)
    bound = dataclasses.replace(node.scene.cards[0], is_bound=True)
    node.figures.changed()
    node.scene.inventory.snapshot = inventory.Snapshot((bound, node.scene.cards[1]))
    node.go(7)
    assert node.devices() == {"healthy": per_card, "informed": 0, "withdrawn": 0}
    assert node.value("devices", health="unmonitored") == per_card
    node.go(5)
    assert node.spent("gpu-0") == [7, 0, 0]
    assert node.value("gpu_health_seconds_total", gpu="gpu-0", health="unmonitored") == 5
    assert node.spent("gpu-1") == [12, 0, 0]
    # Nobody listens to it, and that is as it should be.
    assert node.value("unmonitored_gpus") == 0
    node.scene.xid(79)
    assert node.devices()["withdrawn"] == per_card
    assert node.value("devices", health="unmonitored") == 0
