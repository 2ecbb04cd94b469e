"""Pods that ask for GPUs in any way that older systems had, each with what it is worth.

The oracle is told what was asked while the pod is made; it reads claims as a scheduler does, and
knows nothing of the translation.
"""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import converting_scene as scene
from hypothesis import strategies as st

from dra_driver.logic.converting import conversion

Json = dict[str, Any]

MIB = 2**20
_SIZE = re.compile(r"compareTo\(quantity\('(\w+)'\)\) == 0")
_LEAST = re.compile(r"compareTo\(quantity\('(\w+)'\)\) >= 0")
_SUFFIXES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}


@dataclasses.dataclass(frozen=True)
class Worth:
    """What a container has to get of each of `count` devices, at least.

    `mib` of memory, `percent` of the card's memory, `cores` in percent; `whole` cards, or
    partitions with `profile` or with `mib`.
    """

    count: int
    mib: int = 0
    percent: int = 0
    cores: int = 0
    whole: bool = False
    profile: str = ""
    partition: bool = False


@dataclasses.dataclass(frozen=True)
class Asking:
    """The resources of a container, and what they are worth."""

    limits: Json
    worth: tuple[Worth, ...]


@dataclasses.dataclass(frozen=True)
class Case:
    """A pod that can be converted, and what its containers have to get, by their names."""

    pod: Json
    policy: conversion.Policy
    worth: dict[str, tuple[Worth, ...]]


def amount(text: str) -> int:
    """Bytes, or another whole number."""
    factor = _SUFFIXES.get(text[-2:])
    return int(text[:-2]) * factor if factor else int(text)


# The oracle


def serves(devices: Json, constraints: list[Json], request: str, worth: Worth) -> bool:
    """Whether an alternative of a request asks for no less than that."""
    texts = [each["cel"]["expression"] for each in devices.get("selectors", ())]
    count = devices.get("count", 1)
    is_other = worth.profile and f".profile == '{worth.profile}'" not in " ".join(texts)
    if count < worth.count or "allocationMode" in devices or is_other:
        return False
    if worth.partition:
        least = [amount(found) for text in texts for found in _LEAST.findall(text)]
        return devices["deviceClassName"] == scene.MIG and max(least, default=0) >= worth.mib * MIB
    amounts = devices.get("capacity", {}).get("requests", {})
    is_apart = count == 1 or _are_apart(constraints, request)
    if worth.whole:
        return is_apart and devices["deviceClassName"] == scene.WHOLE and not amounts
    is_share = devices["deviceClassName"] == scene.SHARED
    is_right = bool(worth.profile) or scene.IS_GPU in texts
    sizes = [amount(found) for text in texts for found in _SIZE.findall(text)]
    return is_apart and is_share and is_right and _has(amounts, sizes, worth)


def _are_apart(constraints: list[Json], request: str) -> bool:
    return any(
        one.get("distinctAttribute") == "gpu.nvidia.com/uuid" and request in one["requests"]
        for one in constraints
    )


def _has(amounts: Json, sizes: list[int], worth: Worth) -> bool:
    """Whether a share has enough; what is not asked for of a card is all of it."""
    memory = amount(amounts["memory"]) if "memory" in amounts else None
    cores = amount(amounts["cores"]) if "cores" in amounts else None
    if memory is not None and memory < worth.mib * MIB:
        return False
    if worth.percent and memory is not None:
        # Of a card of another size it would be another part.
        [size] = sizes
        if not size * worth.percent // 100 - MIB < memory <= size:
            return False
    return cores is None or cores >= max(worth.cores, 0)


def alternatives(request: Json) -> Iterator[Json]:
    if "exactly" in request:
        yield request["exactly"]
    yield from request.get("firstAvailable", ())


