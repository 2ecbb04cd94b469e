"""What is advised about requests for GPUs for virtual machines."""

import config_cases
import pytest
import webhook_reviews as reviews

from dra_driver.logic.admission import admission


def warned(resource="resourceclaims", version="v1", **fields):
    body = reviews.made(resource, version, **fields)
    decision = admission.decide(reviews.review(resource, version, body), reviews.DRIVER)
    assert decision.allowed
    assert all(len(text) <= 256 for text in decision.warnings)
    return list(decision.warnings)


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_nothing_is_said_against_devices_for_virtual_machines(version):
    """Whether a node offers some is not known here."""
    requests = [reviews.request("vm", "vfio.gpu.nvidia.com")]
    own = [reviews.config(config_cases.vfio(), "vm")]
    assert warned(version=version, requests=requests) == []
    assert warned(version=version, requests=requests, configs=own) == []


NEVER = "devices of class vfio.gpu.nvidia.com never have"
GPU_UUID = 'device.attributes["gpu.nvidia.com"].gpuUUID == "GPU-1"'


def of_vms(expression):
    """The one warning for a request of their class with this selector, without where it is."""
    selector = {"cel": {"expression": expression}}
    [told] = warned(requests=[reviews.request("vm", "vfio.gpu.nvidia.com", selectors=[selector])])
    return told.partition(": ")[2]


def test_what_devices_for_virtual_machines_lack_is_told():
    assert of_vms('device.attributes["gpu.nvidia.com"].architecture == "Hopper"') == (
        f"{NEVER} architecture, which keeps the pod pending: ask for class gpu.nvidia.com or "
        "mig.nvidia.com"
    )
    memory = 'device.capacity["gpu.nvidia.com"].memory.isGreaterThan(quantity("20Gi"))'
    assert of_vms(memory) == (
        f"{NEVER} memory, which keeps the pod pending: write addressableMemory, which is what the "
        "bus tells of it"
    )


def test_what_devices_for_virtual_machines_may_lack_is_told():
    assert of_vms(GPU_UUID) == (
        "one device of type vfio without gpuUUID keeps the pod pending: write "
        f'"gpuUUID" in device.attributes["gpu.nvidia.com"] && {GPU_UUID}'
    )


def test_names_of_devices_for_virtual_machines_are_known():
    assert of_vms('device.attributes["gpu.nvidia.com"].vendorId == "0x10de"') == (
        "gpu.nvidia.com publishes no attribute 'vendorId', so that no device is found: write "
        "vendorID"
    )


def test_what_only_devices_for_virtual_machines_have_is_told():
    expression = 'device.attributes["gpu.nvidia.com"].deviceID == "0x2330"'
    selector = {"cel": {"expression": expression}}
    [told] = warned(requests=[reviews.request("gpu", "gpu.nvidia.com", selectors=[selector])])
    assert told.endswith(
        "devices of class gpu.nvidia.com never have deviceID, which keeps the pod pending: ask for "
        "class vfio.gpu.nvidia.com"
    )
