"""Devices of slices with their taints, and those that are left out."""

import dataclasses

import mig_cards
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.offering import offering, publishing, refusals, tainted
from dra_driver.model import slices

XID = {
    "key": "gpu.nvidia.com/xid",
    "value": "79",
    "effect": "NoSchedule",
    "timeAdded": "2026-11-28T10:00:00Z",
}
HOT = {
    "key": "gpu.nvidia.com/thermal",
    "value": "slowdown",
    "effect": "None",
    "timeAdded": "2026-11-28T11:00:00Z",
}
LOST = {"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}
SILENT = {"key": "gpu.nvidia.com/driver", "effect": "None", "timeAdded": "2026-11-28T10:00:00Z"}
PARTITION = "gpu-0-mig-3g40gb-9-4"
CARDS = mig_cards.dynamic("h100-80gb-hbm3:2")
WELL = mig_cards.offer(CARDS)
NAMES = [device.name for device in mig_cards.devices_of(WELL)]


def offer(state, *, cards=CARDS, refused=(), form=None):
    form = form or publishing.Form(publishing.Layout.SPLIT)
    listed = offering.listing(cards, form, frozenset(refused))
    return offering.offer(listed, state, offering.Policy(mig_cards.DRIVER))


def by_name(contents):
    return {device.name: device for device in mig_cards.devices_of(contents)}


def chunks(contents):
    return [mig_cards.names(content) for content in contents]


def mark(device, *has):
    extra = device.extra | ({"taints": list(has)} if has else {})
    return refusals.mark(slices.format_device(dataclasses.replace(device, extra=extra)))


def test_a_taint_is_all_that_changes_at_a_device_and_nothing_changes_at_others():
    before = by_name(WELL)
    after = offer(offering.State(taints={PARTITION: (XID, HOT)}))
    assert chunks(after) == chunks(WELL)
    found = by_name(after)
    assert found.pop(PARTITION) == dataclasses.replace(
        before.pop(PARTITION), extra=by_name(WELL)[PARTITION].extra | {"taints": [XID, HOT]}
    )
    assert found == before


@given(
    sick=st.dictionaries(st.sampled_from(NAMES), st.sampled_from([(XID,), (HOT,), (XID, HOT)])),
    layout=st.sampled_from(publishing.Layout),
)
def test_whichever_devices_are_tainted_none_changes_its_place(sick, layout):
    form = publishing.Form(layout)
    after = offer(offering.State(taints=sick), form=form)
    assert chunks(after) == chunks(offer(offering.State(), form=form))
    assert all(len(content.devices) <= 64 for content in after)
    for name, device in by_name(after).items():
        assert tuple(device.extra.get("taints", ())) == sick.get(name, ())


def test_many_whole_gpus_are_in_the_same_slices_whether_one_is_tainted_or_not():
    cards = [
        dataclasses.replace(
            CARDS[0],
            gpu=(gpu := dataclasses.replace(CARDS[0].gpu, device=f"gpu-{number}", profiles=())),
            counters={},
            offers={f"gpu-{number}": dataclasses.replace(CARDS[0].offers["gpu-0"], gpu=gpu)},
        )
        for number in range(70)
    ]
    well = offer(offering.State(), cards=cards)
    sick = offer(offering.State(taints={"gpu-3": (XID,)}), cards=cards)
    assert [len(content.devices) for content in well] == [64, 6]
    assert chunks(sick) == chunks(well)


# Devices that are kept


def test_a_kept_device_whose_card_is_there_has_its_taints():
    cards = [dataclasses.replace(CARDS[0], offers={"gpu-0": CARDS[0].offers["gpu-0"]}), CARDS[1]]
    state = offering.State(
        held={PARTITION}, published=mig_cards.devices_of(WELL), taints={PARTITION: (XID,)}
    )
    assert by_name(offer(state, cards=cards))[PARTITION].extra["taints"] == [XID]


MANY = tuple(XID | {"value": str(number)} for number in range(16))


@pytest.mark.parametrize(
    ("has", "told"),
    [
        ((), [LOST]),
        ((XID,), [LOST, XID]),
        ((LOST | {"timeAdded": XID["timeAdded"]},), [LOST | {"timeAdded": XID["timeAdded"]}]),
        ((SILENT, XID), [SILENT, XID]),
        (MANY, [LOST, *MANY[:15]]),
    ],
    ids=["nothing known", "another cause", "lost", "no driver", "as many as there may be"],
)
def test_a_kept_device_whose_card_is_away_says_so_whatever_else_it_says(has, told):
    state = offering.State(
        held={PARTITION}, published=mig_cards.devices_of(WELL), taints={PARTITION: has}
    )
    assert by_name(offer(state, cards=CARDS[1:]))[PARTITION].extra["taints"] == told


def test_where_no_taints_are_taken_a_kept_device_has_none():
    form = publishing.Form(publishing.Layout.SPLIT, taints=False)
    state = offering.State(held={PARTITION}, published=mig_cards.devices_of(WELL))
    assert "taints" not in by_name(offer(state, cards=CARDS[1:], form=form))[PARTITION].extra


# What is left out


def test_what_is_hidden_is_left_out_and_the_rest_stays_in_its_place():
    after = offer(offering.State(hidden={PARTITION, "gpu-1"}))
    assert chunks(after) == [
        [name for name in chunk if name not in {PARTITION, "gpu-1"}] for chunk in chunks(WELL)
    ]


def test_a_slice_of_which_everything_is_hidden_is_none():
    after = offer(offering.State(hidden={"gpu-0", "gpu-1"}))
    assert chunks(after) == chunks(WELL)[:-1]
    assert after[0].counter_sets == WELL[0].counter_sets


def test_what_a_claim_has_is_never_hidden():
    after = offer(offering.State(held={PARTITION}, hidden={PARTITION, "gpu-0"}))
    assert PARTITION in by_name(after)
    assert "gpu-0" not in by_name(after)


# What the API server refuses


@pytest.mark.parametrize("held", [frozenset(), frozenset({PARTITION})], ids=["free", "held"])
def test_where_an_effect_is_refused_the_taints_that_withdraw_are_told_alone(held):
    plain = by_name(WELL)[PARTITION]
    state = offering.State(held=held, taints={PARTITION: (XID, HOT)})
    found = by_name(offer(state, refused={mark(plain, XID, HOT)}))
    assert found[PARTITION].extra["taints"] == [XID]


def test_where_what_only_informs_is_refused_the_device_is_there_without():
    plain = by_name(WELL)[PARTITION]
    state = offering.State(taints={PARTITION: (HOT,)})
    assert by_name(offer(state, refused={mark(plain, HOT)}))[PARTITION] == plain


def test_where_all_taints_are_refused_nobody_new_gets_the_device_and_who_has_it_finds_it():
    plain = by_name(WELL)[PARTITION]
    refused = {mark(plain, XID, HOT), mark(plain, XID)}
    taints = {PARTITION: (XID, HOT)}
    assert PARTITION not in by_name(offer(offering.State(taints=taints), refused=refused))
    state = offering.State(held={PARTITION}, taints=taints)
    assert by_name(offer(state, refused=refused))[PARTITION] == plain


def test_another_time_makes_no_other_mark():
    plain = by_name(WELL)[PARTITION]
    later = XID | {"timeAdded": "2026-11-29T10:00:00Z"}
    state = offering.State(taints={PARTITION: (later,)})
    assert PARTITION not in by_name(offer(state, refused={mark(plain, XID)}))


def test_nothing_is_made_anew_where_nothing_is_wrong():
    contents = tuple(WELL)
    assert tainted.contents(contents, tainted.Marks({})) is contents
