"""What one GPU can be handed out as, by its MIG mode and that of the settings."""

import dataclasses

import mig_cards
import pytest

from dra_driver.logic.offering import abilities, catalog, placements
from dra_driver.model import devices, mig, prepared, shares

DYNAMIC, STATIC, OFF = mig.Mode.DYNAMIC, mig.Mode.STATIC, mig.Mode.OFF
HOPPER = mig_cards.gpu(mig_cards.H100)
HOPPER_ON = mig_cards.gpu(mig_cards.H100, mig_on=True)
AMPERE = mig_cards.gpu(mig_cards.A100)
AMPERE_ON = mig_cards.gpu(mig_cards.A100, mig_on=True)
T4 = mig_cards.gpu(mig_cards.T4)


def partition_names(gpu):
    """Every partition that the empty GPU has."""
    return [
        mig_cards.device_name(gpu, profile.name, placement.start)
        for profile in gpu.profiles
        for placement in profile.placements
    ]


def ours(gpu, *spots, mode_switched=False):
    made = frozenset(mig_cards.spot(gpu, *spot) for spot in spots)
    return catalog.Ours(made, mode_switched)


def with_instances(gpu, *instances):
    return dataclasses.replace(gpu, instances=instances)


def test_the_gpus_of_these_tests_are_what_they_are_called():
    assert (HOPPER.mig_enabled, HOPPER_ON.mig_enabled) == (False, True)
    assert (AMPERE.mig_enabled, AMPERE_ON.mig_enabled) == (False, True)
    assert (AMPERE.mig_pending, AMPERE_ON.mig_pending) == (False, True)
    assert (T4.mig_capable, T4.profiles) == (False, ())
    assert len(HOPPER.profiles) == len(HOPPER_ON.profiles) == 7
    assert len(partition_names(HOPPER)) == 25
    assert len(partition_names(AMPERE_ON)) > 20


@pytest.mark.parametrize(
    ("gpu", "at_run_time"),
    [(HOPPER, True), (HOPPER_ON, True), (AMPERE, False), (AMPERE_ON, False), (T4, False)],
)
def test_mig_mode_changes_at_run_time_from_hopper_on(gpu, at_run_time):
    assert abilities.switches_at_run_time(gpu) is at_run_time


@pytest.mark.parametrize(
    "facts",
    [{"mig_capable": False}, {"mig_capable": None}, {"compute_capability": None},
     {"compute_capability": (8, 9)}],
)  # fmt: skip
def test_a_gpu_of_which_too_little_is_known_does_not_change_its_mode_at_run_time(facts):
    assert abilities.switches_at_run_time(dataclasses.replace(HOPPER, **facts)) is False


# Mode dynamic


@pytest.mark.parametrize(
    ("gpu", "own"),
    [
        (HOPPER, catalog.NOTHING),
        (HOPPER, ours(HOPPER, mode_switched=True)),
        (HOPPER_ON, ours(HOPPER, mode_switched=True)),
        (
            with_instances(HOPPER_ON, mig_cards.instance(HOPPER, "1g.10gb", 0)),
            ours(HOPPER, ("1g.10gb", 0), mode_switched=True),
        ),
    ],
    ids=["off", "off, a mode of ours before", "on by us", "on by us, with an instance of ours"],
)
def test_hopper_offers_all_partitions_and_itself(gpu, own):
    card = catalog.card(gpu, DYNAMIC, own)
    assert list(card.offers) == [*partition_names(gpu), "gpu-0"]
    assert card.offers["gpu-0"] == devices.Offer(gpu)
    assert card.offers["gpu-0-mig-3g40gb-9-4"] == devices.Offer(
        gpu, mig_cards.profile(gpu, "3g.40gb"), mig.Spot(9, mig.Placement(4, 4))
    )
    assert card.counters == placements.limits(HOPPER.profiles)
    assert (card.gpu, card.foreign, card.note) == (gpu, (), None)


@pytest.mark.parametrize(
    "own",
    [catalog.NOTHING, ours(HOPPER, ("1g.10gb", 0))],
    ids=["without instances", "with one of ours"],
)
def test_hopper_that_others_put_into_mig_mode_is_not_offered_whole(own):
    spots = tuple(mig.Instance(3, spot, 0, mig.MigUuid("MIG-x")) for spot in own.spots)
    card = catalog.card(with_instances(HOPPER_ON, *spots), DYNAMIC, own)
    assert list(card.offers) == partition_names(HOPPER)
    assert card.counters == placements.limits(HOPPER.profiles)
    assert (card.foreign, card.note) == ((), None)


