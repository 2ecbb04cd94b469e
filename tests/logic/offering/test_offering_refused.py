"""What is offered while the API server refuses some of it."""

import dataclasses

import mig_cards
import pytest

from dra_driver.logic.offering import offering, publishing, refusals
from dra_driver.model import slices

PARTITION = "gpu-0-mig-1g10gb-19-6"
SPLIT, COMBINED = publishing.Layout.SPLIT, publishing.Layout.COMBINED


def offer(refused, *, layout=SPLIT, cards=None, **state):
    cards = mig_cards.dynamic("h100-80gb-hbm3:2") if cards is None else cards
    listed = offering.listing(cards, publishing.Form(layout), frozenset(refused))
    return offering.offer(
        listed, offering.State(**state), offering.Policy(mig_cards.DRIVER, may_reorder=False)
    )


def by_name(contents):
    return {device.name: device for device in mig_cards.devices_of(contents)}


def sets(contents):
    return {one.name for content in contents for one in content.counter_sets}


def mark(device):
    return refusals.mark(slices.format_device(device))


def references(contents):
    return {
        entry["counterSet"]
        for device in mig_cards.devices_of(contents)
        for entry in device.extra.get("consumesCounters") or ()
    }


@pytest.mark.parametrize("layout", [SPLIT, COMBINED])
@pytest.mark.parametrize("name", ["gpu-0", PARTITION])
def test_a_device_that_is_refused_is_left_out_and_nothing_else(name, layout):
    all_ = by_name(offer((), layout=layout))
    left = by_name(offer({mark(all_[name])}, layout=layout))
    assert all_.keys() - left.keys() == {name}
    assert all(left[other] == all_[other] for other in left)


@pytest.mark.parametrize("layout", [SPLIT, COMBINED])
def test_a_card_whose_counters_are_refused_offers_no_partitions_and_all_others_do(layout):
    whole = offer((), layout=layout)
    [counters] = [
        one for content in whole for one in content.counter_sets if one.name == "gpu-0-counter-set"
    ]
    refused = {refusals.mark(publishing.format_counter_set(counters))}
    left = offer(refused, layout=layout)
    assert sets(left) == references(left) == {"gpu-1-counter-set"}
    names = by_name(left)
    assert "gpu-0" in names
    assert not [name for name in names if name.startswith("gpu-0-mig")]
    assert [name for name in names if name.startswith("gpu-1-mig")]


def test_a_refused_device_that_a_claim_has_stays_as_it_is_published():
    published = mig_cards.devices_of(offer(()))
    cards = mig_cards.dynamic("h100-80gb-hbm3:2")
    newer = dataclasses.replace(cards[0].gpu, driver_version="590.1.1")
    cards[0] = dataclasses.replace(
        cards[0],
        gpu=newer,
        offers={name: dataclasses.replace(one, gpu=newer) for name, one in cards[0].offers.items()},
    )
    wanted = by_name(offer((), cards=cards, published=published))
    left = by_name(
        offer({mark(wanted[PARTITION])}, cards=cards, published=published, held={PARTITION})
    )
    before = next(device for device in published if device.name == PARTITION)
    assert left[PARTITION] == before
    assert left["gpu-0"] == wanted["gpu-0"]


def test_where_the_taint_of_a_lost_gpu_is_refused_its_device_stays_without():
    cards = mig_cards.dynamic("h100-80gb-hbm3:2")
    state = {
        "lost": {"gpu-0": cards[0].offers["gpu-0"]},
        "held": {"gpu-0"},
        "published": mig_cards.devices_of(offer(())),
    }
    tainted = by_name(offer((), cards=cards[1:], **state))["gpu-0"]
    assert tainted.extra["taints"]
    left = by_name(offer({mark(tainted)}, cards=cards[1:], **state))["gpu-0"]
    assert left == dataclasses.replace(tainted, extra={})
    assert "gpu-0" not in by_name(offer({mark(tainted), mark(left)}, cards=cards[1:], **state))


def test_a_held_device_whose_gpu_is_back_has_no_taint_though_it_is_not_offered():
    cards = mig_cards.dynamic("h100-80gb-hbm3:2")
    published = mig_cards.devices_of(offer(()))
    lost = {PARTITION: cards[0].offers[PARTITION]}
    gone = offer((), cards=cards[1:], lost=lost, held={PARTITION}, published=published)
    back = dataclasses.replace(cards[0], offers={"gpu-0": cards[0].offers["gpu-0"]})
    left = offer(
        (),
        cards=[back, cards[1]],
        held={PARTITION},
        published=mig_cards.devices_of(gone),
    )
    assert by_name(gone)[PARTITION].extra["taints"]
    assert "taints" not in by_name(left)[PARTITION].extra
