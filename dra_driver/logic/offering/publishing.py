"""Devices to ResourceSlices, and what has to be written so that the API server has them.

The rules are those of the Go resourceslice controller (Kubernetes 1.36,
`staging/src/k8s.io/dynamic-resource-allocation/resourceslice/resourceslicecontroller.go`).
"""

import dataclasses
import enum
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dra_driver.model import quantities, slices

Json = dict[str, Any]

API_VERSIONS = ("v1", "v1beta2", "v1beta1")
"""In the order of preference."""

MAX_DEVICES = 64
"""Devices in a slice, if any of them has taints, counters or list attributes. Without there may be
128, but a taint may come to any device at any time, and then none is to move to another slice."""
MAX_NODE_PART = 160
"""Characters of the node's name in a slice's: index and driver take up to 72, the suffix 5."""
MAX_COUNTER_SETS = 8
"""Counter sets in a slice."""
_LAST_GENERATION = 2**63 - 1

_INDEX = re.compile(r"([0-9a-f]{5,})-")
_NO_CHANGE: Mapping[str, Json] = {}


class Layout(enum.Enum):
    """Where the counters of partitions are published.

    SPLIT: in slices of their own (Kubernetes 1.35 and newer). COMBINED: in the slice of the devices
    that consume them (1.34). PLAIN: nowhere, the API server has no counters.
    """

    SPLIT = "split"
    COMBINED = "combined"
    PLAIN = "plain"


@dataclasses.dataclass(frozen=True, slots=True)
class CounterSet:
    """What the partitions of one GPU share."""

    name: str
    counters: Mapping[str, quantities.Quantity]


@dataclasses.dataclass(frozen=True, slots=True)
class Content:
    """What one slice offers."""

    devices: tuple[slices.Device, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """How devices are to be written for the API server, and the schedulers that read them.

    Where counters are published nowhere `reason` tells why. Unless `beside_shares`, a card of which
    many claims consume devices has no partitions. `lists`: attributes may be lists. `taints`: the
    server takes taints.
    """

    layout: Layout
    reason: str = "the API server takes no counters"
    beside_shares: bool = True
    lists: bool = False
    taints: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Owner:
    """Whose slices: the driver on one node. The node UID makes the garbage collector work."""

    driver_name: str
    node_name: str
    node_uid: str

    @property
    def pool(self) -> str:
        """The pool of the node has the node's name."""
        return self.node_name


@dataclasses.dataclass(frozen=True, slots=True)
class Changes:
    """Writes in the order in which they are done: delete, then update, then create.

    `tears`: from the first of them to the last, the pool is incomplete for readers.
    """

    delete: tuple[Json, ...]
    update: tuple[Json, ...]
    create: tuple[Json, ...]
    tears: bool = False

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.delete or self.update or self.create)


def chunks(devices: Sequence[slices.Device]) -> Iterator[list[slices.Device]]:
    """The devices in as few slices as they fit in."""
    for start in range(0, len(devices), MAX_DEVICES):
        yield list(devices[start : start + MAX_DEVICES])


def contents(offered: Sequence[Content]) -> tuple[Json, ...]:
    """That part of each slice's spec, in publishing order; at least one, maybe empty.

    An empty slice tells that the pool is there and complete.
    """
    return tuple(_format_content(content) for content in offered) or ({},)


def format_counter_set(counter_set: CounterSet) -> Json:
    """As `spec.sharedCounters` has it."""
    amounts = counter_set.counters
    return {
        "name": counter_set.name,
        "counters": {name: {"value": str(amounts[name])} for name in sorted(amounts)},
    }


def counter_probe(owner: Owner, layout: Layout) -> Json:
    """A slice that is never made: what a server makes of it tells whether it takes counters."""
    one = {"probe": {"value": "1"}}
    content: Json = {"sharedCounters": [{"name": "probe", "counters": one}]}
    if layout is Layout.COMBINED:
        consumed = [{"counterSet": "probe", "counters": one}]
        content["devices"] = [{"name": "probe", "consumesCounters": consumed}]
    return _created(owner, 0, 1, _spec(owner, content, 1, 1))


