import dataclasses
import pathlib

import hypothesis
import mig_cards
import pytest
import recorded_nvml
from hypothesis import strategies

from dra_driver.adapters.nvml import nvml
from dra_driver.adapters.system import sysfs
from dra_driver.logic.offering import attributes, offering, publishing
from dra_driver.model import devices, quantities, slices, versions
from dra_driver.sim.gpus import gpus

GPU = devices.Gpu(
    index=1,
    minor=3,
    uuid=devices.GpuUuid("GPU-c5726ad2-d34b-8cef-760b-3ddf171d7f19"),
    product_name="NVIDIA L4",
    pci_address=devices.PciAddress("0000:3b:00.0"),
)

H100 = {
    "type": "gpu",
    "uuid": "GPU-c5726ad2-d34b-8cef-760b-3ddf171d7f19",
    "index": 0,
    "minor": 0,
    "productName": "NVIDIA H100 80GB HBM3",
    "brand": "Nvidia",
    "architecture": "Hopper",
    "cudaComputeCapability": slices.Version("9.0.0"),
    "cudaDriverVersion": slices.Version("13.0.0"),
    "driverVersion": slices.Version("580.159.4"),
    "addressingMode": "None",
    "migCapable": True,
    "mpsCapable": True,
    "timeSliceCapable": True,
    "resource.kubernetes.io/pciBusID": "0000:00:06.0",
}
IDENTITY = {"uuid", "index", "minor", "resource.kubernetes.io/pciBusID"}


def test_the_recorded_h100_has_the_attributes_of_the_peer_and_ours():
    (gpu,) = nvml.Nvml(recorded_nvml.load("h100-80gb-hbm3-x1")).discover().gpus

    device = attributes.device(gpu)

    assert device.name == "gpu-0"
    assert device.attributes == H100
    assert device.capacity == {"memory": quantities.parse("81559Mi")}
    assert str(device.capacity["memory"]) == "81559Mi"


def test_the_recorded_h200_differ_in_name_memory_and_identity():
    found = nvml.Nvml(recorded_nvml.load("h200-x2")).discover().gpus

    first, second = (attributes.device(gpu) for gpu in found)

    assert first.attributes == H100 | {
        "productName": "NVIDIA H200",
        "uuid": "GPU-d0ef7425-2dcb-5584-9cd4-5b19926c86e8",
    }
    assert second.name == "gpu-1"
    assert second.attributes == first.attributes | {
        "uuid": "GPU-8a6ee75c-5f91-4cbc-6cb5-5274aef3eed0",
        "index": 1,
        "minor": 1,
        "resource.kubernetes.io/pciBusID": "0000:00:07.0",
    }
    assert str(second.capacity["memory"]) == "143771Mi"


@pytest.mark.gpu
@pytest.mark.skipif(not pathlib.Path("/dev/nvidiactl").exists(), reason="no NVIDIA driver")
def test_a_real_gpu_has_the_attributes_of_the_recorded_one():
    gpu = sysfs.Sysfs().located(nvml.Nvml().discover().gpus[0])
    if gpu.product_name != H100["productName"]:
        pytest.skip(f"the recording is of another model than this {gpu.product_name}")

    device = attributes.device(gpu)

    versions_of_driver = {"driverVersion", "cudaDriverVersion"}
    place = {"numaNode", attributes.NUMA_NODE, "resource.kubernetes.io/pcieRoot"}
    assert _without(device.attributes, IDENTITY | versions_of_driver | place) == _without(
        H100, IDENTITY | versions_of_driver
    )
    assert device.attributes.keys() - place == H100.keys()
    assert device.attributes["resource.kubernetes.io/pcieRoot"].startswith("pci")
    assert str(device.capacity["memory"]) == "81559Mi"


@pytest.mark.parametrize(
    ("model", "recording"),
    [("h100-80gb-hbm3", "h100-80gb-hbm3-x1"), ("h200-141gb", "h200-x2")],
)
def test_a_simulated_gpu_looks_like_the_recorded_one(tmp_path, model, recording):
    real = nvml.Nvml(recorded_nvml.load(recording)).discover().gpus[0]
    simulated = nvml.Nvml(gpus.SimulatedNvml(tmp_path, spec=f"{model}:1")).discover().gpus[0]

    expected, device = attributes.device(real), attributes.device(simulated)

    assert _without(device.attributes, IDENTITY) == _without(expected.attributes, IDENTITY)
    assert device.attributes.keys() == expected.attributes.keys()
    assert device.capacity == expected.capacity


