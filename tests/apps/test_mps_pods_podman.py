"""Pods of MPS daemons in containers that really run, with the mounts and rights of the spec."""

import contextlib
import pathlib

import api_cluster
import mps_pods_scene
import mps_scene
import podman_kubelet
import pytest
from mps_pods_scene import NAMESPACE, SECONDS, started

from dra_driver import settings
from dra_driver.adapters import mps_local
from dra_driver.apps import mps_pods
from dra_driver.sim import hardware

pytestmark = pytest.mark.podman

GIB = 1024**3


@pytest.fixture(scope="module")
def cluster():
    with mps_pods_scene.serving() as made:
        yield made


@pytest.fixture
def scene():
    scene = mps_scene.Scene()
    yield scene
    scene.close()


@pytest.fixture
def kubelet(cluster, scene):
    with contextlib.closing(
        podman_kubelet.Kubelet(cluster.client, api_cluster.NODE, NAMESPACE, scene.root / "image")
    ) as made:
        yield made


def check(launcher, kubelet, daemon):
    """A daemon starts with its limits, its clients are served, and nothing of it is left."""
    started(launcher, daemon)
    assert mps_scene.caps(daemon) == (30, 4 * GIB)
    assert kubelet.probe() == 0
    assert kubelet.restarts() == 1
    launcher.stop(daemon, SECONDS)
    assert kubelet.pods() == []
    assert mps_scene.processes_of(daemon) == []
    assert not pathlib.Path(daemon.directory).exists()


def test_a_container_has_what_its_daemon_needs(cluster, kubelet, scene):
    check(mps_pods_scene.Launchers(cluster, scene).new(), kubelet, scene.daemon())


def test_a_daemon_of_simulated_gpus_runs_in_a_container_too(cluster, kubelet, scene):
    config = settings.KubeletPlugin(
        node_name=api_cluster.NODE,
        state_dir=scene.root / "state",
        simulate_gpus="h100-80gb-hbm3:1",
        mps_launcher="pod",
        mps_image="driver:1",
        pod_namespace=NAMESPACE,
    )
    made = hardware.simulated(config)
    launcher = mps_pods.launcher(config, cluster.client, made.driver, made.launcher)
    check(launcher, kubelet, scene.daemon())


def test_a_daemon_and_its_clients_have_the_shared_memory_that_was_mounted_for_them(
    cluster, kubelet, scene
):
    launcher = mps_pods_scene.Launchers(cluster, scene).new(private_shm=True)
    daemon = started(launcher, scene.daemon())
    try:
        written = ("sh", "-c", "echo from-the-daemon > /dev/shm/written")
        assert kubelet.run_in(kubelet.pod(), *written) == 0
        seen = pathlib.Path(daemon.shm_dir, "written").read_text(encoding="utf-8")
        assert seen == "from-the-daemon\n"
        assert kubelet.run_in(kubelet.pod(), "sh", "-c", "df -k /dev/shm | grep -q 16384") == 0
    finally:
        launcher.stop(daemon, SECONDS)
    assert not pathlib.Path(daemon.directory).exists()


def test_outside_of_its_directory_and_memory_a_container_writes_nothing(cluster, kubelet, scene):
    launcher = mps_pods_scene.Launchers(cluster, scene).new()
    daemon = started(launcher, scene.daemon())
    inside = (daemon.log_dir, "/tmp")
    outside = ("/", "/run", str(scene.driver_root), "/usr")
    for path in inside:
        assert kubelet.run_in(kubelet.pod(), "touch", f"{path}/written") == 0
    for path in outside:
        assert kubelet.run_in(kubelet.pod(), "touch", f"{path}/written") != 0
    launcher.stop(daemon, SECONDS)


def test_not_ready_a_probe_says_so(cluster, kubelet, scene):
    launcher = mps_pods_scene.Launchers(cluster, scene).new()
    daemon = started(launcher, scene.daemon())
    mps_scene.domain(daemon).say_not_ready()
    assert kubelet.probe() != 0
    launcher.stop(daemon, SECONDS)
    assert launcher.state(daemon) is mps_local.State.ABSENT
