"""GPUs for virtual machines: where they are listed, and what they exclude."""

import dataclasses

import dra_objects
import mig_cards
import passed_cards
import pytest
from hypothesis import given
from hypothesis import strategies as st
from passed_cards import OFF, ON, ONLY

from dra_driver.logic.offering import attributes, catalog, counting, offering, publishing
from dra_driver.logic.passthrough import hurdles
from dra_driver.model import claims, devices, mig, nodes, shares, slices

SPLIT, COMBINED, PLAIN = publishing.Layout
NODE = nodes.Node("node-1", {})
CLASS = claims.DeviceClass("any", (f'device.driver == "{mig_cards.DRIVER}"',))


def cards(spec="h100-80gb-hbm3:2,t4:2", mode=ON):
    return passed_cards.passed(mig_cards.dynamic(spec), mode)


def whole(contents):
    """Devices that are whole GPUs, in publishing order."""
    names = [device.name for device in mig_cards.devices_of(contents)]
    return [name for name in names if "-mig-" not in name]


def the(contents, name):
    [device] = [one for one in mig_cards.devices_of(contents) if one.name == name]
    return device


# What is listed, and where


def test_gpus_for_virtual_machines_come_last_in_the_order_of_the_others():
    contents = mig_cards.offer(cards())
    assert whole(contents) == [
        *("gpu-3", "gpu-2", "gpu-1", "gpu-0"),
        *("gpu-vfio-3", "gpu-vfio-2", "gpu-vfio-1", "gpu-vfio-0"),
    ]


def test_where_nothing_is_cut_whole_gpus_are_in_the_order_in_which_they_are_without():
    plain = mig_cards.dynamic("t4:12")
    contents = mig_cards.offer(passed_cards.passed(plain))
    names = [f"gpu-{number}" for number in range(12)]
    assert whole(contents) == [*names, *(f"gpu-vfio-{number}" for number in range(12))]
    assert whole(mig_cards.offer(plain)) == names


@pytest.mark.parametrize(("spec", "others"), [("t4:3", (0, 2)), ("h100-80gb-hbm3:3", (2, 0))])
def test_virtual_machines_have_those_first_that_nobody_else_can_have(spec, others):
    found = cards(spec)
    found[1] = cards(spec, mode=ONLY)[1]
    contents = mig_cards.offer([*found, passed_cards.found_bound(5)])
    first = (1, 5) if others == (0, 2) else (5, 1)
    assert [name for name in whole(contents) if devices.is_vfio(name)] == [
        f"gpu-vfio-{number}" for number in (*first, *others)
    ]


@pytest.mark.parametrize("layout", [SPLIT, COMBINED])
def test_a_gpu_that_is_not_cut_has_one_counter_which_both_ways_take(layout):
    contents = mig_cards.offer(cards("t4:1"), layout=layout)
    [counters] = [one for content in contents for one in content.counter_sets]
    assert publishing.format_counter_set(counters) == {
        "name": "gpu-0-counter-set", "counters": {"cards": {"value": "1"}}
    }  # fmt: skip
    entry = {"counterSet": "gpu-0-counter-set", "counters": {"cards": {"value": "1"}}}
    for name in ("gpu-0", "gpu-vfio-0"):
        assert the(contents, name).extra["consumesCounters"] == [entry]


def test_whoever_has_a_gpu_for_a_virtual_machine_has_all_that_can_be_cut_of_it():
    contents = mig_cards.offer(cards("h100-80gb-hbm3:1"))
    taken = [the(contents, name).extra["consumesCounters"] for name in ("gpu-0", "gpu-vfio-0")]
    assert taken[0] == taken[1]
    [counters] = [one for content in contents for one in content.counter_sets]
    assert taken[0][0]["counters"] == publishing.format_counter_set(counters)["counters"]


def test_switching_it_on_changes_nothing_of_gpus_that_can_be_cut():
    before = mig_cards.devices_of(mig_cards.offer(mig_cards.dynamic("h100-80gb-hbm3:2")))
    after = mig_cards.devices_of(mig_cards.offer(cards("h100-80gb-hbm3:2")))
    assert [one for one in after if not devices.is_vfio(one.name)] == before


