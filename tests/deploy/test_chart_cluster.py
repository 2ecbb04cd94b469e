"""What the chart makes of the cluster that it is installed to."""

import json
import re

import api_cluster
import chart
import parameter_scene
import pytest

from dra_driver.adapters.kube import kube
from dra_driver.logic.parameters import definitions

DAEMON_SETS = kube.Resource("apps", "v1", "daemonsets")
PLUGIN = "nvcr.io/nvidia/k8s-device-plugin:v0.17.4"
VENDOR = "registry.k8s.io/dra-driver-nvidia/dra-driver-nvidia-gpu:v0.4.0"


@pytest.fixture
def new_cluster():
    made = []

    def make(**options):
        made.append(api_cluster.Cluster(**options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def cluster(new_cluster):
    return new_cluster()


def install(cluster, values=None, path=chart.PATH):
    """Why the chart is not installed, or `RENDERED`; the embedded API server is asked over HTTP.

    Nothing is written there.
    """
    with chart.helm.Config(
        kubeconfig_path=cluster.kubeconfig,
        namespace=chart.NAMESPACE,
        storage_driver="memory",
    ) as config:
        try:
            config.install(path, "dra-driver", values or {}, dry_run="server")
        except chart.helm.HelmReleaseError as error:
            return str(error)
    return RENDERED


def node(cluster, name, *, labels=None, allocatable=None, kubelet=None):
    """A Node object, with what its kubelet tells of itself."""
    made = cluster.client.create(kube.NODES, {"metadata": {"name": name, "labels": labels or {}}})
    status = {"allocatable": allocatable or {}}
    if kubelet:
        others = ("architecture", "bootID", "containerRuntimeVersion", "kernelVersion")
        others += ("kubeProxyVersion", "machineID", "operatingSystem", "osImage", "systemUUID")
        status["nodeInfo"] = {"kubeletVersion": kubelet} | dict.fromkeys(others, "")
    cluster.client.replace_status(kube.NODES, made | {"status": status})


RENDERED = "all of it is rendered, and taken by a server that writes nothing"


def run(cluster, image, *, nodes=2, name="found", container="main"):
    """A DaemonSet with this image, on so many nodes."""
    labels = {"app": name}
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": container, "image": image}]},
            },
        },
    }
    made = cluster.client.create(DAEMON_SETS, body, "default")
    others = ("currentNumberScheduled", "numberMisscheduled", "numberReady")
    numbers = {"desiredNumberScheduled": nodes} | dict.fromkeys(others, 0)
    cluster.client.replace_status(DAEMON_SETS, made | {"status": numbers}, "default")


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (PLUGIN, "is an NVIDIA device plugin on 2 node"),
        ("gke.gcr.io/nvidia-gpu-device-plugin@sha256:1", "is an NVIDIA device plugin on 2 node"),
        ("mirror:5000/k8s-device-plugin", "is an NVIDIA device plugin on 2 node"),
        ("docker.io/projecthami/hami:v2.9.0", "is HAMi's device plugin on 2 node"),
        ("volcanosh/volcano-device-plugin:1.1.0", "is Volcano's device plugin on 2 node"),
        (
            "projecthami/volcano-vgpu-device-plugin:v1.12.0",
            "is Volcano's device plugin on 2 node",
        ),
        (VENDOR, "is NVIDIA's DRA driver, on 2 node"),
        ("nvcr.io/nvidia/k8s-dra-driver-gpu:v25.12.0", "is NVIDIA's DRA driver, on 2 node"),
    ],
)
def test_beside_another_driver_of_the_same_gpus_it_is_refused(cluster, image, reason):
    run(cluster, image)
    answer = install(cluster)
    assert f"DaemonSet default/found (image {image}) {reason}" in answer
    assert "allowOtherDrivers=true" in answer


@pytest.mark.parametrize("image", [PLUGIN, VENDOR])
def test_unless_it_is_allowed(cluster, image):
    run(cluster, image)
    assert RENDERED in install(cluster, {"allowOtherDrivers": True})


def test_the_vendor_s_driver_may_be_there_under_another_driver_name(cluster):
    run(cluster, VENDOR)
    assert RENDERED in install(cluster, {"settings": {"driverName": "gpu.example.com"}})


def test_a_device_plugin_that_runs_nowhere_is_in_nobody_s_way(cluster):
    run(cluster, PLUGIN, nodes=0)
    run(cluster, "registry.k8s.io/kube-proxy:v1.36.0", name="kube-proxy")
    assert RENDERED in install(cluster)


