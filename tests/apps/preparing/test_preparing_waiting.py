"""Calls that wait hold up nobody else, and stop when nobody waits for them any more."""

import contextlib
import functools
import pathlib

import api_cluster
import grpc
import mps_pods_scene
import plugin_process
import polling
import pytest
import reserved_port
import scraping
import sharing_claims

from dra_driver.adapters.kubelet import dra_protocol
from dra_driver.model import prepared
from dra_driver.sim.api.serving import options

pytestmark = pytest.mark.sampled(11)

FIRST, SECOND = "gpu-0-mig-1g10gb-19-6", "gpu-0-mig-1g10gb-19-0"
"""Partitions of one card."""
MPS = sharing_claims.mps_mig()
AWAY = options.Fault(status=503)
OVERTAKEN = "the claim is unprepared: nobody waits for its devices any more"


class Call:
    """A prepare of one claim, which can be given up."""

    def __init__(self, channel, ref):
        messages = dra_protocol.dra["v1.DRAPlugin"]
        request = messages.NodePrepareResourcesRequest()
        request.claims.add(namespace=ref.namespace, uid=ref.uid, name=ref.name)
        method = channel.unary_unary(
            f"/{dra_protocol.DRA_PACKAGES['v1.DRAPlugin']}.DRAPlugin/NodePrepareResources",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=messages.NodePrepareResourcesResponse.FromString,
        )
        self._uid = ref.uid
        self._future = method.future(request, timeout=45.0, wait_for_ready=True)

    def give_up(self):
        self._future.cancel()

    def error(self):
        return self._future.result(api_cluster.DEADLINE).claims[self._uid].error


@pytest.fixture
def metrics_port():
    with contextlib.closing(reserved_port.Reserved()) as port:
        yield port.number


@pytest.fixture
def pods(own_cluster):
    """Runs pods of MPS daemons; one that is broken starts none."""
    with mps_pods_scene.running_pods(mps_pods_scene.with_namespace(own_cluster)) as made:
        yield made


@pytest.fixture
def plugin(own_plugin, pods, metrics_port):
    return own_plugin(
        mps_launcher="pod",
        mps_image="driver:1",
        gpus="h100-80gb-hbm3:2",
        mig_mode="dynamic",
        metrics_address=f"127.0.0.1:{metrics_port}",
        environment={"POD_NAMESPACE": mps_pods_scene.NAMESPACE},
    )


@pytest.fixture
def prepare(plugin):
    """Begins to prepare a claim."""
    with grpc.insecure_channel(f"unix:{plugin.service_socket}") as channel:
        yield functools.partial(Call, channel)


@pytest.fixture
def waiting(plugin, own_machine, own_cluster, pods, prepare):
    """A call for a claim whose daemon does not start, once it waits for that; and the claim."""
    pods.broken = True
    plugin.start()
    ref = own_cluster.claim(FIRST, config=[MPS])
    call = prepare(ref)
    polling.until(pods.pods, what="a pod for its daemon")
    assert own_machine.record(ref).phase is prepared.Phase.STARTED
    return call, ref


def leaves_nothing(machine, pods):
    polling.until(lambda: machine.files() == [])
    polling.until(lambda: pods.pods() == [])
    daemons = pathlib.Path(machine.plugin / "mps")
    polling.until(lambda: list(daemons.iterdir()) == [])
    return True


def test_a_daemon_that_does_not_start_holds_up_nobody_else_on_its_card(
    plugin, own_cluster, own_machine, pods, waiting
):
    call, ref = waiting
    other = own_cluster.claim(SECOND)
    plugin.kubelet.prepare(other)
    plugin.kubelet.unprepare(other)
    pods.broken = False
    assert call.error() == ""
    plugin.kubelet.unprepare(ref)
    assert leaves_nothing(own_machine, pods)


def test_a_prepare_that_the_kubelet_gives_up_stops_and_is_undone(own_machine, pods, waiting):
    call, _ = waiting
    call.give_up()
    assert leaves_nothing(own_machine, pods)


def test_an_unprepare_ends_a_prepare_that_waits_for_its_daemon(plugin, own_machine, pods, waiting):
    call, ref = waiting
    plugin.kubelet.unprepare(ref)
    assert call.error() == OVERTAKEN
    assert leaves_nothing(own_machine, pods)


def test_an_unprepare_needs_no_api_server_where_a_daemon_is_a_pod(
    plugin, own_cluster, own_machine, pods
):
    plugin.start()
    ref = own_cluster.claim(FIRST, config=[MPS])
    plugin.kubelet.prepare(ref)
    # What the stand-in for the kubelet asks for is not among them.
    with own_cluster.faults.where(
        lambda call: AWAY if call.verb in {"get", "create", "delete"} else None
    ):
        plugin.kubelet.unprepare(ref)
        assert own_machine.files() == []
    assert leaves_nothing(own_machine, pods)


def test_an_unprepare_ends_a_prepare_that_waits_for_the_api_server(
    plugin, own_cluster, own_machine, prepare
):
    plugin.start()
    ref = own_cluster.claim(FIRST)
    with own_cluster.faults.where(lambda call: AWAY if call.name == ref.name else None):
        call = prepare(ref)
        plugin.wait_log("claim not read; trying again", claim_uid=ref.uid)
        plugin.kubelet.unprepare(ref)
        assert call.error() == OVERTAKEN
    assert own_machine.files() == []


def test_who_asks_the_api_server_about_a_holder_holds_up_nobody_else_on_the_card(
    plugin, own_cluster, prepare
):
    plugin.start()
    holder, wants, other = (own_cluster.claim(name) for name in (FIRST, FIRST, SECOND))
    plugin.kubelet.prepare(holder)
    with own_cluster.faults.where(lambda call: AWAY if call.name == holder.name else None):
        call = prepare(wants)
        plugin.wait_log("claim not read; trying again", claim_uid=wants.uid)
        plugin.kubelet.prepare(other)
    assert f"is prepared for claim {holder}, which is allocated to it too" in call.error()
    plugin.kubelet.unprepare(holder, other)


def test_calls_that_wait_for_the_start_are_served_in_the_order_in_which_they_came(
    plugin, own_cluster, own_machine, metrics_port, prepare
):
    own_machine.cdi.write_text("no directory")
    plugin.start()
    plugin.wait_log("waiting", component="plugin")
    in_flight = functools.partial(scraping.plugin, metrics_port)
    refs = [own_cluster.claim(f"gpu-{number}") for number in range(2)]
    calls = [prepare(ref) for ref in refs]
    polling.until(lambda: in_flight()['dra_driver_calls_in_flight{operation="prepare"}'] == 2)
    undone = plugin_process.in_background(functools.partial(plugin.kubelet.unprepare, refs[0]))
    polling.until(lambda: in_flight()['dra_driver_calls_in_flight{operation="unprepare"}'] == 1)
    own_machine.cdi.unlink()
    assert [call.error() for call in calls] == [OVERTAKEN, ""]
    undone.join(api_cluster.DEADLINE)
    assert own_machine.record(refs[0]) is None
    plugin.kubelet.unprepare(refs[1])


def test_the_second_pod_of_a_claim_waits_for_what_the_first_one_waits_for(
    plugin, own_cluster, pods, metrics_port, prepare, waiting
):
    first, ref = waiting
    second = prepare(ref)
    in_flight = functools.partial(scraping.plugin, metrics_port)
    polling.until(lambda: in_flight()['dra_driver_calls_in_flight{operation="prepare"}'] == 2)
    pods.broken = False
    assert (first.error(), second.error()) == ("", "")
    plugin.kubelet.unprepare(ref)
