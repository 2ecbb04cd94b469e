"""Claims that align GPUs with devices of other drivers, by standard attributes."""

import dataclasses

import mig_cards
import pytest
from dra_objects import allocate, claim, device, devices_of, exactly, match, slice_of

from dra_driver.logic.offering import attributes
from dra_driver.model import claims

NUMA = "resource.kubernetes.io/numaNode"
CLASSES = [
    claims.DeviceClass(name, (f'device.driver == "{driver}"',))
    for name, driver in [("gpu", "gpu.nvidia.com"), ("cpu", "dra.cpu"), ("nic", "dra.net")]
]


def gpu(name, node, *near):
    card = dataclasses.replace(
        mig_cards.gpu(mig_cards.H100), device=name, numa_node=node, numa_near=near
    )
    return attributes.device(card, lists=True)


def fleet(*gpus):
    """GPUs, two sockets of CPUs and two NICs, of which that on socket 0 is slow."""
    return [
        slice_of(*gpus, name="gpus", driver="gpu.nvidia.com"),
        slice_of(
            *[device(f"socket-{n}", **{NUMA: n}) for n in (0, 1)],
            name="cpus", pool="cpus", driver="dra.cpu",
        ),
        slice_of(
            *[device(f"nic-{n}", speed=100 * n, **{NUMA: n}) for n in (0, 1)],
            name="nics", pool="nics", driver="dra.net",
        ),
    ]  # fmt: skip


def aligned(*, count=1, speed=0):
    return claim(
        exactly("gpus", count=count),
        exactly("cores", device_class="cpu"),
        exactly("net", f'device.attributes["dra.net"].speed >= {speed}', device_class="nic"),
        constraints=[match(NUMA)],
    )


@pytest.mark.parametrize(
    ("speed", "found"),
    [
        (0, ["gpu-0", "socket-0", "nic-0"]),
        (100, ["gpu-1", "socket-1", "nic-1"]),
    ],
)
def test_a_gpu_cpus_and_a_nic_of_one_numa_node_are_found(speed, found):
    outcome = allocate([aligned(speed=speed)], *fleet(gpu("gpu-0", 0), gpu("gpu-1", 1)),
                       classes=CLASSES)  # fmt: skip
    assert [name for _, name in devices_of(outcome)[0]] == found


def test_four_gpus_of_one_numa_node_are_found_among_eight():
    eight = [gpu(f"gpu-{n}", n % 2) for n in range(8)]
    outcome = allocate([aligned(count=4, speed=100)], *fleet(*eight), classes=CLASSES)
    names = [name for _, name in devices_of(outcome)[0]]
    assert names == ["gpu-1", "gpu-3", "gpu-5", "gpu-7", "socket-1", "nic-1"]


def test_a_gpu_is_aligned_with_what_is_on_a_node_near_its_own():
    outcome = allocate([aligned(speed=100)], *fleet(gpu("gpu-0", 0, 1)), classes=CLASSES)
    assert [name for _, name in devices_of(outcome)[0]] == ["gpu-0", "socket-1", "nic-1"]


def test_a_gpu_whose_numa_node_is_not_known_is_aligned_with_nothing():
    outcome = allocate([aligned()], *fleet(gpu("gpu-0", None)), classes=CLASSES)
    assert outcome.allocations is None