def is_enough(claim: Json, worths: tuple[Worth, ...]) -> bool:
    """Whether for each thing there is a request of its own, whichever alternative is free."""
    devices = claim["devices"]
    left = list(devices["requests"])
    for worth in worths:
        found = next(
            (
                request
                for request in left
                if all(
                    serves(each, devices.get("constraints", []), request["name"], worth)
                    for each in alternatives(request)
                )
            ),
            None,
        )
        if found is None:
            return False
        left.remove(found)
    return True


# What containers ask for

POLICIES = (
    scene.EIGHTY,
    scene.MIXED,
    scene.policy(*(scene.card(gib) for gib in (40, 48, 80, 96, 141, 180, 192, 288, 384))),
    scene.policy(scene.card(80, profiles={"1g.10gb": 9984, "7g.80gb": 81152})),
    scene.policy(scene.card(80), scene.card(48, shared="count"), command=False),
    scene.policy(scene.card(80), whole_gpus=True, replicas=4),
)
"""In each a card has 40 GiB or more."""
_COUNTS = st.integers(1, 4)
_MIBS = st.integers(1, 40960)
_PERCENTS = st.integers(1, 100)
_TEXTS = st.sampled_from(["GPU-a", "A100", "H100 80GB", "it's", 'a"b', "a\\b", "${x}", "a'] ||"])
_LISTS = st.lists(_TEXTS, min_size=1, max_size=4).map(",".join)


def _number(value: int) -> st.SearchStrategy[Any]:
    """The number, in one of the ways in which it may be written."""
    return st.sampled_from([value, str(value), f"{value}000m", f"+{value}"])


@st.composite
def _vgpus(draw: Any, count: str, memory: str, percent: str, cores: str) -> Asking:
    """Of HAMi or Volcano; with something that says that it is not a plain GPU."""
    number = draw(_COUNTS)
    limits: Json = {count: draw(_number(number))}
    mib = draw(st.none() | _MIBS)
    part = None if mib else draw(st.none() | _PERCENTS)
    core = draw(st.none() | st.integers(0, 120))
    if mib is None and part is None and core is None and count == "nvidia.com/gpu":
        core = 0
    if mib is not None:
        limits[memory] = draw(_number(mib))
    if part is not None:
        limits[percent] = part
    if core is not None:
        limits[cores] = core
    if mib is None and part is None and not core:
        return Asking(limits, (Worth(number, whole=True),))
    worth = Worth(number, mib=mib or 0, percent=part or 0, cores=min(core or 0, 100))
    return Asking(limits, (worth,))


@st.composite
def _partitions(draw: Any) -> Asking:
    profiles = {"1g.10gb": "1g.10gb", "1g.10gb.me": "1g.10gb+me", "3g.40gb": "3g.40gb"}
    names = draw(st.lists(st.sampled_from(sorted(profiles)), min_size=1, max_size=3, unique=True))
    limits, worths = {}, []
    for name in names:
        count = draw(_COUNTS)
        limits[f"nvidia.com/mig-{name}"] = draw(_number(count))
        worths.append(Worth(count, profile=profiles[name], partition=True))
    return Asking(limits, tuple(worths))


