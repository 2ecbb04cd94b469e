"""The DeviceClasses that come with the driver: the peer's names and selectors."""

from typing import Any

Json = dict[str, Any]

TYPES = ("gpu", "mig")
"""Device types that this driver publishes, each with a class of its own."""


def device_classes(driver_name: str) -> tuple[Json, ...]:
    """The classes, as `resource.k8s.io/v1` objects.

    That of whole GPUs has the driver's own name; others have the type in front instead of `gpu`.
    """
    return tuple(_device_class(driver_name, device_type) for device_type in TYPES)


def _device_class(driver_name: str, device_type: str) -> Json:
    expression = (
        f"device.driver == '{driver_name}' && "
        f"device.attributes['{driver_name}'].type == '{device_type}'"
    )
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": _name(driver_name, device_type)},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _name(driver_name: str, device_type: str) -> str:
    if device_type == "gpu":
        return driver_name
    return f"{device_type}.{driver_name.removeprefix('gpu.')}"
