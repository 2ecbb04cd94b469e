"""What is kept of the health of a GPU."""

import mig_cards
import pytest

from dra_driver import errors
from dra_driver.model import devices, health, health_records

GPU = devices.GpuUuid("GPU-1")
PLACE = mig_cards.spot(mig_cards.gpu(mig_cards.H100), "1g.10gb", 2)
CONDITION = health.Condition(
    health.Finding(
        GPU,
        health.Key.XID,
        "95",
        "NoExecute",
        "why",
        health.Lasts.UNTIL_RECOVERED,
        PLACE,
        health.Fault.HARDWARE,
        only_claims=True,
    ),
    "2026-11-30T10:00:00Z",
    ("a", "b"),
    away=12.5,
    hold=60.0,
    returns=1,
)


@pytest.mark.parametrize(
    "condition",
    [CONDITION, health.Condition(health.Finding(GPU, health.Key.GPU_LOST, "", "None", "x"), "t")],
)
def test_a_condition_is_read_as_it_was_written(condition):
    assert health_records.read(GPU, health_records.written(condition)) == condition


def test_a_record_is_read_as_it_was_written():
    record = health_records.Record(
        gpu=GPU,
        boot_id="boot",
        conditions=(health_records.written(CONDITION),),
        left=(health_records.Left(identity=CONDITION.finding.identity, at=3.0, returns=2),),
        resets=(1.0, 2.0),
    )
    assert health_records.decode(health_records.encode(record)) == record


def test_a_damaged_record_is_refused():
    text = health_records.encode(health_records.Record(gpu=GPU, boot_id="boot"))
    with pytest.raises(errors.Rejected, match="checksum"):
        health_records.decode(text.replace("boot", "toob"))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("recovery", health.Cause(health.Key.RECOVERY)),
        ("xid=079", health.Cause(health.Key.XID, "79")),
        ("memory=ecc", health.Cause(health.Key.MEMORY, "ecc")),
    ],
)
def test_causes_are_written_as_taints_are(text, cause):
    assert health.parse_cause(text) == cause


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("xids=79", "'xids=79': 'xids' is not one of gpu-lost, xid, recovery, memory, driver"),
        ("xid=many", "'xid=many': an XID is a number, as in xid=79"),
        ("memory=bad", "memory: its values are remap-pending, remap-failed, ecc"),
        ("gpu-lost=1", "gpu-lost: it has no values; gpu-lost alone means all of it"),
    ],
)
def test_a_cause_that_cannot_be_is_refused(text, message):
    with pytest.raises(errors.Rejected) as refused:
        health.parse_cause(text)
    assert message in str(refused.value)


def test_an_effect_that_ends_pods_is_set_elsewhere():
    assert health.parse_effect("xid=94:NoSchedule") == (
        health.Cause(health.Key.XID, "94"),
        "NoSchedule",
    )
    with pytest.raises(errors.Rejected, match="what ends pods is set by --health-evict"):
        health.parse_effect("xid=94:NoExecute")
