"""What a GPU's ledger must have told, by what claims are remembered to have."""

from collections.abc import Iterable

from dra_driver.logic.passthrough import standing
from dra_driver.model import devices, ledgers, prepared

_DEFAULT = 0
"""Time slice and compute mode of a GPU that nobody has set."""


def told_by_records(
    ledger: ledgers.Ledger, gpu: devices.Gpu, records: Iterable[prepared.Record]
) -> ledgers.Ledger:
    """The ledger with what the records of claims say was done to the GPU.

    An instance is ours that a claim has and that is there. What a setting was before is not known:
    it is put back to what a GPU has that nobody has set.
    """
    there = {(instance.uuid, instance.spot) for instance in gpu.instances}
    for record in records:
        for one in record.partitions:
            if one.made and one.gpu == gpu.uuid and (one.uuid, one.spot) in there:
                ledger = ledger.adding(one.spot)
        if any(one.gpu == gpu.uuid for one in record.sharing.time_slices):
            ledger = _with(ledger, "time_slice_before")
        if any(use.exclusive and gpu.uuid in use.gpus for use in record.sharing.mps):
            ledger = _with(ledger, "compute_mode_before")
        held = standing.holders([record]).get(gpu.uuid)
        if held is not None and not held[0].found:
            ledger = ledger.model_copy(update={"handed_over": held[0].address})
    return ledger


def _with(ledger: ledgers.Ledger, field: str) -> ledgers.Ledger:
    if getattr(ledger, field) is not None:
        return ledger
    return ledger.model_copy(update={field: _DEFAULT})
