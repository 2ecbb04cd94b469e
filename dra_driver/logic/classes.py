"""The DeviceClasses that come with the driver: the peer's names and selectors."""

from typing import Any

Json = dict[str, Any]

TYPES = ("gpu",)
"""Device types that this driver publishes, each with a class of its own."""


def device_classes(driver_name: str) -> tuple[Json, ...]:
    """The classes, as `resource.k8s.io/v1` objects. Whole GPUs have the driver's own name."""
    return tuple(_device_class(driver_name, device_type) for device_type in TYPES)


def _device_class(driver_name: str, device_type: str) -> Json:
    expression = (
        f"device.driver == '{driver_name}' && "
        f"device.attributes['{driver_name}'].type == '{device_type}'"
    )
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": driver_name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }
