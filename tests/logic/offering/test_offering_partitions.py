"""Partitions in slices: which, in which order, and with which counters."""

import dataclasses
import random

import mig_cards
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.offering import (
    attributes,
    catalog,
    counting,
    offering,
    placements,
    publishing,
)
from dra_driver.model import mig, quantities

SPLIT, COMBINED, PLAIN = (
    publishing.Layout.SPLIT,
    publishing.Layout.COMBINED,
    publishing.Layout.PLAIN,
)
PROFILES = (
    "1g10gb-19",
    "1g10gb-me-20",
    "1g20gb-15",
    "2g20gb-14",
    "3g40gb-9",
    "4g40gb-5",
    "7g80gb-0",
)
"""Of an H100, smallest first."""


def set_names(content):
    return [one.name for one in content.counter_sets]


def consumed(device):
    """(set, counters) of a device, or None."""
    entries = device.extra.get("consumesCounters", [])
    assert len(entries) <= 1
    for entry in entries:
        counters = {name: quantities.parse(c["value"]) for name, c in entry["counters"].items()}
        return entry["counterSet"], counters
    return None


def static_card(minor, name="1g.10gb", start=0):
    base = dataclasses.replace(mig_cards.gpu(mig_cards.H100, mig_on=True), minor=minor)
    found = mig_cards.instance(base, name, start)
    return catalog.card(dataclasses.replace(base, instances=(found,)), mig.Mode.STATIC)


# Counters in slices of their own


def test_slices_go_from_the_smallest_profile_to_whole_gpus_which_go_backwards():
    counters, *groups, whole = mig_cards.offer(mig_cards.dynamic("h100-80gb-hbm3:2,t4:1"))
    assert (set_names(counters), mig_cards.names(counters)) == (
        ["gpu-0-counter-set", "gpu-1-counter-set"],
        [],
    )
    assert mig_cards.names(whole) == ["gpu-2", "gpu-1", "gpu-0"]
    assert len(groups) == len(PROFILES)
    for profile, group in zip(PROFILES, groups, strict=True):
        assert set_names(group) == []
        minors = [name.partition(f"-mig-{profile}-")[0] for name in mig_cards.names(group)]
        assert minors == sorted(minors), profile
        assert set(minors) == {"gpu-0", "gpu-1"}


def test_within_a_profile_and_a_gpu_the_place_that_spoils_least_is_first():
    groups = mig_cards.offer(mig_cards.dynamic("h100-80gb-hbm3:1"))[1:]
    starts = [[name.rpartition("-")[2] for name in mig_cards.names(group)] for group in groups]
    # Slice 6 is in no 2g and no 4g; the first half has the only place of a 4g.
    assert starts == [
        list("6543210"), list("6543210"), list("6420"), list("420"), list("40"),
        ["0"], ["0"], ["0"],
    ]  # fmt: skip


def test_partitions_of_gpus_are_told_in_turns_where_they_are_to_be_spread():
    group = mig_cards.offer(mig_cards.dynamic("h100-80gb-hbm3:2"), order="spread")[5]
    assert mig_cards.names(group) == [
        "gpu-0-mig-3g40gb-9-4", "gpu-1-mig-3g40gb-9-4",
        "gpu-0-mig-3g40gb-9-0", "gpu-1-mig-3g40gb-9-0",
    ]  # fmt: skip


def test_the_adaptive_order_begins_with_what_destroys_least_beside_what_claims_have():
    cards = mig_cards.dynamic("h100-80gb-hbm3:2")
    state = offering.State(held={"gpu-1-mig-1g10gb-19-6"})
    group = mig_cards.offer(cards, order="adaptive", state=state)[1]
    assert mig_cards.names(group)[0].startswith("gpu-1-mig-")
    assert mig_cards.names(mig_cards.offer(cards, order="adaptive")[1])[0].startswith("gpu-0-mig-")


def test_a_slice_of_partitions_has_at_most_64_and_is_cut_between_gpus():
    counters, more, group, rest, *_ = mig_cards.offer(mig_cards.dynamic("h100-80gb-hbm3:12"))
    assert set_names(counters) == [f"gpu-{number}-counter-set" for number in range(8)]
    assert set_names(more) == [f"gpu-{number}-counter-set" for number in range(8, 12)]
    for content, numbers in ((group, range(9)), (rest, range(9, 12))):
        cards = [name.partition("-mig-")[0] for name in mig_cards.names(content)]
        assert cards == [f"gpu-{number}" for number in numbers for _ in range(7)]


@pytest.mark.parametrize("layout", publishing.Layout)
@pytest.mark.parametrize("order", ["pack", "spread", "adaptive"])
def test_the_order_in_which_gpus_are_found_does_not_matter(order, layout):
    cards = mig_cards.dynamic("h100-80gb-hbm3:12")
    assert mig_cards.offer(cards[::-1], order=order, layout=layout) == mig_cards.offer(
        cards, order=order, layout=layout
    )


def test_the_turns_of_gpus_go_on_over_slices_where_partitions_are_to_be_spread():
    *_, first, second = mig_cards.offer(mig_cards.dynamic("h100-80gb-hbm3:12"), order="spread")[:4]
    cards = [name.partition("-mig-")[0] for name in mig_cards.names(first)]
    assert len(cards) == 64
    cards += [name.partition("-mig-")[0] for name in mig_cards.names(second)]
    assert cards == [f"gpu-{number}" for _ in range(7) for number in range(12)]


@pytest.mark.parametrize("order", ["pack", "adaptive"])
def test_slices_are_cut_at_the_same_gpu_in_whatever_order_their_devices_are(order):
    cards = mig_cards.dynamic("h100-80gb-hbm3:10")
    state = offering.State(held={"gpu-9-mig-1g10gb-19-6", "gpu-3"})
    plain, busy = mig_cards.offer(cards), mig_cards.offer(cards, order=order, state=state)
    assert [sorted(mig_cards.names(one)) for one in plain] == [
        sorted(mig_cards.names(one)) for one in busy
    ]


def test_gpus_with_other_profiles_share_slices_by_the_profile_s_name():
    cards = [*mig_cards.dynamic("h100-80gb-hbm3:1,h200-141gb:1"), static_card(2)]
    groups = mig_cards.offer(cards)[1:]
    assert mig_cards.names(groups[0])[7:] == ["gpu-2-mig-1g10gb-19-0"]
    assert [len(mig_cards.names(group)) for group in groups] == [
        8,
        7,
        7,
        7,
        4,
        4,
        3,
        3,
        2,
        2,
        1,
        1,
        1,
        1,
        2,
    ]


# Counters beside the devices


def test_on_older_servers_each_gpu_has_a_slice_with_its_counters():
    first, second, others = mig_cards.offer(
        mig_cards.dynamic("h100-80gb-hbm3:2,t4:1"), layout=COMBINED
    )
    for number, content in enumerate((first, second)):
        assert set_names(content) == [f"gpu-{number}-counter-set"]
        own = mig_cards.names(content)
        assert len(own) == 26
        assert all(name.startswith(f"gpu-{number}") for name in own)
        assert own[-1] == f"gpu-{number}"
        groups = [name.removeprefix(f"gpu-{number}-mig-").rpartition("-")[0] for name in own[:-1]]
        assert tuple(dict.fromkeys(groups)) == PROFILES
    assert (set_names(others), mig_cards.names(others)) == ([], ["gpu-2"])


def test_on_older_servers_a_gpu_whose_partitions_are_all_others_keeps_its_counters():
    base = mig_cards.gpu(mig_cards.H100, mig_on=True)
    full = dataclasses.replace(base, instances=(mig_cards.instance(base, "7g.80gb", 0),))
    (content,) = mig_cards.offer([catalog.card(full, mig.Mode.DYNAMIC)], layout=COMBINED)
    assert (set_names(content), mig_cards.names(content)) == (["gpu-0-counter-set"], [])


