"""On a real GPU: what the PCI bus tells of it, and a container is told. Nothing is changed."""

import json
import subprocess

import pytest

from dra_driver import settings
from dra_driver.apps.node import host
from dra_driver.logic.passthrough import cards
from dra_driver.logic.preparing import metadata, planning
from dra_driver.model import claims, device_metadata, devices, prepared, slices

pytestmark = pytest.mark.gpu

DRIVER, POOL = "gpu.nvidia.com", "here"


@pytest.fixture(scope="module")
def hardware():
    """The machine's own GPUs and driver, as the plugin finds them."""
    return host.hardware(settings.KubeletPlugin(node_name=POOL))


@pytest.fixture(scope="module")
def gpus(hardware):
    return [hardware.place.located(gpu) for gpu in hardware.nvml.discover().gpus]


def asked(*fields):
    """What nvidia-smi says of each GPU, by UUID."""
    query = ["nvidia-smi", f"--query-gpu=uuid,{','.join(fields)}", "--format=csv,noheader"]
    listed = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True)
    rows = (line.split(", ") for line in listed.stdout.splitlines())
    return {uuid: values for uuid, *values in rows}


def test_the_bus_tells_of_each_gpu_that_nvml_tells_of(hardware, gpus):
    bus, said = hardware.pci.scan(), asked("pci.device_id")
    for gpu in gpus:
        function = bus.functions[gpu.pci_address]
        assert f"0x{function.device:04X}{function.vendor:04X}" == said[gpu.uuid][0]
        assert (function.driver, function.is_gpu) == ("nvidia", True)
        assert function.modalias.startswith(f"pci:v000010DEd0000{function.device:04X}")
        assert function.memory_bytes > 2**24
        assert hardware.pci.function(gpu.pci_address) == function
        assert hardware.pci.hanging(gpu.pci_address) == ()


def test_it_is_said_whether_a_virtual_machine_can_be_given_it(hardware, gpus):
    bus = hardware.pci.scan()
    for gpu in gpus:
        found = cards.passable(bus.functions[gpu.pci_address], bus)
        if bus.has_iommu:
            assert isinstance(found, devices.Passthrough) or "IOMMU group" in found
        else:
            assert found == cards.NO_IOMMU


def test_a_container_is_told_of_its_gpu_what_nvidia_smi_says(gpus):
    ref = claims.ClaimRef("team-a", "train", claims.ClaimUid("0a1b"))
    said = asked("name", "driver_version")
    for gpu in gpus:
        result = claims.Result("gpu", slices.DeviceId(DRIVER, POOL, gpu.name))
        claim = claims.ResourceClaim(ref, allocation=claims.Allocation((result,)))
        offers = {gpu.name: devices.Offer(gpu)}
        plan = planning.plan(ref, claim, planning.Node(DRIVER, POOL), offers)
        record = prepared.Record(
            uid=ref.uid, namespace=ref.namespace, name=ref.name, phase="completed",
            boot_id="boot-1", devices=plan.entries, gpus=plan.gpus,
        )  # fmt: skip
        record = device_metadata.into(record, plan.described)
        _, [document] = metadata.said(DRIVER, record, offers, {})
        first = json.loads(document.text.splitlines()[0])
        [device] = first["requests"][0]["devices"]
        attributes = device["attributes"]
        assert attributes["uuid"] == {"string": gpu.uuid}
        assert attributes["productName"] == {"string": said[gpu.uuid][0]}
        assert attributes["resource.kubernetes.io/pciBusID"] == {"string": gpu.pci_address}
