"""Devices that are not ready when they are allocated: conditions that a pod waits for.

Source: Kubernetes 1.36 `pkg/scheduler/framework/plugins/dynamicresources`, isClaimReadyForBinding.
"""

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]


def pending(claim: Json) -> tuple[str, ...]:
    """What an allocated claim waits for: `condition X of device D`, in the order of its results."""
    return tuple(
        f"condition {condition} of device {_name(result)}"
        for result, true in _results(claim)
        for condition in result.get("bindingConditions") or ()
        if condition not in true
    )


def failed(claim: Json) -> tuple[str, ...]:
    """Which conditions say that a device of an allocated claim will not become ready."""
    return tuple(
        f"condition {condition} of device {_name(result)}"
        for result, true in _results(claim)
        for condition in result.get("bindingFailureConditions") or ()
        if condition in true
    )


def _results(claim: Json) -> Iterable[tuple[Json, set[str]]]:
    """Each result with the conditions of its device that are true; shares are not told apart."""
    status = claim.get("status") or {}
    true: dict[str, set[str]] = {}
    for device in status.get("devices") or ():
        true.setdefault(_name(device), set()).update(
            condition["type"]
            for condition in device.get("conditions") or ()
            if condition["status"] == "True"
        )
    devices = (status.get("allocation") or {}).get("devices") or {}
    for result in devices.get("results") or ():
        yield result, true.get(_name(result), set())


def _name(entry: Json) -> str:
    return f"{entry['driver']}/{entry['pool']}/{entry['device']}"
