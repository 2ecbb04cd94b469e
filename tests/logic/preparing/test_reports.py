"""What is told of a claim's devices once they are prepared."""

import mig_cards
import pytest

from dra_driver.logic.offering import naming
from dra_driver.logic.preparing import device_status, reports
from dra_driver.model import claims, devices, health, prepared, quantities, slices, taints


def device(name, kind="gpu", **facts):
    return prepared.PreparedDevice(
        requests=("gpu",), pool="node-1", device=name, cdi_ids=(), kind=kind, **facts
    )


def record(*devices, **facts):
    return prepared.Record(
        uid="0a1b", namespace="team-a", name="train", phase=prepared.Phase.COMPLETED,
        boot_id="boot", devices=devices, **facts,
    )  # fmt: skip


PARTITION = "gpu-0-mig-3g40gb-9-4"


def test_each_device_is_told_with_what_there_is_to_tell_of_it():
    both = record(device("gpu-1", share_id="share"), device(PARTITION, "mig"))
    common = {
        "pool": "node-1",
        "ready": True,
        "reason": "Prepared",
        "message": "ready for containers",
    }
    told = {PARTITION: {"gpuInstanceId": 2}, "gpu-1-share": {"uuid": "GPU-1"}, "gpu-1": {"no": 1}}
    assert reports.of_record(both, told=told) == (
        device_status.DeviceReport(
            device="gpu-1", share_id="share", data={"uuid": "GPU-1"}, **common
        ),
        device_status.DeviceReport(device=PARTITION, data={"gpuInstanceId": 2}, **common),
    )
    assert [one.data for one in reports.of_record(both)] == [{}, {}]


def test_what_a_device_is_is_told_of_its_card_and_of_what_a_share_holds():
    gpu = mig_cards.gpu("h100-80gb-hbm3", pci_address="0000:1b:00.0", driver_version="580.65.06")
    share = device("gpu-0", share_id="s1", consumed={"memory": "10Gi", "decoders": "0"})
    both = record(share, device(PARTITION, "mig"), gpus={"gpu-0": gpu.uuid})
    card = {
        "schemaVersion": slices.Version("1.0.0"),
        "uuid": gpu.uuid,
        "productName": gpu.product_name,
        "pciBusID": "0000:1b:00.0",
        "driverVersion": slices.Version("580.65.6"),
    }
    assert reports.identities(both, {gpu.uuid: gpu}) == {
        "gpu-0-s1": card | {"type": "gpu", "memory": quantities.parse("10Gi")},
        PARTITION: card | {"type": "mig"},
    }


def test_of_a_card_that_nobody_sees_what_was_told_stays():
    (told,) = reports.identities(record(device("gpu-0"), gpus={"gpu-0": "GPU-1"}), {}).values()
    kept = {name for name, value in told.items() if value is device_status.Unseen.AS_TOLD}
    assert kept == {"productName", "pciBusID", "driverVersion"}
    assert told["uuid"] == "GPU-1"
    # The record was rebuilt while nobody saw the card.
    (told,) = reports.identities(record(device("gpu-0")), {}).values()
    assert told["uuid"] is device_status.Unseen.AS_TOLD


def test_a_claim_without_devices_has_nothing_to_tell():
    assert reports.of_record(record()) == ()


GONE = {"d2": "it is gone", "d3": "another claim's"}


def use(domain, *keys):
    return prepared.MpsUse(domain=domain, keys=keys, devices=("gpu-0",))


def test_of_two_shares_of_a_device_only_that_whose_daemon_is_down_is_not_ready():
    sharing = prepared.Sharing(mps=(use("d1", "gpu-0-s1"), use("d2", "gpu-0-s2")))
    both = record(device("gpu-0", share_id="s1"), device("gpu-0", share_id="s2"), sharing=sharing)

    told = reports.of_record(both, reports.of_daemons(both, GONE))

    assert [(one.share_id, one.ready, one.reason, one.message) for one in told] == [
        ("s1", True, "Prepared", "ready for containers"),
        ("s2", False, "MpsDaemonDown", "it is gone"),
    ]


