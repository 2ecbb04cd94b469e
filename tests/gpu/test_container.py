"""On a real GPU: what the driver writes is enough for a container to use the card."""

import json
import pathlib
import subprocess

import oci_bundle
import pytest

from dra_driver import settings
from dra_driver.apps.node import host
from dra_driver.logic.offering import attributes
from dra_driver.logic.preparing import cdi
from dra_driver.model import devices

pytestmark = pytest.mark.gpu

UID = "5f3c2a10-0000-4000-8000-000000000001"
DRIVER = "gpu.nvidia.com"


@pytest.fixture(scope="module")
def hardware():
    """The machine's own GPUs and driver, as the plugin finds them."""
    return host.hardware(settings.KubeletPlugin(node_name="here"))


@pytest.fixture(scope="module")
def gpus(hardware):
    """By device name."""
    found = hardware.nvml.discover()
    assert found.failures == ()
    return {devices.gpu_device_name(g.minor): hardware.place.located(g) for g in found.gpus}


@pytest.fixture(scope="module")
def spec(hardware, gpus):
    """The CDI spec of a claim that has all the GPUs."""
    grants = {name: devices.Grant(gpu) for name, gpu in gpus.items()}
    return json.loads(cdi.spec(DRIVER, UID, hardware.injector.injection(grants)))


def test_the_gpus_are_those_that_nvidia_smi_lists(gpus):
    listed = subprocess.run(
        ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True
    ).stdout.splitlines()

    by_index = sorted(gpus.values(), key=lambda gpu: gpu.index)
    assert listed == [f"GPU {g.index}: {g.product_name} (UUID: {g.uuid})" for g in by_index]


def test_each_gpu_is_published_with_all_that_the_peer_publishes(gpus):
    for gpu in gpus.values():
        device = attributes.device(gpu)
        assert device.attributes.keys() >= {
            *("type", "uuid", "productName", "brand", "architecture", "cudaComputeCapability"),
            *("driverVersion", "cudaDriverVersion", "resource.kubernetes.io/pciBusID"),
            *("index", "minor", "migCapable", "mpsCapable", "timeSliceCapable"),
        }
        assert device.capacity["memory"].value > 70 * 1024**3


def test_the_spec_names_device_nodes_and_files_that_exist(spec, gpus):
    edits = [spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])]
    nodes = [node for each in edits for node in each.get("deviceNodes", ())]
    mounts = [mount for each in edits for mount in each.get("mounts", ())]

    assert {node["path"] for node in nodes} >= {
        *("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"),
        *(f"/dev/nvidia{gpu.minor}" for gpu in gpus.values()),
    }
    assert all(pathlib.Path(node["hostPath"]).is_char_device() for node in nodes)
    assert all(pathlib.Path(mount["hostPath"]).exists() for mount in mounts)
    places = {pathlib.PurePath(mount["containerPath"]).name for mount in mounts}
    assert {"libcuda.so.1", "libnvidia-ml.so.1", "nvidia-smi"} <= places


def test_a_container_with_nothing_but_the_edits_sees_its_gpu_and_no_other(spec, gpus, tmp_path):
    runtime = oci_bundle.runtime()
    if runtime is None:
        pytest.skip("runc or crun is needed")
    first = spec["devices"][0]
    program = next(
        mount["hostPath"]
        for mount in spec["containerEdits"]["mounts"]
        if mount["containerPath"].endswith("/nvidia-smi")
    )
    oci_bundle.make(tmp_path, [spec["containerEdits"], first["containerEdits"]], [program, "-L"])
    config = json.loads((tmp_path / "config.json").read_text())
    config["process"]["args"] = ["/usr/bin/nvidia-smi", "-L"]
    (tmp_path / "config.json").write_text(json.dumps(config))

    status, output = oci_bundle.run(tmp_path, "dra-gpu-test", runtime)

    gpu = gpus[first["name"].removeprefix(f"{UID}-")]
    assert output.splitlines() == [f"GPU 0: {gpu.product_name} (UUID: {gpu.uuid})"]
    assert status == 0
