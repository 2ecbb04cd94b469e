"""What is told of a claim's devices once they are prepared."""

import pytest

from dra_driver.logic.offering import naming
from dra_driver.logic.preparing import device_status, reports
from dra_driver.model import claims, prepared, slices

UUID = "MIG-00000000-0000-4000-8000-000000000007"


def device(name, kind="gpu", **facts):
    return prepared.PreparedDevice(
        requests=("gpu",), pool="node-1", device=name, cdi_ids=(), kind=kind, **facts
    )


def record(*devices, partitions=(), **facts):
    return prepared.Record(
        uid="0a1b", namespace="team-a", name="train", phase=prepared.Phase.COMPLETED,
        boot_id="boot", devices=devices, partitions=partitions, **facts,
    )  # fmt: skip


PARTITION = prepared.Partition(
    device="gpu-0-mig-3g40gb-9-4", gpu="GPU-0", minor=0, profile="3g.40gb", profile_id=9, start=4,
    size=4, gi=2, ci=0, uuid=UUID,
)  # fmt: skip


def test_a_partition_is_told_with_what_nvidia_smi_calls_it_and_a_gpu_without():
    both = record(
        device("gpu-1", share_id="share"), device(PARTITION.device, "mig"), partitions=(PARTITION,)
    )
    common = {
        "pool": "node-1",
        "ready": True,
        "reason": "Prepared",
        "message": "ready for containers",
    }
    assert reports.of_record(both) == (
        device_status.DeviceReport(device="gpu-1", share_id="share", data={}, **common),
        device_status.DeviceReport(
            device=PARTITION.device,
            data={
                "uuid": UUID,
                "parentUUID": "GPU-0",
                "profile": "3g.40gb",
                "placement": "4:4",
                "gpuInstanceId": 2,
                "computeInstanceId": 0,
            },
            **common,
        ),
    )


def test_each_partition_is_told_with_its_own_device():
    other = PARTITION.model_copy(update={"device": "gpu-0-mig-3g40gb-9-0", "start": 0, "gi": 1})
    listed = record(
        device(other.device, "mig"), device(PARTITION.device, "mig"), partitions=(PARTITION, other)
    )
    assert [report.data["placement"] for report in reports.of_record(listed)] == ["0:4", "4:4"]


@pytest.mark.parametrize("partitions", [(), (PARTITION,)])
def test_a_device_of_which_only_the_name_is_known_is_told_without_data(partitions):
    known = record(device("gpu-7-mig-1g10gb-19-0", "mig"), partitions=partitions)
    (report,) = reports.of_record(known)
    assert (report.device, report.data, report.ready) == ("gpu-7-mig-1g10gb-19-0", {}, True)


def test_a_claim_without_devices_has_nothing_to_tell():
    assert reports.of_record(record()) == ()


def use(domain, *keys):
    return prepared.MpsUse(domain=domain, keys=keys, devices=("gpu-0",))


def test_of_two_shares_of_a_device_only_that_whose_daemon_is_down_is_not_ready():
    sharing = prepared.Sharing(mps=(use("d1", "gpu-0-s1"), use("d2", "gpu-0-s2")))
    both = record(device("gpu-0", share_id="s1"), device("gpu-0", share_id="s2"), sharing=sharing)

    told = reports.of_record(both, {"d2": "it is gone", "d3": "another claim's"})

    assert [(one.share_id, one.ready, one.reason, one.message) for one in told] == [
        ("s1", True, "Prepared", "ready for containers"),
        ("s2", False, "MpsDaemonDown", "it is gone"),
    ]


def test_a_device_whose_gpu_is_gone_is_not_ready_whatever_its_daemon_does():
    sharing = prepared.Sharing(mps=(use("d1", "gpu-0", "gpu-1"),))
    both = record(device("gpu-0"), device("gpu-1"), device("gpu-2"), sharing=sharing)

    told = reports.of_record(both, {"d1": "it is down"}, {"gpu-0": "it is lost", "gpu-9": "x"})

    assert [(one.ready, one.reason, one.message) for one in told] == [
        (False, "GpuLost", "it is lost"),
        (False, "MpsDaemonDown", "it is down"),
        (True, "Prepared", "ready for containers"),
    ]


def test_all_devices_of_a_daemon_that_is_down_are_not_ready():
    sharing = prepared.Sharing(mps=(use("d1", "gpu-0", "gpu-1"),))
    three = record(device("gpu-0"), device("gpu-1"), device("gpu-2"), sharing=sharing)

    told = reports.of_record(three, {"d1": "it is gone"})

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
    told = reports.of_refusal(refusal(("gpu-1", "s1"), ("gpu-1", "s1")), before)
    assert [(one.device, one.share_id, one.ready) for one in told] == [
        ("gpu-0", None, True), ("gpu-1", "s2", True), ("gpu-1", "s1", False),
    ]  # fmt: skip


def test_of_a_prepare_that_never_ended_nothing_is_told_as_ready():
    begun = record(device("gpu-0"), device("gpu-1")).model_copy(
        update={"phase": prepared.Phase.STARTED}
    )
    told = reports.of_refusal(refusal(("gpu-1", None)), begun)
    assert [(one.device, one.ready) for one in told] == [("gpu-1", False)]
