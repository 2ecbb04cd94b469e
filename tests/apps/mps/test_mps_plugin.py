"""MPS daemons of the kubelet plugin: as pods, and brought back when they are killed."""

import pathlib

import mps_pods_scene
import mps_scene
import polling
import pytest
import sharing_claims

from dra_driver.adapters.mps import mps_control, mps_domain
from dra_driver.adapters.system import pids

pytestmark = pytest.mark.sampled(11)

GPU = "gpu-0"


@pytest.fixture
def pods(own_cluster):
    with mps_pods_scene.running_pods(mps_pods_scene.with_namespace(own_cluster)) as made:
        yield made


@pytest.fixture
def as_pods(own_plugin, pods):
    environment = {"POD_NAMESPACE": mps_pods_scene.NAMESPACE}
    return own_plugin(
        mps_launcher="pod", mps_image="driver:1", shares="memory", environment=environment
    )


def claim(cluster):
    return cluster.claim(sharing_claims.share(GPU, memory=10) | {"request": "gpu"})


def domain(machine, ref):
    [use] = machine.record(ref).sharing.mps
    return mps_domain.Domain(machine.plugin / "mps" / use.domain)


def process(found):
    ready = found.ready()
    return ready and pids.Process(ready.pid, ready.start_time)


def condition(cluster, ref):
    entries = (cluster.get_claim(ref).get("status") or {}).get("devices") or []
    found = [one for entry in entries for one in entry["conditions"] if one["type"] == "Ready"]
    return [(one["status"], one["reason"]) for one in found]


def test_a_claim_s_daemon_is_a_pod_that_outlives_the_plugin_and_ends_with_the_claim(
    as_pods, pods, own_machine, own_cluster
):
    ref = claim(own_cluster)
    as_pods.start().kubelet.prepare(ref)
    pod, running = pods.pod(), process(domain(own_machine, ref))
    assert pods.started == [pod["metadata"]["uid"]]

    as_pods.kill()
    as_pods.start().kubelet.prepare(ref)

    assert pods.pod()["metadata"]["uid"] == pod["metadata"]["uid"]
    assert process(domain(own_machine, ref)) == running
    assert pids.is_alive(running)

    as_pods.kubelet.unprepare(ref)

    assert not pids.is_alive(running)
    assert own_machine.files() == []
    polling.until(lambda: pods.pods() == [])


def test_what_pods_need_and_is_not_set_ends_the_plugin(own_plugin):
    plugin = own_plugin(mps_launcher="pod", mps_image="driver:1").spawn()
    assert plugin.wait_exit() == 1
    assert "give --pod-namespace, or POD_NAMESPACE" in plugin.log_text()


def test_a_claim_whose_daemon_and_supervisor_are_killed_is_not_ready_until_both_are_back(
    own_plugin, own_machine, own_cluster
):
    ref = claim(own_cluster)
    plugin = own_plugin(shares="memory").start()
    plugin.kubelet.prepare(ref)
    found = domain(own_machine, ref)
    old = process(found)
    polling.until(lambda: condition(own_cluster, ref) == [("True", "Prepared")])
    # It is not back before it was seen to be down.
    program = own_machine.simulation / "driver/usr/bin" / mps_control.PROGRAM
    works = program.read_text()
    mps_scene.replace(program, "#!/bin/sh\nexit 3\n")
    mps_scene.kill(found.supervisor())

    polling.until(lambda: condition(own_cluster, ref) == [("False", "MpsDaemonDown")])
    mps_scene.replace(program, works)
    polling.until(lambda: condition(own_cluster, ref) == [("True", "Prepared")])
    assert process(found) != old
    assert pids.is_alive(process(found))
    plugin.kubelet.unprepare(ref)
    assert not pathlib.Path(found.directory).exists()
