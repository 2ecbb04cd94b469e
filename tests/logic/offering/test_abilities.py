"""What can be done with a GPU: what is published, what is offered, what claims are refused for."""

import dataclasses

import mig_cards
import pytest

from dra_driver.logic.offering import abilities, attributes, catalog
from dra_driver.model import devices, mig, shares

HOPPER = mig_cards.gpu(mig_cards.H100)
HOPPER_ON = mig_cards.gpu(mig_cards.H100, mig_on=True)
VGPU = devices.Virtualization.VGPU
PROHIBITED = 2
BY_MEMORY, NOT_ENFORCED = shares.Shares(), shares.Shares(enforcement=shares.Enforcement.NONE)
ABILITIES = ("migCapable", "mpsCapable", "timeSliceCapable")


def published(gpu):
    found = attributes.device(gpu).attributes
    return {name: found.get(name) for name in ABILITIES}


def as_vgpu(gpu, **facts):
    return dataclasses.replace(gpu, virtualization=VGPU, **facts)


@pytest.mark.parametrize(
    "virtualization",
    [None, devices.Virtualization.NONE, devices.Virtualization.PASSTHROUGH],
)
def test_a_gpu_that_is_passed_through_can_do_what_it_can_on_a_machine(virtualization):
    gpu = dataclasses.replace(HOPPER, virtualization=virtualization)
    assert published(gpu) == dict.fromkeys(ABILITIES, True)
    assert catalog.card(gpu, mig.Mode.DYNAMIC).offers.keys() == (
        catalog.card(HOPPER, mig.Mode.DYNAMIC).offers.keys()
    )
    assert abilities.why_no_mps(gpu) is None


def test_a_vgpu_claims_neither_mig_nor_mps():
    assert published(as_vgpu(HOPPER)) == {
        "migCapable": False,
        "mpsCapable": False,
        "timeSliceCapable": True,
    }


@pytest.mark.parametrize("mode", mig.Mode)
def test_a_vgpu_is_offered_whole_and_nothing_is_made_on_it(mode):
    card = catalog.card(as_vgpu(HOPPER), mode)
    assert list(card.offers) == ["gpu-0"]
    assert card.counters == {}
    assert (card.note is not None) == (mode is mig.Mode.DYNAMIC)
    assert not abilities.switches_at_run_time(as_vgpu(HOPPER))


def test_a_vgpu_that_nobody_would_cut_is_told_of_by_nobody():
    assert catalog.card(as_vgpu(HOPPER, mig_capable=False), mig.Mode.DYNAMIC).note is None


@pytest.mark.parametrize("mode", [mig.Mode.DYNAMIC, mig.Mode.STATIC])
def test_a_vgpu_in_mig_mode_offers_the_instances_that_it_has(mode):
    instance = mig_cards.instance(HOPPER_ON, "1g.10gb", 0)
    card = catalog.card(as_vgpu(HOPPER_ON, instances=(instance,)), mode)
    [offer] = card.offers.values()
    assert (offer.instance, card.note, card.counters, card.foreign) == (instance, None, {}, ())


def test_a_vgpu_in_mig_mode_without_instances_offers_nothing_and_says_why():
    card = catalog.card(as_vgpu(HOPPER_ON), mig.Mode.DYNAMIC)
    assert card.offers == {}
    assert card.note.startswith("it is a vGPU, a part of a GPU that the hypervisor")
    assert "instances are not made on it" in card.note


def test_a_vgpu_in_mig_mode_is_nothing_where_mig_is_off():
    card = catalog.card(as_vgpu(HOPPER_ON), mig.Mode.OFF)
    assert (card.offers, "MIG is off for it" in card.note) == ({}, True)


def test_a_vgpu_without_cuda_is_not_offered():
    card = catalog.card(as_vgpu(HOPPER, compute_mode=PROHIBITED), mig.Mode.DYNAMIC)
    assert (card.offers, "a profile with CUDA" in card.note) == ({}, True)
    # On a machine that is an administrator's doing, and MPS sets another one.
    machine = dataclasses.replace(HOPPER, compute_mode=PROHIBITED)
    assert catalog.card(machine, mig.Mode.OFF).offers.keys() == {"gpu-0"}


def test_a_vgpu_is_shared_without_limits_only():
    card = catalog.card(as_vgpu(HOPPER), mig.Mode.OFF)
    refused = catalog.divided(card, BY_MEMORY)
    assert refused.division is None
    assert "limits of MPS are not known to hold" in refused.note
    assert "share enforcement None" in refused.note
    assert catalog.divided(card, NOT_ENFORCED).division == NOT_ENFORCED


@pytest.mark.parametrize("kind", [BY_MEMORY, NOT_ENFORCED, shares.Shares(4)])
@pytest.mark.parametrize("memory", [None, 0])
def test_a_gpu_whose_memory_is_not_known_is_not_divided_and_says_why(kind, memory):
    gpu = dataclasses.replace(HOPPER, memory_bytes=memory)
    card = catalog.divided(catalog.card(gpu, mig.Mode.OFF), kind)
    assert card.division is None
    assert card.note == (
        "each of its devices goes to one claim, though it is to be shared: NVML does not tell how "
        "much memory it has, so no part of it can be counted. Set shares off for it (`gpus` in the "
        "settings file), and select it by `productName`"
    )
    assert catalog.divided(catalog.card(gpu, mig.Mode.OFF), None).note is None


@pytest.mark.parametrize("memory", [None, 0])
def test_no_memory_is_published_where_none_is_known(memory):
    gpu = dataclasses.replace(HOPPER, memory_bytes=memory)
    assert attributes.device(gpu).capacity == {}


def test_no_memory_is_published_of_a_partition_either():
    [offer] = catalog.card(
        dataclasses.replace(HOPPER_ON, instances=(mig_cards.instance(HOPPER_ON, "1g.10gb", 0),)),
        mig.Mode.STATIC,
    ).offers.values()
    empty = dataclasses.replace(offer.profile, memory_mib=0)
    device = attributes.partition(dataclasses.replace(offer, profile=empty))
    assert "memory" not in device.capacity


@pytest.mark.parametrize(
    ("capability", "asked", "told"),
    [
        ((9, 0), None, True),
        ((9, 0), True, True),
        ((12, 1), False, False),
        ((6, 0), None, False),
        (None, None, None),
        (None, True, True),
    ],
)
def test_time_slices_are_what_the_driver_says_and_else_what_the_generation_has(
    capability, asked, told
):
    gpu = dataclasses.replace(HOPPER, compute_capability=capability, time_slices=asked)
    assert published(gpu)["timeSliceCapable"] is told


def test_where_a_reset_may_not_be_allowed_the_virtual_machine_is_to_be_restarted():
    pending = dataclasses.replace(HOPPER, mig_pending=True)
    passed = dataclasses.replace(pending, virtualization=devices.Virtualization.PASSTHROUGH)
    assert "restart the virtual machine" in catalog.card(passed, mig.Mode.DYNAMIC).note
    assert "virtual machine" not in catalog.card(pending, mig.Mode.DYNAMIC).note
