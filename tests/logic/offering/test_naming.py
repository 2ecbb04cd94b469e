"""Names of cards: given once, never another card's while anybody may mean the first one by it."""

import dataclasses

import mig_cards
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.offering import attributes, catalog, naming
from dra_driver.model import card_names, claims, devices, mig, prepared, slices

REF = claims.ClaimRef("team-a", "train", claims.ClaimUid("0a1b"))
NOW, LATER = "2026-11-28T10:00:00Z", "2026-11-28T11:00:00Z"


def gpu(uuid, minor, **facts):
    address = devices.PciAddress(f"0000:{minor:02x}:00.0")
    return devices.Gpu(minor, minor, devices.GpuUuid(f"GPU-{uuid}"), "T4", address, **facts)


def name(uuid, number, **facts):
    return card_names.CardName(
        gpu=f"GPU-{uuid}", device=f"gpu-{number}", **({"product": "T4"} | facts)
    )


def known(*names):
    return {one.device: one for one in names}


def record(*devices_, gpus=(), uid="other"):
    return prepared.Record(
        uid=uid, namespace="n", name="c", phase=prepared.Phase.COMPLETED, boot_id="b",
        devices=tuple(
            prepared.PreparedDevice(requests=(), pool="node-1", device=one, cdi_ids=())
            for one in devices_
        ),
        gpus=dict(gpus),
    )  # fmt: skip


def numbers(memory, *uuids):
    by_card = {one.gpu: devices.number_of(one.device) for one in memory.values()}
    return [by_card[f"GPU-{uuid}"] for uuid in uuids]


# Giving


def test_where_nothing_is_remembered_cards_go_by_their_minors():
    found = naming.given({}, [gpu("b", 1), gpu("a", 0), gpu("c", 7)], ())
    assert found == known(name("a", 0), name("b", 1), name("c", 7))


def test_a_card_keeps_its_name_whatever_its_minor_becomes():
    memory = known(name("a", 0), name("b", 1))
    assert naming.given(memory, [gpu("b", 0), gpu("a", 1)], ()) == memory


def test_a_new_card_does_not_get_the_name_of_one_that_is_gone():
    memory = known(name("a", 0, gone_since=NOW), name("b", 1))
    after = naming.given(memory, [gpu("new", 0), gpu("b", 1)], ())
    assert after == memory | known(name("new", 2))


def test_a_new_card_has_its_minor_s_name_if_that_is_free_before_others_are_given_any():
    memory = known(name("a", 0))
    # 1 is the lowest that is free, and the minor of the second one.
    after = naming.given(memory, [gpu("x", 0), gpu("y", 1), gpu("a", 2)], ())
    assert numbers(after, "a", "x", "y") == [0, 2, 1]


def test_a_name_that_a_claim_has_of_a_card_that_nobody_knows_is_not_given_for_want_of_another():
    memory = known(name("a", 0))
    after = naming.given(memory, [gpu("x", 0)], {"gpu-1", "gpu-2"})
    assert numbers(after, "x") == [3]


def test_names_do_not_depend_on_the_order_in_which_cards_are_found():
    cards = [gpu("x", 0), gpu("y", 1), gpu("z", 2)]
    memory = known(name("a", 0), name("b", 1), name("c", 2))
    assert naming.given(memory, cards, ()) == naming.given(memory, cards[::-1], ())


def test_cards_have_their_names_on_and_those_without_one_are_left_out():
    found = naming.applied(known(name("a", 4)), [gpu("a", 0), gpu("new", 1)])
    assert found == (gpu("a", 0, device="gpu-4"),)


# What others tell


def test_what_is_published_tells_of_whole_cards_and_of_those_that_are_cut():
    [card] = mig_cards.dynamic("h100-80gb-hbm3:1")
    named = dataclasses.replace(card.gpu, device="gpu-5")
    cut = catalog.card(named, mig.Mode.DYNAMIC)
    parts = [attributes.partition(offer) for offer in cut.offers.values() if offer.spot]
    told = naming.published([attributes.device(gpu("a", 3, device="gpu-2")), *parts])
    assert told == known(
        name("a", 2),
        card_names.CardName(gpu=named.uuid, device="gpu-5", product="NVIDIA H100 80GB HBM3"),
    )


@pytest.mark.parametrize(
    "device",
    [
        slices.Device("gpu-0", {"type": "gpu"}, {}),
        slices.Device("gpu-0", {"type": "gpu", "uuid": 1}, {}),
        slices.Device("other", {"type": "gpu", "uuid": "GPU-a"}, {}),
        slices.Device("gpu-vfio-0", {"type": "vfio", "uuid": "GPU-a"}, {}),
        # The UUID of an instance is not that of its card.
        slices.Device("gpu-0-mig-1g5gb-19-0", {"type": "mig", "uuid": "MIG-a"}, {}),
    ],
)
def test_devices_that_do_not_tell_which_card_they_are_tell_nothing(device):
    assert naming.published([device]) == {}


def test_records_tell_of_cards_also_those_of_older_drivers_as_far_as_they_do():
    part = prepared.Partition(
        device="gpu-3-mig-1g10gb-19-0", gpu="GPU-c", minor=3, profile="1g.10gb", profile_id=19,
        start=0, size=1,
    )  # fmt: skip
    old = record("gpu-3-mig-1g10gb-19-0").model_copy(update={"partitions": (part,)})
    told = naming.recorded([record("gpu-9"), old, record("gpu-1", gpus={"gpu-1": "GPU-b"})])
    assert told == known(name("c", 3, product=""), name("b", 1, product=""))