def test_ampere_in_mig_mode_offers_partitions_alone_whoever_switched_it_on():
    for own in (catalog.NOTHING, ours(AMPERE_ON, mode_switched=True)):
        card = catalog.card(AMPERE_ON, DYNAMIC, own)
        assert list(card.offers) == partition_names(AMPERE_ON)
        assert card.counters == placements.limits(AMPERE_ON.profiles)
        assert (card.foreign, card.note) == ((), None)


@pytest.mark.parametrize(
    "gpu",
    [AMPERE, dataclasses.replace(AMPERE, profiles=AMPERE_ON.profiles), T4,
     dataclasses.replace(HOPPER, profiles=()), dataclasses.replace(HOPPER, mig_capable=None),
     dataclasses.replace(T4, mig_enabled=None, mig_pending=None)],
    ids=["Ampere", "Ampere that tells its profiles", "not capable", "Hopper without profiles",
         "Hopper that does not tell whether it is capable", "nothing known of MIG"],
)  # fmt: skip
def test_what_cannot_be_cut_now_is_offered_whole_without_counters(gpu):
    for mode in mig.Mode:
        if mode is DYNAMIC or not gpu.profiles:
            card = catalog.card(gpu, mode)
            assert card == catalog.Card(gpu, {"gpu-0": devices.Offer(gpu)})


def test_in_mig_mode_without_profiles_nothing_is_offered_and_it_is_said_why():
    card = catalog.card(dataclasses.replace(HOPPER_ON, profiles=()), DYNAMIC)
    assert (card.offers, card.counters) == ({}, {})
    assert card.note == (
        "it is in MIG mode, and NVML does not tell what NVIDIA H100 80GB HBM3 can be cut into"
    )


# Instances of others in mode dynamic

FOREIGN = mig_cards.instance(HOPPER, "3g.40gb", 4, gi=2)


@pytest.mark.parametrize("switched", [False, True])
def test_instances_of_others_are_not_offered_nor_what_they_leave_no_room_for(switched):
    gpu = with_instances(HOPPER_ON, FOREIGN)
    card = catalog.card(gpu, DYNAMIC, ours(gpu, mode_switched=switched))
    assert card.foreign == (FOREIGN,)
    assert sorted(card.offers) == [
        "gpu-0-mig-1g10gb-19-0", "gpu-0-mig-1g10gb-19-1", "gpu-0-mig-1g10gb-19-2",
        "gpu-0-mig-1g10gb-19-3", "gpu-0-mig-1g10gb-me-20-0", "gpu-0-mig-1g10gb-me-20-1",
        "gpu-0-mig-1g10gb-me-20-2", "gpu-0-mig-1g10gb-me-20-3", "gpu-0-mig-1g20gb-15-0",
        "gpu-0-mig-1g20gb-15-2", "gpu-0-mig-2g20gb-14-0", "gpu-0-mig-2g20gb-14-2",
        "gpu-0-mig-3g40gb-9-0", "gpu-0-mig-4g40gb-5-0",
    ]  # fmt: skip
    assert card.note == (
        "GPU instances that this driver did not make take part of it: 2 at 4:4. They are left "
        "alone; destroy them, or give the card the MIG mode static, or let the driver have them "
        "(--adopt-foreign-mig)"
    )


def test_counters_are_those_of_the_gpu_less_what_instances_of_others_take():
    foreign = [FOREIGN, mig_cards.instance(HOPPER, "1g.10gb+me", 0, gi=5)]
    mine = mig_cards.instance(HOPPER, "1g.10gb", 2, gi=6)
    gpu = with_instances(HOPPER_ON, *foreign, mine)
    card = catalog.card(gpu, DYNAMIC, ours(gpu, ("1g.10gb", 2), mode_switched=True))
    assert card.foreign == tuple(foreign)
    before = placements.limits(gpu.profiles)
    used = [
        placements.consumption(gpu.profiles, mig_cards.profile(gpu, name), one.spot.placement)
        for name, one in (("3g.40gb", foreign[0]), ("1g.10gb+me", foreign[1]))
    ]
    assert card.counters == {
        name: amount - sum(one.get(name, 0) for one in used) for name, amount in before.items()
    }
    assert card.counters["multiprocessors"] == 132 - 60 - 16
    assert {name: card.counters[f"memory-slice-{name}"] for name in range(8)} == {
        0: 0, 1: 1, 2: 1, 3: 1, 4: 0, 5: 0, 6: 0, 7: 0,
    }  # fmt: skip
    # What is ours and may be destroyed takes nothing: the claim that has it is counted.
    assert "gpu-0-mig-1g10gb-19-2" in card.offers
    assert "gpu-0-mig-1g10gb-me-20-1" not in card.offers
    assert "2 at 4:4, 5 at 0:1" in card.note