def test_gpus_for_virtual_machines_alone_need_no_counters():
    contents = mig_cards.offer(cards(mode=ONLY), layout=PLAIN)
    assert whole(contents) == [f"gpu-vfio-{number}" for number in range(4)]
    assert all(not one.extra for one in mig_cards.devices_of(contents))
    assert mig_cards.offer(cards(mode=ONLY)) == contents


def test_a_gpu_that_is_off_is_as_it_was():
    plain = mig_cards.dynamic("h100-80gb-hbm3:1,t4:1")
    assert mig_cards.offer(passed_cards.passed(plain, OFF)) == mig_cards.offer(plain)


def test_a_gpu_that_somebody_else_has_bound_is_for_virtual_machines_alone():
    card = passed_cards.found_bound(5)
    contents = mig_cards.offer([card])
    assert [one.name for one in mig_cards.devices_of(contents)] == ["gpu-vfio-5"]
    assert contents[0].counter_sets == ()


def test_attributes_of_a_gpu_that_nvml_never_told_of():
    [device] = mig_cards.devices_of(mig_cards.offer([passed_cards.found_bound(5)]))
    assert device.attributes == {
        "type": "vfio",
        "uuid": "1dd13d62-e56a-5e85-a2e9-daac0fba4dbe",
        "vendorID": "0x10de",
        "deviceID": "0x2330",
        "productName": "GH100",
        "iommuFDEnabled": True,
        "iommuGroup": 0x85,
        attributes.PCI_BUS_ID: "0000:85:00.0",
    }
    assert str(device.capacity["addressableMemory"]) == "80Gi"


# Without counters


@pytest.mark.parametrize("divided", [False, True])
def test_without_counters_it_is_whole_gpus_that_are_offered(divided):
    found = cards("h100-80gb-hbm3:1,t4:1")
    if divided:
        found = [catalog.divided(card, shares.Shares()) for card in found]
    form = publishing.Form(
        SPLIT if divided else PLAIN, reason="no counters", beside_shares=not divided
    )
    assert sorted(offering.listing(found, form).devices) == ["gpu-0", "gpu-1"]
    reasons = [offering.why_uncut(card, form) for card in found]
    assert all(reasons)
    assert [counting.left_out(card) for card in found] == [
        "partitions and VFIO devices", "VFIO devices"
    ]  # fmt: skip


def test_of_a_gpu_that_is_shared_it_is_no_share_that_a_virtual_machine_gets():
    [card] = [catalog.divided(card, shares.Shares()) for card in cards("t4:1")]
    contents = mig_cards.offer([card])
    assert the(contents, "gpu-0").extra["allowMultipleAllocations"]
    assert "allowMultipleAllocations" not in the(contents, "gpu-vfio-0").extra


# What claims have


def test_a_virtual_machine_takes_the_whole_card_from_the_order_of_partitions():
    found = cards("h100-80gb-hbm3:2")
    assert offering.taken({"gpu-vfio-0"}, found) == {"gpu-0": {None}, "gpu-1": set()}
    free = mig_cards.offer(found, order="adaptive", state=offering.State(held={"gpu-0"}))
    bound = mig_cards.offer(found, order="adaptive", state=offering.State(held={"gpu-vfio-0"}))
    assert [mig_cards.names(one) for one in bound] == [mig_cards.names(one) for one in free]


def test_a_card_that_is_bound_is_written_as_before_it_was():
    found = cards()
    after = [passed_cards.claimed(found[0]), *found[1:]]
    assert publishing.contents(mig_cards.offer(after)) == publishing.contents(
        mig_cards.offer(found)
    )


@pytest.mark.parametrize("is_published", [True, False])
def test_what_a_virtual_machine_has_stays_listed_though_its_card_is_gone(is_published):
    found = cards("t4:2")
    before = mig_cards.devices_of(mig_cards.offer(found))
    state = offering.State(
        lost=found[0].offers, held={"gpu-vfio-0"}, published=before if is_published else ()
    )
    device = the(mig_cards.offer(found[1:], state=state), "gpu-vfio-0")
    assert device.attributes == the(mig_cards.offer(found), "gpu-vfio-0").attributes
    assert "consumesCounters" not in device.extra