def test_the_cards_of_partitions_are_in_use_too():
    assert naming.in_use([record("gpu-1", "gpu-2-mig-1g10gb-19-0")]) == {"gpu-1", "gpu-2"}


def test_what_is_remembered_counts_more_than_what_is_told_and_the_first_to_tell_more_than_others():
    told = [known(name("x", 0), name("a", 7), name("b", 1)), known(name("y", 1), name("c", 2))]
    assert naming.recalled(known(name("a", 0)), *told) == known(
        name("a", 0), name("b", 1), name("c", 2)
    )


def test_two_that_have_one_name_or_are_one_card_are_told_apart_by_who_came_first():
    first, same_name, same_card = name("a", 0), name("b", 0), name("a", 1)
    assert naming.memory([first, same_name, same_card]) == (
        known(first), (same_name, same_card)
    )  # fmt: skip


# Missing


def seen(*gpus, failing=()):
    return devices.Discovery(
        gpus, tuple(devices.GpuFailure(9, uuid, None, "silent") for uuid in failing)
    )


def test_a_card_is_missed_from_the_look_on_that_does_not_see_it_until_one_does():
    memory = known(name("a", 0), name("b", 1))
    missed = naming.missed(memory, seen(gpu("b", 0)), NOW)
    assert missed == known(name("a", 0, gone_since=NOW), name("b", 1))
    assert naming.missed(missed, seen(gpu("b", 0)), LATER) == missed
    assert naming.missed(missed, seen(gpu("a", 0), gpu("b", 1)), LATER) == memory


def test_a_card_that_does_not_answer_is_not_missed():
    memory = known(name("a", 0))
    assert naming.missed(memory, seen(failing=["GPU-a"]), NOW) == memory


def test_nobody_is_missed_while_there_is_a_gpu_that_does_not_tell_who_it_is():
    memory = known(name("a", 0), name("b", 1, gone_since=NOW))
    assert naming.missed(memory, seen(failing=[None]), LATER) == memory


def test_names_of_cards_that_are_gone_are_needed_while_claims_here_have_them():
    memory = known(name("a", 0, gone_since=NOW), name("b", 1, gone_since=NOW), name("c", 2))
    assert naming.unneeded(memory, {"gpu-0"}) == {"gpu-1"}


# Refusing


def result(device, share_id=None):
    return claims.Result(
        "gpu", slices.DeviceId("gpu.nvidia.com", "node-1", device), share_id=share_id
    )


def test_a_device_whose_card_is_gone_is_refused_with_what_it_was_and_what_to_do():
    error = naming.gone(REF, [result("gpu-0")], name("a", 0, gone_since=NOW))
    assert str(error) == (
        f"claim {REF}: device 'gpu-0' was published for T4 GPU-a, and that card is not on this "
        f"node any more (missed since {NOW}). No other card is given in its place. Delete the pod, "
        "so that the claim is allocated anew"
    )
    assert error.results == (result("gpu-0"),)


def test_a_claim_stays_with_the_cards_that_it_has():
    offers = {"gpu-0": devices.Offer(gpu("a", 5, device="gpu-0"))}
    for before in (None, record("gpu-0"), record("gpu-0", gpus={"gpu-0": "GPU-a"})):
        naming.refuse_moved(REF, [result("gpu-0")], offers, before)


@pytest.mark.parametrize(
    ("others", "where"),
    [
        ({"gpu-1": devices.Offer(gpu("old", 0, device="gpu-1"))}, "is gpu-1 now"),
        ({}, "is not offered on this node any more"),
    ],
)
def test_a_claim_that_has_another_card_than_its_device_is_now_is_refused(others, where):
    offers = {"gpu-0": devices.Offer(gpu("new", 1, device="gpu-0"))} | others
    before = record("gpu-0", gpus={"gpu-0": "GPU-old"})
    shares = [result("gpu-0", "s1"), result("gpu-0", "s2")]
    with pytest.raises(naming.WrongCard) as caught:
        naming.refuse_moved(REF, shares, offers, before)
    assert str(caught.value) == (
        f"claim {REF}: device 'gpu-0' was prepared on GPU-old, which {where}; gpu-0 is T4 GPU-new. "
        "Delete the pod, so that the claim is allocated anew"
    )
    assert caught.value.results == tuple(shares)


# Whatever happens

UUIDS = st.integers(0, 9)
LOOKS = st.lists(
    st.dictionaries(UUIDS, st.integers(0, 7), max_size=8).map(
        # No two cards have one minor number.
        lambda seen: {uuid: minor for minor, uuid in {m: u for u, m in seen.items()}.items()}
    ),
    max_size=12,
)


@given(LOOKS)
def test_in_any_history_a_card_has_one_name_and_a_name_one_card(looks):
    memory, meant, again = {}, {}, {}
    for look in looks:
        cards = [gpu(uuid, minor) for uuid, minor in look.items()]
        memory = naming.missed(naming.given(memory, cards, ()), seen(*cards), NOW)
        again = naming.missed(naming.given(again, cards[::-1], ()), seen(*cards), NOW)
        assert memory == again
        for card in naming.applied(memory, cards):
            assert meant.setdefault(card.name, card.uuid) == card.uuid
        assert len(naming.applied(memory, cards)) == len(cards)
        assert len({one.gpu for one in memory.values()}) == len(memory)
