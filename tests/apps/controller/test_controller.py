"""What the controller removes and reports in an API server."""

import signal
import subprocess
import sys
import threading

import api_cluster
import limited
import pytest
import webhook_scene

from dra_driver import settings, telemetry
from dra_driver.adapters.kube import kube
from dra_driver.apps.controller import controller, leading
from dra_driver.logic.preparing import mps_pod
from dra_driver.settings import controller as controller_settings
from dra_driver.sim.api.serving import options

NAMESPACE, GONE = "dra-driver", "node-2"
LABELS = {mps_pod.MANAGED_BY: mps_pod.MANAGER, mps_pod.DOMAIN: "1234"}


@pytest.fixture
def cluster(own_cluster):
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    own_cluster.client.create(kube.NAMESPACES, body)
    return own_cluster


def configured(**changes):
    values = {
        "identity": "controller-1",
        "status_address": "127.0.0.1:0",
        "sweep_seconds": 0.001,
        "retry_seconds": 0.01,
        "grace_seconds": 0,
    }
    return controller_settings.Controller.model_validate(values | changes)


@pytest.fixture
def made(cluster):
    """Makes controllers, which are not started."""
    controllers = []

    def make(**changes):
        client = kube.Client(kubeconfig=cluster.kubeconfig, user_agent="dra-driver/test controller")
        controllers.append(controller.Controller(configured(**changes), client))
        return controllers[-1]

    yield make
    for each in controllers:
        each.stop()


def put_pod(cluster, node, name="mps", labels=LABELS):
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    }
    cluster.client.create(kube.PODS, body, NAMESPACE)


def put_slice(cluster, node, driver=api_cluster.DRIVER, *, owned=False):
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}"},
        "spec": spec,
    }
    made = cluster.client.create(kube.SLICES, body)
    if owned:
        # As if the garbage collector had missed it: the embedded one looks at each write.
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": f"uid-{node}"}
        metadata = made["metadata"] | {"ownerReferences": [owner]}
        cluster._api.store.put("resourceslices.resource.k8s.io", made | {"metadata": metadata})


def names(cluster, resource, namespace=None):
    items, _ = cluster.client.list(resource, namespace)
    return sorted(item["metadata"]["name"] for item in items)


def holder(cluster):
    lease = cluster.client.get(leading.LEASES, "dra-driver-controller", NAMESPACE)
    return lease["spec"]["holderIdentity"]


def test_what_a_node_that_is_gone_has_left_is_removed_at_the_second_look(cluster, made):
    for node in (api_cluster.NODE, GONE):
        put_pod(cluster, node, f"mps-{node}")
        put_slice(cluster, node)
    put_pod(cluster, GONE, "other", labels={})
    put_slice(cluster, GONE, "x.example.com")
    one = made()
    one.round()
    assert len(names(cluster, kube.PODS, NAMESPACE)) == 3
    api_cluster.wait_for(lambda: _after(one, cluster, kube.SLICES) == 2, "a slice is removed")
    assert names(cluster, kube.PODS, NAMESPACE) == [f"mps-{api_cluster.NODE}", "other"]
    assert names(cluster, kube.SLICES) == [
        f"{api_cluster.NODE}-gpu.nvidia.com",
        f"{GONE}-x.example.com",
    ]
    told = one._metrics.text()[0].decode()
    for kind in ("Pod", "ResourceSlice"):
        assert f'removed_total{{driver="gpu.nvidia.com",kind="{kind}"}} 1.0' in told


def _after(one, cluster, resource):
    one.round()
    return len(names(cluster, resource))


def slice_lists(cluster):
    return sum(
        (call.resource, call.verb) == ("resourceslices", "list") for call in cluster.faults.calls
    )


def test_slices_that_nodes_own_are_known_by_their_metadata(cluster, made):
    for node, driver in (
        (api_cluster.NODE, api_cluster.DRIVER),
        (GONE, api_cluster.DRIVER),
        (GONE, "x.example.com"),
    ):
        put_slice(cluster, node, driver, owned=True)
    one = made(grace_seconds=3600)
    one.round()
    assert slice_lists(cluster) == 1
    [found] = one._sweeper._since
    assert (found.name, found.node) == (f"{GONE}-gpu.nvidia.com", GONE)


