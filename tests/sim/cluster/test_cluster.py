"""The embedded cluster with real plugin processes."""

import pathlib
import signal
import tempfile
import threading

import kubelet_node
import pytest
from polling import until

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.adapters.mps import mps_domain
from dra_driver.adapters.system import pids
from dra_driver.logic.offering import classes
from dra_driver.sim.cluster import cluster, cluster_state, runtime

pytestmark = pytest.mark.sampled(11)

SPECS = (
    cluster.NodeSpec("one", "h100-80gb-hbm3:1,l4:1"),
    cluster.NodeSpec("kubeconfig", "t4:1"),
    cluster.NodeSpec("cpu", "none"),
)
GOES_ON = threading.Event()


def pretended(cdi_dir, _directory):
    return runtime.PretendedRuntime(cdi_dir)


@pytest.fixture(scope="module")
def short_path():
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as name:
        yield pathlib.Path(name)


@pytest.fixture(scope="module")
def running(short_path):
    made = cluster.Cluster(SPECS, short_path / "all", runtime_for=pretended)
    (short_path / "all").mkdir()
    try:
        made.start()
        assert made.wait_ready(GOES_ON)
        yield made
    finally:
        made.stop()


@pytest.fixture
def new_cluster():
    """Makes clusters that are stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as name:
        made = []

        def new_cluster(*specs, **options):
            directory = pathlib.Path(name)
            made.append(cluster.Cluster(specs, directory, runtime_for=pretended, **options))
            return made[-1]

        yield new_cluster
        for each in made:
            each.stop()


def run_pod(running, name, product, sharing=None):
    """A pod with a GPU of that name, once it runs."""
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"} | (
        {"sharing": sharing} if sharing else {}
    )
    expression = f"device.attributes['gpu.nvidia.com'].productName == '{product}'"
    claim = {
        "metadata": {"name": name},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "gpu",
                        "exactly": {
                            "deviceClassName": cluster.DRIVER_NAME,
                            "selectors": [{"cel": {"expression": expression}}],
                        },
                    }
                ],
                "config": [{"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}],
            }
        },
    }
    pod = {
        "metadata": {"name": name},
        "spec": {
            "containers": [kubelet_node.container("main", {"name": "gpu"})],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        },
    }
    running.client.create(kube.CLAIMS, claim, "default")
    running.client.create(kube.PODS, pod, "default")

    def is_running():
        body = running.client.get(kube.PODS, name, "default")
        return body if body.get("status", {}).get("phase") == "Running" else None

    return until(is_running, what=f"pod {name} runs")


def end_pod(running, name):
    running.client.delete(kube.PODS, name, "default")

    def is_gone():
        items, _ = running.client.list(kube.PODS, "default")
        return name not in [body["metadata"]["name"] for body in items]

    until(is_gone, what=f"pod {name} is gone")
    running.client.delete(kube.CLAIMS, name, "default")


def is_alive(pid):
    return pathlib.Path(f"/proc/{pid}").exists()


def test_each_node_publishes_its_devices(running):
    whole = [key for key in sorted(running.devices()) if "-mig-" not in key[2]]
    assert whole == [
        ("gpu.nvidia.com", "kubeconfig", "gpu-0"),
        ("gpu.nvidia.com", "one", "gpu-0"),
        ("gpu.nvidia.com", "one", "gpu-1"),
    ]
    device = running.devices()["gpu.nvidia.com", "one", "gpu-1"]
    assert device["attributes"]["productName"] == {"string": "NVIDIA L4"}


def test_nodes_and_the_device_class_are_there(running):
    nodes, _ = running.client.list(kube.NODES)
    assert [body["metadata"]["name"] for body in nodes] == ["cpu", "kubeconfig", "one"]
    for body in nodes:
        assert body["metadata"]["labels"]["kubernetes.io/hostname"] == body["metadata"]["name"]
        assert body["status"]["conditions"][0]["status"] == "True"
    listed, _ = running.client.list(kube.CLASSES)
    own = {body["metadata"]["name"] for body in classes.device_classes("gpu.nvidia.com")}
    assert {body["metadata"]["name"] for body in listed} == own


def test_a_pod_gets_a_device_and_its_spec_goes_with_it(running):
    pod = run_pod(running, "train", "NVIDIA H100 80GB HBM3")
    assert pod["spec"]["nodeName"] == "one"
    node = running.nodes["one"]
    uuid = running.devices()["gpu.nvidia.com", "one", "gpu-0"]["attributes"]["uuid"]["string"]
    view = node.kubelet.views(pod["metadata"]["uid"])["main"]
    assert view.output == (f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {uuid})",)
    # The spec of its claim, and the mount of what describes its devices.
    assert len(list(node.cdi_dir.iterdir())) == 2
    end_pod(running, "train")
    assert list(node.cdi_dir.iterdir()) == []


def test_a_plugin_that_is_killed_and_started_again_goes_on_where_it_was(running):
    node = running.nodes["one"]
    pod = run_pod(running, "survivor", "NVIDIA L4")
    assert pod["spec"]["nodeName"] == "one"
    node._process.send_signal(signal.SIGKILL)
    node._process.wait(60)
    with pytest.raises(errors.Fatal, match=r"the plugin of node one ended with status -9"):
        node.check_alive()
    node.start_plugin()
    pod = run_pod(running, "newcomer", "NVIDIA H100 80GB HBM3")
    assert pod["spec"]["nodeName"] == "one"
    end_pod(running, "newcomer")
    end_pod(running, "survivor")
    assert [list(each.cdi_dir.iterdir()) for each in running.nodes.values()] == [[], [], []]


def test_nothing_runs_and_nothing_is_prepared_when_it_has_stopped(new_cluster):
    made = new_cluster(cluster.NodeSpec("one", "t4:1"))
    made.start()
    assert made.wait_ready(GOES_ON)
    run_pod(made, "train", "Tesla T4")
    node = made.nodes["one"]
    pid = node._process.pid
    assert is_alive(pid)
    made.stop()
    assert not is_alive(pid)
    assert node._process.returncode == 0
    assert list(node.cdi_dir.iterdir()) == []
    with pytest.raises(kube.Unavailable):
        kube.Client(kubeconfig=made.kubeconfig, user_agent="late").list(kube.PODS)


def test_a_daemon_that_a_killed_plugin_left_is_stopped_with_the_cluster(new_cluster):
    made = new_cluster(cluster.NodeSpec("one", "t4:1"))
    made.start()
    assert made.wait_ready(GOES_ON)
    run_pod(made, "train", "Tesla T4", sharing={"strategy": "MPS"})
    node = made.nodes["one"]
    [directory] = node._mps_dir.iterdir()
    domain = mps_domain.Domain(directory)
    ready = domain.ready()
    left = [domain.supervisor(), pids.Process(ready.pid, ready.start_time)]
    node._process.kill()
    node._process.wait()
    assert [pids.is_alive(process) for process in left] == [True, True]
    made.stop()
    assert [pids.is_alive(process) for process in left] == [False, False]
    assert list(node._mps_dir.iterdir()) == []


def test_a_node_has_the_flags_of_its_own(new_cluster):
    made = new_cluster(
        cluster.NodeSpec("one", "t4:1", ("--shares=memory",)), cluster.NodeSpec("two", "t4:1")
    )
    made.start()
    assert made.wait_ready(GOES_ON)
    assert {
        pool: device.get("allowMultipleAllocations", False)
        for (_, pool, _), device in made.devices().items()
    } == {"one": True, "two": False}


def test_a_plugin_that_ends_at_its_start_is_told_of_with_its_log(new_cluster):
    made = new_cluster(cluster.NodeSpec("good", "t4:1"), cluster.NodeSpec("bad", "gtx:1"))
    made.start()
    with pytest.raises(errors.Fatal) as told:
        made.wait_ready(GOES_ON)
    lines = str(told.value).splitlines()
    assert lines[0] == "the plugin of node bad ended with status 1; its log ends:"
    assert "GPU model 'gtx' is not known" in lines[-1]
    assert len(lines) <= 1 + cluster.LOG_LINES


def test_a_look_at_the_start_that_is_not_answered_in_time_is_not_the_last(new_cluster, monkeypatch):
    made = new_cluster(cluster.NodeSpec("one", "t4:1"))
    made.start()
    lists, asked = made.client.list, []

    def late_at_first(resource, *rest, **options):
        asked.append(resource)
        if len(asked) == 1:
            raise kube.Unavailable("GET …", 0, "no answer", "timed out")
        return lists(resource, *rest, **options)

    monkeypatch.setattr(made.client, "list", late_at_first)
    assert made.wait_ready(GOES_ON)
    assert [name for _, _, name in made.devices()] == ["gpu-0"]


def test_nodes_that_take_too_long_are_told_of_with_the_log_of_their_plugins(
    new_cluster, monkeypatch
):
    monkeypatch.setattr(cluster, "_published", lambda _slices: set())
    made = new_cluster(cluster.NodeSpec("one", "t4:1"))
    made.start()
    with pytest.raises(errors.Fatal) as told:
        made.wait_ready(GOES_ON, seconds=0)
    lines = str(told.value).splitlines()
    assert lines[:2] == [
        "the ResourceSlices of node one are not all there after 0 s",
        "plugin of node one: its log ends:",
    ]


def test_a_node_is_ready_only_with_all_slices_of_its_pool(running):
    slices, _ = running.client.list(kube.SLICES)
    assert cluster._published(slices) == {"one", "kubeconfig", "cpu"}
    of_one = [body for body in slices if body["spec"]["nodeName"] == "one"]
    assert len(of_one) > 2  # The counters, and the devices in several slices.
    for missing in of_one:
        left = [body for body in slices if body is not missing]
        assert cluster._published(left) == {"kubeconfig", "cpu"}


def pool_slice(node, generation, count, driver=cluster.DRIVER_NAME):
    pool = {"name": node, "generation": generation, "resourceSliceCount": count}
    return {"spec": {"driver": driver, "nodeName": node, "pool": pool}}


def all_nodes_slice():
    body = pool_slice("everywhere", 1, 1)
    del body["spec"]["nodeName"]
    return body


@pytest.mark.parametrize(
    ("slices", "ready"),
    [
        ([], set()),
        ([pool_slice("a", 1, 1)], {"a"}),
        ([pool_slice("a", 1, 1), pool_slice("a", 2, 2)], set()),
        ([pool_slice("a", 1, 1), pool_slice("a", 2, 2), pool_slice("a", 2, 2)], {"a"}),
        ([pool_slice("a", 1, 1, "net.example.com")], set()),
        ([pool_slice("a", 1, 1), all_nodes_slice()], {"a"}),
    ],
)
def test_slices_of_an_earlier_generation_and_of_other_drivers_do_not_count(slices, ready):
    assert cluster._published(slices) == ready


def test_what_is_ready_is_known_to_the_scheduler(new_cluster, monkeypatch):
    on_slice = cluster_state.ClusterState.on_slice

    def late(self, kind, body):
        threading.Event().wait(1)
        return on_slice(self, kind, body)

    monkeypatch.setattr(cluster_state.ClusterState, "on_slice", late)
    made = new_cluster(cluster.NodeSpec("one", "t4:1"))
    made.start()
    assert made.wait_ready(GOES_ON)
    run_pod(made, "train", "Tesla T4")
    events, _ = made.client.list(kube.EVENTS)
    assert "FailedScheduling" not in [body["reason"] for body in events]


def test_a_start_can_be_given_up(new_cluster):
    made = new_cluster(cluster.NodeSpec("one", "t4:1"))
    made.start()
    stop = threading.Event()
    stop.set()
    assert made.wait_ready(stop) is False


def test_a_path_that_no_socket_can_have_is_refused_before_anything_is_started(new_cluster):
    made = new_cluster(cluster.NodeSpec("n" * 63, "t4:1"))
    with pytest.raises(errors.Fatal) as refused:
        made.start()
    assert "Choose a shorter node name, or directory for temporary files (TMPDIR)" in str(
        refused.value
    )


def test_a_node_that_the_server_refuses_leaves_nothing_that_cannot_be_stopped(new_cluster):
    made = new_cluster(cluster.NodeSpec("Not_A_Name", "t4:1"))
    with pytest.raises(kube.ApiError, match="Not_A_Name"):
        made.start()
    made.stop()


@pytest.mark.parametrize("release", ["1.36.2", "1.37"])
def test_the_kubelet_of_each_release_reads_the_health_of_the_plugins_devices(new_cluster, release):
    made = new_cluster(cluster.NodeSpec("one", "t4:1"), release=release)
    made.start()
    assert made.wait_ready(GOES_ON)
    run_pod(made, "train", "Tesla T4")

    def healths():
        body = made.client.get(kube.PODS, "train", "default")
        [status] = body["status"]["containerStatuses"]
        told = status.get("allocatedResourcesStatus", ())
        return [(entry["name"], [one["health"] for one in entry["resources"]]) for entry in told]

    until(lambda: healths() == [("claim:gpu", ["Healthy"])], what=f"{healths()}")


def test_a_taint_that_ends_pods_ends_those_of_the_cluster_and_gives_the_device_back(new_cluster):
    made = new_cluster(cluster.NodeSpec("one", "t4:1"), release="1.38")
    made.start()
    assert made.wait_ready(GOES_ON)
    run_pod(made, "pod", "Tesla T4")
    taint = {"key": "example.com/ill", "effect": "NoExecute"}
    rule = {"metadata": {"name": "ill"}, "spec": {"deviceSelector": {}, "taint": taint}}
    made.client.create(kube.TAINT_RULES, rule)

    def is_gone():
        return not made.client.list(kube.PODS, "default")[0]

    until(is_gone, what="the pod is gone")
    until(lambda: "allocation" not in (claim(made).get("status") or {}), what="the claim is free")


def claim(made):
    return made.client.get(kube.CLAIMS, "pod", "default")
