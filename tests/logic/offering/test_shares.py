"""Devices that many claims consume: what each capacity may be asked for, and what a share gets."""

import dataclasses

import mig_cards
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.offering import attributes, catalog, shares
from dra_driver.logic.scheduling import capacities
from dra_driver.model import devices, mig, quantities, request_policies, slices
from dra_driver.model import shares as share_model

MI, GI = 2**20, 2**30
MODELS = [mig_cards.A100, mig_cards.H100, mig_cards.H200, mig_cards.T4]
MPS, NOBODY = share_model.Enforcement.MPS, share_model.Enforcement.NONE
BY_MEMORY, BY_FOUR = share_model.Shares(), share_model.Shares(4)
MODELLED = {model: mig_cards.gpu(model) for model in MODELS}


def plain(memory=None, **more):
    """A device of no model in particular."""
    capacity = {} if memory is None else {"memory": quantities.of_bytes(memory)}
    counts = {name: quantities.parse(str(number)) for name, number in more.items()}
    return slices.Device("gpu-7", {"type": "gpu"}, capacity | counts, {"taints": []})


def policies(device):
    return {
        name: request_policies.format_policy(policy) for name, policy in device.policies.items()
    }


def test_shares_by_memory_may_ask_for_mebibytes_and_for_percents_of_the_cores():
    device = shares.shareable(plain(80 * GI), BY_MEMORY)
    assert device.capacity == {
        "memory": quantities.parse("80Gi"), "cores": quantities.parse("100")
    }  # fmt: skip
    assert policies(device) == {
        "memory": {
            "default": "80Gi",
            "validRange": {"min": "1Mi", "max": "80Gi", "step": "1Mi"},
        },
        "cores": {"default": "100", "validRange": {"min": "1", "max": "100", "step": "1"}},
    }


def test_numbered_shares_are_one_each_and_take_no_memory_of_their_own():
    device = shares.shareable(plain(80 * GI), BY_FOUR)
    assert device.capacity == {"memory": quantities.parse("80Gi"), "shares": quantities.parse("4")}
    assert policies(device) == {
        "memory": {"default": "0", "validRange": {"min": "0", "max": "80Gi", "step": "1Mi"}},
        "shares": {"default": "1", "validRange": {"min": "1", "max": "4", "step": "1"}},
    }


def test_a_single_share_is_all_that_can_be_asked_for():
    device = shares.shareable(plain(80 * GI), share_model.Shares(1))
    assert policies(device)["shares"] == {"default": "1", "validRange": {"min": "1", "max": "1"}}


@pytest.mark.parametrize("kind", [BY_MEMORY, BY_FOUR, share_model.Shares(1)])
def test_what_is_not_divided_is_taken_only_by_whom_asks_for_it(kind):
    device = shares.shareable(plain(GI, decoders=7, jpegEngines=0), kind)
    found = policies(device)
    assert found["decoders"] == {
        "default": "0", "validRange": {"min": "0", "max": "7", "step": "1"}
    }  # fmt: skip
    # A step beyond the capacity would be refused.
    assert found["jpegEngines"] == {"default": "0", "validRange": {"min": "0", "max": "0"}}
    assert device.capacity["decoders"] == quantities.parse("7")


@pytest.mark.parametrize(("enforcement", "text"), [(MPS, "MPS"), (NOBODY, "None")])
@pytest.mark.parametrize("count", [None, 4])
def test_a_device_says_that_it_is_shared_and_who_holds_the_limits(count, enforcement, text):
    device = plain(GI)
    shared = shares.shareable(device, share_model.Shares(count, enforcement))
    assert shared.attributes == {"type": "gpu", "enforcement": text}
    assert shared.extra == {"taints": [], "allowMultipleAllocations": True}
    assert shared.name == device.name
    assert device == plain(GI)


@pytest.mark.parametrize("memory", [None, 0, MI - 1])
def test_a_device_whose_memory_is_not_known_stays_as_it_is(memory):
    device = plain(memory)
    assert shares.shareable(device, BY_MEMORY) is device
    assert shares.shareable(device, BY_FOUR) is device


@given(st.integers(MI, 300 * GI), st.sampled_from([BY_MEMORY, BY_FOUR]))
def test_whole_mebibytes_of_memory_are_offered_so_that_all_of_it_can_be_asked_for(memory, kind):
    device = shares.shareable(plain(memory), kind)
    offered = device.capacity["memory"].value
    assert offered % MI == 0
    assert 0 <= memory - offered < MI
    assert device.policies["memory"].within.maximum.value == offered


def offers(model):
    """Whole, partitions to be made, and an instance that is there."""
    on = mig_cards.gpu(model, mig_on=bool(MODELLED[model].profiles))
    found = dict(catalog.card(MODELLED[model], mig.Mode.DYNAMIC).offers)
    found["whole"] = devices.Offer(MODELLED[model])
    if on.profiles:
        found |= catalog.card(on, mig.Mode.DYNAMIC).offers
        profile = max(on.profiles, key=lambda one: one.placements[0].size)
        place = mig.Spot(profile.id, profile.placements[0])
        there = mig.Instance(1, place, 0, mig.MigUuid("MIG-1"))
        fixed = dataclasses.replace(on, instances=(there,), numa_node=1, pcie_root="pci0000:05")
        found["static"] = devices.Offer(fixed, profile, place, there)
    return found.values()


