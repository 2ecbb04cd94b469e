"""Configs that the driver will refuse, told of claims that fit and of those that have devices."""

import gpu_slices
import pytest
from explain_scene import claim, device_class, explain, held, pool, request

from dra_driver.logic.explaining import explaining

TYPE = 'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type'
CLASSES = [
    device_class(f'{TYPE} == "{kind}"', name=f"{kind}.nvidia.com") for kind in ("gpu", "mig")
]
NODE = [*CLASSES, *gpu_slices.on_demand("a", 1)]
REMEDY = "A claim cannot be changed: write another, or correct its template or class"


def config(kind="GpuConfig", requests=(), driver="gpu.nvidia.com", **sharing):
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind}
    parameters |= {"sharing": sharing} if sharing else {}
    body = {"opaque": {"driver": driver, "parameters": parameters}}
    return body | ({"requests": list(requests)} if requests else {})


def told(*configs, of_class="gpu.nvidia.com"):
    asked = claim("mine", request(of_class=of_class), config=list(configs))
    about = explain("claim/mine", *NODE, asked)
    expected = explaining.UNSTARTABLE if about.in_the_way else explaining.FITS
    assert about.verdict == expected
    assert about.options
    return [f"{one}" for one in about.in_the_way]


def test_a_config_that_can_work_is_nothing_to_tell():
    assert told(config(strategy="MPS")) == []


def test_a_field_that_is_not_allowed_is_told_before_the_pod_is_there():
    assert told(config(strategy="MSP")) == [
        (
            "claim default/mine: the driver refuses it when a pod starts: GpuConfig at "
            "status.allocation.devices.config[0].opaque.parameters is invalid: sharing.strategy: "
            f'"MSP" is not allowed: write TimeSlicing or MPS; without it nothing is set up. '
            f"{REMEDY}"
        )
    ]


def test_a_config_for_another_type_of_device_is_told_with_the_device():
    (text,) = told(config("GpuConfig", requests=["gpu"]), of_class="mig.nvidia.com")
    assert text.startswith("claim default/mine, device gpu.nvidia.com/a/gpu-0-mig-")
    assert "GpuConfig cannot be applied to device gpu-0-mig-" in text


def test_what_is_for_other_drivers_is_left_to_them():
    assert told(config(driver="gpu.example.com", strategy="MSP")) == []


@pytest.mark.parametrize("source", ["FromClass", "FromClaim"])
def test_of_a_claim_that_has_devices_it_is_told_too(source):
    given = gpu_slices.held("mine", "gpu-0", node="a")
    wrong = config(strategy="MSP") | {"source": source}
    given["status"]["allocation"]["devices"]["config"] = [wrong]
    about = explain("claim/mine", *NODE, given)
    assert about.verdict == explaining.UNUSABLE
    assert '"MSP" is not allowed' in about.in_the_way[0].problem


def test_devices_of_another_driver_are_not_looked_at():
    given = held("mine", "a/x", config=[config(strategy="MSP") | {"source": "FromClaim"}])
    about = explain("claim/mine", pool("a", {"name": "x"}), given)
    assert about.verdict == explaining.ALLOCATED