def test_the_place_of_a_gpu_is_told(tmp_path):
    machine = gpus.SimulatedNvml(tmp_path, spec="t4:2")
    tree = sysfs.Sysfs(machine.write_sysfs())
    second = tree.located(nvml.Nvml(machine).discover().gpus[1])

    told = attributes.device(second).attributes

    assert told["numaNode"] == 1
    assert told["resource.kubernetes.io/pcieRoot"] == "pci0000:05"
    assert told["resource.kubernetes.io/pciBusID"] == "0000:07:00.0"
    assert told["resource.kubernetes.io/numaNode"] == 1


def test_what_is_not_known_is_left_out():
    device = attributes.device(GPU)

    assert device.name == "gpu-3"
    assert device.attributes == {
        "type": "gpu",
        "uuid": "GPU-c5726ad2-d34b-8cef-760b-3ddf171d7f19",
        "index": 1,
        "minor": 3,
        "productName": "NVIDIA L4",
        "resource.kubernetes.io/pciBusID": "0000:3b:00.0",
    }
    assert device.capacity == {}


@pytest.mark.parametrize(
    ("node", "near", "lists", "told"),
    [(2, (3,), True, (2, 3)), (2, (3,), False, 2), (2, (), True, 2), (None, (), True, None)],
)
def test_near_numa_nodes_are_told_where_attributes_may_be_lists(node, near, lists, told):
    card = dataclasses.replace(GPU, numa_node=node, numa_near=near)
    found = attributes.device(card, lists=lists).attributes
    assert found.get("resource.kubernetes.io/numaNode") == told
    assert found.get("numaNode") == node


@pytest.mark.parametrize(("lists", "told"), [(True, (2, 3)), (False, 2)])
def test_partitions_are_where_their_card_is(lists, told):
    [card] = mig_cards.dynamic("h100-80gb-hbm3:1")
    near = {"numa_node": 2, "numa_near": (3,)}
    offers = {
        name: dataclasses.replace(one, gpu=dataclasses.replace(one.gpu, **near))
        for name, one in card.offers.items()
    }
    form = publishing.Form(publishing.Layout.SPLIT, lists=lists)
    listed = offering.listing([dataclasses.replace(card, offers=offers)], form).devices
    assert len(listed) > 1
    assert {one.attributes["resource.kubernetes.io/numaNode"] for one in listed.values()} == {told}


def test_numa_node_zero_is_a_node():
    told = attributes.device(dataclasses.replace(GPU, numa_node=0)).attributes
    assert (told["numaNode"], told["resource.kubernetes.io/numaNode"]) == (0, 0)


@pytest.mark.parametrize(
    ("capability", "mps", "time_slice"),
    [
        ((3, 0), False, False),
        ((3, 5), True, False),
        ((6, 1), True, False),
        ((7, 0), True, True),
        ((7, 5), True, True),
        ((10, 0), True, True),
    ],
)
def test_capabilities_follow_from_the_compute_capability(capability, mps, time_slice):
    told = attributes.device(dataclasses.replace(GPU, compute_capability=capability)).attributes

    assert (told["mpsCapable"], told["timeSliceCapable"]) == (mps, time_slice)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("580.65.06", "580.65.6"),
        ("580.159.04", "580.159.4"),
        ("550.54", "550.54.0"),
        ("550.54.15", "550.54.15"),
        ("470.00.00", "470.0.0"),
    ],
)
def test_driver_versions_become_semantic_ones(text, version):
    assert attributes.driver_version(text) == slices.Version(version)


@pytest.mark.parametrize(
    "text",
    [None, "", "580", "580.65.06.01", "580.65-grid", "r580", "580.", "0.20000000000000000000"],
)
def test_what_is_no_driver_version_is_left_out(text):
    told = attributes.device(dataclasses.replace(GPU, driver_version=text)).attributes

    assert "driverVersion" not in told


def test_a_text_that_the_server_refuses_is_left_out():
    fits, too_long = "x" * 64, "ü" * 33

    assert (
        "productName" in attributes.device(dataclasses.replace(GPU, product_name=fits)).attributes
    )
    assert (
        "productName"
        not in attributes.device(dataclasses.replace(GPU, product_name=too_long)).attributes
    )


@hypothesis.given(
    parts=strategies.lists(strategies.from_regex(r"[0-9]{1,40}", fullmatch=True), max_size=4),
    name=strategies.text(max_size=80),
)
def test_no_gpu_makes_a_device_that_the_server_refuses(parts, name):
    gpu = dataclasses.replace(GPU, driver_version=".".join(parts), product_name=name)

    device = attributes.device(gpu)

    assert len(device.attributes) + len(device.capacity) <= 32
    for value in device.attributes.values():
        text = value.text if isinstance(value, slices.Version) else value
        assert not isinstance(text, str) or len(text.encode()) <= 64
        if isinstance(value, slices.Version):
            versions.parse(value.text)


def _without(mapping, names):
    return {name: value for name, value in mapping.items() if name not in names}
