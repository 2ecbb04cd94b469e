"""`make bench`, second part: how fast the embedded scheduler's allocator is, and how much it keeps.

The pure logic alone, on nodes with eight H100: no API server, no pods. Nodes are tried as the
embedded scheduler does it, those with the fewest pods first. Each figure is of a process of its
own, since the memory of a process only grows. `allocator.py --profile gpus|mig` profiles one.
"""

import argparse
import concurrent.futures
import cProfile
import heapq
import itertools
import json
import multiprocessing
import pathlib
import pstats
import resource
import time

from dra_driver.adapters.console import terminal
from dra_driver.logic.scheduling import allocation, demand, pools, usage
from dra_driver.model import claims, nodes, slices

DRIVER = "gpu.nvidia.com"
GPUS = 8
SIZES = (500, 1000)
"""Nodes; twice as many should take twice the memory."""
GPU_CLAIMS, MIG_CLAIMS = 8, 20
"""Claims per node: whole GPUs use up the node, partitions about a half."""
MIX = ("1g.10gb",) * 6 + ("2g.20gb",) * 2 + ("1g.20gb", "3g.40gb")
"""Profiles of ten claims in a row."""
MODEL = pathlib.Path(__file__).parents[2] / "dra_driver/sim/gpus/models/h100-80gb-hbm3.json"

_AMOUNTS = {
    "multiprocessors": "multiprocessors",
    "copy-engines": "copy_engines",
    "decoders": "decoders",
    "encoders": "encoders",
    "jpeg-engines": "jpeg_engines",
    "ofa-engines": "ofa_engines",
}