def test_an_instance_of_others_with_a_profile_that_is_not_listed_takes_its_memory_slices():
    unknown = mig.Instance(7, mig.Spot(99, mig.Placement(6, 2)))
    card = catalog.card(with_instances(HOPPER_ON, unknown), DYNAMIC)
    before = placements.limits(HOPPER.profiles)
    assert card.counters == before | {"memory-slice-6": 0, "memory-slice-7": 0}
    assert "gpu-0-mig-1g10gb-19-6" not in card.offers
    assert "gpu-0-mig-1g10gb-19-5" in card.offers


def test_counters_do_not_fall_below_nothing():
    twice = mig.Instance(7, mig.Spot(99, mig.Placement(4, 4)))
    card = catalog.card(with_instances(HOPPER_ON, FOREIGN, twice), DYNAMIC)
    assert card.counters["memory-slice-4"] == 0
    assert min(card.counters.values()) == 0


def test_an_instance_elsewhere_than_ours_is_not_ours_though_it_has_the_same_profile():
    gpu = with_instances(HOPPER_ON, FOREIGN)
    assert catalog.card(gpu, DYNAMIC, ours(gpu, ("3g.40gb", 0))).foreign == (FOREIGN,)
    assert catalog.card(gpu, DYNAMIC, ours(gpu, ("3g.40gb", 4))).foreign == ()


def test_a_gpu_full_of_instances_of_others_offers_nothing():
    full = mig_cards.instance(HOPPER, "7g.80gb", 0)
    card = catalog.card(with_instances(HOPPER_ON, full), DYNAMIC)
    assert card.offers == {}
    assert card.foreign == (full,)


# Modes static and off


@pytest.mark.parametrize("mode", [STATIC, OFF])
@pytest.mark.parametrize("gpu", [HOPPER, AMPERE, T4], ids=["Hopper", "Ampere", "not capable"])
def test_out_of_mig_mode_a_gpu_is_offered_whole_and_not_in_parts(gpu, mode):
    assert catalog.card(gpu, mode) == catalog.Card(gpu, {"gpu-0": devices.Offer(gpu)})


@pytest.mark.parametrize("base", [HOPPER_ON, AMPERE_ON], ids=["Hopper", "Ampere"])
def test_instances_that_an_administrator_made_are_offered_as_they_are(base):
    name = base.profiles[0].name
    first, second = (mig_cards.instance(base, name, at, gi=at + 1) for at in (0, 3))
    gpu = with_instances(base, first, second)
    card = catalog.card(gpu, STATIC)
    assert card.offers == {
        mig_cards.device_name(base, name, one.spot.placement.start): devices.Offer(
            gpu, base.profiles[0], one.spot, one
        )
        for one in (first, second)
    }
    assert (card.counters, card.foreign, card.note) == ({}, (), None)


def test_who_made_an_instance_does_not_matter_in_mode_static():
    gpu = with_instances(HOPPER_ON, FOREIGN)
    own = ours(gpu, ("3g.40gb", 4), mode_switched=True)
    assert catalog.card(gpu, STATIC, own) == catalog.card(gpu, STATIC)


def test_instances_without_one_compute_instance_that_spans_them_are_told_and_not_offered():
    # The adapter leaves `ci` and `uuid` out both for none and for several.
    cut = dataclasses.replace(mig_cards.instance(HOPPER, "1g.10gb", 0, gi=4), ci=None, uuid=None)
    unknown = mig.Instance(9, mig.Spot(99, mig.Placement(2, 1)), 0, mig.MigUuid("MIG-x"))
    card = catalog.card(with_instances(HOPPER_ON, FOREIGN, cut, unknown), STATIC)
    assert list(card.offers) == ["gpu-0-mig-3g40gb-9-4"]
    assert card.note == (
        "GPU instances [4, 9] have no compute instance that spans them, or several"
    )


def test_mig_mode_without_instances_offers_nothing_in_mode_static():
    card = catalog.card(HOPPER_ON, STATIC)
    assert card.offers == {}
    assert card.note == (
        "it is in MIG mode without instances: make some, or let the driver make them"
    )


@pytest.mark.parametrize("base", [HOPPER_ON, AMPERE_ON], ids=["Hopper", "Ampere"])
def test_a_gpu_in_mig_mode_offers_nothing_in_mode_off(base):
    for instances in ((), (mig_cards.instance(base, base.profiles[0].name, 0),)):
        card = catalog.card(with_instances(base, *instances), OFF, catalog.Ours(mode_switched=True))
        assert (card.offers, card.counters, card.foreign) == ({}, {}, ())
        assert card.note == (
            "it is in MIG mode, so it cannot be used as a whole, and MIG is off for it in the "
            "settings"
        )


# Half way between two modes


