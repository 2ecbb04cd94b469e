"""GPUs, and their driver, that come and go while the plugin runs."""

import api_cluster
import plugin_process
import pytest

from dra_driver.sim.gpus import gpu_faults, gpu_state

pytestmark = pytest.mark.sampled(9)

LOST = "gpu.nvidia.com/gpu-lost"
DRIVER_NOT_LOADED = 9
TIMEOUT_OF_NVML = 10


def taints(cluster):
    return {
        device["name"]: [taint["key"] for taint in device.get("taints") or ()]
        for item in cluster.slices()
        for device in item["spec"].get("devices") or ()
    }


@pytest.fixture
def whole(plugin, cluster, machine):
    """Both GPUs are there, and nobody has one; what a test takes away comes back."""
    cluster.wait_devices("gpu-0", "gpu-1")
    yield
    cluster.delete_claims()
    machine.heal_gpus()
    cluster.wait_devices("gpu-0", "gpu-1")


def test_a_gpu_that_vanishes_is_no_longer_offered_until_it_is_back(
    kubelet, whole, cluster, machine, plugin
):
    cluster.wait_devices("gpu-0", "gpu-1")
    machine.lose_gpus("gpu-1")
    cluster.wait_devices("gpu-0")
    plugin.wait_log("GPU is no longer offered", device="gpu-1")
    machine.heal_gpus()
    cluster.wait_devices("gpu-0", "gpu-1")


def test_a_gpu_that_is_held_stays_listed_with_a_taint_until_it_is_given_back(
    kubelet, whole, cluster, machine
):
    ref = cluster.claim("gpu-1")
    kubelet.prepare(ref)
    cluster.wait_devices("gpu-0", "gpu-1")
    machine.lose_gpus("gpu-1", "gpu-0")
    wanted = {"gpu-1": [LOST]}
    api_cluster.wait_for(lambda: taints(cluster) == wanted, "the taint")
    kubelet.unprepare(ref)
    cluster.delete_claim(ref)
    cluster.wait_devices()


def test_a_held_gpu_that_is_back_loses_its_taint(kubelet, whole, cluster, machine):
    ref = cluster.claim("gpu-1")
    kubelet.prepare(ref)
    machine.lose_gpus("gpu-1")
    api_cluster.wait_for(lambda: LOST in taints(cluster)["gpu-1"], "the taint")
    machine.heal_gpus()
    api_cluster.wait_for(lambda: taints(cluster) == {"gpu-0": [], "gpu-1": []}, "no taint")


def test_a_gpu_that_does_not_answer_is_not_offered(kubelet, whole, cluster, machine):
    cluster.wait_devices("gpu-0", "gpu-1")
    gpu_faults.inject(
        machine.simulation, error=15, uuid=machine.uuid("gpu-0"), function="nvmlDeviceGetName"
    )
    cluster.wait_devices("gpu-1")


def test_a_claim_for_a_gpu_that_is_gone_is_an_error_that_says_so(kubelet, whole, cluster, machine):
    machine.lose_gpus("gpu-1")
    cluster.wait_devices("gpu-0")
    error = kubelet.refusal(cluster.claim("gpu-1"), timeout=4)
    assert "device 'gpu-1' does not exist on this node; it has gpu-0" in error


def test_a_claim_for_a_gpu_that_is_about_to_appear_waits_for_it(
    kubelet, whole, cluster, machine, plugin
):
    # What is told of the last time is over.
    api_cluster.wait_for(lambda: taints(cluster) == {"gpu-0": [], "gpu-1": []}, "no taint")
    ref = cluster.claim("gpu-1")
    machine.lose_gpus("gpu-1")
    # What a claim has stays listed, prepared or not.
    api_cluster.wait_for(lambda: LOST in taints(cluster)["gpu-1"], "the taint")
    answers = []
    calling = plugin_process.in_background(lambda: answers.append(kubelet.prepare(ref)))
    plugin.wait_log("waiting", component="preparer", claim_uid=ref.uid)
    machine.heal_gpus()
    calling.join(api_cluster.DEADLINE)
    assert answers == [[plugin_process.device(ref, "gpu-1")]]


