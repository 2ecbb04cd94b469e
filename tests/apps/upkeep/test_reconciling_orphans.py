"""What a node asks of the API because of MIG instances, and what it does with them then."""

import dataclasses
import threading
import types

import mig_node
import pytest
import reconciling_scene
import structlog

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.adapters.system import patience
from dra_driver.apps.offering import inventory
from dra_driver.apps.preparing import fetching
from dra_driver.apps.upkeep import orphans, reconciling
from dra_driver.logic.preparing import planning

AWAY, GRACE = reconciling_scene.AWAY, reconciling_scene.GRACE
INTERVAL = reconciling_scene.INTERVAL
FIRST, SECOND = mig_node.FIRST, mig_node.SECOND


class Desk:
    """A node with a reconciler whose clock is set by hand."""

    def __init__(self, node, cluster):
        self.node, self.cluster = node, cluster
        self.time = 1000.0
        self.reconciler = reconciling.Reconciler(
            planning.Node(mig_node.DRIVER, mig_node.POOL),
            node.store.records,
            node.api,
            node.sweep,
            node.orphans,
            node.users,
            boot_id="boot-1",
            pace=reconciling.Pace(INTERVAL, GRACE, lambda: self.time),
        )

    def prepared(self, *devices):
        ref = self.cluster.claim(*devices)
        self.node.prepare(ref)
        return ref

    def lose(self, ref):
        """All that the node remembers of the claim, but for the ledger, is gone."""
        self.node.store.records.remove(ref.uid)
        self.node.effects.files.remove(ref.uid)
        for path in self.node.cdi.iterdir():
            if ref.uid in path.name:
                path.unlink()

    def asked_after(self, seconds):
        """Look that much later; the verbs with which the API was asked for claims."""
        self.time += seconds
        before = len(self.cluster.faults.calls)
        self.reconciler.look()
        calls = self.cluster.faults.calls[before:]
        return sorted(call.verb for call in calls if call.resource == "resourceclaims")


@pytest.fixture
def api(cluster):
    stopping = threading.Event()
    stopping.set()
    yield fetching.ApiClaims(cluster.client, stopping)
    cluster.client.delete_collection(kube.CLAIMS, "default", field_selector="metadata.name!=x")


@pytest.fixture
def desk(new_node, cluster):
    return Desk(new_node(), cluster)


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def events(log, event):
    """What lines of this event are about."""
    return [line.get("name") or line["device"] for line in log if line["event"] == event]


def test_a_node_whose_instances_all_have_a_claim_takes_no_list(desk, cluster):
    kept, gone = desk.prepared(FIRST), desk.prepared(SECOND)
    for _ in range(3):
        assert desk.asked_after(INTERVAL) == ["get", "get"]
    cluster.delete_claim(gone)
    assert desk.asked_after(INTERVAL) == ["get", "get"]
    assert desk.asked_after(GRACE) == ["get", "get", "get"]
    assert [start for _, start, _ in desk.node.instances()] == [6]
    assert desk.asked_after(INTERVAL) == ["get"]
    assert desk.reconciler.first_pause() >= GRACE
    assert desk.node.record(kept) is not None


def test_an_instance_without_a_record_is_removed_after_one_list(desk, cluster, log):
    lost, kept = desk.prepared(FIRST), desk.prepared(SECOND)
    desk.lose(lost)
    cluster.delete_claim(lost)
    assert desk.reconciler.first_pause() == 0
    assert desk.asked_after(0) == ["list"]
    assert events(log, "MIG instance without a claim removed") == [FIRST]
    assert [start for _, start, _ in desk.node.instances()] == [0]
    assert desk.asked_after(INTERVAL) == ["get"]
    desk.node.unprepare(kept)
    assert desk.node.is_clean()


def test_the_last_instance_without_a_record_takes_mig_mode_with_it(desk, cluster):
    lost = desk.prepared(FIRST)
    desk.lose(lost)
    cluster.delete_claim(lost)
    desk.asked_after(0)
    assert desk.node.is_clean()
    assert desk.asked_after(INTERVAL) == []


def test_an_instance_without_a_record_stays_while_a_claim_is_allocated_to_it(desk, log):
    desk.lose(desk.prepared(FIRST))
    assert desk.asked_after(0) == ["list"]
    assert len(desk.node.instances()) == 1
    assert events(log, "MIG instance of a claim without a record stays") == [FIRST]


def test_an_instance_that_gets_a_record_while_claims_are_listed_stays(desk, cluster, log):
    ref = desk.prepared(FIRST)
    record = desk.node.record(ref)
    desk.lose(ref)
    cluster.delete_claim(ref)

    def rule(call):
        if call.verb == "list" and call.resource == "resourceclaims":
            desk.node.store.records.write(record)

    with cluster.faults.where(rule):
        assert desk.asked_after(0) == ["list"]
    assert len(desk.node.instances()) == 1
    assert events(log, "MIG instance without a claim removed") == []


