"""Which pods Kubernetes ends because of taints of their devices, and when.

A taint with the effect NoExecute ends them, unless the claim tolerates it: what counts are the
tolerations in its allocation.

Source: Kubernetes 1.36 to 1.38, `pkg/controller/devicetainteviction`.
"""

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dra_driver.logic.scheduling import emulation, extended_resources, placing, taint_rules
from dra_driver.model import claims, slices, taints

Json = dict[str, Any]
Tainted = Mapping[slices.DeviceId, tuple[taints.Taint, ...]]
"""Taints that end pods, by device."""

_LONG_AGO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
"""Since when a taint is there that does not say so; an API server has it say so."""


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Cause:
    """A taint that ends pods. `rule` is the DeviceTaintRule that it is of; empty: the driver's."""

    rule: str
    device: slices.DeviceId
    taint: str

    def __str__(self) -> str:
        """As in messages."""
        whose = f"DeviceTaintRule {self.rule}" if self.rule else f"device {self.device}"
        return f"{whose}: {self.taint}"


@dataclasses.dataclass(frozen=True, slots=True)
class Eviction:
    """When a pod is ended, and why: the earliest time, and all that ends it sooner or later."""

    when: dt.datetime
    causes: tuple[Cause, ...]

    @property
    def rules(self) -> frozenset[str]:
        """The names of the DeviceTaintRules among the causes."""
        return frozenset(cause.rule for cause in self.causes if cause.rule)


@dataclasses.dataclass(frozen=True, slots=True)
class Sight:
    """What is known of taints. `rules` are those whose effect is NoExecute."""

    tainted: Tainted = dataclasses.field(default_factory=dict)
    rules: Sequence[taint_rules.Rule] = ()
    behaviour: emulation.Emulation = emulation.FIXED


def tainted(pool: Iterable[Json]) -> Tainted:
    """The devices of a pool that have taints which end pods; of all its slices.

    Only the newest generation counts, complete or not: a device that it does not list has none.
    """
    found = {}
    for body, device in devices(pool):
        ending = tuple(
            taints.parse_taint(taint)
            for taint in device.get("taints") or ()
            if taint.get("effect") == taints.NO_EXECUTE
        )
        if ending:
            spec = body["spec"]
            found[slices.DeviceId(spec["driver"], spec["pool"]["name"], device["name"])] = ending
    return found


def devices(pool: Iterable[Json]) -> Iterator[tuple[Json, Json]]:
    """The devices of a pool's newest generation, each with the slice that it is in."""
    listed = list(pool)
    newest = max((_generation(body) for body in listed), default=0)
    for body in listed:
        if _generation(body) == newest:
            for device in body["spec"].get("devices") or ():
                yield body, device


def stays_for(tolerations: Iterable[Json], taint: taints.Taint) -> int | None:
    """Seconds for which pods may stay on a device with a taint, from its beginning; None for ever.

    The effect of the toleration has to be written out, though for the scheduler an empty one means
    all. Of several that have an end the shortest counts.
    """
    parsed = (
        taints.parse_toleration(body)
        for body in tolerations
        if body.get("effect") == taints.NO_EXECUTE
    )
    limits = [one.seconds for one in parsed if one.covers(taint)]
    if not limits:
        return 0
    ends = [max(seconds, 0) for seconds in limits if seconds is not None]
    return None if len(ends) < len(limits) else min(ends)


def of_allocation(allocation: claims.Allocation, sight: Sight) -> Eviction | None:
    """When pods that have the devices are ended; None: they are not.

    A rule counts also for a device that no slice lists any more.
    """
    due: list[tuple[dt.datetime, Cause]] = []
    for result in allocation.results:
        for rule, taint in _on(result.device, sight):
            stays = stays_for(result.extra.get("tolerations") or (), taint)
            if stays is not None:
                cause = Cause(rule, result.device, f"{taint}")
                due.append((_since(taint) + dt.timedelta(seconds=stays), cause))
    if not due:
        return None
    return Eviction(min(when for when, _ in due), _sorted(cause for _, cause in due))


def of_pod(body: Json, claim_of: Callable[[str], Json | None], sight: Sight) -> Eviction | None:
    """When a pod is ended; None: it is not. `claim_of` finds a claim of its namespace by name.

    Only claims count that are reserved for it, and of those from templates only its own.
    """
    if not (body.get("spec") or {}).get("nodeName"):
        return None
    uid = body["metadata"]["uid"]
    found = []
    for name, generated in _claims(body, sight.behaviour):
        claim = claim_of(name)
        if claim is None or (generated and not _is_of(claim, uid)):
            continue
        parsed = claims.parse_outcome(claim)
        if parsed.allocation is not None and uid in parsed.reserved_for:
            found.append(of_allocation(parsed.allocation, sight))
    evictions = [one for one in found if one is not None]
    if not evictions:
        return None
    causes = (cause for one in evictions for cause in one.causes)
    return Eviction(min(one.when for one in evictions), _sorted(causes))


def _claims(body: Json, behaviour: emulation.Emulation) -> Iterator[tuple[str, bool]]:
    """The names of a pod's claims, and whether each has to be the pod's own."""
    for item in placing.parse(body).claims:
        if item.claim is not None:
            yield item.claim, item.template is not None
    made = extended_resources.claim_name(body)
    if made is not None and not behaviour.extended_stay:
        yield made, True


def _is_of(claim: Json, pod_uid: str) -> bool:
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner["uid"] == pod_uid for owner in owners)


def _on(device: slices.DeviceId, sight: Sight) -> Iterator[tuple[str, taints.Taint]]:
    for taint in sight.tainted.get(device, ()):
        yield "", taint
    for rule in sight.rules:
        if rule.selects(device):
            yield rule.name, taints.parse_taint(rule.taint)


def _since(taint: taints.Taint) -> dt.datetime:
    return dt.datetime.fromisoformat(taint.added) if taint.added else _LONG_AGO


def _sorted(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    return tuple(sorted(set(causes)))


def _generation(body: Json) -> int:
    return int(body["spec"]["pool"].get("generation") or 0)