@pytest.mark.parametrize("before", [OFF, ON])
@pytest.mark.parametrize(
    ("spec", "name"), [("t4:1", "gpu-0"), ("h100-80gb-hbm3:1", "gpu-0-mig-1g10gb-19-0")]
)
def test_a_card_that_is_for_virtual_machines_from_now_on_is_so_once_it_is_free(spec, name, before):
    listed = mig_cards.devices_of(mig_cards.offer(cards(spec, before)))

    def names(*held):
        state = offering.State(held=frozenset(held), published=listed)
        contents = mig_cards.offer(cards(spec, ONLY), state=state)
        return [one.name for one in mig_cards.devices_of(contents)]

    assert names(name) == [name]
    assert names() == ["gpu-vfio-0"]
    # What is allocated stays, whoever made a mistake.
    assert names(name, "gpu-vfio-0") == [name, "gpu-vfio-0"]


# Whatever is allocated

SPECS = st.sampled_from(["h100-80gb-hbm3:1,t4:1", "t4:3", "h100-80gb-hbm3:2"])
MODES = st.sampled_from([ON, ON, ON, ONLY, OFF])


EACH = st.lists(st.tuples(MODES, st.booleans()), min_size=3, max_size=3)


def a_node(spec, each, others):
    """Cards with their modes, shared or not, and so many that others have bound."""
    found = []
    for card, (mode, is_shared) in zip(mig_cards.dynamic(spec), each, strict=False):
        divided = catalog.divided(card, shares.Shares()) if is_shared else card
        found += passed_cards.passed([divided], mode)
    bound = range(len(found), len(found) + others)
    return [*found, *(passed_cards.found_bound(number) for number in bound)]


SOME_NODES = st.tuples(SPECS, EACH, st.integers(0, 1))


def asks(number, kind, amounts):
    request = dra_objects.exactly(
        "gpu",
        f"device.attributes['{mig_cards.DRIVER}'].type == '{kind}'",
        device_class="any",
        extra={"capacity": {"requests": amounts}} if amounts else None,
    )
    return dra_objects.claim(request, name=f"claim-{number}")


KINDS = st.tuples(
    st.sampled_from(["gpu", "mig", "vfio"]),
    st.sampled_from([None, {"memory": "1Gi", "cores": "1"}]),
)


def published(contents):
    return [
        slices.ResourceSlice(
            f"slice-{number:02}", mig_cards.DRIVER, "node-1", 1, len(contents), "node-1",
            content.devices,
            {"sharedCounters": [publishing.format_counter_set(one) for one in content.counter_sets]}
            if content.counter_sets
            else {},
        )
        for number, content in enumerate(contents)
    ]  # fmt: skip


@given(
    SOME_NODES,
    st.sampled_from([SPLIT, COMBINED, PLAIN]),
    st.lists(st.tuples(KINDS, st.booleans()), min_size=1, max_size=12),
)
def test_no_card_is_ever_given_to_a_virtual_machine_and_to_somebody_else(node, layout, asked):
    contents = mig_cards.offer(a_node(*node), layout=layout)
    there = published(contents)
    held = []
    for number, ((kind, amounts), ends) in enumerate(asked):
        if ends and held:
            held.pop(0)
        wanted = asks(number, kind, None if kind == "vfio" else amounts)
        found = dra_objects.allocate([wanted], *there, node=NODE, classes=[CLASS], held=held)
        held += found.allocations or ()
        names = [result.device.device for one in held for result in one.results]
        bound = [devices.card_of(name) for name in names if devices.is_vfio(name)]
        others = [devices.card_of(name) for name in names if not devices.is_vfio(name)]
        assert len(bound) == len(set(bound))
        assert not set(bound) & set(others)


