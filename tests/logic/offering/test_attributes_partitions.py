"""What a MIG partition, and a GPU that has them, looks like in a ResourceSlice."""

import dataclasses

import mig_cards
import pytest

from dra_driver import errors
from dra_driver.logic.offering import attributes
from dra_driver.model import devices, mig, quantities, slices

H100 = dataclasses.replace(
    mig_cards.gpu(mig_cards.H100), minor=3, index=1, numa_node=0, pcie_root="pci0000:04"
)

CARD_FACTS = {
    "productName": "NVIDIA H100 80GB HBM3",
    "brand": "Nvidia",
    "architecture": "Hopper",
    "cudaComputeCapability": slices.Version("9.0.0"),
    "cudaDriverVersion": slices.Version("13.0.0"),
    "driverVersion": slices.Version("580.159.4"),
    "addressingMode": "None",
    "numaNode": 0,
    "resource.kubernetes.io/numaNode": 0,
    "resource.kubernetes.io/pciBusID": H100.pci_address,
    "resource.kubernetes.io/pcieRoot": "pci0000:04",
}


def offer(name, start, *, exists=False, gpu=H100):
    found = mig_cards.instance(gpu, name, start, gi=7) if exists else None
    return devices.Offer(gpu, mig_cards.profile(gpu, name), mig_cards.spot(gpu, name, start), found)


def amounts(device):
    return {name: str(amount) for name, amount in device.capacity.items()}


def test_a_partition_on_demand_is_told_by_profile_and_place_and_has_no_uuid():
    device = attributes.partition(offer("3g.40gb", 4))
    assert device.name == "gpu-3-mig-3g40gb-9-4"
    assert device.attributes == CARD_FACTS | {
        "type": "mig",
        "parentUUID": H100.uuid,
        "profile": "3g.40gb",
        "memorySlices": 4,
        "placementStart": 4,
    }
    assert amounts(device) == {
        "multiprocessors": "60", "copyEngines": "3", "decoders": "3", "encoders": "0",
        "jpegEngines": "3", "ofaEngines": "0", "memory": "40448Mi",
    }  # fmt: skip
    assert (device.extra, device.policies) == ({}, {})


def test_an_instance_that_exists_has_its_uuid_and_a_capacity_for_each_memory_slice():
    on_demand = attributes.partition(offer("3g.40gb", 4))
    device = attributes.partition(offer("3g.40gb", 4, exists=True))
    assert device.name == on_demand.name
    assert device.attributes == on_demand.attributes | {
        "uuid": "MIG-00000000-0000-4000-8000-000000000007"
    }
    assert device.capacity == on_demand.capacity | {
        f"memorySlice{number}": quantities.parse("1") for number in (4, 5, 6, 7)
    }


@pytest.mark.parametrize(
    ("name", "start", "called", "slices_taken"),
    [
        ("1g.10gb", 0, "gpu-3-mig-1g10gb-19-0", 1),
        ("1g.10gb+me", 6, "gpu-3-mig-1g10gb-me-20-6", 1),
        ("1g.20gb", 2, "gpu-3-mig-1g20gb-15-2", 2),
        ("7g.80gb", 0, "gpu-3-mig-7g80gb-0-0", 8),
    ],
)
def test_place_and_name_are_those_of_the_partition(name, start, called, slices_taken):
    device = attributes.partition(offer(name, start))
    assert device.name == called
    told = device.attributes
    assert (told["profile"], told["placementStart"], told["memorySlices"]) == (
        name, start, slices_taken,
    )  # fmt: skip


def test_no_partition_has_more_attributes_and_capacities_than_the_server_takes():
    device = attributes.partition(offer("7g.80gb", 0, exists=True))
    assert CARD_FACTS.keys() < device.attributes.keys()
    assert {f"memorySlice{number}" for number in range(8)} < device.capacity.keys()
    assert len(device.attributes) + len(device.capacity) <= 32
    whole = attributes.device(H100, partitionable=True)
    assert len(whole.attributes) + len(whole.capacity) <= 32


@pytest.mark.parametrize(("number", "told"), [(8, True), (9, False), (12, False)])
def test_memory_slices_that_are_too_many_for_the_server_are_told_by_place_alone(number, told):
    # An RTX PRO 6000 has twelve, and its 4g.96gb takes them all.
    place = mig.Placement(0, number)
    profile = dataclasses.replace(mig_cards.profile(H100, "4g.40gb"), placements=(place,))
    spot = mig.Spot(profile.id, place)
    found = mig.Instance(7, spot, 0, mig.MigUuid("MIG-1"))
    device = attributes.partition(devices.Offer(H100, profile, spot, found))
    assert len(device.attributes) + len(device.capacity) == 32 - 8 + (8 if told else 0)
    assert ("memorySlice0" in device.capacity) is told
    assert (device.attributes["placementStart"], device.attributes["memorySlices"]) == (0, number)


def test_a_gpu_that_can_be_had_in_parts_keeps_its_memory_and_tells_its_engines():
    plain, whole = attributes.device(H100), attributes.device(H100, partitionable=True)
    assert whole.attributes == plain.attributes
    assert amounts(plain) == {"memory": "81559Mi"}
    # Each engine as the profile has it that has most of it.
    assert amounts(whole) == {
        "memory": "81559Mi", "multiprocessors": "132", "copyEngines": "8", "decoders": "7",
        "encoders": "0", "jpegEngines": "7", "ofaEngines": "1",
    }  # fmt: skip


def test_a_gpu_without_profiles_has_no_engines_to_tell():
    bare = dataclasses.replace(H100, profiles=())
    assert attributes.device(bare, partitionable=True) == attributes.device(bare)


def test_facts_that_are_not_known_of_the_gpu_are_left_out_of_its_partitions():
    bare = dataclasses.replace(
        H100, brand=None, numa_node=None, pcie_root=None, driver_version="580"
    )
    told = attributes.partition(offer("1g.10gb", 0, gpu=bare)).attributes
    assert CARD_FACTS.keys() - told.keys() == {
        "brand", "numaNode", "resource.kubernetes.io/numaNode", "resource.kubernetes.io/pcieRoot",
        "driverVersion",
    }  # fmt: skip


@pytest.mark.parametrize(
    "whole",
    [
        devices.Offer(H100),
        devices.Offer(H100, profile=H100.profiles[0]),
        devices.Offer(H100, spot=mig.Spot(19, mig.Placement(0, 1))),
    ],
)
def test_a_whole_gpu_is_no_partition(whole):
    with pytest.raises(errors.Rejected, match=r"^gpu-3 is no partition$"):
        attributes.partition(whole)
