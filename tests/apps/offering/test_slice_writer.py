"""What is remembered of an API server's answers to slices."""

import api_cluster
import pytest

from dra_driver.adapters.kube import kube
from dra_driver.apps.offering import slice_writer
from dra_driver.logic.offering import publishing
from dra_driver.model import quantities, slices
from dra_driver.sim.api.serving import options

SHARES = "DRAConsumableCapacity"


@pytest.fixture
def cluster():
    made = api_cluster.Cluster(disabled_gates=frozenset({SHARES}))
    yield made
    made.close()


@pytest.fixture
def writer(cluster):
    return slice_writer.SliceWriter(cluster.client, "v1", counters_dropped=lambda: None)


def desired(*names):
    """A slice of devices that many claims may consume, which this server does not take."""
    found = [slices.Device(name, {}, {}, {"allowMultipleAllocations": True}) for name in names]
    return publishing.contents([publishing.Content(tuple(found))])


def changes(cluster, writer, wanted):
    owner = publishing.Owner(api_cluster.DRIVER, api_cluster.NODE, cluster.node_uid())
    return publishing.reconcile(owner, wanted, cluster.slices(), writer.cut)


def test_what_the_server_leaves_of_a_slice_is_no_difference(cluster, writer):
    wanted = desired("gpu-0")
    assert not writer.write(changes(cluster, writer, wanted))
    assert not changes(cluster, writer, wanted)


def test_a_new_writer_learns_what_is_left_of_a_slice_without_writing_it(cluster, writer):
    wanted = desired("gpu-0")
    writer.write(changes(cluster, writer, wanted))
    before = cluster.slices()
    other = slice_writer.SliceWriter(cluster.client, "v1", counters_dropped=lambda: None)
    assert other.learns(changes(cluster, other, wanted), before)
    assert not changes(cluster, other, wanted)
    assert cluster.slices() == before


def test_only_what_is_wanted_now_is_remembered(cluster, writer):
    for number in range(20):
        wanted = desired(f"gpu-{number}")
        writer.write(changes(cluster, writer, wanted))
        writer.settled(wanted)
    assert list(writer.cut) == [publishing.fingerprint(wanted[0])]
    assert not changes(cluster, writer, wanted)


def test_a_create_without_an_answer_may_have_made_a_slice_and_a_question_has_not(cluster, writer):
    wanted = changes(cluster, writer, desired("gpu-0"))
    with (
        cluster.faults.where(lambda call: options.Fault(drop="after") if call.dry_run else None),
        pytest.raises(kube.Unavailable),
    ):
        writer.learns(wanted, [{"spec": {}}])
    assert not writer.unsure
    with (
        cluster.faults.where(
            lambda call: options.Fault(drop="after") if call.verb == "create" else None
        ),
        pytest.raises(kube.Unavailable),
    ):
        writer.write(wanted)
    assert writer.unsure


def test_whether_the_server_takes_more_by_now_is_asked_with_one_slice(cluster, writer):
    wanted = [*desired("gpu-0"), *desired("gpu-1"), *desired("gpu-2")]
    assert not writer.takes_more()
    writer.write(changes(cluster, writer, wanted))
    before, calls = cluster.slices(), len(cluster.faults.calls)
    assert not writer.takes_more()
    assert [call.dry_run for call in cluster.faults.calls[calls:] if call.verb == "create"] == [
        True
    ]
    cluster.upgrade(disabled_gates=frozenset())
    assert writer.takes_more()
    assert [body["spec"] for body in cluster.slices()] == [body["spec"] for body in before]


def test_a_server_that_does_not_say_whether_it_takes_more_is_an_error(cluster, writer):
    writer.write(changes(cluster, writer, desired("gpu-0")))
    away = options.Fault(status=503)
    with cluster.faults.where(lambda _: away), pytest.raises(kube.Unavailable):
        writer.takes_more()


# Taints


