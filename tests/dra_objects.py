"""Short ways to write the objects that allocation works on; the names are those of the wire."""

from dra_driver.logic import allocation, demand, pools
from dra_driver.model import claims, nodes, quantities, slices

DRIVER = "gpu.example.com"
NODE = nodes.Node("node-a", {"kubernetes.io/hostname": "node-a", "zone": "z1"})
GPU_CLASS = claims.DeviceClass("gpu", (f'device.driver == "{DRIVER}"',))


def device(name, *, capacity=None, extra=None, **attributes):
    """A device; a double underscore in a keyword stands for the slash of a qualified name."""
    return slices.Device(
        name,
        {key.replace("__", "/"): value for key, value in attributes.items()},
        {key: quantities.parse(value) for key, value in (capacity or {}).items()},
        extra or {},
    )


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


def allocate(pending, *published, node=NODE, in_use=(), classes=(GPU_CLASS,), **options):
    """The outcome for claims on a node that sees these slices; `in_use` are device names."""
    inventory = pools.Inventory.of(published)
    taken = {
        candidate.id
        for pool in inventory.pools(node)
        for candidate in pool.candidates
        if candidate.id.device in in_use
    }
    plan = demand.plan(pending, {item.name: item for item in classes})
    return allocation.allocate(plan, node=node, inventory=inventory, in_use=taken, **options)


def devices_of(outcome):
    """For each claim, (request, device name) in order."""
    assert outcome.allocations is not None, outcome.shortfalls
    return [
        [(result.request, result.device.device) for result in item.results]
        for item in outcome.allocations
    ]
