"""What still fits on a GPU, and fragmentation, against sums done by hand."""

import itertools

import gpu_slices
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.picturing import fitting, occupancy
from dra_driver.logic.scheduling import counters
from dra_driver.model import nodes
from dra_driver.sim.gpus import gpu_models

H100 = gpu_models.load(gpu_slices.H100)


def the_gpu(*devices, bodies=None):
    """The only GPU, with these devices of it in use."""
    published = bodies if bodies is not None else gpu_slices.on_demand("n")
    claims = [gpu_slices.held(f"c{index}", device) for index, device in enumerate(devices)]
    [node] = occupancy.of(gpu_slices.snapshot(*published, *claims)).nodes
    [gpu] = node.gpus
    return gpu


def part(profile, start):
    return gpu_slices.name(0, profile, start)


@pytest.mark.parametrize(
    ("taken", "largest", "free", "fragmentation"),
    [
        ([], fitting.Fit("whole", 8, (0,)), 8, 0.0),
        ([("1g.10gb", 0)], fitting.Fit("3g.40gb", 4, (4,)), 7, 0.4286),
        ([("1g.10gb", 6)], fitting.Fit("4g.40gb", 4, (0,)), 7, 0.4286),
        ([("3g.40gb", 0)], fitting.Fit("3g.40gb", 4, (4,)), 4, 0.0),
        ([("3g.40gb", 4)], fitting.Fit("4g.40gb", 4, (0,)), 4, 0.0),
        ([("1g.10gb", 0), ("1g.10gb", 4)], fitting.Fit("2g.20gb", 2, (2,)), 6, 0.6667),
        ([("1g.10gb", 1), ("1g.10gb", 3), ("3g.40gb", 4)], fitting.Fit("1g.10gb", 1, (0, 2)), 2, 0),
        ([("1g.10gb", start) for start in range(7)], None, 1, 1.0),
        ([("7g.80gb", 0)], None, 0, 0.0),
    ],
)
def test_the_largest_fit_and_what_it_cannot_use(taken, largest, free, fragmentation):
    gpu = the_gpu(*(part(*each) for each in taken))
    assert (gpu.largest, gpu.free, gpu.fragmentation) == (largest, free, fragmentation)


def test_counters_limit_how_often_the_largest_fits():
    """A 2g has three free places; the multiprocessors are enough for one of them."""
    few = gpu_slices.counter_set(0)
    few["counters"]["multiprocessors"]["value"] = "60"
    devices = gpu_slices.partitions("n", 0)
    gpu = the_gpu(part("1g.10gb", 6), bodies=gpu_slices.published("n", *devices, sets=(few,)))
    assert gpu.largest == fitting.Fit("2g.20gb", 2, (0,))
    assert gpu.fragmentation == 0.7143


def test_looking_takes_nothing_of_the_counters():
    scene = gpu_slices.snapshot(*gpu_slices.on_demand("n"))
    seen = scene.inventory.pools(nodes.Node("n"))
    spots = [
        fitting.Spot(candidate, str(fitting.attribute(candidate, "profile")), place)
        for candidate in seen[0].candidates
        if (place := fitting.partition_at(candidate)) and place.size == 2
    ]
    left = counters.Counters(seen, scene.in_use)
    first = fitting.largest([spot for spot in spots if spot.profile == "1g.20gb"], {}, left)
    assert first == fitting.Fit("1g.20gb", 2, (0, 2, 4, 6))
    assert fitting.largest(spots, {}, left) == fitting.Fit("2g.20gb", 2, (0, 2, 4))


@pytest.mark.parametrize("domain", ["", "gpu.nvidia.com/"])
def test_multiprocessors_are_more_than_a_name(domain):
    bodies = gpu_slices.on_demand("n")
    for device in bodies[1]["spec"]["devices"]:
        if "-3g" in device["name"]:
            device["capacity"]["multiprocessors"]["value"] = "65"
        capacity = device["capacity"].items()
        device["capacity"] = {f"{domain}{key}": value for key, value in capacity}
    assert the_gpu(part("1g.10gb", 6), bodies=bodies).largest.profile == "3g.40gb"