def test_a_driver_that_goes_away_leaves_an_empty_slice_and_comes_back(
    kubelet, whole, cluster, machine, plugin
):
    cluster.wait_devices("gpu-0", "gpu-1")
    gpu_faults.inject(machine.simulation, error=DRIVER_NOT_LOADED, function="nvmlInitWithFlags")
    cluster.wait_devices()
    assert len(cluster.slices()) == 1
    error = kubelet.refusal(cluster.claim("gpu-0"), timeout=4)
    assert "Driver Not Loaded" in error
    plugin.wait_log("no GPU can be seen; looking again")
    machine.heal_gpus()
    cluster.wait_devices("gpu-0", "gpu-1")


def test_a_driver_that_is_loaded_after_the_start_is_found(own_plugin, own_cluster, own_machine):
    gpu_faults.inject(own_machine.simulation, error=DRIVER_NOT_LOADED, function="nvmlInitWithFlags")
    plugin = own_plugin().start()
    own_cluster.wait_devices()
    ref = own_cluster.claim("gpu-0")
    answers = []
    calling = plugin_process.in_background(lambda: answers.append(plugin.kubelet.prepare(ref)))
    plugin.wait_log("waiting", component="preparer", claim_uid=ref.uid)
    own_machine.heal_gpus()
    calling.join(api_cluster.DEADLINE)
    assert answers == [[plugin_process.device(ref, "gpu-0")]]
    own_cluster.wait_devices("gpu-0", "gpu-1")


def test_a_node_without_gpus_publishes_an_empty_slice_and_then_what_is_built_in(
    own_plugin, own_cluster, own_machine
):
    plugin = own_plugin(gpus="none").start()
    own_cluster.wait_devices()
    assert own_cluster.slices()[0]["spec"] == {
        "driver": "gpu.nvidia.com",
        "nodeName": "node-1",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
    }
    gpu_state.install(own_machine.simulation, ("t4",), node=api_cluster.NODE)
    own_cluster.wait_devices("gpu-0")
    assert own_cluster.slice_writes() == ["create", "update"]
    assert plugin.is_running()


def test_a_held_gpu_that_is_gone_stays_listed_after_a_restart(own_plugin, own_cluster, own_machine):
    plugin = own_plugin().start()
    ref = own_cluster.claim("gpu-1")
    plugin.kubelet.prepare(ref)
    own_cluster.wait_devices("gpu-0", "gpu-1")
    own_machine.lose_gpus("gpu-1")
    api_cluster.wait_for(lambda: LOST in taints(own_cluster)["gpu-1"], "the taint")
    before = own_cluster.slices()
    writes = len(own_cluster.slice_writes())
    plugin.kill()
    plugin.start()
    own_cluster.delete_claim(ref)
    plugin.kubelet.unprepare(ref)
    own_cluster.wait_devices("gpu-0")
    assert own_cluster.slice_writes()[writes:] == ["update"]
    assert before[0]["spec"]["devices"][1]["name"] == "gpu-1"


def test_a_plugin_on_a_machine_without_the_nvidia_driver_stays_and_says_what_is_missing(
    own_plugin, own_cluster, own_machine
):
    root = own_machine.root / "driver"
    root.mkdir()
    plugin = own_plugin(gpus=None, simulation_dir=None, driver_root=root).start()
    own_cluster.wait_devices()
    line = plugin.wait_log("no GPU can be seen; looking again")[0]
    assert f"driver root '{root}': no libnvidia-ml.so.1" in line["reason"]
    error = plugin.kubelet.refusal(own_cluster.claim("gpu-0"), timeout=4)
    assert "libnvidia-ml.so.1" in error
    assert plugin.is_running()


def test_looking_goes_on_after_a_look_that_failed_in_an_unforeseen_way(
    own_plugin, own_cluster, own_machine
):
    plugin = own_plugin().start()
    own_cluster.wait_devices("gpu-0", "gpu-1")
    state = own_machine.simulation / gpu_state.FILE
    text = state.read_text()
    state.write_text("damaged")
    plugin.wait_log("looking for GPUs failed unexpectedly")
    state.write_text(text)
    own_machine.lose_gpus("gpu-1")
    own_cluster.wait_devices("gpu-0")
    plugin.expects("looking for GPUs failed unexpectedly")
    plugin.expects("looking at the health of GPUs failed unexpectedly")
