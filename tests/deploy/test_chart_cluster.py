"""What the chart makes of the cluster that it is installed to."""

import re

import api_cluster
import chart
import pytest

from dra_driver.adapters import kube

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
    """What a try to install ends with; the embedded API server is asked over HTTP.

    It has no schemas for clients, so that at the latest Helm stops once all is rendered.
    """
    with (
        chart.helm.Config(
            kubeconfig_path=cluster.kubeconfig,
            namespace=chart.NAMESPACE,
            storage_driver="memory",
        ) as config,
        pytest.raises(chart.helm.HelmReleaseError) as caught,
    ):
        config.install(path, "dra-driver", values or {}, dry_run="server")
    return str(caught.value)


RENDERED = "unable to build kubernetes objects from release manifest"


def run(cluster, image, *, nodes=2, name="found"):
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
                "spec": {"containers": [{"name": "main", "image": image}]},
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


@pytest.fixture
def told(tmp_path):
    """What a helper of the chart gives with a cluster."""

    def tell(cluster, helper):
        with chart.helm.Chart.load(chart.PATH) as loaded:
            loaded.save_dir(tmp_path)
        # Templates that need what is asked for come to it themselves.
        copy = tmp_path / "dra-driver"
        for path in (copy / "templates").glob("*.yaml"):
            path.unlink()
        (copy / "templates" / "tell.yaml").write_text(
            f'{{{{ fail (printf "<%s>" (include "dra-driver.{helper}" .)) }}}}'
        )
        return re.search("<(.*)>$", install(cluster, path=copy).strip())[1]

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


def test_kubernetes_that_is_too_old_is_refused(new_cluster):
    assert "incompatible with Kubernetes v1.31.0" in install(
        new_cluster(kubernetes_version="v1.31.0")
    )