def test_of_equal_profiles_the_one_with_more_multiprocessors_is_the_largest():
    assert the_gpu(part("1g.10gb", 6)).largest.profile == "4g.40gb"
    assert the_gpu(part("4g.40gb", 0), part("2g.20gb", 4)).largest.profile == "1g.20gb"


def test_of_equal_profiles_the_plain_one_is_the_largest():
    """1g.10gb+me fits too, once."""
    full = [part("1g.10gb", start) for start in (0, 1, 2, 4, 5, 6)]
    assert the_gpu(*full).largest == fitting.Fit("1g.10gb", 1, (3,))


@pytest.mark.parametrize(
    ("effect", "largest"),
    [("NoSchedule", "7g.80gb"), ("NoExecute", "7g.80gb"), ("None", "whole")],
)
def test_a_device_with_a_taint_does_not_fit(effect, largest):
    bodies = gpu_slices.on_demand("n")
    whole = bodies[1]["spec"]["devices"][-1]
    whole["taints"] = [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": effect}]
    gpu = the_gpu(bodies=bodies)
    assert gpu.largest.profile == largest
    assert gpu.taints == (() if effect == "None" else (f"gpu.nvidia.com/xid=79:{effect}",))


def test_a_gpu_whose_devices_all_have_taints_is_free_and_fits_nothing():
    device = gpu_slices.whole("n", 0, on_demand=False)
    device["taints"] = [{"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}]
    gpu = the_gpu(bodies=gpu_slices.published("n", device))
    assert (gpu.free, gpu.largest, gpu.fragmentation) == (1, None, 1.0)


def test_nothing_fits_where_more_is_allocated_than_there_is():
    """As the scheduler: a pool with a counter below zero gives nothing, on any of its GPUs."""
    bodies = gpu_slices.on_demand("n", 2)
    claims = [gpu_slices.held("a", "gpu-0"), gpu_slices.held("b", part("3g.40gb", 0))]
    [node] = occupancy.of(gpu_slices.snapshot(*bodies, *claims)).nodes
    assert [gpu.largest for gpu in node.gpus] == [None, None]
    assert [gpu.free for gpu in node.gpus] == [0, 8]


def spent(devices):
    """Counters that these (profile, start, size) consume, by the table."""
    total = {}
    for profile, start, size in devices:
        amounts = gpu_slices._amounts(profile)
        used = {key: int(value.removesuffix("Mi")) for key, value in amounts.items()}
        used |= {f"memory-slice-{index}": 1 for index in range(start, start + size)}
        for key, amount in used.items():
            total[key] = total.get(key, 0) + amount
    return total


LIMITS = {
    key: int(str(value["value"]).removesuffix("Mi"))
    for key, value in gpu_slices.counter_set(0)["counters"].items()
}
PLACES = [(p, start, size) for p in H100.gpu_instance_profiles for start, size in p.placements]


def can_be(devices):
    return all(amount <= LIMITS[key] for key, amount in spent(devices).items())


@given(st.lists(st.sampled_from(PLACES), max_size=8))
def test_what_fits_is_what_the_counters_leave(wanted):
    taken = []
    for place in wanted:
        if can_be([*taken, place]):
            taken.append(place)
    gpu = the_gpu(*(part(profile.name, start) for profile, start, _ in taken))
    possible = [place for place in PLACES if can_be([*taken, place])]
    assert gpu.free == 8 - sum(size for *_, size in taken)
    assert sorted(index for p in gpu.parts for index in range(p.start, p.start + p.size)) == [
        *range(8)
    ]
    if not taken:
        assert gpu.largest == fitting.Fit("whole", 8, (0,))
        return
    if not possible:
        assert gpu.largest is None
        assert gpu.fragmentation == (1.0 if gpu.free else 0.0)
        return
    assert gpu.largest.size == max(size for *_, size in possible)
    same = [place for place in possible if place[0].name == gpu.largest.profile]
    most = max(
        count
        for count in range(1, len(same) + 1)
        if any(can_be([*taken, *each]) for each in itertools.combinations(same, count))
    )
    assert len(gpu.largest.starts) == most
    assert gpu.fragmentation == round((gpu.free - most * gpu.largest.size) / gpu.free, 4)
