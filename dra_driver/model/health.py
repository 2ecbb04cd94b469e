"""Health of GPUs: what their driver tells of it, and what follows from that.

Sources: `nvml.h` of nvidia-ml-py 13.580 for numbers of events, actions and states.
"""

import dataclasses
import enum
from collections.abc import Mapping

from dra_driver import errors
from dra_driver.model import devices, mig, taints, texts

WHOLE = 0xFFFFFFFF
"""What NVML has in the place of an instance where the whole GPU is meant."""


class EventKind(enum.IntEnum):
    """Events of NVML that say something about health, by their bits (`nvmlEventType*`).

    PState and Clock come all the time, and a single corrected bit is no news: nobody listens.
    """

    DOUBLE_BIT_ECC = 0x2
    XID = 0x8
    SINGLE_BIT_ECC_STORM = 0x200
    DRAM_RETIREMENT = 0x400
    DRAM_RETIREMENT_FAILURE = 0x800
    NON_FATAL_POISON = 0x1000
    FATAL_POISON = 0x2000
    GPU_UNAVAILABLE = 0x4000
    RECOVERY_ACTION = 0x8000


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """What a GPU's driver has told once. `data` is the number of an XID.

    `gi` is the id of the GPU instance that it is about; None: the whole GPU.
    """

    kind: EventKind
    gpu: devices.GpuUuid
    data: int = 0
    gi: int | None = None


class Recovery(enum.IntEnum):
    """What the driver wants done with a GPU (`nvmlDeviceGpuRecoveryAction_t`, field 230)."""

    NONE = 0
    RESET = 1
    REBOOT = 2
    DRAIN = 3
    """Nobody should have peer-to-peer traffic with it."""
    DRAIN_AND_RESET = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Fabric:
    """A GPU's place in an NVLink fabric (`nvmlGpuFabricInfoV_t`).

    `state`: 0 not supported, 1 not started, 2 in progress, 3 completed; `status` is the NVML code
    with which it has completed; `health` the mask, of which 0 says nothing.
    """

    state: int
    status: int = 0
    health: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """What one look at a GPU tells of its health. None: this card does not tell it.

    `unread` are facts that could not be read though the card has them: NVML's words by the names of
    the fields here. Nothing follows for them from this look.
    """

    recovery: int | None = None
    """A number of `Recovery`, or one that is not known here."""
    reset_wanted: bool | None = None
    drain_and_reset_wanted: bool | None = None
    remap_pending: bool | None = None
    """Rows of memory are replaced with the next reset."""
    remap_failed: bool | None = None
    retired_pages: int | None = None
    """On cards without row remapping: how many are retired, or will be."""
    retirement_pending: bool | None = None
    uncorrectable_ecc: int | None = None
    """Errors since the driver was loaded or the card was reset."""
    thermal_slowdown: bool | None = None
    power_brake: bool | None = None
    temperature: int | None = None
    """Degrees Celsius of the chip."""
    fabric: Fabric | None = None
    links_down: tuple[int, ...] | None = None
    """Numbers of NVLinks that the card has and that are not active."""
    unread: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_lost: bool = False
    """The GPU has fallen off the bus."""


class Fault(enum.StrEnum):
    """Whose an XID is."""

    APPLICATION = "application"
    DRIVER = "driver"
    HARDWARE = "hardware"
    BUS = "bus"
    FABRIC = "fabric"


