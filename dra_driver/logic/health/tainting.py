"""Conditions as taints of a device in a ResourceSlice."""

from collections.abc import Sequence
from typing import Any

from dra_driver.logic.health import conditions
from dra_driver.model import health, taints

MOST = 16
"""Taints that a device may have (Kubernetes 1.36, `ResourceSlice` validation)."""

Json = dict[str, Any]


def of(listed: Sequence[health.Condition], driver_name: str) -> tuple[Json, ...]:
    """The taints of a device, as slices have them: the gravest, in an order that does not change.

    Of conditions with the same key and value the gravest effect counts, and the earliest time.
    """
    merged: dict[tuple[str, str], health.Condition] = {}
    for one in conditions.grave_first(listed):
        merged.setdefault((one.finding.key, one.finding.value), one)
    since: dict[tuple[str, str], str] = {}
    for one in listed:
        key = (one.finding.key, one.finding.value)
        since[key] = min(since.get(key, one.since), one.since)
    kept = list(merged.items())[:MOST]
    return tuple(_taint(one, since[key], driver_name) for key, one in sorted(kept, key=_by_name))


def _by_name(item: tuple[tuple[str, str], health.Condition]) -> tuple[str, int, str]:
    key, value = item[0]
    return (key, int(value) if value.isdecimal() else 0, value)


def _taint(one: health.Condition, since: str, driver_name: str) -> Json:
    taint = {"key": f"{driver_name}/{one.finding.key}", "effect": one.finding.effect}
    if one.finding.value:
        taint["value"] = one.finding.value
    return taint | {"timeAdded": since}


def withdraws(wire: Sequence[Json]) -> bool:
    """Whether taints, as slices have them, keep new claims away that do not tolerate them."""
    return any(taint["effect"] != taints.NONE for taint in wire)
