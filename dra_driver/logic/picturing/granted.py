"""What an allocated claim has: devices, where they are, the config in force, who uses them."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from dra_driver.logic.picturing import snapshots
from dra_driver.model import claims

Json = dict[str, Any]

UNKNOWN = "not shown by the API: only the driver on the node knows whether it is prepared"

_RUNNING = "Running"
_ENDED = ("Succeeded", "Failed")
"""The kubelet prepares a pod's claims before it starts a container, and unprepares them, after the
last pod, before it reports the end (Kubernetes 1.36, `pkg/kubelet/kubelet.go`)."""

_SOURCES = {claims.FROM_CLASS: "class", claims.FROM_CLAIM: "claim"}


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    """Parameters for a driver and where they come from: `class` or `claim`."""

    source: str
    parameters: Json


@dataclasses.dataclass(frozen=True, slots=True)
class Granted:
    """A device that a claim has.

    `configs` are all that concern it, in the order of the allocation; the last of a kind is in
    force. `prepared` is what the driver reports, or else what follows from the phase of the pods.
    """

    claim: str
    request: str
    device: str
    node: str
    admin_access: bool
    share_id: str
    consumed: tuple[str, ...]
    configs: tuple[Config, ...]
    reserved_for: tuple[str, ...]
    prepared: str


def of(body: Json, snapshot: snapshots.Snapshot) -> tuple[Granted, ...]:
    """The devices of an allocated claim, in the order of its results."""
    return tuple(_granted(body, snapshot))


def _granted(body: Json, snapshot: snapshots.Snapshot) -> Iterator[Granted]:
    claim = claims.parse_outcome(body)
    allocation = claim.allocation or claims.Allocation(())
    users = (body.get("status") or {}).get("reservedFor") or ()
    for result in allocation.results:
        yield Granted(
            claim=f"{claim.ref.namespace}/{claim.ref.name}",
            request=result.request,
            device=f"{result.device}",
            node=node_of(allocation) or snapshot.places.get(result.device) or "",
            admin_access=result.admin_access,
            share_id=result.share_id or "",
            consumed=tuple(
                f"{name} {amount}"
                for name, amount in sorted(result.consumed_capacity.items())
                if amount.amount
            ),
            configs=tuple(
                Config(_SOURCES.get(config.source, config.source), config.parameters)
                for config in allocation.configs
                if config.driver == result.device.driver and _applies(config, result)
            ),
            reserved_for=tuple(user["name"] for user in users),
            prepared=_reported(body, result) or _by_pods(claim.ref.namespace, users, snapshot),
        )


def _applies(config: claims.OpaqueConfig, result: claims.Result) -> bool:
    names = {result.request, result.base_request}
    return not config.requests or bool(names.intersection(config.requests))


def node_of(allocation: claims.Allocation) -> str | None:
    """The one node that an allocation is for, if its selector names one."""
    for term in (allocation.node_selector or {}).get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field["key"] == "metadata.name" and len(field.get("values") or ()) == 1:
                return str(field["values"][0])
    return None


def reported(body: Json, result: claims.Result) -> Json | None:
    """What the driver tells of a device in `status.devices` of its claim; None if it does not."""
    wanted = (result.device.driver, result.device.pool, result.device.device)
    for entry in (body.get("status") or {}).get("devices") or ():
        named = (entry["driver"], entry["pool"], entry["device"])
        if named == wanted and entry.get("shareID") == result.share_id:
            found: Json = entry
            return found
    return None


def _reported(body: Json, result: claims.Result) -> str | None:
    entry = reported(body, result)
    if entry is None:
        return None
    told = [f"{item['type']}={item['status']}" for item in entry.get("conditions") or ()]
    return f"reported by the driver: {', '.join(told) or 'without conditions'}"


def _by_pods(namespace: str, users: Iterable[Json], snapshot: snapshots.Snapshot) -> str:
    """Whether a pod that uses the claim runs with it."""
    phases = {}
    for user in users:
        pod = snapshot.pods.get((namespace, user["name"]))
        if pod is not None and user.get("resource") == "pods":
            phases[user["name"]] = (pod.get("status") or {}).get("phase") or "Pending"
    for name, phase in sorted(phases.items()):
        if phase == _RUNNING:
            return f"yes: pod {name} is {phase}"
    if not phases:
        return UNKNOWN
    word = "no longer" if set(phases.values()) <= set(_ENDED) else "not yet"
    return f"{word}: " + ", ".join(f"pod {n} is {phase}" for n, phase in sorted(phases.items()))
