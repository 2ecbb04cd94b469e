"""Short ways to write the objects that allocation works on; the names are those of the wire."""

import dataclasses
import itertools
from typing import Any

from dra_driver.logic.scheduling import allocation, demand, emulation, pools, usage
from dra_driver.model import claims, nodes, quantities, request_policies, slices

DRIVER = "gpu.example.com"
NODE = nodes.Node("node-a", {"kubernetes.io/hostname": "node-a", "zone": "z1"})
GPU_CLASS = claims.DeviceClass("gpu", (f'device.driver == "{DRIVER}"',))


def device(name, *, capacity=None, extra=None, policy=None, **attributes):
    """A device; a double underscore in a keyword stands for the slash of a qualified name.

    `policy` has the request policies of its capacities, as on the wire.
    """
    return slices.Device(
        name,
        {key.replace("__", "/"): value for key, value in attributes.items()},
        {key: quantities.parse(value) for key, value in (capacity or {}).items()},
        extra or {},
        {key: request_policies.parse(body) for key, body in (policy or {}).items()},
    )


def shareable(name, *, extra=None, **fields):
    """A device of which claims get shares."""
    return device(name, extra={"allowMultipleAllocations": True} | (extra or {}), **fields)


def slice_of(
    *devices, name="slice-0", pool="node-a", node="node-a", generation=1, count=1, driver=DRIVER,
    extra=None,
):  # fmt: skip
    return slices.ResourceSlice(
        name, driver, pool, generation, count, node, tuple(devices), extra or {}
    )


def gpus(count, **attributes):
    return tuple(device(f"gpu-{index}", index=index, **attributes) for index in range(count))


def exactly(name="gpu", *selectors, count=1, all_devices=False, device_class="gpu", **fields):
    return claims.Request(
        name, (alternative(name, *selectors, count=count, all_devices=all_devices,
                           device_class=device_class, **fields),),
    )  # fmt: skip


def alternative(
    name, *selectors, count=1, all_devices=False, device_class="gpu", admin_access=False, extra=None
):
    return claims.DeviceRequest(
        name,
        device_class,
        selectors,
        claims.ALL if all_devices else claims.EXACT_COUNT,
        None if all_devices else count,
        admin_access,
        extra or {},
    )


def first_available(name, *alternatives):
    return claims.Request(name, alternatives, prioritized=True)


def claim(*requests, name="claim", constraints=(), configs=()):
    ref = claims.ClaimRef("default", name, claims.ClaimUid(f"uid-{name}"))
    return claims.ResourceClaim(ref, requests, tuple(constraints), tuple(configs))


def match(attribute, *requests):
    return claims.Constraint(attribute, distinct=False, requests=requests)


def distinct(attribute, *requests):
    return claims.Constraint(attribute, distinct=True, requests=requests)


def share_ids():
    """Ids of shares that are told apart by their number."""
    numbers = itertools.count()
    return lambda: f"00000000-0000-4000-8000-{next(numbers):012}"


def in_use(*ids):
    """Devices that other claims have as a whole."""
    return usage.InUse.of([claims.Allocation(tuple(claims.Result("r", item) for item in ids))])


@dataclasses.dataclass(frozen=True)
class Found:
    """An outcome of the allocator, with what was short if there is none."""

    allocations: Any
    score: int
    shortfalls: Any


def allocate(
    pending, *published, node=NODE, in_use=(), held=(), classes=(GPU_CLASS,),
    behaviour=emulation.FIXED, **options,
):  # fmt: skip
    """What is found for claims on a node that sees these slices.

    `in_use` are names of devices that others have; `held` are allocations of others.
    """
    inventory = pools.Inventory.of(published)
    whole = [
        claims.Result("r", candidate.id)
        for pool in inventory.pools(node)
        for candidate in pool.devices.values()
        if candidate.id.device in in_use
    ]
    plan = demand.plan(pending, {item.name: item for item in classes}, behaviour)
    scene = {
        "node": node,
        "inventory": inventory,
        "in_use": usage.InUse.of([claims.Allocation(tuple(whole)), *held]),
        "behaviour": behaviour,
    }
    outcome = allocation.allocate(plan, share_ids=share_ids(), **scene, **options)
    short = () if outcome.allocations is not None else allocation.diagnose(plan, **scene)
    return Found(outcome.allocations, outcome.score, short)


def devices_of(outcome):
    """For each claim, (request, device name) in order."""
    assert outcome.allocations is not None, outcome.shortfalls
    return [
        [(result.request, result.device.device) for result in item.results]
        for item in outcome.allocations
    ]