class Key(enum.StrEnum):
    """What is wrong: the part of a taint's key behind the driver's name and a slash."""

    GPU_LOST = "gpu-lost"
    XID = "xid"
    RECOVERY = "recovery"
    MEMORY = "memory"
    DRIVER = "driver"
    FABRIC = "fabric"
    THERMAL = "thermal"
    UNMONITORED = "unmonitored"
    PASSTHROUGH = "passthrough"
    """It was bound for a virtual machine, and is not where it should be."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """Which findings are meant: those with this key, and with this value where there is one."""

    key: Key
    value: str | None = None

    def covers(self, key: Key, value: str) -> bool:
        """Whether a finding with this key and value is meant."""
        return key is self.key and self.value in {None, value}

    def __str__(self) -> str:
        """As in settings: `recovery`, `xid=79`."""
        return self.key if self.value is None else f"{self.key}={self.value}"


_VALUES: Mapping[Key, tuple[str, ...]] = {
    Key.RECOVERY: ("reset", "reboot", "drain", "drain-and-reset"),
    Key.MEMORY: ("remap-pending", "remap-failed", "ecc"),
    Key.THERMAL: ("slowdown", "power-brake"),
    Key.FABRIC: (
        "not-ready",
        "failed",
        "link-down",
        "degraded-bandwidth",
        "route-recovery",
        "route-unhealthy",
        "access-timeout",
        "configuration",
    ),
}
"""Those of keys that have some; an XID has a number."""


def parse_cause(text: str) -> Cause:
    """`recovery`, `memory=ecc`, `xid=79`.

    Raises:
        errors.Rejected: it names nothing that can be wrong with a GPU.
    """
    key, equals, value = text.partition("=")
    if key not in set(Key):
        known = ", ".join(Key)
        raise errors.Rejected(f"{texts.quoted(text)}: {texts.quoted(key)} is not one of {known}")
    if not equals:
        return Cause(Key(key))
    allowed = _VALUES.get(Key(key), ())
    if key == Key.XID and not (value.isascii() and value.isdecimal()):
        raise errors.Rejected(f"{texts.quoted(text)}: an XID is a number, as in xid=79")
    if key != Key.XID and value not in allowed:
        known = f"its values are {', '.join(allowed)}" if allowed else "it has no values"
        raise errors.Rejected(f"{texts.quoted(text)}: {key}: {known}; {key} alone means all of it")
    return Cause(Key(key), str(int(value)) if key == Key.XID else value)


def parse_effect(text: str) -> tuple[Cause, str]:
    """`xid=94:NoSchedule`.

    Raises:
        errors.Rejected: it is no cause and effect.
    """
    cause, _, effect = text.partition(":")
    if effect not in {taints.NONE, taints.NO_SCHEDULE}:
        raise errors.Rejected(
            f"{texts.quoted(text)}: write KEY:EFFECT or KEY=VALUE:EFFECT, where EFFECT is "
            f"{taints.NONE} or {taints.NO_SCHEDULE}; what ends pods is set by --health-evict"
        )
    return parse_cause(cause), effect


class Lasts(enum.StrEnum):
    """When the cause of a condition is gone."""

    WHILE_SEEN = "while-seen"
    """A look does not find it any more."""
    UNTIL_RECOVERED = "until-recovered"
    """The driver wants nothing done any more; or, of a card that does not tell, it was reset."""
    UNTIL_CLAIMS_END = "until-claims-end"
    """The claims that had the device when it happened have ended."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a GPU, or with one of its instances, as seen now.

    `spot` is the place of the instance; None: the whole card. `effect` is that of the taint.
    `only_claims`: no device is the worse for it, but the claims that were hit are told.
    `message` is for the users of the card: what, and what to do.
    """

    gpu: devices.GpuUuid
    key: Key
    value: str
    effect: str
    message: str
    lasts: Lasts = Lasts.WHILE_SEEN
    spot: mig.Spot | None = None
    fault: Fault | None = None
    only_claims: bool = False

    @property
    def identity(self) -> tuple[str, ...]:
        """What makes it the same thing when it is found again."""
        spot = "" if self.spot is None else f"{self.spot.profile_id}@{self.spot.placement}"
        return (self.gpu, spot, self.key, self.value, self.lasts, str(self.only_claims))


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """A finding that counts, for as long as it does.

    `since` is when it was found first (RFC 3339, UTC, seconds): the time of the taint. `claims` are
    the UIDs of claims that had the device when it happened. `away` is since when the cause is gone
    (seconds of the monotonic clock), None while it is there; `hold` is for how many seconds it has
    to stay away, and `returns` how often it came back before it had. `before_boot`: it was found
    before the node was booted, and not since.
    """

    finding: Finding
    since: str
    claims: tuple[str, ...] = ()
    away: float | None = None
    hold: float = 0.0
    returns: int = 0
    before_boot: bool = False
