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


def of_record(
    record: prepared.Record,
    down: Mapping[str, str] = MappingProxyType({}),
    gone: Mapping[str, str] = MappingProxyType({}),
) -> tuple[device_status.DeviceReport, ...]:
    """One report for each device of a completed record.

    `down` tells what is wrong with MPS daemons, by domain, and `gone` why devices cannot be used,
    by name: their GPU is gone or does not answer.
    """
    partitions = {partition.device: partition for partition in record.partitions}
    troubles = {
        key: down[use.domain] for use in record.sharing.mps if use.domain in down
        for key in use.keys
    }  # fmt: skip
    reports = []
    for device in record.devices:
        lost = gone.get(device.device)
        trouble = lost or troubles.get(cdi.device_key(device.device, device.share_id))
        reports.append(
            device_status.DeviceReport(
                pool=device.pool,
                device=device.device,
                ready=trouble is None,
                reason=GPU_LOST if lost else MPS_DAEMON_DOWN if trouble else PREPARED,
                message=trouble or "ready for containers",
                share_id=device.share_id,
                data=_data(partitions.get(device.device)),
            )
        )
    return tuple(reports)


def of_refusal(
    error: naming.WrongCard, record: prepared.Record | None
) -> tuple[device_status.DeviceReport, ...]:
    """A report for each device that is not on its card; what was prepared before stays as told.

    `record` is what is remembered of the claim.
    """
    is_prepared = record is not None and record.phase is prepared.Phase.COMPLETED
    before = of_record(record) if record is not None and is_prepared else ()
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


def _data(partition: prepared.Partition | None) -> dict[str, device_status.Scalar]:
    if partition is None:
        return {}
    return {
        "uuid": partition.uuid,
        "parentUUID": partition.gpu,
        "profile": partition.profile,
        "placement": f"{partition.start}:{partition.size}",
        "gpuInstanceId": partition.gi,
        "computeInstanceId": partition.ci,
    }