@given(SOME_NODES, st.sampled_from([SPLIT, COMBINED, PLAIN]))
def test_a_free_card_can_be_had_in_every_way_that_is_listed(node, layout):
    there = published(mig_cards.offer(a_node(*node), layout=layout))
    for kind in sorted({one.attributes["type"] for part in there for one in part.devices}):
        assert dra_objects.allocate(
            [asks(0, kind, None)], *there, node=NODE, classes=[CLASS]
        ).allocations


# What claims have, by their records


def test_a_card_with_instances_of_others_is_not_handed_over_and_says_why():
    base = mig_cards.gpu(mig_cards.H100, mig_on=True)
    gpu = dataclasses.replace(base, instances=(mig_cards.instance(base, "3g.40gb", 4),))
    [card] = passed_cards.passed([catalog.card(gpu, mig.Mode.DYNAMIC)])
    assert not any(devices.is_vfio(name) for name in card.offers)
    assert card.vfio_note.startswith(
        "it is handed over as a whole only, and GPU instances that this driver did not make take"
    )


def test_a_card_in_mig_mode_of_somebody_else_says_how_it_can_be_handed_over():
    gpu = mig_cards.gpu(mig_cards.H100, mig_on=True)
    [card] = passed_cards.passed([catalog.card(gpu, mig.Mode.DYNAMIC)])
    assert card.vfio_note.startswith(
        "it is handed over as a whole only, and it is in MIG mode, which this driver did not "
        f"switch on: switch it off (nvidia-smi -i {gpu.uuid} -mig 0)"
    )


# The NVLink fabric


FABRIC = ((1, 8), (2, 4), (4, 2), (8, 1))


def in_fabric(card, **facts):
    """The card, and what it is offered as, in partitions of Fabric Manager."""
    gpu = dataclasses.replace(card.gpu, module_id=1, fabric=FABRIC, **facts)
    offers = {name: dataclasses.replace(one, gpu=gpu) for name, one in card.offers.items()}
    return dataclasses.replace(card, gpu=gpu, offers=offers)


def fabric_of(device):
    return {
        name: value
        for name, value in device.attributes.items()
        if name == "gpuModuleID" or name.startswith("partition")
    }


def test_partitions_of_the_fabric_are_told_of_whole_gpus_and_of_no_parts():
    [card] = cards("h100-80gb-hbm3:1")
    contents = mig_cards.offer([in_fabric(card)])
    told = {
        "gpuModuleID": 1, "partition1": 8, "partition2": 4, "partition4": 2, "partition8": 1
    }  # fmt: skip
    assert fabric_of(the(contents, "gpu-0")) == fabric_of(the(contents, "gpu-vfio-0")) == told
    parts = [one for one in mig_cards.devices_of(contents) if one.attributes["type"] == "mig"]
    assert len(parts) > 10
    assert not any(fabric_of(one) for one in parts)


def test_where_fabric_manager_is_not_asked_nothing_is_told():
    [card] = cards("h100-80gb-hbm3:1")
    assert card.gpu.module_id == 1
    contents = mig_cards.offer([card])
    assert fabric_of(the(contents, "gpu-0")) == fabric_of(the(contents, "gpu-vfio-0")) == {}


def test_with_all_that_there_may_be_a_gpu_is_taken_by_the_api_server():
    [card] = mig_cards.dynamic("h100-80gb-hbm3:1")
    full = in_fabric(
        card, addressing_mode="HMM", numa_node=0, numa_near=(1,), pcie_root="pci0000:05"
    )
    note = hurdles.Hurdle(hurdles.Word.NO_COUNTERS, "it has shares")
    for division, told in ((None, 5), (shares.Shares(), 4), (shares.Shares(4), 4)):
        one = dataclasses.replace(full, vfio_note=note, division=division)
        for lists in (False, True):
            form = publishing.Form(SPLIT, lists=lists)
            found = counting.device(one, one.offers["gpu-0"], form)
            assert len(found.attributes) + len(found.capacity) <= 32
            assert len(fabric_of(found)) == told
            assert fabric_of(found)["partition2"] == 4
