"""What is told of a claim's devices once they are prepared, in the claim's `status.devices`."""

from collections.abc import Mapping
from types import MappingProxyType

from dra_driver.logic.offering import naming
from dra_driver.logic.preparing import cdi, device_status
from dra_driver.model import prepared

PREPARED = "Prepared"
MPS_DAEMON_DOWN = "MpsDaemonDown"
WRONG_CARD = "WrongCard"
GPU_LOST = "GpuLost"

Told = Mapping[str, Mapping[str, device_status.Scalar]]
"""`status.devices[].data`, by device key (`cdi.device_key`)."""
NOTHING: Told = MappingProxyType({})


def of_record(
    record: prepared.Record,
    down: Mapping[str, str] = MappingProxyType({}),
    gone: Mapping[str, str] = MappingProxyType({}),
    *,
    told: Told = NOTHING,
) -> tuple[device_status.DeviceReport, ...]:
    """One report for each device of a completed record.

    `down` tells what is wrong with MPS daemons, by domain, and `gone` why devices cannot be used,
    by name: their GPU is gone or does not answer. `told` is what else there is to tell of devices.
    """
    troubles = {
        key: down[use.domain] for use in record.sharing.mps if use.domain in down
        for key in use.keys
    }  # fmt: skip
    reports = []
    for device in record.devices:
        lost = gone.get(device.device)
        key = cdi.device_key(device.device, device.share_id)
        trouble = lost or troubles.get(key)
        reports.append(
            device_status.DeviceReport(
                pool=device.pool,
                device=device.device,
                ready=trouble is None,
                reason=GPU_LOST if lost else MPS_DAEMON_DOWN if trouble else PREPARED,
                message=trouble or "ready for containers",
                share_id=device.share_id,
                data=told.get(key, {}),
            )
        )
    return tuple(reports)


def of_refusal(
    error: naming.WrongCard, record: prepared.Record | None, *, told: Told = NOTHING
) -> tuple[device_status.DeviceReport, ...]:
    """A report for each device that is not on its card; what was prepared before stays as told.

    `record` is what is remembered of the claim, and `told` what there was to tell of its devices.
    """
    is_prepared = record is not None and record.phase is prepared.Phase.COMPLETED
    before = of_record(record, told=told) if record is not None and is_prepared else ()
    refused = {
        (result.device.device, result.share_id): device_status.DeviceReport(
            pool=result.device.pool,
            device=result.device.device,
            ready=False,
            reason=WRONG_CARD,
            message=str(error),
            share_id=result.share_id,
        )
        for result in error.results
    }
    kept = (one for one in before if (one.device, one.share_id) not in refused)
    return (*kept, *refused.values())