def test_a_slice_that_nobody_owns_is_read_whole_to_know_its_node(cluster, made):
    put_slice(cluster, api_cluster.NODE, owned=True)
    put_slice(cluster, GONE)
    one = made(grace_seconds=3600)
    one.round()
    assert slice_lists(cluster) == 2
    [found] = one._sweeper._since
    assert (found.name, found.node) == (f"{GONE}-gpu.nvidia.com", GONE)


def test_what_is_left_for_a_short_time_stays(cluster, made):
    put_slice(cluster, GONE)
    one = made(grace_seconds=3600)
    for _ in range(3):
        one.round()
    assert names(cluster, kube.SLICES) == [f"{GONE}-gpu.nvidia.com"]


def test_a_stale_claim_is_told_once_and_left_as_it_is(cluster, made):
    fine = cluster.claim("gpu-0")
    stale = cluster.claim({"device": "gpu-0", "pool": GONE})
    one = made()

    def events():
        one.round()
        return cluster.client.list(kube.EVENTS, "default")[0]

    [event] = api_cluster.wait_for(events, "an event")
    assert event["involvedObject"]["uid"] == stale.uid
    assert (event["type"], event["reason"]) == ("Warning", "NodeGone")
    assert event["message"].startswith("allocated to devices of node-2, which does not exist")
    assert "allocation" in cluster.get_claim(stale)["status"]
    assert 'stale_claims{driver="gpu.nvidia.com"} 1.0' in one._metrics.text()[0].decode()
    for _ in range(3):
        one.round()
    assert _told(cluster) == 1
    one._candidate.release()
    another = made(identity="controller-2")
    api_cluster.wait_for(lambda: another.round() or _told(cluster) > 1, "it is told again")
    assert len(events()) == 1
    assert 'sweep_errors_total{driver="gpu.nvidia.com"} 0.0' in another._metrics.text()[0].decode()
    assert fine.uid != stale.uid


def _told(cluster):
    """How often a controller wanted to make an event."""
    return sum((call.resource, call.verb) == ("events", "create") for call in cluster.faults.calls)


def test_an_object_that_was_made_anew_under_the_name_stays(cluster, made):
    put_slice(cluster, GONE)
    one = made()
    one.round()
    cluster.client.delete(kube.SLICES, f"{GONE}-gpu.nvidia.com")
    put_slice(cluster, GONE)
    sweeper = one._sweeper
    (old,) = sweeper._since
    sweeper._settle(old, "v1")
    assert names(cluster, kube.SLICES) == [f"{GONE}-gpu.nvidia.com"]


def test_who_does_not_lead_removes_nothing_and_begins_anew_when_it_does(cluster, made):
    put_slice(cluster, GONE)
    leader, other = made(grace_seconds=3600), made(identity="controller-2")
    leader.round()
    for _ in range(3):
        other.round()
    assert names(cluster, kube.SLICES) == [f"{GONE}-gpu.nvidia.com"]
    assert 'leader{driver="gpu.nvidia.com"} 0.0' in other._metrics.text()[0].decode()
    leader._candidate.release()
    other.round()
    assert names(cluster, kube.SLICES) == [f"{GONE}-gpu.nvidia.com"]
    leader.round()
    assert leader._sweeper._since == {}
    api_cluster.wait_for(lambda: _after(other, cluster, kube.SLICES) == 0, "it is removed")


def test_a_leader_that_loses_the_lease_stops_in_the_middle(cluster):
    put_slice(cluster, GONE)
    metrics = telemetry.ControllerMetrics(api_cluster.DRIVER)
    sweeper = controller.Sweeper(configured(), cluster.client, metrics)
    sweeper.sweep(0.0, lambda: True)
    sweeper.sweep(1.0, lambda: False)
    assert names(cluster, kube.SLICES) == [f"{GONE}-gpu.nvidia.com"]
    sweeper.sweep(2.0, lambda: True)
    assert names(cluster, kube.SLICES) == []


def test_a_look_that_fails_is_counted_and_the_next_one_works(cluster, made):
    put_slice(cluster, GONE)
    one = made()
    with cluster.faults.where(
        lambda call: options.Fault(status=503) if call.resource == "nodes" else None
    ):
        one.round()
    assert 'sweep_errors_total{driver="gpu.nvidia.com"} 1.0' in one._metrics.text()[0].decode()
    api_cluster.wait_for(lambda: _after(one, cluster, kube.SLICES) == 0, "it is removed")


