"""What a container gets of simulated GPUs."""

import json
import pathlib

import plugin_process
import pytest

from dra_driver import errors, settings
from dra_driver.logic.preparing import cdi
from dra_driver.model import devices, mig
from dra_driver.sim.cluster import runtime
from dra_driver.sim.gpus import gpus, hardware

PROGRAM = pathlib.Path("/var/lib/simulation/nvidia-smi")


def gpu(minor):
    return devices.Gpu(
        index=minor,
        minor=minor,
        uuid=devices.GpuUuid(f"GPU-{minor}"),
        product_name="NVIDIA H100 80GB HBM3",
        pci_address=devices.PciAddress(f"0000:0{minor}:00.0"),
    )


def instance(minor, gi, profile):
    spot = mig.Spot(19, mig.Placement(gi, 1))
    found = mig.Instance(gi, spot, 0, mig.MigUuid(f"MIG-{minor}-{gi}"))
    return devices.Grant(gpu(minor), found, profile)


def test_each_device_brings_a_variable_and_all_bring_nvidia_smi():
    grants = {"gpu-0": devices.Grant(gpu(0)), "part": instance(1, 9, "1g.10gb")}

    made = hardware.SimulatedDriver(PROGRAM).injection(grants)

    assert made.common == cdi.Edits(mounts=(cdi.Mount(str(PROGRAM), "/usr/bin/nvidia-smi"),))
    assert {name: edits.env for name, edits in made.devices.items()} == {
        "gpu-0": {"SIMULATED_GPU_0": "NVIDIA H100 80GB HBM3|GPU-0"},
        "part": {"SIMULATED_MIG_1_9": "NVIDIA H100 80GB HBM3|GPU-1|1g.10gb|MIG-1-9"},
    }


def test_an_instance_that_no_container_can_use_is_refused_as_with_real_gpus():
    bare = devices.Grant(gpu(0), mig.Instance(3, mig.Spot(19, mig.Placement(0, 1))), "1g.10gb")

    with pytest.raises(errors.Rejected, match="GPU instance 3 of GPU-0"):
        hardware.SimulatedDriver(PROGRAM).injection({"part": bare})


def test_a_container_with_devices_of_several_claims_sees_each_gpu_once(tmp_path):
    driver = hardware.SimulatedDriver(gpus.NVIDIA_SMI)
    claims = {
        "aa": {"a": instance(1, 9, "1g.10gb"), "b": instance(1, 2, "3g.40gb")},
        "bb": {"c": instance(1, 7, "1g.10gb"), "gpu-0": devices.Grant(gpu(0))},
    }
    for uid, grants in claims.items():
        text = cdi.spec("gpu.nvidia.com", uid, driver.injection(grants))
        (tmp_path / cdi.file_name("gpu.nvidia.com", uid)).write_text(text)
    names = tuple(
        cdi.device_id("gpu.nvidia.com", uid, name)
        for uid, grants in claims.items()
        for name in grants
    )
    container = runtime.Container("p", "main", (), {}, names)

    running = runtime.PretendedRuntime(tmp_path).start(container, lambda: None)

    assert running.view().output == (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)",
        "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1)",
        "  MIG 3g.40gb     Device  0: (UUID: MIG-1-2)",
        "  MIG 1g.10gb     Device  1: (UUID: MIG-1-7)",
        "  MIG 1g.10gb     Device  2: (UUID: MIG-1-9)",
    )


def test_the_program_is_where_the_runtime_can_mount_it(tmp_path):
    config = settings.KubeletPlugin(
        node_name="here", simulate_gpus="t4:1", simulation_dir=tmp_path / "simulation"
    )

    found = hardware.simulated(config)

    [made] = found.nvml.discover().gpus
    edits = json.loads(
        cdi.spec("d", "aa", found.injector.injection({"gpu-0": devices.Grant(made)}))
    )["containerEdits"]
    program = pathlib.Path(edits["mounts"][0]["hostPath"])
    assert program == tmp_path / "simulation" / "nvidia-smi"
    assert program.stat().st_mode & 0o777 == 0o755


def test_several_plugins_of_a_node_may_start_at_the_same_moment(tmp_path):
    config = settings.KubeletPlugin(
        node_name="here", simulate_gpus="t4:2", simulation_dir=tmp_path / "simulation"
    )

    found = plugin_process.at_once(*[lambda: hardware.simulated(config)] * 8)

    assert {len(made.nvml.discover().gpus) for made in found} == {2}