@pytest.mark.parametrize(
    "image",
    [
        "docker.io/rocm/k8s-device-plugin:1.31",
        "cambricon/cambricon-k8s-device-plugin:v2",
        "projecthami/hami-webui:v1",
    ],
)
def test_device_plugins_of_others_cards_are_in_nobody_s_way(cluster, image):
    run(cluster, image)
    assert RENDERED in install(cluster)


@pytest.mark.parametrize("container", ["gpu-feature-discovery", "gpu-feature-discovery-ctr"])
def test_gpu_feature_discovery_out_of_the_device_plugin_s_image_is_none(cluster, container):
    """The GPU operator runs it, and it labels the nodes that this driver goes to."""
    run(cluster, PLUGIN, container=container)
    assert RENDERED in install(cluster)
    run(cluster, PLUGIN, name="plugin")
    assert "DaemonSet default/plugin" in install(cluster)


# What nodes tell

GPU_NODE = {"nvidia.com/gpu.present": "true", "kubernetes.io/os": "linux"}


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"]
)
def test_gpus_that_a_device_plugin_of_any_name_hands_out_are_refused(cluster, resource):
    node(cluster, "gpu-1", labels=GPU_NODE, allocatable={resource: "8", "cpu": "4"})
    answer = install(cluster)
    assert f"Node gpu-1 has 8 of {resource} allocatable" in answer
    assert "allowOtherDrivers=true" in answer
    assert RENDERED in install(cluster, {"allowOtherDrivers": True})


@pytest.mark.parametrize(
    "allocatable",
    [{"nvidia.com/gpu": "0"}, {"nvidia.com/hostdev": "8"}, {"amd.com/gpu": "8"}],
    ids=str,
)
def test_what_is_gone_or_no_gpu_of_nvidia_s_is_in_nobody_s_way(cluster, allocatable):
    node(cluster, "gpu-1", labels=GPU_NODE, allocatable=allocatable)
    assert RENDERED in install(cluster)


@pytest.mark.parametrize(
    ("labels", "values", "refused"),
    [
        ({}, {}, False),
        ({"kubernetes.io/os": "linux"}, {}, False),
        ({"nvidia.com/gpu.present": "true", "kubernetes.io/os": "windows"}, {}, False),
        ({"kubernetes.io/os": "linux", "cloud.google.com/gke-accelerator": "x"}, {}, True),
        (GPU_NODE, {"nodeSelector": {"ours": "yes"}}, False),
        (GPU_NODE | {"ours": "yes"}, {"nodeSelector": {"ours": "yes"}}, True),
        (GPU_NODE | {"ours": "no"}, {"nodeSelector": {"ours": "yes"}}, False),
        ({"kubernetes.io/os": "linux"}, {"affinity": None}, True),
    ],
    ids=str,
)
def test_nodes_that_the_plugin_does_not_go_to_may_have_a_device_plugin(
    cluster, labels, values, refused
):
    node(cluster, "gpu-1", labels=labels, allocatable={"nvidia.com/gpu": "8"})
    answer = install(cluster, {"kubeletPlugin": values})
    assert (RENDERED not in answer) is refused
    assert ("Node gpu-1 has 8 of nvidia.com/gpu" in answer) is refused