def main():
    """Measure, and print a table; or profile."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", choices=sorted(_KINDS))
    options = parser.parse_args()
    if options.profile:
        _profile(options.profile)
        return
    shown = terminal.Terminal()
    rows = []
    for kind, (text, aim, _) in _KINDS.items():
        found = []
        for size in SIZES:
            with shown.progress(f"Measuring: {text} on {size} nodes"):
                found.append(_apart(kind, size))
        rows += _rows(text, aim, found)
    shown.table(terminal.Table("Allocator", ("WHAT", "MEASURED", "AIM"), tuple(rows)))


def _rows(text, aim, found):
    for size, measured in zip(SIZES, found, strict=True):
        count, devices, reading, tries, seconds, empty, full = measured
        name = f"{count} {text}, {size} nodes"
        yield f"{name}: claims/s", f"{count / seconds:.0f}", aim
        yield f"{name}: nodes tried", f"{tries / count:.1f} a claim, {tries / seconds:.0f}/s", ""
        yield f"{name}: {devices} devices read in", f"{reading:.1f} s", ""
        yield (
            f"{name}: peak memory",
            f"{full:.0f} MB, {(full - empty) / size * 1024:.0f} kB a node",
            "",
        )
    small, large = (full - empty for *_, empty, full in found)
    growth = f"{large / small:.2f} times for {SIZES[1] / SIZES[0]:.0f} times the nodes"
    yield f"{text}: memory grows", growth, "linearly"


def _apart(kind, size):
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(measure, kind, size).result()


def measure(kind, size):
    """Claims, devices, seconds to read, nodes tried, seconds to allocate, MB before and after."""
    empty = _peak()
    start = time.perf_counter()
    devices_of, requests = _KINDS[kind][2]
    bodies = [json.dumps(body) for body in slices_of(0, devices_of())]
    published = [
        slices.parse(json.loads(body.replace("node-0", f"node-{number}")))
        for number in range(size)
        for body in bodies
    ]
    inventory = pools.Inventory.of(published)
    devices = sum(len(item.devices) for item in published)
    reading = time.perf_counter() - start
    wanted = [claim for _ in range(size) for claim in requests]
    start = time.perf_counter()
    tries = allocate(inventory, size, wanted)
    seconds = time.perf_counter() - start
    return len(wanted), devices, reading, tries, seconds, empty, _peak()


def allocate(inventory, size, wanted):
    """Give devices to claims one after the other, each on the node with the fewest pods.

    Returns how many nodes were tried in all: one with few pods may have no room for a profile.
    """
    order = [(0, f"node-{number}") for number in range(size)]
    known = {name: nodes.Node(name) for _, name in order}
    ids = itertools.count()
    classes, in_use, tries = _classes(), usage.InUse(), 0
    for number, request in enumerate(wanted):
        ref = claims.ClaimRef("default", f"claim-{number}", claims.ClaimUid(f"uid-{number}"))
        plan = demand.plan([claims.ResourceClaim(ref, (request,))], classes)
        full = []
        while True:
            tries += 1
            pods, name = heapq.heappop(order)
            outcome = allocation.allocate(
                plan,
                node=known[name],
                inventory=inventory,
                in_use=in_use,
                share_ids=lambda: str(next(ids)),
            )
            if outcome.allocations is not None:
                break
            full.append((pods, name))
        in_use = in_use.changed(added=outcome.allocations)
        for entry in (*full, (pods + 1, name)):
            heapq.heappush(order, entry)
    return tries


def whole_gpus():
    """Eight GPUs without partitions."""
    return [_gpu(index, {}) for index in range(GPUS)], []


def partitions():
    """Partitions of eight GPUs, the smallest profile first, and the whole GPUs last; counters."""
    model = json.loads(MODEL.read_text(encoding="utf-8"))
    profiles = sorted(model["gpu_instance_profiles"], key=lambda item: (item["slices"], item["id"]))
    most = {name: max(profile[key] for profile in profiles) for name, key in _AMOUNTS.items()} | {
        "memory": f"{max(profile['memory_mib'] for profile in profiles)}Mi"
    }
    most |= {f"memory-slice-{number}": 1 for number in range(8)}
    devices = [
        _partition(index, profile, *placement)
        for profile in profiles
        for index in range(GPUS)
        for placement in profile["placements"]
    ]
    devices += [
        _gpu(index, {"consumesCounters": [_counters(index, most)]}) for index in range(GPUS)
    ]
    sets = [
        {"name": entry["counterSet"], "counters": entry["counters"]}
        for entry in (_counters(index, most) for index in range(GPUS))
    ]
    return devices, sets


def slices_of(number, content):
    """The slices of one node: at most 64 devices each if they use counters, which come first."""
    devices, sets = content
    node, size = f"node-{number}", 64 if sets else 128
    parts = [{"sharedCounters": sets}] if sets else []
    parts += [{"devices": devices[at : at + size]} for at in range(0, len(devices), size)]
    for index, part in enumerate(parts):
        pool = {"name": node, "generation": 1, "resourceSliceCount": len(parts)}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, **part}
        yield {"metadata": {"name": f"{index:05x}-{DRIVER}-{node}"}, "spec": spec}


def _gpu(index, extra):
    attributes = {
        "type": "gpu",
        "uuid": f"GPU-{index:08x}-node-0",
        "index": index,
        "minor": index,
        "productName": "NVIDIA H100 80GB HBM3",
        "brand": "Nvidia",
        "architecture": "Hopper",
        "numaNode": index // 4,
        "resource.kubernetes.io/pciBusID": f"0000:{index:02x}:00.0",
        "resource.kubernetes.io/pcieRoot": f"pci0000:{index:02x}",
        "migCapable": True,
    }
    return _device(f"gpu-{index}", attributes, {"memory": "81559Mi"}) | extra


def _partition(index, profile, start, size):
    name = profile["name"].replace(".", "").replace("+", "-")
    attributes = {
        "type": "mig",
        "parentUUID": f"GPU-{index:08x}-node-0",
        "parentIndex": index,
        "parentMinor": index,
        "profile": profile["name"],
        "productName": "NVIDIA H100 80GB HBM3",
        "brand": "Nvidia",
        "architecture": "Hopper",
        "resource.kubernetes.io/pciBusID": f"0000:{index:02x}:00.0",
        "resource.kubernetes.io/pcieRoot": f"pci0000:{index:02x}",
    }
    amounts = {name: profile[key] for name, key in _AMOUNTS.items()}
    amounts["memory"] = f"{profile['memory_mib']}Mi"
    capacity = {_camel_case(name): amount for name, amount in amounts.items()}
    amounts |= {f"memory-slice-{number}": 1 for number in range(start, start + size)}
    body = _device(f"gpu-{index}-mig-{name}-{profile['id']}-{start}", attributes, capacity)
    return body | {"consumesCounters": [_counters(index, amounts)]}


def _device(name, attributes, capacity):
    kinds = {bool: "bool", int: "int", str: "string"}
    versions = {"cudaComputeCapability": "9.0.0", "cudaDriverVersion": "13.0.0"}
    versions["driverVersion"] = "580.159.4"
    return {
        "name": name,
        "attributes": {key: {kinds[type(value)]: value} for key, value in attributes.items()}
        | {key: {"version": value} for key, value in versions.items()},
        "capacity": {key: {"value": str(value)} for key, value in capacity.items()},
    }


def _counters(index, amounts):
    values = {name: {"value": str(amount)} for name, amount in amounts.items()}
    return {"counterSet": f"gpu-{index}-counter-set", "counters": values}


def _camel_case(name):
    first, *rest = name.split("-")
    return first + "".join(part.capitalize() for part in rest)


def _classes():
    attributes = f"device.attributes['{DRIVER}']"
    return {
        name: claims.DeviceClass(
            name, (f"device.driver == '{DRIVER}' && {attributes}.type == '{kind}'",)
        )
        for name, kind in ((DRIVER, "gpu"), ("mig.nvidia.com", "mig"))
    }


def _request(device_class, *selectors):
    return claims.Request("gpu", (claims.DeviceRequest("gpu", device_class, selectors),))


def _of_profile(name):
    return _request("mig.nvidia.com", f"device.attributes['{DRIVER}'].profile == '{name}'")


_KINDS = {
    "gpus": (
        "whole GPUs",
        "≥ 500",
        (whole_gpus, [_request(DRIVER)] * GPU_CLAIMS),
    ),
    "mig": (
        "MIG partitions",
        "",
        (partitions, [_of_profile(MIX[n % len(MIX)]) for n in range(MIG_CLAIMS)]),
    ),
}


def _peak():
    """The most memory that the process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _profile(kind):
    profiler = cProfile.Profile()
    profiler.enable()
    measure(kind, 100)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