# No counters


def test_without_counters_no_partition_is_offered_on_demand_and_those_that_exist_are():
    cards = [*mig_cards.dynamic("h100-80gb-hbm3:1"), static_card(1), *_t4(2)]
    contents = mig_cards.offer(cards, layout=PLAIN)
    assert [mig_cards.names(content) for content in contents] == [
        ["gpu-1-mig-1g10gb-19-0"], ["gpu-0", "gpu-2"],
    ]  # fmt: skip
    assert all(content.counter_sets == () for content in contents)
    assert all("consumesCounters" not in device.extra for device in mig_cards.devices_of(contents))
    assert mig_cards.devices_of(contents)[1] == attributes.device(cards[0].gpu)


def _t4(minor):
    gpu = dataclasses.replace(mig_cards.gpu(mig_cards.T4), minor=minor)
    return [catalog.card(gpu, mig.Mode.DYNAMIC)]


# Devices


def test_devices_are_as_attributes_has_them_and_instances_that_exist_consume_nothing():
    cards = [*mig_cards.dynamic("h100-80gb-hbm3:1"), static_card(1)]
    by_name = {device.name: device for device in mig_cards.devices_of(mig_cards.offer(cards))}
    for card in cards:
        for name, offered in card.offers.items():
            device = by_name.pop(name)
            expected = (
                attributes.device(card.gpu, partitionable=True)
                if offered.spot is None
                else attributes.partition(offered)
            )
            assert dataclasses.replace(device, extra={}) == expected
            assert (consumed(device) is None) == (offered.instance is not None)
    assert by_name == {}


def test_a_partition_consumes_what_its_profile_takes_of_its_gpu():
    by_name = {
        d.name: d
        for d in mig_cards.devices_of(mig_cards.offer(mig_cards.dynamic("h100-80gb-hbm3:2")))
    }
    assert by_name["gpu-1-mig-1g20gb-15-2"].extra == {
        "consumesCounters": [
            {
                "counterSet": "gpu-1-counter-set",
                "counters": {
                    "copy-engines": {"value": "1"},
                    "decoders": {"value": "1"},
                    "jpeg-engines": {"value": "1"},
                    "memory": {"value": "20096Mi"},
                    "memory-slice-2": {"value": "1"},
                    "memory-slice-3": {"value": "1"},
                    "multiprocessors": {"value": "26"},
                },
            }
        ]
    }


def test_a_whole_gpu_consumes_all_that_there_is_so_it_excludes_every_partition():
    counters, *rest = mig_cards.offer(mig_cards.dynamic("h100-80gb-hbm3:1"))
    (counter_set,) = counters.counter_sets
    whole = rest[-1].devices[0]
    assert consumed(whole) == ("gpu-0-counter-set", dict(counter_set.counters))
    assert str(counter_set.counters["memory"]) == "81152Mi"
    assert str(whole.capacity["memory"]) == "81559Mi"
    for device in mig_cards.devices_of(rest)[:-1]:
        _, amounts = consumed(device)
        assert any(amount for amount in amounts.values())


def test_what_others_have_of_a_gpu_is_gone_from_its_counters_and_its_partitions():
    base = mig_cards.gpu(mig_cards.H100, mig_on=True)
    gpu = dataclasses.replace(base, instances=(mig_cards.instance(base, "3g.40gb", 4),))
    counters, *rest = mig_cards.offer([catalog.card(gpu, mig.Mode.DYNAMIC)])
    amounts = counters.counter_sets[0].counters
    slices = [str(amounts[f"memory-slice-{number}"]) for number in range(8)]
    assert slices == ["1", "1", "1", "1", "0", "0", "0", "0"]
    assert "gpu-0" not in {device.name for device in mig_cards.devices_of(rest)}
    assert "gpu-0-mig-3g40gb-9-0" in {device.name for device in mig_cards.devices_of(rest)}


