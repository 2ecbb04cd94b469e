"""Claims for MIG partitions: what is planned, what excludes what, and which configs are taken."""

import dataclasses

import mig_cards
import pytest

from dra_driver import errors
from dra_driver.logic.offering import catalog
from dra_driver.logic.preparing import contention, planning
from dra_driver.model import claims, devices, mig, prepared, slices

NODE = planning.Node(mig_cards.DRIVER, "node-1")
UID = claims.ClaimUid("0a1b")
REF = claims.ClaimRef("team-a", "train", UID)
OTHER = claims.ClaimRef("team-b", "other", claims.ClaimUid("ffff"))

ON_DEMAND = mig_cards.dynamic("h100-80gb-hbm3:2")
_FIXED = dataclasses.replace(mig_cards.gpu(mig_cards.H100, mig_on=True), minor=2)
THERE = mig_cards.instance(_FIXED, "1g.10gb", 3, gi=11)
FIXED = catalog.card(dataclasses.replace(_FIXED, instances=(THERE,)), mig.Mode.STATIC)
INVENTORY = {name: offer for card in (*ON_DEMAND, FIXED) for name, offer in card.offers.items()}

LARGE, LOW, ONE_LOW = "gpu-0-mig-3g40gb-9-4", "gpu-0-mig-3g40gb-9-0", "gpu-0-mig-1g10gb-19-3"
ONE_HIGH, ELSEWHERE = "gpu-0-mig-1g10gb-19-4", "gpu-1-mig-3g40gb-9-4"
STATIC = "gpu-2-mig-1g10gb-19-3"


def plan(*results, configs=()):
    allocation = claims.Allocation(tuple(results), tuple(configs))
    return planning.plan(REF, claims.ResourceClaim(REF, allocation=allocation), NODE, INVENTORY)


def result(device, *, request="gpu", **facts):
    return claims.Result(request, slices.DeviceId(mig_cards.DRIVER, "node-1", device), **facts)


def record(*names, ref=OTHER, admin=(), instances=()):
    """What another claim has; `instances` are of the partitions that exist by their device."""
    entries = tuple(
        prepared.PreparedDevice(
            requests=("gpu",), pool="node-1", device=name, cdi_ids=(), kind=planning.kind(name),
            admin_access=name in admin,
        )
        for name in names
    )  # fmt: skip
    return prepared.Record(
        uid=ref.uid, namespace=ref.namespace, name=ref.name, boot_id="boot",
        phase=prepared.Phase.COMPLETED, devices=entries,
        partitions=tuple(
            planning.partition(entry, INVENTORY[entry.device])
            for entry in entries if entry.kind == "mig"
        ),
    )  # fmt: skip


# What is planned


def test_a_partition_is_planned_with_all_that_undoing_it_takes():
    made = plan(result(LARGE))
    assert made.entries == (
        prepared.PreparedDevice(
            requests=("gpu",), pool="node-1", device=LARGE, kind="mig",
            cdi_ids=(f"k8s.gpu.nvidia.com/claim=0a1b-{LARGE}",),
        ),
    )  # fmt: skip
    assert made.offers == {LARGE: INVENTORY[LARGE]}
    assert made.partitions == (
        prepared.Partition(
            device=LARGE, gpu=ON_DEMAND[0].gpu.uuid, minor=0, profile="3g.40gb", profile_id=9,
            start=4, size=4, made=True, gi=None, ci=None, uuid=None,
        ),
    )  # fmt: skip


def test_an_instance_that_exists_is_neither_made_nor_unmade():
    (partition,) = plan(result(STATIC)).partitions
    assert partition == prepared.Partition(
        device=STATIC, gpu=FIXED.gpu.uuid, minor=2, profile="1g.10gb", profile_id=19, start=3,
        size=1, made=False, gi=11, ci=0, uuid=THERE.uuid,
    )  # fmt: skip
    assert partition.instance == THERE


def test_who_only_looks_at_a_partition_does_not_make_it():
    (partition,) = plan(result(LARGE, admin_access=True)).partitions
    assert (partition.made, partition.instance) == (False, None)
    both = plan(result(LARGE, admin_access=True), result(LARGE, request="use"))
    assert [one.made for one in both.partitions] == [True]


def test_whole_gpus_are_no_partitions_and_the_cards_of_both_are_locked():
    made = plan(result("gpu-1"), result(LARGE), result(ONE_LOW), result(STATIC))
    assert [one.device for one in made.partitions] == [LARGE, ONE_LOW, STATIC]
    assert made.cards == {"gpu-0", "gpu-1", "gpu-2"}
    assert [entry.kind for entry in made.entries] == ["gpu", "mig", "mig", "mig"]


def test_the_cards_of_a_record_are_those_of_its_devices_though_they_are_gone():
    assert planning.cards(record("gpu-1", LARGE, ONE_LOW)) == {"gpu-0", "gpu-1"}
    gone = record("gpu-1").devices[0].model_copy(update={"device": "gpu-17-mig-1g5gb-19-6"})
    assert planning.cards(record("gpu-1").model_copy(update={"devices": (gone,)})) == {"gpu-17"}