@pytest.mark.parametrize("mode", mig.Mode)
@pytest.mark.parametrize("base", [AMPERE, AMPERE_ON, HOPPER, HOPPER_ON])
def test_a_gpu_that_waits_for_a_reset_offers_nothing(base, mode):
    pending = not base.mig_enabled
    card = catalog.card(dataclasses.replace(base, mig_pending=pending), mode)
    assert (card.offers, card.counters, card.foreign) == ({}, {}, ())
    assert card.note == (
        f"MIG mode goes {'on' if pending else 'off'} with the next reset of the GPU: reset it "
        "(nvidia-smi --gpu-reset), or take the change back (nvidia-smi -mig)"
    )


def test_a_pending_mode_that_is_not_known_is_none_to_wait_for():
    card = catalog.card(dataclasses.replace(HOPPER, mig_pending=None), DYNAMIC)
    assert "gpu-0" in card.offers


def test_a_card_is_named_after_the_gpu_though_that_is_not_offered():
    gpu = dataclasses.replace(AMPERE_ON, minor=12)
    card = catalog.card(gpu, DYNAMIC)
    assert card.name == "gpu-12"
    assert all(name.startswith("gpu-12-mig-") for name in card.offers)
    assert {offer.card for offer in card.offers.values()} == {"gpu-12"}


# Shares


NOT_ENFORCED = shares.Shares(enforcement=shares.Enforcement.NONE)


@pytest.mark.parametrize(
    ("capability", "division"),
    [((7, 0), shares.Shares()), ((9, 0), shares.Shares(4)), (None, shares.Shares()),
     ((6, 1), NOT_ENFORCED), ((3, 0), NOT_ENFORCED), ((6, 1), None)],
)  # fmt: skip
def test_a_card_is_divided_as_it_should_be(capability, division):
    gpu = dataclasses.replace(T4, compute_capability=capability)
    card = catalog.divided(catalog.card(gpu, OFF), division)
    assert (card.division, card.note) == (division, None)


@pytest.mark.parametrize("division", [shares.Shares(), shares.Shares(4)])
def test_a_card_whose_processes_mps_cannot_hold_to_limits_is_not_divided(division):
    gpu = dataclasses.replace(T4, compute_capability=(6, 1))
    card = catalog.divided(catalog.card(gpu, OFF), division)
    assert card.division is None
    assert list(card.offers) == ["gpu-0"]
    assert card.note == (
        "each of its devices goes to one claim, though it is to be shared: MPS holds limits from "
        "compute capability 7.0 on, and it has 6.1. Set shares off for it, or share enforcement "
        "None (`gpus` in the settings file)"
    )


def test_why_a_card_is_not_divided_stands_beside_what_else_keeps_it_from_being_offered_in_full():
    gpu = dataclasses.replace(AMPERE_ON, compute_capability=(6, 1))
    plain = catalog.card(gpu, STATIC)
    note = catalog.divided(plain, shares.Shares()).note
    assert note.startswith(f"{plain.note}; each of its devices goes to one claim")


def test_what_a_claim_had_of_a_card_is_told_by_its_record():
    one, two = mig_cards.node("h100-80gb-hbm3:2")
    mine, others = _had(one, gi=3), _had(two, gi=4, made=False)
    cards = [catalog.card(gpu, mig.Mode.OFF) for gpu in (one, two)]
    record = prepared.Record(
        uid="u",
        namespace="n",
        name="c",
        phase=prepared.Phase.COMPLETED,
        boot_id="b",
        devices=(),
        partitions=(mine, others),
        gpus={one.name: one.uuid, two.name: two.uuid},
    )
    found = catalog.of_claims(cards, [record])
    assert {name: (had.gpu, had.spot, had.instance) for name, had in found.items()} == {
        mine.device: (one, mine.spot, None),
        others.device: (two, others.spot, others.instance),
    }
    # Names that have changed hands since say nothing of the cards.
    moved = record.model_copy(update={"gpus": {one.name: two.uuid, two.name: one.uuid}})
    assert catalog.of_claims(cards, [moved]) == {}
    exchanged = record.model_copy(update={"gpus": {one.name: "GPU-of-another", two.name: "GPU-x"}})
    had = prepared.PreparedDevice(requests=("r",), pool="n", device=one.name, cdi_ids=())
    exchanged = exchanged.model_copy(update={"devices": (had,)})
    assert catalog.of_claims(cards, [exchanged]) == {}


def _had(gpu, *, gi, **fields):
    profile = gpu.profiles[0]
    spot = mig.Spot(profile.id, profile.placements[0])
    return prepared.Partition(
        device=devices.mig_device_name(gpu.name, profile.name, spot),
        gpu=gpu.uuid,
        minor=gpu.minor,
        profile=profile.name,
        profile_id=profile.id,
        start=spot.placement.start,
        size=spot.placement.size,
        gi=gi,
        ci=0,
        uuid=mig_cards.INSTANCE_UUID.format(gi=gi),
        **fields,
    )
