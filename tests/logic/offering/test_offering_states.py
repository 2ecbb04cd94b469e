"""What stays published though it is not offered any more, and when an order changes."""

import dataclasses

import mig_cards
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.offering import attributes, catalog, counting, offering, publishing
from dra_driver.model import devices, mig

LOST = {"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}
PARTITION = "gpu-0-mig-3g40gb-9-4"


def cards(spec="h100-80gb-hbm3:2", *, mode=mig.Mode.DYNAMIC):
    return [catalog.card(gpu, mode) for gpu in mig_cards.node(spec)]


def published(offered=None, **options):
    """The devices of a node as they were published when all was well."""
    contents = mig_cards.offer(cards() if offered is None else offered, **options)
    return mig_cards.devices_of(contents)


def found(contents, name):
    (device,) = [one for one in mig_cards.devices_of(contents) if one.name == name]
    return device


def before(name):
    return next(device for device in published() if device.name == name)


# Held devices that are not offered any more


@pytest.mark.parametrize("layout", publishing.Layout)
@pytest.mark.parametrize("name", ["gpu-0", PARTITION])
def test_a_held_device_of_a_gpu_that_is_gone_stays_with_a_taint_and_without_counters(name, layout):
    offer = next(card.offers[name] for card in cards() if name in card.offers)
    state = offering.State(lost={name: offer}, held={name}, published=published())
    contents = mig_cards.offer(cards()[1:], state=state, layout=layout)
    device = found(contents, name)
    assert device.extra == {"taints": [LOST]}
    assert device.attributes == before(name).attributes
    assert "gpu-0-counter-set" not in {
        one.name for content in contents for one in content.counter_sets
    }


def test_a_partition_of_a_lost_gpu_is_told_from_memory_where_nothing_is_published():
    offer = cards()[0].offers[PARTITION]
    state = offering.State(lost={PARTITION: offer}, held={PARTITION})
    contents = mig_cards.offer(cards()[1:], state=state)
    assert found(contents, PARTITION) == dataclasses.replace(
        attributes.partition(offer), extra={"taints": [LOST]}
    )


def test_a_partition_of_a_gpu_that_vanished_before_the_start_is_told_as_it_was_published():
    state = offering.State(held={PARTITION}, published=published())
    contents = mig_cards.offer(cards()[1:], state=state)
    assert found(contents, PARTITION) == dataclasses.replace(
        before(PARTITION), extra={"taints": [LOST]}
    )


def test_devices_of_a_lost_gpu_that_nobody_holds_are_not_listed():
    offers = cards()[0].offers
    state = offering.State(lost=offers, held={"gpu-1"}, published=published())
    listed = [device.name for device in mig_cards.devices_of(mig_cards.offer([], state=state))]
    assert listed == ["gpu-1"]


def test_a_held_partition_stays_as_it_is_while_its_gpu_is_there_in_another_mode():
    state = offering.State(held={PARTITION}, published=published())
    contents = mig_cards.offer(cards(mode=mig.Mode.OFF), state=state)
    device = found(contents, PARTITION)
    # The counters are not published any more, and a taint would be about a GPU that is there.
    assert device == dataclasses.replace(before(PARTITION), extra={})


def test_a_held_partition_keeps_consuming_counters_that_are_still_published():
    base = mig_cards.gpu(mig_cards.H100, mig_on=True)
    taken = mig_cards.instance(base, "2g.20gb", 4)
    gpu = dataclasses.replace(base, instances=(taken,), uuid=cards()[0].gpu.uuid)
    changed = [catalog.card(gpu, mig.Mode.DYNAMIC), cards()[1]]
    assert PARTITION not in changed[0].offers
    state = offering.State(held={PARTITION, "gpu-0"}, published=published())
    for layout in (publishing.Layout.SPLIT, publishing.Layout.COMBINED):
        contents = mig_cards.offer(changed, state=state, layout=layout)
        assert found(contents, PARTITION) == before(PARTITION)
        assert found(contents, "gpu-0") == before("gpu-0")
    plain = mig_cards.offer(changed, state=state, layout=publishing.Layout.PLAIN)
    assert found(plain, PARTITION).extra == {}
    assert found(plain, "gpu-0").extra == {}


def test_a_held_partition_stays_in_the_slice_of_its_profile():
    changed = [catalog.card(gpu, mig.Mode.OFF) for gpu in mig_cards.node("h100-80gb-hbm3:1")]
    state = offering.State(held={PARTITION}, published=published())
    contents = mig_cards.offer([*changed, cards()[1]], state=state)
    (group,) = [one for one in contents if PARTITION in mig_cards.names(one)]
    assert sorted(mig_cards.names(group)) == [
        PARTITION, "gpu-1-mig-3g40gb-9-0", "gpu-1-mig-3g40gb-9-4",
    ]  # fmt: skip
    assert mig_cards.names(contents[-1]) == ["gpu-1", "gpu-0"]


def test_a_held_partition_of_a_gpu_that_does_not_tell_its_profiles_any_more_stays():
    silent = dataclasses.replace(cards()[0].gpu, profiles=())
    state = offering.State(held={PARTITION}, published=published())
    contents = mig_cards.offer([catalog.card(silent, mig.Mode.DYNAMIC), cards()[1]], state=state)
    assert found(contents, PARTITION).extra == {}


def test_a_held_device_that_is_offered_is_told_as_it_is_now():
    stale = dataclasses.replace(before(PARTITION), attributes={}, extra={"taints": [LOST]})
    state = offering.State(held={PARTITION}, published=[stale])
    assert found(mig_cards.offer(cards(), state=state), PARTITION) == before(PARTITION)


def test_a_name_that_nothing_is_known_of_is_left_out():
    state = offering.State(held={"gpu-9-mig-1g10gb-19-0"})
    listed = {device.name for device in mig_cards.devices_of(mig_cards.offer(cards(), state=state))}
    assert "gpu-9-mig-1g10gb-19-0" not in listed


NAMES = [device.name for device in published(cards("h100-80gb-hbm3:2,t4:1"))]
AFTER = st.lists(st.sampled_from(["gone", "silent", "cut", *mig.Mode]), min_size=3, max_size=3)


def changed_to(gpu, what):
    """The cards of a GPU after something happened to it: none where it is gone."""
    if what == "gone":
        return []
    if what == "silent":
        return [catalog.card(dataclasses.replace(gpu, profiles=()), mig.Mode.DYNAMIC)]
    if what == "cut" and gpu.profiles:
        there = (mig_cards.instance(gpu, "3g.40gb", 0),)
        cut = dataclasses.replace(gpu, instances=there, mig_enabled=True, mig_pending=True)
        return [catalog.card(cut, mig.Mode.DYNAMIC)]
    return [catalog.card(gpu, mig.Mode.DYNAMIC if what == "cut" else what)]


@given(AFTER, st.sets(st.sampled_from(NAMES), max_size=6), st.sampled_from(publishing.Layout))
def test_whatever_happens_to_a_node_what_is_held_is_listed_once_and_the_pool_stays_valid(
    after, held, layout
):
    node = mig_cards.node("h100-80gb-hbm3:2,t4:1")
    was = published([catalog.card(gpu, mig.Mode.DYNAMIC) for gpu in node])
    now = [card for gpu, what in zip(node, after, strict=True) for card in changed_to(gpu, what)]
    state = offering.State(held=held, published=was)
    contents = mig_cards.offer(now, state=state, layout=layout)
    listed = [device.name for device in mig_cards.devices_of(contents)]
    assert len(listed) == len(set(listed))
    assert held <= set(listed)
    there = {card.name for card in now}
    sets = {one.name for content in contents for one in content.counter_sets}
    for content in contents:
        assert len(content.devices) <= 64
        own = {one.name for one in content.counter_sets}
        for device in content.devices:
            used = {entry["counterSet"] for entry in device.extra.get("consumesCounters", [])}
            assert used <= (own if layout is publishing.Layout.COMBINED else sets)
            assert ("taints" in device.extra) is (devices.card_of(device.name) not in there)
    again = mig_cards.offer(
        now, state=dataclasses.replace(state, published=mig_cards.devices_of(contents)),
        layout=layout,
    )  # fmt: skip
    assert publishing.contents(again) == publishing.contents(contents)


# What is taken


def test_taken_is_what_claims_and_others_have_by_card():
    base = mig_cards.gpu(mig_cards.H100, mig_on=True)
    foreign = mig_cards.instance(base, "2g.20gb", 4)
    three = [
        catalog.card(dataclasses.replace(base, instances=(foreign,)), mig.Mode.DYNAMIC),
        cards()[1],
        catalog.card(dataclasses.replace(mig_cards.gpu(mig_cards.H100), minor=2), mig.Mode.DYNAMIC),
    ]
    held = {"gpu-0-mig-1g10gb-19-0", "gpu-1", "gpu-7", "gpu-7-mig-1g10gb-19-0"}
    assert offering.taken(held, three) == {
        "gpu-0": {foreign.spot, mig.Spot(19, mig.Placement(0, 1))},
        "gpu-1": {None},
        "gpu-2": set(),
    }


def test_a_partition_is_made_for_a_claim_unless_it_exists_or_is_a_whole_gpu():
    gpu = mig_cards.gpu(mig_cards.H100)
    there = mig_cards.instance(gpu, "1g.10gb", 0)
    offer = devices.Offer(gpu, gpu.profiles[0], there.spot)
    assert counting.is_partition(offer)
    assert not counting.is_partition(dataclasses.replace(offer, instance=there))
    assert not counting.is_partition(devices.Offer(gpu))


# When an order changes

FIRST = "gpu-0-mig-1g10gb-19-6"
"""A claim has it: then the rest of its GPU is what is best filled up."""


def ones(contents):
    """The partitions of the smallest profile in publishing order."""
    return mig_cards.names(contents[1])


def swapped(offered, one, other):
    """The devices with two of them changed about."""
    names = [device.name for device in offered]
    at, to = names.index(one), names.index(other)
    changed = list(offered)
    changed[at], changed[to] = changed[to], changed[at]
    return changed


def adaptive(held, was, *, may_reorder=True):
    state = offering.State(held=held, published=was)
    return mig_cards.offer(cards(), order="adaptive", state=state, may_reorder=may_reorder)


def test_an_order_that_is_better_is_taken():
    calm = published(order="adaptive")
    first_of_the_other = "gpu-1-mig-1g10gb-19-6"
    assert [one.name for one in calm].index(FIRST) == 0
    changed = ones(adaptive({first_of_the_other}, calm))
    assert changed != [one.name for one in calm][:14]
    assert changed[0].startswith("gpu-1-mig-1g10gb-19-")


def test_an_order_that_would_come_too_soon_is_not_taken():
    calm = published(order="adaptive")
    contents = adaptive({"gpu-1-mig-1g10gb-19-6"}, calm, may_reorder=False)
    assert mig_cards.devices_of(contents) == calm


def test_an_order_of_what_cannot_be_had_now_does_not_matter():
    # With one taken, neither it nor the whole GPU's place can be had: any order of those is fine.
    held = {FIRST, "gpu-1-mig-1g10gb-19-6"}
    best = mig_cards.devices_of(adaptive(held, ()))
    moved = swapped(best, FIRST, "gpu-1-mig-1g10gb-19-6")
    assert mig_cards.devices_of(adaptive(held, moved)) == moved
    free = swapped(best, "gpu-0-mig-1g10gb-19-5", "gpu-1-mig-1g10gb-19-5")
    assert mig_cards.devices_of(adaptive(held, free)) == best


def test_a_device_that_is_new_is_put_where_it_belongs_whatever_was_published():
    without = [device for device in published(order="pack") if device.name != FIRST]
    backwards = without[::-1]
    for may_reorder in (True, False):
        state = offering.State(published=backwards)
        contents = mig_cards.offer(cards(), order="pack", state=state, may_reorder=may_reorder)
        assert ones(contents) == ones(mig_cards.offer(cards(), order="pack"))
        # Slices whose devices are the same wait for their turn.
        twos = mig_cards.names(contents[4])
        best = mig_cards.names(mig_cards.offer(cards(), order="pack")[4])
        assert twos == (best if may_reorder else best[::-1])


def test_the_first_publication_has_the_best_order_however_soon_it_is():
    soon = adaptive({"gpu-1-mig-1g10gb-19-6"}, (), may_reorder=False)
    assert soon == adaptive({"gpu-1-mig-1g10gb-19-6"}, ())


def test_another_order_changes_no_slice_s_set_of_devices():
    calm = mig_cards.offer(cards(), order="adaptive")
    changed = adaptive({"gpu-1-mig-1g10gb-19-6", "gpu-0-mig-2g20gb-14-2"}, ())
    assert [set(mig_cards.names(one)) for one in changed] == [
        set(mig_cards.names(one)) for one in calm
    ]
    assert changed != calm
