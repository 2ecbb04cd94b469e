"""What is told of a claim's devices once they are prepared, in the claim's `status.devices`."""

from dra_driver.logic import device_status
from dra_driver.model import prepared


def of_record(record: prepared.Record) -> tuple[device_status.DeviceReport, ...]:
    """One report for each device of a completed record."""
    partitions = {partition.device: partition for partition in record.partitions}
    return tuple(
        device_status.DeviceReport(
            pool=device.pool,
            device=device.device,
            ready=True,
            reason="Prepared",
            message="ready for containers",
            share_id=device.share_id,
            data=_data(partitions.get(device.device)),
        )
        for device in record.devices
    )


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
