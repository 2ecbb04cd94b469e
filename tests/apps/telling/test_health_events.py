"""Events of the health of GPUs, in an API server: of the Node, and of claims that have them."""

import types

import api_cluster
import mig_cards
import pytest
import structlog

from dra_driver.adapters.kube import kube
from dra_driver.apps.offering import inventory
from dra_driver.apps.telling import health_events
from dra_driver.logic.health import conditions, meaning
from dra_driver.model import health, prepared
from dra_driver.sim.api.serving import options
from dra_driver.sim.gpus import gpu_event_log

NODE = api_cluster.NODE
XID = health.EventKind.XID


def told(cluster, namespace="default"):
    """Kind and name of the object, reason and count of each event."""
    found, _ = cluster.client.list(kube.EVENTS, namespace)
    return {
        (one["involvedObject"]["kind"], one["involvedObject"]["name"], one["reason"], one["count"])
        for one in found
    }


def wait(cluster, *wanted):
    api_cluster.wait_for(lambda: told(cluster) == {*wanted}, f"events {wanted}")


class Teller:
    """What tells of two GPUs, of which a test says what is wrong."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.cards = tuple(mig_cards.dynamic("h100-80gb-hbm3:2"))
        gpus = types.SimpleNamespace(snapshot=inventory.Snapshot(self.cards))
        self.view, self.known, self.is_newest = conditions.View(), [], True
        self.seconds, self.time = 1000.0, "2026-11-30T11:00:00Z"
        self.events = health_events.HealthEvents(
            cluster.client,
            NODE,
            health_events.Heard(gpus, lambda: self.view, lambda: self.known),
            may_tell=lambda: self.is_newest,
            clock=lambda: conditions.Now(self.seconds, self.time),
        )

    def wrong(self, *numbers, since="2026-11-30T10:00:00Z"):
        events = [health.Event(XID, self.cards[0].gpu.uuid, number) for number in numbers]
        found = [meaning.of_event(event, None, meaning.Policy()) for event in events]
        self.view = conditions.View(tuple(health.Condition(one, since) for one in found))
        self.events.changed()

    def has(self, ref, device="gpu-0"):
        part = prepared.PreparedDevice(requests=("r",), pool=NODE, device=device, cdi_ids=())
        self.known = [
            prepared.Record(
                uid=ref.uid, namespace=ref.namespace, name=ref.name, boot_id="b",
                phase=prepared.Phase.COMPLETED, devices=(part,),
                gpus={device: self.cards[0].gpu.uuid},
            )
        ]  # fmt: skip


@pytest.fixture
def teller(own_cluster):
    made = Teller(own_cluster)
    yield made
    made.events.stop()


def test_an_event_is_about_the_node_as_kubectl_describe_looks_for_it(teller, own_cluster):
    teller.wrong(79)
    assert teller.events.tell() is None
    [event] = own_cluster.client.list(kube.EVENTS, "default")[0]
    node = own_cluster.client.get(kube.NODES, NODE)
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": NODE,
        "uid": node["metadata"]["uid"],
    }
    assert (event["type"], event["reason"]) == ("Warning", "GpuNeedsReboot")
    assert event["message"] == (
        "gpu-0: XID 79: the GPU has fallen off the bus; the node needs a reboot"
    )
    assert event["source"] == {"component": "dra-driver-kubelet-plugin"}
    assert (event["firstTimestamp"], event["lastTimestamp"]) == (
        "2026-11-30T10:00:00Z",
        "2026-11-30T11:00:00Z",
    )


def test_an_event_of_a_claim_is_in_its_namespace_and_has_its_uid(teller, own_cluster):
    own_cluster.client.create(kube.NAMESPACES, {"metadata": {"name": "team"}})
    ref = own_cluster.claim("gpu-0", namespace="team")
    teller.has(ref)
    teller.wrong(48)
    teller.events.tell()
    [event] = own_cluster.client.list(kube.EVENTS, "team")[0]
    assert event["involvedObject"] == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "namespace": "team",
        "name": ref.name,
        "uid": ref.uid,
    }
    assert told(own_cluster) == {("Node", NODE, "GpuUnhealthy", 1)}


def test_a_driver_that_starts_again_tells_nothing_twice(teller, own_cluster):
    teller.wrong(79)
    teller.events.tell()
    again = Teller(own_cluster)
    again.wrong(79)
    with structlog.testing.capture_logs() as lines:
        again.events.tell()
    assert [line["event"] for line in lines] == ["event is there"]
    assert told(own_cluster) == {("Node", NODE, "GpuNeedsReboot", 1)}
    again.wrong()
    again.events.tell()
    assert told(own_cluster) == {
        ("Node", NODE, "GpuNeedsReboot", 1),
        ("Node", NODE, "GpuHealthy", 1),
    }


def test_the_thread_tells_what_changes_also_once_the_api_server_is_back(teller, own_cluster):
    def away(call):
        return options.Fault(status=503) if call.resource == "events" else None

    teller.events.start()
    with own_cluster.faults.where(away) as happened:
        teller.wrong(79)
        api_cluster.wait_for(lambda: happened, "an event that could not be told")
    wait(own_cluster, ("Node", NODE, "GpuNeedsReboot", 1))
    teller.wrong()
    wait(own_cluster, ("Node", NODE, "GpuNeedsReboot", 1), ("Node", NODE, "GpuHealthy", 1))


def test_what_was_over_before_it_could_be_told_is_not_told(teller, own_cluster):
    def away(call):
        return options.Fault(status=503) if call.resource == "events" else None

    teller.events.start()
    with own_cluster.faults.where(away) as happened:
        teller.wrong(48)
        api_cluster.wait_for(lambda: happened, "an event that could not be told")
        teller.wrong(79)
    wait(own_cluster, ("Node", NODE, "GpuNeedsReboot", 1))


def test_an_event_that_is_refused_keeps_no_other_from_being_told(teller, own_cluster):
    ref = own_cluster.claim("gpu-0")
    teller.has(ref)

    def refuse(call):
        return options.Fault(status=403) if call.resource == "events" else None

    teller.wrong(79)
    with own_cluster.faults.where(refuse) as happened:
        teller.events.tell()
        assert len(happened) == 2
        teller.events.tell()
        assert len(happened) == 2
    teller.wrong(79, 48)
    teller.events.tell()
    assert told(own_cluster) == {
        ("Node", NODE, "GpuUnhealthy", 1),
        ("ResourceClaim", ref.name, "GpuUnhealthy", 1),
    }


def test_of_a_flood_the_rest_is_told_later(teller, own_cluster):
    teller.wrong(*range(1000, 1060), 79)
    assert teller.events.tell() == 60
    assert {reason for _, _, reason, _ in told(own_cluster)} == {"GpuNeedsReboot", "GpuUnhealthy"}
    assert len(own_cluster.client.list(kube.EVENTS, "default")[0]) == 60
    teller.seconds += 60
    assert teller.events.tell() is None
    assert len(own_cluster.client.list(kube.EVENTS, "default")[0]) == 61


def test_a_reset_is_told_once_and_of_several_in_a_minute_the_last(teller, own_cluster):
    def messages():
        found, _ = own_cluster.client.list(kube.EVENTS, "default")
        return [(one["reason"], one["message"], one["count"]) for one in found]

    gpu = teller.cards[0].gpu.uuid
    teller.events.reset(gpu, "in use by pid 7", is_done=False)
    teller.events.tell()
    teller.events.tell()
    assert messages() == [("GpuResetFailed", "gpu-0: in use by pid 7", 1)]
    teller.time = "2026-11-30T11:00:20Z"
    teller.events.reset(gpu, "in use by pid 8", is_done=False)
    assert teller.events.tell() == 60
    teller.time = "2026-11-30T11:00:40Z"
    teller.events.reset(gpu, "it was reset", is_done=True)
    assert teller.events.tell() == 60
    teller.seconds += 60
    assert teller.events.tell() is None
    assert sorted(messages()) == [
        ("GpuReset", "gpu-0: it was reset", 2),
        ("GpuResetFailed", "gpu-0: in use by pid 7", 1),
    ]


def test_of_two_instances_of_the_driver_the_newer_tells(teller, own_cluster):
    teller.is_newest = False
    before = len(own_cluster.faults.calls)
    newer = Teller(own_cluster)
    newer.events.start()
    teller.events.start()
    teller.wrong(79)
    newer.wrong(48)
    wait(own_cluster, ("Node", NODE, "GpuUnhealthy", 1))
    newer.events.stop()
    creates = [call for call in own_cluster.faults.calls[before:] if call.verb == "create"]
    assert len(creates) == 1


# A plugin that runs


@pytest.mark.sampled(4)
def test_a_sick_gpu_of_a_plugin_is_told_to_node_and_claim_and_to_the_node_by_a_condition(
    own_plugin, own_machine, own_cluster
):
    plugin = own_plugin(reboot_condition="GPUNeedsReboot", health_hold_seconds=3600).start()
    ref = own_cluster.claim("gpu-0")
    plugin.kubelet.prepare(ref)
    plugin.wait_log("listening to GPUs")

    def condition():
        status = own_cluster.client.get(kube.NODES, NODE).get("status") or {}
        listed = status.get("conditions") or ()
        return next((one for one in listed if one["type"] == "GPUNeedsReboot"), {})

    api_cluster.wait_for(lambda: condition().get("status") == "False", "the condition")
    gpu_event_log.tell(
        own_machine.simulation, gpu_event_log.Told(own_machine.uuid("gpu-0"), XID, 79)
    )
    wait(
        own_cluster,
        ("Node", NODE, "GpuNeedsReboot", 1),
        ("ResourceClaim", ref.name, "GpuNeedsReboot", 1),
    )
    api_cluster.wait_for(lambda: condition()["status"] == "True", "the condition")
    assert condition()["message"].startswith("gpu-0: XID 79: ")
    since = condition()["lastTransitionTime"]
    beats = condition()["lastHeartbeatTime"]
    plugin.kill()
    plugin.start()
    plugin.kubelet.unprepare(ref)
    plugin.wait_log("listening to GPUs")
    assert (condition()["status"], condition()["lastTransitionTime"]) == ("True", since)
    assert condition()["lastHeartbeatTime"] >= beats
    assert len(told(own_cluster)) == 2
