"""Pods of MPS daemons in containers that really run, with the mounts and rights of the spec."""

import contextlib
import pathlib

import api_cluster
import mps_scene
import podman_kubelet
import pytest
from mps_pods_scene import NAMESPACE, started, stopped

from dra_driver import settings
from dra_driver.adapters.mps import mps_local
from dra_driver.apps.mps import mps_pods
from dra_driver.sim.gpus import hardware

pytestmark = [pytest.mark.podman, pytest.mark.sampled(9)]

GIB = 1024**3


@pytest.fixture
def pods(pods_cluster, place):
    with contextlib.closing(
        podman_kubelet.Kubelet(
            pods_cluster.client, api_cluster.NODE, NAMESPACE, place.root / "image"
        )
    ) as made:
        yield made


def check(launcher, pods, daemon):
    """A daemon starts with its limits, its clients are served, and nothing of it is left."""
    started(launcher, daemon)
    assert mps_scene.caps(daemon) == (30, 4 * GIB)
    assert pods.probe() == 0
    assert pods.restarts() == 1
    stopped(launcher, daemon)
    assert pods.pods() == []
    assert mps_scene.runs_nothing(daemon)
    assert not pathlib.Path(daemon.directory).exists()


def test_a_container_has_what_its_daemon_needs(launcher, pods, place):
    check(launcher, pods, place.daemon())


def test_a_daemon_of_simulated_gpus_runs_in_a_container_too(pods_cluster, pods, place):
    config = settings.KubeletPlugin(
        node_name=api_cluster.NODE,
        state_dir=place.root,
        simulate_gpus="h100-80gb-hbm3:1",
        mps_launcher="pod",
        mps_image="driver:1",
        pod_namespace=NAMESPACE,
    )
    made = hardware.simulated(config)
    launcher = mps_pods.launcher(config, pods_cluster.client, made.driver, made.launcher)
    check(launcher, pods, place.daemon())


def test_a_daemon_and_its_clients_have_the_shared_memory_that_was_mounted_for_them(
    launchers, pods, place
):
    launcher = launchers.new(private_shm=True)
    daemon = started(launcher, place.daemon())
    try:
        written = ("sh", "-c", "echo from-the-daemon > /dev/shm/written")
        assert pods.run_in(pods.pod(), *written) == 0
        seen = pathlib.Path(daemon.shm_dir, "written").read_text(encoding="utf-8")
        assert seen == "from-the-daemon\n"
        assert pods.run_in(pods.pod(), "sh", "-c", "df -k /dev/shm | grep -q 16384") == 0
    finally:
        stopped(launcher, daemon)
    assert not pathlib.Path(daemon.directory).exists()


def test_outside_of_its_directory_and_memory_a_container_writes_nothing(launcher, pods, place):
    daemon = started(launcher, place.daemon())
    inside = (daemon.log_dir, "/tmp")
    outside = ("/", "/run", str(place.driver_root), "/usr")
    for path in inside:
        assert pods.run_in(pods.pod(), "touch", f"{path}/written") == 0
    for path in outside:
        assert pods.run_in(pods.pod(), "touch", f"{path}/written") != 0
    stopped(launcher, daemon)


def test_not_ready_a_probe_says_so(launcher, pods, place):
    daemon = started(launcher, place.daemon())
    mps_scene.domain(daemon).say_not_ready()
    assert pods.probe() != 0
    stopped(launcher, daemon)
    assert launcher.state(daemon) is mps_local.State.ABSENT