def test_it_serves_its_state_and_lets_the_next_one_begin_when_it_stops(cluster, made):
    one, stop = made(), threading.Event()
    thread = threading.Thread(target=one.run, args=(stop,))
    thread.start()
    try:
        assert webhook_scene.status(one.status_port, "/healthz") == (200, "ok\n")
        api_cluster.wait_for(
            lambda: (
                'leader{driver="gpu.nvidia.com"} 1.0'
                in webhook_scene.status(one.status_port, "/metrics")[1]
            ),
            "it leads",
        )
        assert webhook_scene.status(one.status_port, "/other")[0] == 404
        assert webhook_scene.status(one.status_port, "/healthz", "POST")[0] == 405
    finally:
        stop.set()
        thread.join(api_cluster.DEADLINE)
    assert holder(cluster) == ""


def test_the_command_leads_and_ends_on_sigterm(cluster):
    flags = {"identity": "pod-1", "kubeconfig": cluster.kubeconfig, "status-address": "127.0.0.1:0"}
    given = [part for name, value in flags.items() for part in (f"--{name}", str(value))]
    process = subprocess.Popen(
        limited.command([sys.executable, "-m", "dra_driver", "controller", *given]),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        api_cluster.wait_for(lambda: names(cluster, leading.LEASES), "the command has the lease")
        assert limited.soft_limit(process.pid) == 4096
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=api_cluster.DEADLINE)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "Traceback" not in log
    assert holder(cluster) == ""


def test_a_loop_that_is_stuck_is_not_healthy(made, monkeypatch):
    one = made()
    monkeypatch.setattr(controller, "_STUCK_SECONDS", -1.0)
    one.start()
    status, text = webhook_scene.status(one.status_port, "/healthz")
    assert (status, text.startswith("no round for ")) == (503, True)


def test_the_settings_are_flags_like_those_of_the_others():
    config = settings.resolve(
        controller_settings.Controller,
        environment={"DRA_DRIVER_SWEEP_SECONDS": "5"},
        flags={"identity": "pod-1", "lease": None},
    )
    assert (config.identity, config.sweep_seconds) == ("pod-1", 5.0)


@pytest.mark.parametrize("status", [403, 404, 500], ids=["quota", "namespace is gone", "webhook"])
def test_what_is_refused_for_one_leftover_is_in_no_other_s_way(cluster, made, status):
    """An event is in the namespace of its claim, where others have a quota or a webhook."""
    cluster.claim({"device": "gpu-0", "pool": GONE})
    put_slice(cluster, GONE)
    one = made()
    with cluster.faults.where(
        lambda call: options.Fault(status=status) if call.resource == "events" else None
    ):
        api_cluster.wait_for(lambda: _after(one, cluster, kube.SLICES) == 0, "it is removed")
    api_cluster.wait_for(
        lambda: one.round() or cluster.client.list(kube.EVENTS, "default")[0], "it is told"
    )
    told = one._metrics.text()[0].decode()
    assert 'sweep_errors_total{driver="gpu.nvidia.com"} 0.0' not in told


class Clock:
    """A clock that somebody puts forward."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


def test_a_look_that_takes_longer_than_the_lease_renews_it(cluster, made, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(controller, "time", clock)
    monkeypatch.setattr(leading, "time", clock)
    put_slice(cluster, GONE)
    leader = made(lease_seconds=15, retry_seconds=2, sweep_seconds=1)
    other = made(identity="controller-2", lease_seconds=15, retry_seconds=2)

    def slow(call):
        """Each list takes most of a lease, and another candidate looks on."""
        if call.verb == "list" and call.resource != "leases":
            clock.now += 10

    for _ in range(2):
        with cluster.faults.where(slow):
            leader.round()
        other.round()
        clock.now += 1
    assert names(cluster, kube.SLICES) == []
    assert holder(cluster) == "controller-1"


def test_a_candidate_leaves_the_api_server_the_time_that_it_asks_for_and_a_leader_does_not(
    cluster, made
):
    busy = options.Fault(status=429, reason="TooManyRequests", retry_after=20)
    leader, other = made(), made(identity="other")
    leader._chance = other._chance = lambda: 1.0
    leader.round()
    with cluster.faults.where(lambda call: busy if call.resource == "leases" else None):
        leader.round()
        other.round()
    seconds = leader._config.retry_seconds
    assert (leader.pause(), other.pause()) == (seconds, 25.0)
    other.round()
    assert other.pause() == seconds
