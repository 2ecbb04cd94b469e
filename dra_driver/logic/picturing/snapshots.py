"""The objects of a cluster at one moment, parsed: what an explanation is worked out from."""

import collections
import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from dra_driver import errors
from dra_driver.logic.offering import classes as own_classes
from dra_driver.logic.scheduling import emulation, extended_resources, placing, pools, usage
from dra_driver.model import claims, nodes, slices

Json = dict[str, Any]
Key = tuple[str, str]
"""(namespace, name)."""

GROUP = "resource.k8s.io/"
DRIVER = "gpu.nvidia.com"
"""Whose classes stand in where a snapshot has none."""

NOT_CREATED = "not-created/"
"""How the UID of an object begins that only a manifest has."""
MOST_PODS = 4
"""Pods of a claim that a message names."""

_CLUSTER_WIDE = frozenset({"Node", "ResourceSlice", "DeviceClass"})
_SAME_SHAPE = frozenset({"resource.k8s.io/v1", "resource.k8s.io/v1beta2"})
_MANIFESTS = frozenset({"ResourceClaim", "ResourceClaimTemplate"})
"""What people write, so that `dra-driver convert` knows all its versions."""


@dataclasses.dataclass(frozen=True, slots=True)
class Holder:
    """A claim that has a device, and the pods for which it is reserved."""

    namespace: str
    claim: str
    pods: tuple[str, ...]
    allocation: claims.Allocation = dataclasses.field(repr=False, compare=False)

    def __str__(self) -> str:
        """As in messages: `claim default/a (pod train)`."""
        return f"claim {self.namespace}/{self.claim} ({self.users or 'reserved for no pod'})"

    @property
    def users(self) -> str:
        """The pods as in messages, not all if there are many; empty where there is none."""
        more = f" and {len(self.pods) - MOST_PODS} more" if len(self.pods) > MOST_PODS else ""
        names = ", ".join(self.pods[:MOST_PODS])
        return f"pod{'s' if len(self.pods) > 1 else ''} {names}{more}" if self.pods else ""


Holders = Mapping[slices.DeviceId, tuple[Holder, ...]]


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """Nodes with the fewest pods first, then by name, as the embedded scheduler tries them.

    `claims`, `pods` and `templates` are objects as the API has them.
    """

    inventory: pools.Inventory
    published: tuple[slices.ResourceSlice, ...]
    classes: Mapping[str, claims.DeviceClass]
    nodes: tuple[nodes.Node, ...]
    claims: Mapping[Key, Json]
    pods: Mapping[Key, Json]
    templates: Mapping[Key, Json]
    in_use: usage.InUse
    holders: Holders
    places: Mapping[slices.DeviceId, str]
    """The node of each device whose slice names one."""
    notes: tuple[str, ...]
    """What was missing or could not be read, and what was assumed instead."""
    slice_notes: tuple[str, ...]
    """Those of the notes that are about slices."""
    extended: extended_resources.Classes
    """Which classes serve extended resources."""
    nodes_given: bool
    """Whether Nodes were read, so that one which is missing does not exist."""
    behaviour: emulation.Emulation = emulation.FIXED
    """The defects of the cluster's scheduler."""


def normalized(body: Json, namespace: str) -> Json:
    """An object of a manifest with the namespace and the UID that a stored one has.

    Raises:
        errors.Rejected: an API version whose shape is not known here, or a field is missing.
    """
    version, kind = body["apiVersion"], body["kind"]
    if version.startswith(GROUP) and version not in _SAME_SHAPE:
        raise errors.Rejected(
            f"{kind} {body['metadata'].get('name')}: apiVersion {version} cannot be explained; "
            f"allowed is {GROUP}v1: {_as_v1(kind, version)}"
        )
    metadata = dict(body["metadata"])
    metadata.setdefault("name", f"{metadata.get('generateName', '')}*")
    if kind not in _CLUSTER_WIDE:
        metadata.setdefault("namespace", namespace)
    metadata.setdefault("uid", f"{NOT_CREATED}{kind}/{metadata['name']}")
    return _checked({**body, "metadata": metadata})


def _as_v1(kind: str, version: str) -> str:
    """How to have an object in today's version."""
    plural = f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"
    stored = f"`kubectl get {plural}.v1.resource.k8s.io -o yaml` converts it"
    if kind not in _MANIFESTS:
        return stored
    written = "`dra-driver convert -f FILE` writes the manifest anew"
    return (
        written
        if version.startswith(f"{GROUP}v1alpha")
        else f"{written}; where it is stored, {stored}"
    )


def _checked(body: Json) -> Json:
    """The object, once all that is needed of it is there."""
    parser = _PARSERS.get(body["kind"])
    try:
        if parser is not None:
            parser(body)
    except errors.Rejected:
        # Its place in the whole decides what that means.
        return body
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise errors.Rejected(
            f"{body['kind']} {body['metadata']['name']} is no valid object; missing or of a wrong "
            f"type: {error}. `kubectl apply --dry-run=server -f` checks it in full"
        ) from error
    return body