def test_cards_are_locked_by_their_minors_too_as_an_older_driver_knows_no_other_names():
    moved = {
        name: dataclasses.replace(offer, gpu=dataclasses.replace(offer.gpu, device=f"gpu-{n}"))
        for n, name in ((4, "gpu-0"), (5, LARGE))
        for offer in [INVENTORY[name]]
    }
    claim = claims.ResourceClaim(
        REF, allocation=claims.Allocation((result("gpu-0"), result(LARGE)), ())
    )
    made = planning.plan(REF, claim, NODE, moved)
    assert made.cards == {"gpu-0", "gpu-4", "gpu-5"}
    (partition,) = record(LARGE).partitions
    now = partition.model_copy(update={"minor": 3})
    assert planning.cards(record(LARGE).model_copy(update={"partitions": (now,)})) == {
        "gpu-0", "gpu-3",
    }  # fmt: skip


def test_a_whole_gpu_cannot_be_remembered_as_a_partition():
    entry = plan(result("gpu-1")).entries[0]
    with pytest.raises(errors.Rejected, match=r"^device 'gpu-1' is a whole GPU, not a partition$"):
        planning.partition(entry, INVENTORY["gpu-1"])


def test_a_device_that_is_not_there_is_told_with_partitions_by_number():
    with pytest.raises(planning.UnknownDevice) as caught:
        plan(result("gpu-0-mig-1g5gb-19-0"))
    assert "it has gpu-0, gpu-1, 51 partitions. Has the GPU " in str(caught.value)


def test_what_the_kubelet_is_told_of_a_partition_does_not_depend_on_its_being_there():
    body = claims.ResourceClaim(REF, allocation=claims.Allocation((result("gpu-9-mig-x-1-0"),)))
    (entry,) = planning.allocated_entries(REF, body, NODE)
    assert (entry.device, entry.kind) == ("gpu-9-mig-x-1-0", "mig")


def test_an_instance_at_the_place_of_a_partition_is_found_and_none_elsewhere():
    (partition,) = plan(result(LARGE)).partitions
    gpu = INVENTORY[LARGE].gpu
    there = mig_cards.instance(gpu, "3g.40gb", 4, gi=5)
    others = (mig_cards.instance(gpu, "3g.40gb", 0, gi=4), mig_cards.instance(gpu, "1g.10gb", 4))

    def at(*instances):
        found = dataclasses.replace(gpu, instances=instances)
        return planning.existing(partition, devices.Offer(found))

    assert at(*others, there) == partition.model_copy(update={"gi": 5, "ci": 0, "uuid": there.uuid})
    assert at(*others, there).instance == there
    assert at(*others) == at() == partition


# What excludes what


@pytest.mark.parametrize(
    ("wanted", "held"),
    [
        (LARGE, LARGE),
        (LARGE, ONE_HIGH),
        (ONE_HIGH, LARGE),
        (LARGE, "gpu-0-mig-7g80gb-0-0"),
        (LARGE, "gpu-0"),
        ("gpu-0", LARGE),
        ("gpu-0", "gpu-0"),
        (STATIC, STATIC),
        ("gpu-0-mig-1g20gb-15-2", ONE_LOW),
    ],
)
def test_a_device_excludes_itself_what_it_is_part_of_and_what_it_overlaps(wanted, held):
    assert contention.holdings(plan(result(wanted)), UID, [record(held)]) == (
        contention.Holding(wanted, held, OTHER),
    )


def test_a_partition_of_which_only_the_name_is_known_excludes_what_it_overlaps():
    nameless = record(ONE_HIGH).model_copy(update={"partitions": ()})
    assert contention.holdings(plan(result(LARGE)), UID, [nameless]) == (
        contention.Holding(LARGE, ONE_HIGH, OTHER),
    )
    assert contention.holdings(plan(result(LOW)), UID, [nameless]) == ()


@pytest.mark.parametrize(
    ("wanted", "held"),
    [
        (LARGE, LOW),
        (LARGE, ONE_LOW),
        (LARGE, ELSEWHERE),
        (LARGE, "gpu-1"),
        ("gpu-1", LARGE),
        ("gpu-1", "gpu-0"),
        (ONE_LOW, ONE_HIGH),
        ("gpu-0-mig-1g20gb-15-4", ONE_LOW),
    ],
)
def test_what_shares_no_memory_slice_can_be_had_side_by_side(wanted, held):
    assert contention.holdings(plan(result(wanted)), UID, [record(held)]) == ()


def test_each_pair_that_excludes_each_other_is_told():
    first, second = record(ONE_HIGH, "gpu-1"), record(LOW, ref=dataclasses.replace(OTHER, name="x"))
    wanted = plan(result(LARGE), result(ELSEWHERE), result(ONE_LOW))
    assert contention.holdings(wanted, UID, [first, second]) == (
        contention.Holding(LARGE, ONE_HIGH, OTHER),
        contention.Holding(ELSEWHERE, "gpu-1", OTHER),
        contention.Holding(ONE_LOW, LOW, second.ref),
    )