def test_a_device_whose_gpu_is_gone_is_not_ready_whatever_its_daemon_does():
    sharing = prepared.Sharing(mps=(use("d1", "gpu-0", "gpu-1"),))
    both = record(device("gpu-0"), device("gpu-1"), device("gpu-2"), sharing=sharing)

    down = reports.of_daemons(both, {"d1": "it is down"})
    told = reports.of_record(both, down, {"gpu-0": "it is lost", "gpu-9": "x"})

    assert [(one.ready, one.reason, one.message) for one in told] == [
        (False, "GpuLost", "it is lost"),
        (False, "MpsDaemonDown", "it is down"),
        (True, "Prepared", "ready for containers"),
    ]


def test_all_devices_of_a_daemon_that_is_down_are_not_ready():
    sharing = prepared.Sharing(mps=(use("d1", "gpu-0", "gpu-1"),))
    three = record(device("gpu-0"), device("gpu-1"), device("gpu-2"), sharing=sharing)

    told = reports.of_record(three, reports.of_daemons(three, {"d1": "it is gone"}))

    assert [one.ready for one in told] == [False, False, True]


def refusal(*devices):
    return naming.WrongCard(
        "another card",
        [
            claims.Result("r", slices.DeviceId("gpu.nvidia.com", "node-1", name), share_id=share_id)
            for name, share_id in devices
        ],
    )


def test_a_device_that_is_another_card_now_is_told_as_not_ready_with_the_reason():
    [told] = reports.of_refusal(refusal(("gpu-0", "share")), None)
    assert told == device_status.DeviceReport(
        pool="node-1", device="gpu-0", ready=False, reason="WrongCard", message="another card",
        share_id="share",
    )  # fmt: skip


def test_what_was_prepared_before_a_refusal_stays_told_but_for_what_is_refused():
    before = record(device("gpu-0"), device("gpu-1", share_id="s1"), device("gpu-1", share_id="s2"))
    known = {"gpu-0": {"uuid": "GPU-0"}, "gpu-1-s1": {"uuid": "GPU-1"}}
    told = reports.of_refusal(refusal(("gpu-1", "s1"), ("gpu-1", "s1")), before, told=known)
    assert [(one.device, one.share_id, one.ready, dict(one.data)) for one in told] == [
        ("gpu-0", None, True, {"uuid": "GPU-0"}),
        ("gpu-1", "s2", True, {}),
        ("gpu-1", "s1", False, {}),
    ]  # fmt: skip


def test_of_a_prepare_that_never_ended_nothing_is_told_as_ready():
    begun = record(device("gpu-0"), device("gpu-1")).model_copy(
        update={"phase": prepared.Phase.STARTED}
    )
    told = reports.of_refusal(refusal(("gpu-1", None)), begun)
    assert [(one.device, one.ready) for one in told] == [("gpu-1", False)]


# How cards are


def condition(key, value="", effect=taints.NO_SCHEDULE, since="2026-11-30T10:00:00Z"):
    uuid = devices.GpuUuid("GPU-1")
    finding = health.Finding(uuid, health.Key(key), value, effect, f"{key} {value}")
    return health.Condition(finding, since)


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("xid", "79", "Xid79"),
        ("gpu-lost", "", "GpuLost"),
        ("recovery", "drain-and-reset", "RecoveryDrainAndReset"),
        ("memory", "ecc", "MemoryEcc"),
        ("unmonitored", "", "Unmonitored"),
    ],
)
def test_what_is_wrong_is_one_word_for_machines(key, value, word):
    assert reports.health_reason(condition(key, value).finding) == word


def test_a_card_with_which_nothing_is_wrong_is_well():
    assert reports.health_of(()) == device_status.Health(
        healthy=True, reason="Well", message="nothing is wrong"
    )


def test_what_only_informs_leaves_a_card_healthy_with_its_reason_and_no_time():
    told = reports.health_of([condition("thermal", "slowdown", taints.NONE)])
    assert told == device_status.Health(
        healthy=True, reason="ThermalSlowdown", message="thermal slowdown"
    )


def test_a_card_is_unhealthy_since_the_first_of_what_withdraws_it_and_the_gravest_is_the_reason():
    told = reports.health_of(
        [
            condition("recovery", "reset", since="2026-11-30T12:00:00Z"),
            condition("memory", "ecc", since="2026-11-30T11:00:00Z"),
            condition("thermal", "slowdown", taints.NONE, since="2026-11-30T09:00:00Z"),
        ]
    )
    assert (told.healthy, told.reason) == (False, "RecoveryReset")
    assert told.since == "2026-11-30T11:00:00Z"
    assert told.message == "recovery reset; memory ecc; thermal slowdown"
