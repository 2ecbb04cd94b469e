"""A node whose GPUs lack what others have: what is published of them, logged, and refused."""

import pytest
import sharing_claims

from dra_driver.sim.gpus import gpu_faults, gpu_operations, gpu_state, gpus

pytestmark = pytest.mark.sampled(7)

NOT_SUPPORTED = 3


def install(machine, **fields):
    """Two GPUs, of which the first one is set to this."""
    gpus.SimulatedNvml(machine.simulation, spec="h100-80gb-hbm3:1,t4:1", node="node-1")
    with gpu_state.open_file(machine.simulation).edit() as state:
        for name, value in fields.items():
            setattr(state.gpus[0], name, value)
        return state.gpus[0].uuid


def lack(machine, function):
    gpu_faults.inject(
        machine.simulation, function=function, uuid=machine.uuid("gpu-0"), error=NOT_SUPPORTED
    )


def device(cluster, name="gpu-0"):
    cluster.wait_devices("gpu-0", "gpu-1")
    [found] = [
        one for each in cluster.slices() for one in each["spec"]["devices"] if one["name"] == name
    ]
    return found


def test_a_gpu_without_a_required_fact_is_logged_by_what_is_missing(
    own_plugin, own_cluster, own_machine
):
    install(own_machine)
    lack(own_machine, "nvmlDeviceGetPciInfo")
    plugin = own_plugin().start()
    own_cluster.wait_devices("gpu-1")
    [line] = plugin.wait_log("GPU is not offered")
    assert line["reason"].endswith(
        "NVML does not support telling its PCI address, so it cannot be handed out"
    )


def test_a_gpu_whose_memory_is_not_known_is_whole_and_logged_where_it_is_to_be_shared(
    own_plugin, own_cluster, own_machine
):
    install(own_machine)
    lack(own_machine, "nvmlDeviceGetMemoryInfo")
    plugin = own_plugin(shares="memory").start()
    found = device(own_cluster)
    assert "capacity" not in found
    assert "allowMultipleAllocations" not in found
    assert device(own_cluster, "gpu-1")["allowMultipleAllocations"]
    [line] = plugin.wait_log("GPU is not offered in full", device="gpu-0")
    assert "NVML does not tell how much memory it has" in line["reason"]


def test_a_gpu_whose_driver_has_no_time_slices_says_so_and_claims_for_them_are_refused(
    own_plugin, own_cluster, own_machine
):
    install(own_machine, time_slice_supported=False)
    plugin = own_plugin().start()
    assert device(own_cluster)["attributes"]["timeSliceCapable"] == {"bool": False}
    assert device(own_cluster, "gpu-1")["attributes"]["timeSliceCapable"] == {"bool": True}
    claim = own_cluster.claim("gpu-0", config=[sharing_claims.time_slicing("Long")])
    assert "gpu-0 of compute capability 9.0: its driver cannot set time slices" in (
        plugin.kubelet.refusal(claim)
    )


def test_a_vgpu_is_published_without_what_it_lacks_and_mps_is_refused(
    own_plugin, own_cluster, own_machine
):
    uuid = install(own_machine)
    gpu_operations.virtualize(own_machine.simulation, uuid)
    plugin = own_plugin(mig_mode="dynamic").start()
    attributes = device(own_cluster)["attributes"]
    assert attributes["migCapable"] == attributes["mpsCapable"] == {"bool": False}
    [line] = plugin.wait_log("GPU is not offered in full", device="gpu-0")
    assert line["reason"].startswith("it is a vGPU")
    claim = own_cluster.claim("gpu-0", config=[sharing_claims.mps_gpu()])
    assert "MPS is not possible on gpu-0: it is a vGPU" in plugin.kubelet.refusal(claim)