@pytest.mark.parametrize("kind", [BY_MEMORY, BY_FOUR])
@pytest.mark.parametrize("model", MODELS)
def test_every_capacity_of_every_device_has_a_policy_and_there_are_not_too_many(model, kind):
    for offer in offers(model):
        whole = attributes.device(offer.gpu, partitionable=bool(offer.gpu.profiles))
        device = whole if offer.spot is None else attributes.partition(offer)
        shared = shares.shareable(device, kind)
        assert shared.policies.keys() == shared.capacity.keys()
        # Kubernetes allows no more in one device.
        assert len(shared.attributes) + len(shared.capacity) <= 32


@pytest.mark.parametrize("kind", [BY_MEMORY, BY_FOUR])
@pytest.mark.parametrize("model", MODELS)
def test_what_is_counted_of_a_device_is_what_it_is_published_with(model, kind):
    for offer in offers(model):
        counted = shares.capacity_of(offer, kind)
        device = attributes.device(offer.gpu) if offer.spot is None else attributes.partition(offer)
        assert counted == shares.shareable(device, kind).capacity
        assert counted["memory"].value > 0
        assert ("cores" in counted, "shares" in counted) == (kind is BY_MEMORY, kind is BY_FOUR)


# Limits


def consumed(**amounts):
    return {name: quantities.parse(text) for name, text in amounts.items()}


@pytest.mark.parametrize(
    ("kind", "taken", "memory", "percent"),
    [
        (BY_MEMORY, consumed(memory="10Gi", cores="30"), 10 * GI, 30),
        (BY_MEMORY, consumed(memory="80Gi", cores="100"), 80 * GI, 100),
        (BY_MEMORY, consumed(memory="1Mi", cores="1"), MI, 1),
        (BY_MEMORY, consumed(memory="10Gi"), 10 * GI, 100),
        (BY_MEMORY, consumed(cores="30"), 80 * GI, 30),
        (BY_MEMORY, {}, 80 * GI, 100),
        (BY_FOUR, consumed(memory="0", shares="1"), 20 * GI, 25),
        (BY_FOUR, consumed(memory="0", shares="3"), 60 * GI, 75),
        (BY_FOUR, consumed(memory="0", shares="4"), 80 * GI, 100),
        (BY_FOUR, consumed(memory="30Gi", shares="1"), 30 * GI, 25),
        (BY_FOUR, {}, 20 * GI, 25),
        (share_model.Shares(3), consumed(shares="1"), 27306 * MI, 33),
        (share_model.Shares(3), consumed(shares="2"), 54613 * MI, 66),
        (share_model.Shares(100), consumed(shares="1"), 819 * MI, 1),
    ],
)
def test_a_share_may_take_what_it_consumes_or_its_part(kind, taken, memory, percent):
    assert shares.limits(taken, kind, 80 * GI) == share_model.Limits(memory, percent)


@given(st.integers(1, share_model.MOST), st.integers(1, 300 * 1024), st.data())
def test_numbered_shares_together_have_no_more_than_there_is(count, mebibytes, data):
    kind, left, limits = share_model.Shares(count), count, []
    while left:
        number = data.draw(st.integers(1, left))
        taken = consumed(memory="0", shares=str(number))
        limits.append(shares.limits(taken, kind, mebibytes * MI))
        left -= number
    assert sum(one.memory_bytes for one in limits) <= mebibytes * MI
    assert sum(one.percent for one in limits) <= 100
    assert all(one.memory_bytes % MI == 0 and 1 <= one.percent <= 100 for one in limits)


@given(st.integers(1, 80 * 1024), st.integers(1, 100))
def test_any_amount_that_the_policy_lets_through_is_what_the_share_gets(mebibytes, cores):
    device = shares.shareable(plain(80 * GI), BY_MEMORY)
    asked = {"memory": quantities.of_bytes(mebibytes * MI), "cores": quantities.parse(str(cores))}
    taken = capacities.consumption(device, mig_cards.DRIVER, asked)
    assert shares.limits(taken, BY_MEMORY, 80 * GI) == share_model.Limits(mebibytes * MI, cores)


@pytest.mark.parametrize(
    ("kind", "asked", "taken"),
    [
        (BY_MEMORY, {}, {"memory": "80Gi", "cores": "100", "decoders": "0"}),
        (BY_MEMORY, {"memory": "1"}, {"memory": "1Mi", "cores": "100", "decoders": "0"}),
        (BY_MEMORY, {"memory": "1G"}, {"memory": "954Mi", "cores": "100", "decoders": "0"}),
        (BY_MEMORY, {"cores": "7", "decoders": "2"},
         {"memory": "80Gi", "cores": "7", "decoders": "2"}),
        (BY_FOUR, {}, {"memory": "0", "shares": "1", "decoders": "0"}),
        (BY_FOUR, {"shares": "3", "memory": "1"},
         {"memory": "1Mi", "shares": "3", "decoders": "0"}),
    ],
)  # fmt: skip
def test_a_claim_takes_what_it_asks_for_and_else_all_or_one_share(kind, asked, taken):
    device = shares.shareable(plain(80 * GI, decoders=7), kind)
    assert capacities.consumption(device, mig_cards.DRIVER, consumed(**asked)) == consumed(**taken)


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        (BY_MEMORY, {"memory": "81Gi"}),
        (BY_MEMORY, {"cores": "101"}),
        (BY_MEMORY, {"decoders": "8"}),
        (BY_MEMORY, {"shares": "1"}),
        (BY_FOUR, {"shares": "5"}),
        (BY_FOUR, {"cores": "1"}),
    ],
)
def test_no_claim_gets_more_than_there_is_or_what_there_is_not(kind, asked):
    device = shares.shareable(plain(80 * GI, decoders=7), kind)
    with pytest.raises(capacities.Misfit):
        capacities.consumption(device, mig_cards.DRIVER, consumed(**asked))