# Whatever is offered

CARDS = st.sampled_from(["h100-80gb-hbm3:2,t4:1", "h200-141gb:1", "h100-80gb-hbm3:1", "t4:2"])
ORDERS = st.sampled_from(["pack", "spread", "adaptive"])
LAYOUTS = st.sampled_from(publishing.Layout)
MODES = st.sampled_from([mig.Mode.DYNAMIC] * 4 + [mig.Mode.STATIC, mig.Mode.OFF])


@st.composite
def nodes(draw):
    """GPUs of which some have instances of others, and what claims have."""
    cards = []
    for gpu in mig_cards.node(draw(CARDS)):
        spots = _some_that_fit(gpu.profiles, draw(st.randoms(use_true_random=False)))
        kept = spots[: draw(st.integers(0, 2))] if gpu.profiles and draw(st.booleans()) else ()
        found = tuple(
            mig.Instance(n, spot, 0, mig.MigUuid(f"MIG-{n}")) for n, spot in enumerate(kept)
        )
        changed = dataclasses.replace(
            gpu, instances=found, mig_enabled=bool(found), mig_pending=bool(found)
        )
        cards.append(catalog.card(changed, draw(MODES)))
    available = sorted(name for card in cards for name in card.offers)
    held = draw(st.sets(st.sampled_from(available), max_size=4)) if available else set()
    return cards, held


def _some_that_fit(profiles, generator):
    found = []
    while room := placements.remaining(profiles, found) if profiles else ():
        found.append(generator.choice(room))
    return tuple(found)


@given(nodes(), ORDERS, LAYOUTS)
def test_every_slice_is_one_that_the_server_takes_and_counters_cover_what_is_consumed(
    node, order, layout
):
    cards, held = node
    contents = mig_cards.offer(cards, layout=layout, order=order, state=offering.State(held=held))
    sets = {one.name: one.counters for content in contents for one in content.counter_sets}
    listed = [device.name for device in mig_cards.devices_of(contents)]
    assert len(listed) == len(set(listed))
    for content in contents:
        assert len(content.devices) <= 64
        assert len(content.counter_sets) <= 8
        assert content.devices or content.counter_sets
        own = set(set_names(content)) if layout is COMBINED else sets.keys()
        for device in content.devices:
            assert len(device.attributes) + len(device.capacity) <= 32
            used = consumed(device)
            if used is not None:
                assert used[0] in own
                assert all(amount <= sets[used[0]][name] for name, amount in used[1].items())
        for one in content.counter_sets:
            assert 0 < len(one.counters) <= 32
            assert layout is COMBINED or not content.devices
    expected = {
        name
        for card in cards
        for name, offered in card.offers.items()
        if layout is not PLAIN or not counting.is_partition(offered)
    }
    assert set(listed) == expected


@given(nodes(), ORDERS, LAYOUTS, st.randoms(use_true_random=False))
def test_the_same_node_is_always_offered_in_the_same_way(node, order, layout, generator):
    cards, held = node
    shuffled, other = list(cards), list(held)
    generator.shuffle(shuffled)
    random.Random(1).shuffle(other)
    first = mig_cards.offer(cards, layout=layout, order=order, state=offering.State(held=held))
    second = mig_cards.offer(shuffled, layout=layout, order=order, state=offering.State(held=other))
    assert publishing.contents(first) == publishing.contents(second)


@given(nodes(), ORDERS, LAYOUTS, st.booleans())
def test_what_is_published_is_published_again_as_it_is(node, order, layout, may_reorder):
    cards, held = node
    first = mig_cards.offer(cards, layout=layout, order=order, state=offering.State(held=held))
    state = offering.State(held=held, published=mig_cards.devices_of(first))
    again = mig_cards.offer(cards, layout=layout, order=order, state=state, may_reorder=may_reorder)
    assert publishing.contents(again) == publishing.contents(first)
