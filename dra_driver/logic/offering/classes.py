"""The DeviceClasses that come with the driver: the peer's, and those of shares and of sharing."""

from collections.abc import Mapping
from typing import Any

from dra_driver.logic.offering import shares
from dra_driver.model import configs, sharing
from dra_driver.model import shares as share_model

Json = dict[str, Any]

EXTENDED_RESOURCE = "nvidia.com/gpu"
"""What the class of whole GPUs serves as the chart makes it, if nothing else is set."""


def device_classes(driver_name: str, *, whole_gpus: str | None = None) -> tuple[Json, ...]:
    """The classes, as `resource.k8s.io/v1` objects.

    `whole_gpus` is the extended resource that the class of whole GPUs serves, if it serves one.

    First those of one type of device each, then those that tell devices which many claims consume
    from others, then those that have a config.
    """
    presets = _presets(driver_name)
    return tuple(
        _device_class(
            driver_name,
            name,
            each,
            preset=presets.get(name),
            resource=whole_gpus if name == driver_name else None,
        )
        for name, each in _conditions(driver_name).items()
    )


def names(driver_name: str) -> frozenset[str]:
    """The names of all of them."""
    return frozenset(_conditions(driver_name))


def types(driver_name: str) -> Mapping[str, sharing.DeviceType]:
    """The classes that have devices of one type, by name; those of the peer, and one more.

    That of whole GPUs has the driver's own name. The second one of partitions has `gpu` in its
    name, as KAI's scheduler wants to find it; of classes with the same devices the first is the one
    to name to people.
    """
    return {
        driver_name: sharing.DeviceType.GPU,
        f"mig.{driver_name.removeprefix('gpu.')}": sharing.DeviceType.MIG,
        f"mig.{driver_name}": sharing.DeviceType.MIG,
        f"vfio.{driver_name}": sharing.DeviceType.VFIO,
    }


def _conditions(driver_name: str) -> dict[str, str]:
    """What devices of each class meet, by the name of the class."""
    attributes = f"device.attributes['{driver_name}']"
    is_shared = f"'{shares.ENFORCEMENT}' in {attributes}"
    limited = f"{attributes}.{shares.ENFORCEMENT} == '{share_model.Enforcement.MPS}'"
    is_whole = f"{attributes}.type == '{sharing.DeviceType.GPU}'"
    is_exclusive = f"{is_whole} && !({is_shared})"
    selectors = {
        name: f"{attributes}.type == '{device_type}'"
        for name, device_type in types(driver_name).items()
    }
    return selectors | {
        f"shared.{driver_name}": is_shared,
        f"shared-mps.{driver_name}": f"{is_shared} && {limited}",
        f"exclusive.{driver_name}": is_exclusive,
        f"time-sliced.{driver_name}": f"{is_exclusive} && {attributes}.timeSliceCapable",
        f"mps.{driver_name}": f"{is_exclusive} && {attributes}.mpsCapable",
    }


def _presets(driver_name: str) -> Mapping[str, Json]:
    """How classes have their devices shared, by name, for claims that may have no config."""
    return {
        f"time-sliced.{driver_name}": {
            "strategy": "TimeSlicing",
            "timeSlicingConfig": {"interval": "Long"},
        },
        f"mps.{driver_name}": {"strategy": "MPS"},
    }


def _device_class(
    driver_name: str, name: str, expression: str, *, preset: Json | None, resource: str | None
) -> Json:
    selector = {"cel": {"expression": f"device.driver == '{driver_name}' && {expression}"}}
    spec: Json = {"selectors": [selector]}
    if resource is not None:
        spec["extendedResourceName"] = resource
    if preset is not None:
        parameters = {
            "apiVersion": configs.API_VERSION,
            "kind": sharing.Kind.GPU.value,
            "sharing": preset,
        }
        spec["config"] = [{"opaque": {"driver": driver_name, "parameters": parameters}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": spec,
    }
