"""What is told of a claim's devices once they are prepared, in the claim's `status.devices`."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dra_driver.logic.health import conditions
from dra_driver.logic.offering import attributes, naming
from dra_driver.logic.preparing import cdi, device_status
from dra_driver.model import devices, health, prepared, quantities, slices

PREPARED = "Prepared"
MPS_DAEMON_DOWN = "MpsDaemonDown"
WRONG_CARD = "WrongCard"
GPU_LOST = "GpuLost"
WELL = "Well"
UNMONITORED = "Unmonitored"


@dataclasses.dataclass(frozen=True, slots=True)
class Trouble:
    """Why containers cannot count on a device: a reason for machines, and a message for people."""

    reason: str
    message: str


Troubles = Mapping[str, Trouble]
"""What is wrong with devices of a claim, by device key (`cdi.device_key`)."""
FINE: Troubles = MappingProxyType({})

Told = Mapping[str, Mapping[str, device_status.Value | None]]
"""`status.devices[].data`, by device key (`cdi.device_key`)."""
NOTHING: Told = MappingProxyType({})

SCHEMA = slices.Version("1.0.0")
"""The version of what `data` has, under `schemaVersion`: by SemVer, so that more may come."""


def identities(record: prepared.Record, gpus: Mapping[str, devices.Gpu]) -> Told:
    """What each device of a record is, and what a share of it holds; `gpus` are known, by UUID.

    Names and types are those of ResourceSlices, where a partition has no UUID before it exists. Of
    a card that nobody sees at the moment what was told of it stays.
    """
    return {
        cdi.device_key(one.device, one.share_id): {
            "schemaVersion": SCHEMA,
            "type": one.kind,
            **_of_card(record.cards.get(devices.card_of(one.device)), gpus),
            **held(one),
        }
        for one in record.devices
    }


def _of_card(
    uuid: str | None, gpus: Mapping[str, devices.Gpu]
) -> dict[str, device_status.Value | None]:
    gpu = gpus.get(uuid or "")
    if gpu is None:
        unseen = device_status.Unseen.AS_TOLD
        names = ("productName", "pciBusID", "driverVersion")
        return {"uuid": uuid or unseen, **dict.fromkeys(names, unseen)}
    return {
        "uuid": uuid,
        "productName": gpu.product_name,
        "pciBusID": gpu.pci_address,
        "driverVersion": attributes.driver_version(gpu.driver_version),
    }


def held(device: prepared.PreparedDevice) -> dict[str, quantities.Quantity]:
    """What a share takes of each capacity."""
    amounts = {name: quantities.parse(text) for name, text in device.consumed.items()}
    return {name: amount for name, amount in sorted(amounts.items()) if amount.amount}


def of_record(
    record: prepared.Record,
    troubles: Troubles = FINE,
    gone: Mapping[str, str] = MappingProxyType({}),
    *,
    told: Told = NOTHING,
    health: Mapping[str, device_status.Health] = MappingProxyType({}),
) -> tuple[device_status.DeviceReport, ...]:
    """One report for each device of a completed record.

    `gone` tells why devices cannot be used, by name: their GPU is gone or does not answer, whatever
    else there is. `told` is what else there is to tell of devices, `health` that of their cards, by
    name.
    """
    reports = []
    for device in record.devices:
        lost = gone.get(device.device)
        key = cdi.device_key(device.device, device.share_id)
        trouble = troubles.get(key) if lost is None else Trouble(GPU_LOST, lost)
        reports.append(
            device_status.DeviceReport(
                pool=device.pool,
                device=device.device,
                ready=trouble is None,
                reason=PREPARED if trouble is None else trouble.reason,
                message="ready for containers" if trouble is None else trouble.message,
                share_id=device.share_id,
                data=told.get(key, {}),
                health=health.get(device.device),
            )
        )
    return tuple(reports)


def health_of(listed: Sequence[health.Condition]) -> device_status.Health:
    """How a device is with which this is wrong, the gravest first."""
    if not listed:
        return device_status.Health(healthy=True, reason=WELL, message="nothing is wrong")
    first = listed[0]
    is_well = not conditions.withdraws(listed)
    return device_status.Health(
        healthy=is_well,
        reason=health_reason(first.finding),
        message=conditions.told(listed),
        since=None if is_well else min(one.since for one in listed if conditions.withdraws([one])),
    )


def unseen(why: str, listed: Sequence[health.Condition]) -> device_status.Health:
    """As `health_of`, of a device whose GPU a virtual machine has; `why` nobody can tell more."""
    if conditions.withdraws(listed):
        return health_of(listed)
    return device_status.Health(healthy=None, reason=UNMONITORED, message=why)


def health_reason(finding: health.Finding) -> str:
    """What is wrong as one word: `Xid79`, `GpuLost`, `RecoveryReset`."""
    words = f"{finding.key}-{finding.value}".replace("-", " ").split()
    return "".join(word[:1].upper() + word[1:] for word in words)


def of_daemons(record: prepared.Record, down: Mapping[str, str]) -> Troubles:
    """What daemons that are down are to a claim; `down` tells by domain what is wrong."""
    return {
        key: Trouble(MPS_DAEMON_DOWN, down[use.domain])
        for use in record.sharing.mps
        if use.domain in down
        for key in use.keys
    }


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