def tainted(*names, **extra):
    """A slice of devices with a taint."""
    taint = {"key": "gpu.nvidia.com/xid", "effect": "NoSchedule", "value": "79"}
    found = [slices.Device(name, {}, {}, {"taints": [taint]} | extra) for name in names]
    return publishing.contents([publishing.Content(tuple(found))])


@pytest.fixture
def without_taints():
    made = api_cluster.Cluster(disabled_gates=frozenset({"DRADeviceTaints", SHARES}))
    yield made
    made.close()


def test_that_taints_are_dropped_is_seen_at_the_first_write_and_leaves_something_else_to_be_written(
    without_taints,
):
    client = without_taints.client
    writer = slice_writer.SliceWriter(client, "v1", counters_dropped=lambda: None)
    assert writer.takes_taints
    assert not writer.write(changes(without_taints, writer, desired("gpu-0")))
    assert writer.takes_taints
    assert writer.write(changes(without_taints, writer, tainted("gpu-0")))
    assert not writer.takes_taints
    assert not writer.write(changes(without_taints, writer, tainted("gpu-1")))
    writer.doubt()
    assert writer.takes_taints


def test_that_taints_are_dropped_is_seen_before_anything_is_written_by_a_new_writer(without_taints):
    client = without_taints.client
    first = slice_writer.SliceWriter(client, "v1", counters_dropped=lambda: None)
    first.write(changes(without_taints, first, desired("gpu-0")))
    before = without_taints.slices()
    other = slice_writer.SliceWriter(client, "v1", counters_dropped=lambda: None)
    assert other.learns(changes(without_taints, other, tainted("gpu-0")), before)
    assert not other.takes_taints
    assert without_taints.slices() == before


def test_that_taints_are_taken_again_is_found_though_something_else_is_dropped_still(
    without_taints,
):
    client = without_taints.client
    writer = slice_writer.SliceWriter(client, "v1", counters_dropped=lambda: None)
    shared = {"allowMultipleAllocations": True}
    writer.write(changes(without_taints, writer, tainted("gpu-0", **shared)))
    assert not writer.takes_more()
    without_taints.upgrade(disabled_gates=frozenset({SHARES}))
    assert writer.takes_more()


def test_that_taints_are_taken_again_is_found_though_counters_of_the_same_slice_are_dropped_still():
    # As on Kubernetes 1.34, where counters are in the slices of their devices.
    cluster = api_cluster.Cluster(kubernetes_version="v1.34.9-sim")
    try:
        writer = slice_writer.SliceWriter(cluster.client, "v1", counters_dropped=lambda: None)
        counters = publishing.CounterSet("gpu-0-counters", {"memory": quantities.parse("80Gi")})
        [content] = tainted("gpu-0")
        content |= {"sharedCounters": [publishing.format_counter_set(counters)]}
        assert writer.write(changes(cluster, writer, [content]))
        assert not writer.takes_more()
        cluster.upgrade(enabled_gates=frozenset({"DRADeviceTaints"}))
        assert writer.takes_more()
    finally:
        cluster.close()


def test_a_gate_that_is_closed_while_there_are_taints_is_seen_though_the_server_keeps_them(
    own_cluster,
):
    client, wanted = own_cluster.client, tainted("gpu-0")
    writer = slice_writer.SliceWriter(client, "v1", counters_dropped=lambda: None)
    writer.write(changes(own_cluster, writer, wanted))
    assert not writer.learns(changes(own_cluster, writer, wanted), own_cluster.slices())
    own_cluster.upgrade(disabled_gates=frozenset({"DRADeviceTaints"}))
    assert not writer.learns(changes(own_cluster, writer, wanted), own_cluster.slices())
    assert writer.takes_taints
    writer.doubt_taints()
    assert writer.learns(changes(own_cluster, writer, wanted), own_cluster.slices())
    assert not writer.takes_taints
    assert not writer.takes_more()
    own_cluster.upgrade(disabled_gates=frozenset())
    assert writer.takes_more()
