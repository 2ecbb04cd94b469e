"""Configs with which the driver refuses a claim once its pod starts, told before that.

In the words of the plugin: the webhook, which refuses the same at `kubectl apply`, may not run.
"""

from collections.abc import Iterator

from dra_driver import errors
from dra_driver.logic.explaining import hindrances
from dra_driver.logic.picturing import fitting, snapshots
from dra_driver.logic.preparing import config_choice
from dra_driver.model import claims, sharing, slices

_REMEDY = "A claim cannot be changed: write another, or correct its template or class"


def of(
    claim: claims.ClaimRef, allocation: claims.Allocation, snapshot: snapshots.Snapshot
) -> tuple[hindrances.Hindrance, ...]:
    """What is wrong with the configs of an allocation, made or planned, for the own driver."""
    return tuple(
        dict.fromkeys(
            hindrances.Hindrance(
                claim=f"{claim.namespace}/{claim.name}",
                device=device,
                problem=f"the driver refuses it when a pod starts: {error}",
                remedy=_REMEDY,
            )
            for device, error in _errors(allocation, snapshot)
        )
    )


def _errors(
    allocation: claims.Allocation, snapshot: snapshots.Snapshot
) -> Iterator[tuple[str, errors.Rejected]]:
    own = [one for one in allocation.results if one.device.driver == snapshots.DRIVER]
    try:
        found = config_choice.entries(allocation.configs, snapshots.DRIVER) if own else ()
    except errors.Rejected as error:
        yield "", error
        return
    for result in own:
        device_type = _type(result.device, snapshot)
        try:
            if device_type is not None:
                config_choice.for_result(found, result, device_type)
        except errors.Rejected as error:
            yield f"{result.device}", error


def _type(device: slices.DeviceId, snapshot: snapshots.Snapshot) -> sharing.DeviceType | None:
    """None where that is not known."""
    place = snapshot.places.get(device)
    for node in snapshot.nodes:
        if place is not None and node.name != place:
            continue
        for pool in snapshot.inventory.pools(node):
            candidate = pool.devices.get(device.device)
            if candidate is not None and candidate.id == device:
                told = fitting.attribute(candidate, "type")
                return sharing.DeviceType(told) if told in set(sharing.DeviceType) else None
    return None