@st.composite
def _others(draw: Any) -> Asking:
    count, mib, cores = draw(_COUNTS), draw(_MIBS), draw(st.integers(1, 99))
    units, gib = max(mib // 256, 1), max(mib // 1024, 1)
    return draw(
        st.sampled_from(
            [
                Asking({"nvidia.com/gpu.shared": count}, (Worth(count),)),
                Asking(
                    {"nvidia.com/mig-3g.40gb.shared": 1},
                    (Worth(1, profile="3g.40gb"),),
                ),
                Asking({"volcano.sh/gpu-memory": mib}, (Worth(1, mib=mib),)),
                Asking({"volcano.sh/gpu-number": count}, (Worth(count, whole=True),)),
                Asking(
                    {"tencent.com/vcuda-core": cores, "tencent.com/vcuda-memory": units},
                    (Worth(1, mib=units * 256, cores=cores),),
                ),
                Asking({"tencent.com/vcuda-core": 100 * count}, (Worth(count, whole=True),)),
                Asking({"aliyun.com/gpu-mem": gib}, (Worth(1, mib=gib * 1024),)),
                Asking(
                    {"aliyun.com/gpu-mem": gib * count, "aliyun.com/gpu-count": count},
                    (Worth(count, mib=gib * 1024),),
                ),
                Asking({"cpu": 1}, ()),
            ]
        )
    )


HAMI = _vgpus(
    "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
)
VOLCANO = _vgpus(
    "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-memory",
    "volcano.sh/vgpu-memory-percentage",
    "volcano.sh/vgpu-cores",
)
ASKINGS = HAMI | VOLCANO | _partitions() | _others()

ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        "nvidia.com/use-gpuuuid": _LISTS,
        "nvidia.com/nouse-gpuuuid": _LISTS,
        "nvidia.com/use-gputype": _LISTS,
        "nvidia.com/nouse-gputype": _LISTS,
        "volcano.sh/vgpu-use-gpuuuid": _LISTS,
        "nvidia.com/numa-bind": st.sampled_from(["true", "false"]),
        "nvidia.com/vgpu-mode": st.sampled_from(["hami-core", "mps"]),
        "volcano.sh/vgpu-mode": st.just("hami-core"),
        "hami.io/gpu-scheduler-policy": st.just("binpack"),
        "hami.io/vgpu-node": st.just("node-a"),
        "example.com/other": st.just("x"),
    },
)
LABELS = st.fixed_dictionaries(
    {},
    optional={
        "nvidia.com/gpu.product": st.just("NVIDIA-H100-80GB-HBM3"),
        "nvidia.com/gpu.family": st.just("hopper"),
        "nvidia.com/gpu.compute.major": st.just("9"),
        "nvidia.com/gpu.machine": st.just("DGX"),
        "disk": st.just("ssd"),
    },
)
_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "runtimeClassName": st.just("nvidia"),
        "schedulerName": st.sampled_from(["hami-scheduler", "volcano", "mine"]),
        "hostIPC": st.booleans(),
        "resourceClaims": st.just([{"name": "gpu-c0", "resourceClaimName": "x"}]),
    },
)


@st.composite
def cases(draw: Any) -> Case:
    """A pod that can be converted."""
    asked = draw(st.lists(ASKINGS, min_size=1, max_size=3))
    before = draw(st.lists(st.tuples(ASKINGS, st.booleans()), max_size=3))
    worth, containers, first = {}, [], []
    for number, asking in enumerate(asked):
        name = draw(st.sampled_from([f"c{number}", f"{'c' * 60}{number}"]))
        containers.append(_container(draw, name, asking))
        worth[name] = asking.worth
    for number, (asking, lasts) in enumerate(before):
        body = _container(draw, f"i{number}", asking)
        first.append(body | ({"restartPolicy": "Always"} if lasts else {}))
        worth[f"i{number}"] = asking.worth
    spec: Json = {"containers": containers, **draw(_FIELDS)}
    if first:
        spec["initContainers"] = first
    if labels := draw(LABELS):
        spec["nodeSelector"] = labels
    metadata = {"name": "old", "annotations": draw(ANNOTATIONS)}
    return Case({"metadata": metadata, "spec": spec}, draw(st.sampled_from(POLICIES)), worth)


def _container(draw: Any, name: str, asking: Asking) -> Json:
    resources: Json = {"limits": asking.limits}
    if draw(st.booleans()):
        resources["requests"] = dict(asking.limits)
    if draw(st.booleans()) and "nvidia.com/gpumem" in asking.limits:
        resources["limits"] = {**asking.limits, "nvidia.com/priority": 1}
    body: Json = {"name": name, "image": "none", "resources": resources}
    if draw(st.booleans()):
        body["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    return body
