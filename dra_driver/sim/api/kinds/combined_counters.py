"""Rules for counters that stand in the slice of the devices that consume them.

That is where Kubernetes 1.33 and 1.34 have them. Source: `pkg/apis/resource/validation/
validation.go` and `staging/src/k8s.io/api/resource/v1/types.go` of 1.34.
"""

from typing import Any

from dra_driver.sim.api.kinds import fields

Json = dict[str, Any]

_MAX_SHARED_COUNTERS = 32
_MAX_COUNTERS_OF_DEVICE = 32
_MAX_COUNTERS_OF_DEVICES = 1024


def errors(spec: Json) -> fields.Errors:
    """What is wrong with where the counters are, and with how many there are in all."""
    devices, sets = spec.get("devices") or (), spec.get("sharedCounters") or ()
    names = {counter_set.get("name") for counter_set in sets}
    found: fields.Errors = []
    for index, device in enumerate(devices):
        found += _device_errors(device, f"spec.devices[{index}]", names)
    total = sum(map(_count, devices))
    if total > _MAX_COUNTERS_OF_DEVICES:
        found.append(
            _too_many("spec.devices", total, "counters in devices", _MAX_COUNTERS_OF_DEVICES)
        )
    shared = sum(len(counter_set.get("counters") or ()) for counter_set in sets)
    if shared > _MAX_SHARED_COUNTERS:
        found.append(
            _too_many("spec.sharedCounters", shared, "shared counters", _MAX_SHARED_COUNTERS)
        )
    return found


def _device_errors(device: Json, path: str, names: set[Any]) -> fields.Errors:
    found = [
        fields.invalid(
            f"{path}.consumesCounters[{place}].counterSet",
            used.get("counterSet"),
            "must reference a counterSet defined in the ResourceSlice sharedCounters",
        )
        for place, used in enumerate(device.get("consumesCounters") or ())
        if used.get("counterSet") not in names
    ]
    total = _count(device)
    if total > _MAX_COUNTERS_OF_DEVICE:
        found.append(_too_many(path, total, "counters", _MAX_COUNTERS_OF_DEVICE))
    return found


def _count(device: Json) -> int:
    return sum(len(used.get("counters") or ()) for used in device.get("consumesCounters") or ())


def _too_many(path: str, total: int, what: str, limit: int) -> fields.FieldError:
    return fields.invalid(path, total, f"the total number of {what} must not exceed {limit}")
