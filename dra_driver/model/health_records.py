"""What the driver remembers of the health of a GPU, as a file has it."""

from collections.abc import Mapping
from typing import Any, Literal

import pydantic

from dra_driver import errors
from dra_driver.model import devices, health, mig, stored

VERSION = 1


class _Frozen(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


class Left(_Frozen):
    """Something that has ended: when (seconds of the monotonic clock), and how often it came."""

    identity: tuple[str, ...]
    at: float
    returns: int


class Condition(_Frozen):
    """As `health.Condition`, with its finding."""

    key: health.Key
    value: str
    effect: Literal["None", "NoSchedule", "NoExecute"]
    message: str
    lasts: health.Lasts
    profile_id: int | None = None
    start: int | None = None
    size: int | None = None
    fault: health.Fault | None = None
    only_claims: bool = False
    since: str
    claims: tuple[str, ...] = ()
    away: float | None = None
    hold: float
    returns: int
    before_boot: bool = False


class Record(_Frozen):
    """What counts of one GPU; `boot_id` is the boot whose monotonic clock the times are of.

    `resets` are when the driver has reset it, by the same clock. `load` tells which load of the
    kernel module it was seen with; empty: that is not known.
    """

    gpu: str
    boot_id: str
    conditions: tuple[Condition, ...] = ()
    left: tuple[Left, ...] = ()
    resets: tuple[float, ...] = ()
    load: str = ""


def written(condition: health.Condition) -> Condition:
    """A condition as it is written."""
    finding, spot = condition.finding, condition.finding.spot
    return Condition(
        key=finding.key,
        value=finding.value,
        effect=_EFFECTS[finding.effect],
        message=finding.message,
        lasts=finding.lasts,
        profile_id=None if spot is None else spot.profile_id,
        start=None if spot is None else spot.placement.start,
        size=None if spot is None else spot.placement.size,
        fault=finding.fault,
        only_claims=finding.only_claims,
        since=condition.since,
        claims=condition.claims,
        away=condition.away,
        hold=condition.hold,
        returns=condition.returns,
        before_boot=condition.before_boot,
    )


_EFFECTS: Mapping[str, Literal["None", "NoSchedule", "NoExecute"]] = {
    "None": "None",
    "NoSchedule": "NoSchedule",
    "NoExecute": "NoExecute",
}


def read(gpu: str, one: Condition) -> health.Condition:
    """The condition that was written."""
    spot = None
    if one.profile_id is not None and one.start is not None and one.size is not None:
        spot = mig.Spot(one.profile_id, mig.Placement(one.start, one.size))
    finding = health.Finding(
        devices.GpuUuid(gpu),
        one.key,
        one.value,
        one.effect,
        one.message,
        one.lasts,
        spot,
        one.fault,
        one.only_claims,
    )
    return health.Condition(
        finding, one.since, one.claims, one.away, one.hold, one.returns, one.before_boot
    )


def encode(record: Record) -> str:
    """The text of a file."""
    body: dict[str, Any] = record.model_dump(mode="json")
    return stored.encode("health", VERSION, body)


def decode(text: str) -> Record:
    """The record in a file's text.

    Raises:
        errors.Rejected: the text is damaged, or of a newer driver.
    """
    try:
        return Record.model_validate(stored.decode(text, "health", {VERSION}))
    except pydantic.ValidationError as error:
        raise errors.Rejected(f"content is not a record of health: {error}") from error