def test_of_a_claim_with_several_parts_only_that_which_overlaps_is_in_the_way():
    held = [record(ONE_LOW, LARGE, "gpu-0-mig-2g20gb-14-0")]
    assert contention.holdings(plan(result(ONE_HIGH)), UID, held) == (
        contention.Holding(ONE_HIGH, LARGE, OTHER),
    )


def test_admin_access_to_a_part_or_to_the_whole_neither_holds_nor_minds():
    for held in (LARGE, ONE_HIGH, "gpu-0"):
        looking = record(held, admin=(held,))
        assert contention.holdings(plan(result(LARGE)), UID, [looking]) == ()
        wanted = plan(result(LARGE, admin_access=True))
        assert contention.holdings(wanted, UID, [record(held)]) == ()


def test_the_claim_s_own_parts_are_not_in_its_way():
    own = record(LARGE, "gpu-1", ref=REF)
    assert contention.holdings(plan(result(LARGE), result("gpu-1")), UID, [own]) == ()


def test_devices_of_another_pool_are_not_in_the_way():
    entries = [
        entry.model_copy(update={"pool": "node-2"}) for entry in record("gpu-0", LARGE).devices
    ]
    elsewhere = record("gpu-0", LARGE).model_copy(update={"devices": tuple(entries)})
    assert contention.holdings(plan(result(LARGE)), UID, [elsewhere]) == ()


def test_a_holder_is_asked_for_the_device_that_is_in_the_way():
    holding = contention.Holding(LARGE, ONE_HIGH, OTHER)
    for device, expected in ((ONE_HIGH, True), (LARGE, False)):
        allocation = claims.Allocation((result(device),))
        holder = claims.ResourceClaim(OTHER, allocation=allocation)
        assert contention.is_held_in_earnest(holding, holder, NODE) is expected


# Configs


def config(kind, *, requests=(), **more):
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind} | more
    return claims.OpaqueConfig(mig_cards.DRIVER, parameters, requests)


@pytest.mark.parametrize("device", [LARGE, STATIC])
def test_a_plain_config_for_mig_devices_is_taken_for_them(device):
    assert plan(result(device), configs=[config("MigDeviceConfig")]).partitions


@pytest.mark.parametrize(
    ("device", "given", "of_type", "allowed"),
    [
        (LARGE, "GpuConfig", "mig", "MigDeviceConfig"),
        (STATIC, "GpuConfig", "mig", "MigDeviceConfig"),
        ("gpu-1", "MigDeviceConfig", "gpu", "GpuConfig"),
        (LARGE, "VfioDeviceConfig", "mig", "MigDeviceConfig"),
        ("gpu-1", "VfioDeviceConfig", "gpu", "GpuConfig"),
    ],
)
def test_a_config_of_another_kind_of_device_is_refused_with_that_which_is_allowed(
    device, given, of_type, allowed
):
    with pytest.raises(errors.Rejected) as caught:
        plan(result(device), configs=[config(given, requests=("gpu",))])
    assert str(caught.value) == (
        f"claim team-a/train (0a1b): request 'gpu', config[0] (FromClaim): {given} cannot be "
        f"applied to device {device} of type {of_type}: write a {allowed}, or take the request "
        "out of the config's `requests`"
    )


def test_time_slices_on_a_partition_are_refused():
    slicing = config("MigDeviceConfig", sharing={"strategy": "TimeSlicing"})
    with pytest.raises(errors.Rejected, match=r'sharing\.strategy: "TimeSlicing" is not allowed'):
        plan(result(LARGE), configs=[slicing])


def test_mps_on_partitions_and_whole_gpus_is_set_up_for_each_kind_by_its_config():
    mps = {"strategy": "MPS"}
    made = plan(
        result("gpu-1", request="whole"), result(LARGE, request="part"),
        configs=[config("GpuConfig", sharing=mps), config("MigDeviceConfig", sharing=mps)],
    )  # fmt: skip
    uses = made.needs.remembered.mps
    assert [(use.keys, use.exclusive) for use in uses] == [
        (("gpu-1",), True), ((LARGE,), False),
    ]  # fmt: skip


def test_each_request_of_a_claim_has_the_config_of_its_kind_of_device():
    configs = [
        config("GpuConfig", requests=("whole",)),
        config("MigDeviceConfig", requests=("part",)),
    ]
    made = plan(result("gpu-1", request="whole"), result(LARGE, request="part"), configs=configs)
    assert made.cards == {"gpu-0", "gpu-1"}
    with pytest.raises(errors.Rejected, match="request 'part'"):
        plan(
            result(LARGE, request="part"),
            configs=[config("GpuConfig", requests=("part",))],
        )