@pytest.mark.parametrize(
    ("operator", "values", "refused"),
    [
        ("In", ["a", "b"], True),
        ("In", ["c"], False),
        ("NotIn", ["a"], False),
        ("NotIn", ["c"], True),
        ("Exists", None, True),
        ("DoesNotExist", None, False),
        ("Gt", ["1"], True),
    ],
)
def test_node_affinity_of_one_s_own_is_understood(cluster, operator, values, refused):
    node(cluster, "gpu-1", labels=GPU_NODE | {"pool": "a"}, allocatable={"nvidia.com/gpu": "8"})
    asked = {"key": "pool", "operator": operator} | ({"values": values} if values else {})
    terms = {"nodeSelectorTerms": [{"matchExpressions": [asked]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    answer = install(cluster, {"kubeletPlugin": {"affinity": affinity}})
    assert (RENDERED not in answer) is refused


@pytest.fixture
def told(tmp_path):
    """What a helper of the chart gives with a cluster."""

    def tell(cluster, helper, values=None):
        with chart.helm.Chart.load(chart.PATH) as loaded:
            loaded.save_dir(tmp_path)
        # Templates that need what is asked for come to it themselves.
        copy = tmp_path / "dra-driver"
        for path in (copy / "templates").glob("*.yaml"):
            path.unlink()
        (copy / "templates" / "tell.yaml").write_text(
            f'{{{{ fail (printf "<%s>" (include "dra-driver.{helper}" .)) }}}}'
        )
        return re.search("<(.*)>$", install(cluster, values, path=copy).strip())[1]

    return tell


@pytest.mark.parametrize(
    ("served", "chosen"),
    [(("v1",), "v1"), (("v1beta2", "v1beta1"), "v1beta2"), (("v1beta1",), "v1beta1")],
)
def test_the_newest_version_of_the_api_that_is_served_is_used(new_cluster, told, served, chosen):
    cluster = new_cluster(resource_versions=served)
    assert told(cluster, "resourceApiVersion") == chosen


@pytest.mark.parametrize(("version", "surges"), [("v1.33.1", "true"), ("v1.32.9", "")])
def test_the_new_pod_starts_first_where_the_kubelet_knows_two_of_a_driver(
    new_cluster, told, version, surges
):
    assert told(new_cluster(kubernetes_version=version), "surges") == surges


@pytest.mark.parametrize(
    ("kubelets", "surges"),
    [
        (["v1.34.1", "v1.33.0+k3s1", "v1.34.2-gke.1234000"], "true"),
        (["v1.34.1", "v1.32.9-eks-1234"], ""),
        (["v1.32.0", "v1.34.1"], ""),
        ([None], "true"),
    ],
    ids=str,
)
def test_of_kubelets_the_oldest_counts_which_may_be_older_than_the_api_server(
    new_cluster, told, kubelets, surges
):
    cluster = new_cluster(kubernetes_version="v1.34.1")
    for number, version in enumerate(kubelets):
        node(cluster, f"worker-{number}", kubelet=version)
    assert told(cluster, "surges") == surges


@pytest.mark.parametrize(("value", "surges"), [(True, "true"), (False, "")])
@pytest.mark.parametrize("version", ["v1.34.1", "v1.32.9"])
def test_whether_the_new_pod_starts_first_can_be_said(new_cluster, told, version, value, surges):
    cluster = new_cluster(kubernetes_version=version)
    node(cluster, "worker", kubelet=version)
    assert told(cluster, "surges", {"kubeletPlugin": {"surge": value}}) == surges


@pytest.mark.parametrize(
    ("listening", "values", "ports"),
    [
        ([8443], {}, [8443, 443]),
        ([443], {}, [443]),
        ([6443, 7443], {"networkPolicy": {"apiServerPorts": [1234]}}, [1234]),
        (None, {}, []),
    ],
    ids=["of their own", "the usual one", "given", "not known"],
)
def test_the_ports_of_api_servers_are_those_that_the_cluster_tells(
    cluster, told, listening, values, ports
):
    if listening is not None:
        cluster.client.create(SLICES_OF_ADDRESSES, addresses(listening), "default")
    assert json.loads(told(cluster, "apiServerPorts", values)) == ports


SLICES_OF_ADDRESSES = kube.Resource("discovery.k8s.io", "v1", "endpointslices")


def addresses(ports):
    """Where API servers listen, as they tell it themselves (`pkg/controlplane/reconcilers`)."""
    return {
        "metadata": {
            "name": "kubernetes",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"} for port in ports],
    }


def test_kubernetes_that_is_too_old_is_refused(new_cluster):
    assert "incompatible with Kubernetes v1.31.0" in install(
        new_cluster(kubernetes_version="v1.31.0")
    )


# The parameter kinds


def definition(cluster, release):
    body = definitions.all_kinds()[0]
    told = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": chart.NAMESPACE}
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    metadata = {**body["metadata"], "annotations": told, "labels": labels}
    cluster.client.create(parameter_scene.DEFINITIONS, {**body, "metadata": metadata})


@pytest.mark.parametrize("release", ["dra-driver", "second"])
def test_those_that_another_release_has_installed_are_left_to_it(cluster, release):
    definition(cluster, release)
    assert install(cluster) == RENDERED


def test_those_of_nobody_are_not_taken_over(cluster):
    """As those of NVIDIA's first driver, which its uninstall leaves."""
    cluster.client.create(parameter_scene.DEFINITIONS, definitions.all_kinds()[0])
    told = install(cluster)
    assert "gpuclaimparameters.gpu.resource.nvidia.com" in told
    values = {"crds": {"install": False}}
    assert install(cluster, values) == RENDERED