def test_without_the_api_no_instance_is_removed(desk, cluster):
    lost = desk.prepared(FIRST)
    desk.lose(lost)
    cluster.delete_claim(lost)
    with cluster.faults.where(lambda _: AWAY), pytest.raises(errors.DriverError):
        desk.asked_after(0)
    assert len(desk.node.instances()) == 1
    assert desk.asked_after(0) == ["list"]
    assert desk.node.is_clean()


def test_mig_mode_that_could_not_be_switched_off_is_without_any_question(desk, cluster):
    ref = desk.prepared(FIRST)
    desk.node.occupy(4711)
    desk.node.unprepare(ref)
    assert desk.node.card().mig_enabled
    assert desk.reconciler.first_pause() >= GRACE
    assert desk.asked_after(0) == []
    assert desk.node.card().mig_enabled
    desk.node.end(4711)
    with cluster.faults.where(lambda _: AWAY):
        assert desk.asked_after(INTERVAL) == []
    assert desk.node.is_clean()


def test_mig_mode_of_a_gpu_that_is_busy_is_left_to_whoever_is_at_it(desk, log, monkeypatch):
    ref = desk.prepared(FIRST)
    desk.node.occupy(4711)
    desk.node.unprepare(ref)
    desk.node.end(4711)
    monkeypatch.setattr("dra_driver.apps.upkeep.orphans.LOCK_SECONDS", 0.01)
    with desk.node.held.hold(["gpu-0"], patience.Patience(60)):
        desk.asked_after(0)
    assert desk.node.card().mig_enabled
    assert events(log, "GPU not settled for now") == ["gpu-0"]
    desk.asked_after(INTERVAL)
    assert desk.node.is_clean()


@pytest.mark.parametrize(("adopt", "asked"), [(True, ["list"]), (False, [])])
def test_instances_of_others_are_worth_a_list_only_where_they_are_adopted(
    new_node, cluster, adopt, asked
):
    node = new_node(adopt=adopt)
    node.set_mig_mode(on=True)
    node.foreign("1g.10gb", 0)
    node.gpus.look()
    desk = Desk(node, cluster)
    assert desk.asked_after(0) == asked
    assert len(node.instances()) == (0 if adopt else 1)
    assert desk.asked_after(INTERVAL) == []


def test_a_damaged_record_is_rebuilt_with_a_list_before_anything_is_removed(desk, cluster):
    lost, damaged = desk.prepared(FIRST), desk.prepared(SECOND)
    partitions = desk.node.record(damaged).partitions
    desk.lose(lost)
    cluster.delete_claim(lost)
    desk.lose(damaged)
    (desk.node.root / "claims" / f"{damaged.uid}.json").write_text("damaged")
    with cluster.faults.where(lambda _: AWAY), pytest.raises(errors.DriverError):
        desk.asked_after(0)
    assert len(desk.node.instances()) == 2
    assert desk.asked_after(0) == ["list"]
    assert desk.node.record(damaged).partitions == partitions
    assert [start for _, start, _ in desk.node.instances()] == [0]
    assert desk.asked_after(INTERVAL) == ["get"]


def test_a_damaged_record_of_a_claim_that_nobody_knows_is_given_up_after_one_list(
    desk, cluster, log
):
    ref = desk.prepared(FIRST)
    desk.lose(ref)
    cluster.delete_claim(ref)
    path = desk.node.root / "claims" / f"{ref.uid}.json"
    path.write_text("damaged")
    assert desk.asked_after(0) == ["list"]
    assert not path.exists()
    assert path.with_name(f"{path.name}.damaged-0").exists()
    assert [line["claim_uid"] for line in log if "neither the API nor" in line["event"]] == [
        ref.uid
    ]
    assert desk.node.instances() == []
    assert desk.asked_after(INTERVAL) == []


def test_a_record_that_is_damaged_while_claims_are_listed_keeps_its_instance(desk, cluster, log):
    lost, damaged = desk.prepared(FIRST), desk.prepared(SECOND)
    desk.lose(lost)
    cluster.delete_claim(lost)
    node = desk.node
    usual = node.held.hold

    def hold(names, waiting, **most):
        (node.root / "claims" / f"{damaged.uid}.json").write_text("damaged")
        return usual(names, waiting, **most)

    node.held.hold = hold
    assert desk.asked_after(0) == ["list"]
    assert len(node.instances()) == 2
    assert events(log, "MIG instance without a claim stays for now") == [FIRST]
    assert damaged.uid in log[-1]["reason"]


def test_an_instance_whose_profile_nvml_does_not_tell_is_known_by_its_place(desk, cluster, log):
    node = desk.node
    ref = desk.prepared(FIRST)
    desk.lose(ref)
    (card, *_) = node.gpus.snapshot.cards
    blind = dataclasses.replace(card, gpu=dataclasses.replace(card.gpu, profiles=()))
    seen = types.SimpleNamespace(snapshot=inventory.Snapshot((blind,)), look=lambda: None)
    known = (node.store, node.books, node.effects.listed, node.mender, node.users)
    leftovers = orphans.Orphans(seen, *known, on_change=lambda: None)
    leftovers.remove(frozenset({FIRST}))
    assert len(node.instances()) == 1
    leftovers.remove(frozenset({SECOND}))
    assert node.is_clean()
