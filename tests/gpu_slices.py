"""GPUs as drivers publish them, from the tables of simulated models; claims that have them."""

import uuid
from typing import Any

from dra_driver.logic.picturing import snapshots
from dra_driver.sim.gpus import gpu_models

Json = dict[str, Any]

DRIVER = "gpu.nvidia.com"
A100, H100, T4 = "a100-40gb-sxm4", "h100-80gb-hbm3", "t4"

_AMOUNTS = {
    "multiprocessors": "multiprocessors",
    "copyEngines": "copy_engines",
    "decoders": "decoders",
    "encoders": "encoders",
    "jpegEngines": "jpeg_engines",
    "ofaEngines": "ofa_engines",
}


def gpu_uuid(node: str, minor: int) -> str:
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node}/{minor}')}"


def name(minor: int, profile: str, start: int, *, model: str = H100) -> str:
    """The device name of a partition."""
    found = next(p for p in gpu_models.load(model).gpu_instance_profiles if p.name == profile)
    return f"gpu-{minor}-mig-{profile.replace('.', '').replace('+', '-')}-{found.id}-{start}"


def whole(node: str, minor: int, *, model: str = H100, on_demand: bool = True) -> Json:
    """The whole GPU; with `on_demand` it excludes its partitions."""
    facts = gpu_models.load(model)
    body = _device(f"gpu-{minor}", node, minor, facts, type="gpu", uuid=gpu_uuid(node, minor))
    body["attributes"]["minor"] = {"int": minor}
    body["capacity"] = {"memory": {"value": str(facts.memory_bytes)}}
    if on_demand and facts.gpu_instance_profiles:
        body["consumesCounters"] = [counter_set(minor, model=model, key="counterSet")]
    return body


def partitions(node: str, minor: int, *, model: str = H100) -> list[Json]:
    """All partitions that can be made on demand."""
    facts = gpu_models.load(model)
    return [
        _partition(node, minor, facts, profile, start, size)
        | {"consumesCounters": [_set(minor, _amounts(profile), start, size, key="counterSet")]}
        for profile in facts.gpu_instance_profiles
        for start, size in profile.placements
    ]


def instance(node: str, minor: int, profile: str, start: int, *, model: str = H100) -> Json:
    """A MIG instance that exists and stays."""
    facts = gpu_models.load(model)
    found = next(item for item in facts.gpu_instance_profiles if item.name == profile)
    size = dict(found.placements)[start]
    body = _partition(node, minor, facts, found, start, size)
    told = uuid.uuid5(uuid.NAMESPACE_DNS, f"{node}/{body['name']}")
    body["attributes"]["uuid"] = {"string": f"MIG-{told}"}
    body["capacity"] |= {f"memorySlice{i}": {"value": "1"} for i in range(start, start + size)}
    return body


def counter_set(minor: int, *, model: str = H100, key: str = "name") -> Json:
    """What the GPU has: of each counter as much as the largest profile takes."""
    profiles = gpu_models.load(model).gpu_instance_profiles
    size = max(start + size for profile in profiles for start, size in profile.placements)
    most = {_kebab(k): str(max(getattr(p, f) for p in profiles)) for k, f in _AMOUNTS.items()}
    most["memory"] = f"{max(profile.memory_mib for profile in profiles)}Mi"
    return _set(minor, most, 0, size, key=key)


def published(node: str, *devices: Json, sets: tuple[Json, ...] = (), split: bool = True):
    """The slices of a node: counter sets in one of their own, or beside the devices."""
    if not sets:
        return [_slice(node, 0, 1, devices=list(devices))]
    if not split:
        return [_slice(node, 0, 1, devices=list(devices), sharedCounters=list(sets))]
    return [
        _slice(node, 0, 2, sharedCounters=list(sets)),
        _slice(node, 1, 2, devices=list(devices)),
    ]


def on_demand(node: str, count: int = 1, *, model: str = H100, split: bool = True) -> list[Json]:
    """The slices of a node whose GPUs are all cut on demand."""
    minors = range(count)
    devices = [
        device
        for minor in minors
        for device in [*partitions(node, minor, model=model), whole(node, minor, model=model)]
    ]
    sets = tuple(counter_set(minor, model=model) for minor in minors)
    return published(node, *devices, sets=sets, split=split)


def held(
    claim: str,
    *devices: str | Json,
    node: str = "n",
    pods: tuple[str, ...] = (),
    reported: tuple[Json, ...] = (),
) -> Json:
    """An allocated claim. A device is its name, or more fields of a result."""
    results = [
        {"request": "gpu", "driver": DRIVER, "pool": node}
        | ({"device": device} if isinstance(device, str) else device)
        for device in devices
    ]
    place = {"driver": DRIVER, "pool": node}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": claim, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "x"}}]}},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": n, "uid": f"uid-{n}"} for n in pods],
            "devices": [place | item for item in reported],
        },
    }


def pod(name: str, phase: str = "Running", *, node: str = "n") -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
        "status": {"phase": phase},
    }


def snapshot(*bodies: Json) -> snapshots.Snapshot:
    return snapshots.of(snapshots.normalized(body, "default") for body in bodies)


def _slice(node: str, index: int, count: int, **spec: Any) -> Json:
    pool = {"name": node, "generation": 1, "resourceSliceCount": count}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{index}-{node}"},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, **spec},
    }


def _device(device: str, node: str, minor: int, facts: gpu_models.Model, **texts: str) -> Json:
    texts |= {"productName": facts.product_name}
    return {
        "name": device,
        "attributes": {key: {"string": value} for key, value in texts.items()},
        "capacity": {},
    }


def _partition(
    node: str, minor: int, facts: gpu_models.Model, profile: Any, start: int, size: int
) -> Json:
    body = _device(
        name(minor, profile.name, start, model=facts.name), node, minor, facts,
        type="mig", parentUUID=gpu_uuid(node, minor), profile=profile.name,
    )  # fmt: skip
    body["attributes"] |= {"memorySlices": {"int": size}, "placementStart": {"int": start}}
    amounts = _amounts(profile)
    body["capacity"] = {key: {"value": amounts[_kebab(key)]} for key in (*_AMOUNTS, "memory")}
    return body


def _amounts(profile: Any) -> dict[str, str]:
    found = {_kebab(key): str(getattr(profile, field)) for key, field in _AMOUNTS.items()}
    return found | {"memory": f"{profile.memory_mib}Mi"}


def _set(minor: int, amounts: dict[str, str], start: int, size: int, *, key: str) -> Json:
    places = {f"memory-slice-{index}": "1" for index in range(start, start + size)}
    return {
        key: f"gpu-{minor}-counter-set",
        "counters": {name: {"value": value} for name, value in {**amounts, **places}.items()},
    }


def _kebab(text: str) -> str:
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in text)
