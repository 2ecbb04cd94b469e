"""What the API server tells of a node's own slices."""

import queue
import threading

import api_cluster
import polling
import pytest

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.apps.offering import published
from dra_driver.logic.offering import attributes, publishing
from dra_driver.model import devices
from dra_driver.sim.api.serving import options


def gpu(uuid, minor):
    address = devices.PciAddress(f"0000:{minor:02x}:00.0")
    return devices.Gpu(minor, minor, devices.GpuUuid(f"GPU-{uuid}"), "T4", address)


def publish(cluster, *gpus, node=api_cluster.NODE, driver=api_cluster.DRIVER, generation=1):
    owner = publishing.Owner(driver, node, cluster.node_uid())
    content = publishing.Content(tuple(attributes.device(one) for one in gpus))
    [body] = publishing.reconcile(owner, publishing.contents([content]), []).create
    body["spec"]["pool"]["generation"] = generation
    cluster.client.create(cluster.slice_resource, publishing.to_version(body, cluster.version))


def told(cluster):
    found = published.devices(cluster.client, api_cluster.DRIVER, api_cluster.NODE)
    return [(device.name, device.attributes["uuid"]) for device in found]


@pytest.fixture
def making():
    made = []

    def make(**settings):
        made.append(api_cluster.Cluster(**settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("version", publishing.API_VERSIONS)
def test_the_devices_of_a_node_are_read_in_any_version(making, version):
    cluster = making(resource_versions=(version,))
    assert told(cluster) == []
    publish(cluster, gpu("a", 0), gpu("b", 1))
    assert told(cluster) == [("gpu-0", "GPU-a"), ("gpu-1", "GPU-b")]


def test_slices_of_others_and_of_an_earlier_generation_do_not_count(making):
    cluster = making()
    publish(cluster, gpu("old", 0), gpu("gone", 1))
    publish(cluster, gpu("a", 0), generation=2)
    publish(cluster, gpu("c", 5), node="node-2", generation=9)
    publish(cluster, gpu("d", 6), driver="other.example.com", generation=9)
    assert told(cluster) == [("gpu-0", "GPU-a")]


def test_an_api_server_that_does_not_tell_is_an_error(making):
    cluster = making()
    with (
        cluster.faults.where(lambda _: options.Fault(status=503)),
        pytest.raises(errors.Retryable),
    ):
        told(cluster)
    refused = options.Fault(status=403, reason="Forbidden")
    with (
        cluster.faults.where(lambda call: refused if call.resource == "resourceslices" else None),
        pytest.raises(kube.Forbidden),
    ):
        told(cluster)


def test_an_api_server_without_the_resources_is_one_that_has_to_be_waited_for(making, monkeypatch):
    cluster = making()
    monkeypatch.setattr(kube, "served_versions", lambda *_, **__: ["v1alpha3"])
    with pytest.raises(errors.Retryable, match=r"does not offer resource\.k8s\.io"):
        told(cluster)


class Slow:
    """An API server that answers when it is let."""

    def __init__(self):
        self.answer = queue.SimpleQueue()
        self.asked = threading.Semaphore(0)

    def __call__(self):
        self.asked.release()
        told = self.answer.get(timeout=60)
        if isinstance(told, Exception):
            raise told
        return told


def test_an_answer_that_comes_soon_is_given_and_asked_for_anew_the_next_time():
    api = Slow()
    soon = published.Soon(api, 60)
    for told in (["first"], ["second"]):
        api.answer.put(told)
        assert soon() == told


def test_nobody_waits_long_for_an_answer_and_who_asks_next_has_it():
    api = Slow()
    soon = published.Soon(api, 0.01)
    for _ in range(3):
        with pytest.raises(errors.Retryable, match=r"has not answered within 0\.01 s"):
            soon()
    api.answer.put(["late"])
    polling.until(lambda: _told(soon) == ["late"])
    # It was asked once for all of them.
    assert api.asked.acquire(blocking=False)
    assert not api.asked.acquire(blocking=False)


def test_why_there_is_no_answer_is_told_and_it_is_asked_again():
    api = Slow()
    soon = published.Soon(api, 60)
    api.answer.put(errors.Retryable("no route"))
    with pytest.raises(errors.Retryable, match="no route"):
        soon()
    api.answer.put(["told"])
    assert soon() == ["told"]


def _told(soon):
    try:
        return soon()
    except errors.Retryable:
        return None