_PARSERS: Mapping[str, Callable[[Json], object]] = {
    "DeviceClass": claims.parse_class,
    "Node": nodes.parse,
    "Pod": placing.parse,
    "ResourceClaim": claims.parse,
    "ResourceClaimTemplate": lambda body: claims.parse({**body, "spec": body["spec"]["spec"]}),
    "ResourceSlice": slices.parse,
}


def of(bodies: Iterable[Json]) -> Snapshot:
    """The snapshot of normalized objects; of equal names the last counts.

    Raises:
        errors.Rejected: an allocated claim or a class that cannot be read.
    """
    by_kind: dict[str, dict[Key, Json]] = collections.defaultdict(dict)
    for body in bodies:
        metadata = body["metadata"]
        by_kind[body["kind"]][metadata.get("namespace", ""), metadata["name"]] = body
    notes: list[str] = []
    slice_notes: list[str] = []
    published = _slices(by_kind["ResourceSlice"].values(), slice_notes)
    notes += slice_notes
    holders = _holders(by_kind["ResourceClaim"].values())
    held = {(one.namespace, one.claim): one for each in holders.values() for one in each}
    return Snapshot(
        inventory=pools.Inventory.of(published),
        published=tuple(published),
        classes=_classes(by_kind["DeviceClass"].values(), notes),
        nodes=_nodes(by_kind["Node"].values(), published, by_kind["Pod"].values(), notes),
        claims=by_kind["ResourceClaim"],
        pods=by_kind["Pod"],
        templates=by_kind["ResourceClaimTemplate"],
        in_use=usage.InUse.of(one.allocation for one in held.values()),
        holders=holders,
        places={
            slices.DeviceId(item.driver, item.pool, device.name): node
            for item in published
            for device in item.devices
            if (node := item.node_name or device.extra.get("nodeName"))
        },
        notes=tuple(notes),
        slice_notes=tuple(slice_notes),
        extended=_extended(by_kind["DeviceClass"].values()),
        nodes_given=bool(by_kind["Node"]),
    )


def _slices(bodies: Iterable[Json], notes: list[str]) -> list[slices.ResourceSlice]:
    published = []
    for body in bodies:
        try:
            published.append(slices.parse(body))
        except errors.Rejected as error:
            name = body["metadata"]["name"]
            notes.append(f"ResourceSlice {name} was left out, so its pool is incomplete: {error}")
    if not published:
        notes.append("there are no ResourceSlices: no driver has published devices")
    return published


def _classes(bodies: Iterable[Json], notes: list[str]) -> Mapping[str, claims.DeviceClass]:
    found = {body["metadata"]["name"]: claims.parse_class(body) for body in bodies}
    if not found:
        found = {
            body["metadata"]["name"]: claims.parse_class(body)
            for body in own_classes.device_classes(DRIVER)
        }
        notes.append(f"no DeviceClasses were given: assumed are {', '.join(sorted(found))}")
    return found


def _extended(bodies: Collection[Json]) -> extended_resources.Classes:
    own = own_classes.device_classes(DRIVER, whole_gpus=own_classes.EXTENDED_RESOURCE)
    return extended_resources.classes(bodies or own)


def _nodes(
    bodies: Iterable[Json],
    published: Iterable[slices.ResourceSlice],
    pods: Iterable[Json],
    notes: list[str],
) -> tuple[nodes.Node, ...]:
    found = {body["metadata"]["name"]: nodes.parse(body) for body in bodies}
    if not found:
        names = {item.node_name for item in published if item.node_name is not None}
        found = {name: nodes.Node(name, {"kubernetes.io/hostname": name}) for name in sorted(names)}
        notes.append(
            "no Nodes were given: assumed are those that the slices name, without labels and taints"
        )
    running = collections.Counter(
        (body.get("spec") or {}).get("nodeName") for body in pods if not placing.is_finished(body)
    )
    return tuple(sorted(found.values(), key=lambda node: (running[node.name], node.name)))


def _holders(bodies: Iterable[Json]) -> Holders:
    found: dict[slices.DeviceId, list[Holder]] = {}
    for body in sorted(bodies, key=_key):
        status = body.get("status") or {}
        if not status.get("allocation"):
            continue
        pods = tuple(item["name"] for item in status.get("reservedFor") or ())
        holder = Holder(*_key(body), pods, claims.parse_allocation(status["allocation"]))
        for device in dict.fromkeys(result.device for result in holder.allocation.results):
            found.setdefault(device, []).append(holder)
    return {device: tuple(listed) for device, listed in found.items()}


def _key(body: Json) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]