def reconcile(
    owner: Owner,
    desired: Sequence[Json],
    existing: Iterable[Json],
    accepted: Mapping[str, Json] = _NO_CHANGE,
) -> Changes:
    """What to write so that the pool holds `desired` (of `contents`).

    `existing` are all v1-shaped slices of the driver on the node. `accepted` tells, for content
    that the server cut when it was written (`fingerprint` of it), what the server made of it:
    the same again is no difference.
    """
    own = sorted(existing, key=lambda body: str(body["metadata"]["name"]))
    generation = max((_generation(b) for b in own if _pool(b) == owner.pool), default=0)
    matched, obsolete = _match(owner, desired, own, generation)
    if generation >= _LAST_GENERATION:
        # Nothing comes after what somebody has written here: the pool begins anew.
        generation, matched, obsolete = 0, {}, own
    changed = {
        index
        for index, body in matched.items()
        if not _same(body["spec"], desired[index], accepted)
        or body["spec"]["pool"]["resourceSliceCount"] != len(desired)
    }
    missing = [index for index in range(len(desired)) if index not in matched]
    # Those that are missing alone make the pool complete again, and no reader took it for that.
    mixes = bool(changed and missing) or (
        len(changed) > 1 and not _all_alike(matched, desired, changed)
    )
    if mixes or not matched:
        # More than one write: readers must not mix old and new slices.
        generation += 1
        updates = sorted(matched)
    else:
        updates = sorted(changed)
    spec = {
        index: _spec(owner, desired[index], generation, len(desired))
        for index in [*updates, *missing]
    }
    return Changes(
        delete=tuple(obsolete),
        update=tuple(_updated(matched[index], spec[index]) for index in updates),
        create=tuple(_created(owner, index, len(desired), spec[index]) for index in missing),
        tears=mixes or bool(obsolete and (updates or missing)),
    )


def fingerprint(content: Mapping[str, Any]) -> str:
    """What tells one content of a slice from another, whatever time taints have."""
    return json.dumps(_content(without_times(content)), sort_keys=True)


def without_times(spec: Mapping[str, Any]) -> Json:
    """The same without the times of taints, which are the server's."""
    if not spec.get("devices"):
        return dict(spec)
    return {**spec, "devices": [slices.without_times(device) for device in spec["devices"]]}


def dropped(sent: Any, got: Any, path: str = "") -> tuple[str, ...]:
    """The fields of `sent` that are absent from `got`: a feature gate of the server is off."""
    if isinstance(sent, Mapping):
        other = got if isinstance(got, Mapping) else {}
        return tuple(
            found
            for key, value in sent.items()
            for found in (
                dropped(value, other[key], f"{path}.{key}" if path else key)
                if key in other
                else (f"{path}.{key}" if path else key,)
            )
        )
    if isinstance(sent, list) and isinstance(got, list):
        pairs = zip(sent, got, strict=False)
        # Which of many devices lacks the field says nothing: it is the gate that lacks it.
        found = [item for one, other in pairs for item in dropped(one, other, f"{path}[]")]
        return tuple(dict.fromkeys(found))
    return ()


def as_new(body: Json) -> Json:
    """A slice to be made with the content of one that may be there already."""
    metadata = body["metadata"]
    prefix = metadata.get("generateName") or f"{metadata['name'].partition('-')[0]}-"
    new = {"generateName": prefix, "ownerReferences": metadata.get("ownerReferences", [])}
    return body | {"metadata": new}


def to_version(body: Json, version: str) -> Json:
    """A v1-shaped slice as `version` has it on the wire."""
    return _convert(body, version, _wrap) if version == "v1beta1" else _stamp(body, version)


def from_version(body: Json, version: str) -> Json:
    """A slice of `version`, v1-shaped."""
    return _convert(body, "v1", _unwrap) if version == "v1beta1" else _stamp(body, "v1")


def _format_content(content: Content) -> Json:
    body: Json = {}
    if content.counter_sets:
        body["sharedCounters"] = [format_counter_set(one) for one in content.counter_sets]
    if content.devices:
        body["devices"] = [slices.format_device(device) for device in content.devices]
    return body


def _match(
    owner: Owner, desired: Sequence[Json], own: Iterable[Json], newest: int
) -> tuple[dict[int, Json], list[Json]]:
    """Slices of generation `newest` by their index, and those that serve no longer."""
    matched: dict[int, Json] = {}
    obsolete: list[Json] = []
    for body in own:
        found = _INDEX.match(body["metadata"]["name"])
        index = int(found[1], 16) if found else len(desired)
        if (
            _pool(body) == owner.pool
            and _generation(body) == newest
            and index < len(desired)
            and index not in matched
        ):
            matched[index] = body
        else:
            obsolete.append(body)
    return matched, obsolete


