"""Resets of GPUs that were begun, as files have them."""

import pytest

from dra_driver import errors
from dra_driver.model import resets

RECORD = resets.Record(
    boot_id="boot-1",
    step=resets.Step.RESETTING,
    cards=(
        resets.Card(gpu="GPU-a", name="gpu-0", minor=0, locks=("gpu-0",), persistence=True),
        resets.Card(gpu="GPU-b", name="gpu-1", minor=2, locks=("gpu-1", "gpu-2"), mig=False),
    ),
)


def test_a_reset_is_read_as_it_was_written():
    assert resets.decode(resets.encode(RECORD)) == RECORD
    assert (RECORD.key, RECORD.gpus) == ("GPU-a", ("GPU-a", "GPU-b"))


def test_a_step_changes_nothing_else():
    after = RECORD.at(resets.Step.RESTORING)
    assert (after.step, after.cards) == (resets.Step.RESTORING, RECORD.cards)


def test_what_is_no_reset_is_refused():
    with pytest.raises(errors.Rejected, match="not a reset"):
        resets.decode("{}")
    with pytest.raises(errors.Rejected, match="checksum"):
        resets.decode(resets.encode(RECORD).replace("GPU-b", "GPU-c"))
