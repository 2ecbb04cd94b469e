"""What is remembered of an API server's answers to slices."""

import api_cluster
import pytest

from dra_driver.adapters.kube import kube
from dra_driver.apps.offering import slice_writer
from dra_driver.logic.offering import publishing
from dra_driver.model import slices
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
        writer.learns(wanted, [{}])
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