def _pool(body: Json) -> str:
    return str(body["spec"]["pool"]["name"])


def _generation(body: Json) -> int:
    return int(body["spec"]["pool"].get("generation", 0))


def _same(spec: Json, desired: Json, accepted: Mapping[str, Json]) -> bool:
    if _content(spec) == _content(keep_times(desired, spec)):
        return True
    cut = accepted.get(fingerprint(desired))
    if cut is None:
        return False
    # What is cut has no times: those that are wanted count, and else those that are there.
    return _content(spec) == _content(keep_times(keep_times(cut, desired), spec))


def _all_alike(
    matched: Mapping[int, Json], desired: Sequence[Json], changed: Iterable[int]
) -> bool:
    """Whether only orders and taints differ: old and new slices go together, whichever is read."""
    return all(
        matched[index]["spec"]["pool"]["resourceSliceCount"] == len(desired)
        and _sorted(matched[index]["spec"]) == _sorted(desired[index])
        for index in changed
    )


def _sorted(spec: Mapping[str, Any]) -> Json:
    content = _content(spec)
    if "devices" in content:
        plain = ({**device, "taints": None} for device in content["devices"])
        content["devices"] = sorted(plain, key=lambda device: str(device["name"]))
    return content


def _content(spec: Mapping[str, Any]) -> Json:
    """The part of a spec that says what is offered."""
    keys = ("devices", "sharedCounters")
    return {key: spec[key] for key in keys if spec.get(key)}


def keep_times(desired: Json, existing: Json) -> Json:
    """`desired` with the `timeAdded` that the same taints have in `existing`.

    A time that is wanted stays; else it is the server's, and tolerationSeconds count from it.
    """
    before = {
        (device["name"], taint["key"], taint.get("value"), taint["effect"]): taint["timeAdded"]
        for device in existing.get("devices") or ()
        for taint in device.get("taints") or ()
        if "timeAdded" in taint
    }
    # A slice without devices stays one: an empty list beside counters is refused.
    if not before or not desired.get("devices"):
        return desired
    return desired | {"devices": [_with_times(device, before) for device in desired["devices"]]}


def _with_times(device: Json, before: Mapping[tuple[str, str, str | None, str], str]) -> Json:
    if not device.get("taints"):
        return device
    taints = []
    for taint in device["taints"]:
        key = (device["name"], taint["key"], taint.get("value"), taint["effect"])
        taints.append({"timeAdded": before[key]} | taint if key in before else taint)
    return device | {"taints": taints}


def _spec(owner: Owner, content: Json, generation: int, count: int) -> Json:
    return {
        "driver": owner.driver_name,
        "nodeName": owner.node_name,
        "pool": {"name": owner.pool, "generation": generation, "resourceSliceCount": count},
    } | content


def _updated(body: Json, spec: Json) -> Json:
    return body | {"spec": keep_times(spec, body["spec"])}


def _created(owner: Owner, index: int, count: int, spec: Json) -> Json:
    digits = max(5, len(f"{count - 1:x}"))
    # A name has at most 253 characters; the node's is there for people to read only.
    node = owner.node_name[:MAX_NODE_PART].rstrip("-.")
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "generateName": f"{index:0{digits}x}-{owner.driver_name}-{node}-",
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": owner.node_name,
                    "uid": owner.node_uid,
                    "controller": True,
                }
            ],
        },
        "spec": spec,
    }


def _stamp(body: Json, version: str) -> Json:
    return body | {"apiVersion": f"resource.k8s.io/{version}"}


def _convert(body: Json, version: str, device: Any) -> Json:
    spec = body["spec"]
    if spec.get("devices"):
        spec = spec | {"devices": [device(item) for item in spec["devices"]]}
    return _stamp(body, version) | {"spec": spec}


def _wrap(device: Json) -> Json:
    return {"name": device["name"], "basic": {k: v for k, v in device.items() if k != "name"}}


def _unwrap(device: Json) -> Json:
    return {"name": device["name"]} | (device.get("basic") or {})
