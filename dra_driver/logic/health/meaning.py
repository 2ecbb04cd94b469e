"""What follows from an event or a look at a GPU: findings, with the effects of their taints."""

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from dra_driver.logic.health import xids
from dra_driver.model import devices, health, mig, taints

_Key = health.Key

HOLD = 30.0
"""Seconds for which a cause has to stay away, unless the settings say otherwise."""
MOST_RETIRED_PAGES = 60
"""From this number on a card is to be replaced (NVIDIA, "Dynamic Page Retirement", RMA policy)."""

_FABRIC_FAULTS = (
    # Fields of two bits each, of which 1 says yes (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_*).
    (0, "degraded-bandwidth", taints.NONE, "the NVLink fabric has less bandwidth than it should"),
    (2, "route-recovery", taints.NONE, "the NVLink fabric recovers a route"),
    (4, "route-unhealthy", taints.NO_SCHEDULE, "a route of the NVLink fabric is unhealthy"),
    (6, "access-timeout", taints.NONE, "the NVLink fabric recovers from an access that timed out"),
)
_FABRIC_COMPLETED = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """What operators have set. `effects` are the effects of causes, `evict` those with NoExecute.

    `hold` is for how many seconds a cause has to stay away.
    """

    effects: tuple[tuple[health.Cause, str], ...] = ()
    evict: tuple[health.Cause, ...] = ()
    hold: float = HOLD

    def effect(self, key: health.Key, value: str, usual: str) -> str:
        """That of a finding; what is said of a value comes before what is said of its key."""
        found = usual
        for cause, effect in sorted(self.effects, key=lambda one: one[0].value is not None):
            if cause.covers(key, value):
                found = effect
        if key is _Key.XID and value in _NEVER:
            found = taints.NONE
        evicts = any(cause.covers(key, value) for cause in self.evict)
        return taints.NO_EXECUTE if evicts and found == taints.NO_SCHEDULE else found


_NEVER = frozenset(str(number) for number in xids.NEVER_WITHDRAW)


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What a look has found. Of the keys in `unknown` it says nothing.

    `is_recovered`: the driver wants nothing done; None: this card does not tell.
    """

    findings: tuple[health.Finding, ...] = ()
    unknown: frozenset[health.Key] = frozenset()
    is_recovered: bool | None = None


UNSEEN = frozenset({_Key.UNMONITORED, _Key.PASSTHROUGH})
"""Keys of which no look through NVML says anything: others find them, and their end."""


def of_event(event: health.Event, spot: mig.Spot | None, policy: Policy) -> health.Finding | None:
    """What an event says; None where a look says it better.

    `spot` is the place of the instance that it is about.
    """
    if event.kind is health.EventKind.XID:
        return _of_xid(event, spot, policy)
    if event.kind not in _EVENTS:
        return None
    key, value, usual, what = _EVENTS[event.kind]
    return health.Finding(
        gpu=event.gpu,
        key=key,
        value=value,
        effect=policy.effect(key, value, usual),
        message=what,
        lasts=health.Lasts.UNTIL_RECOVERED,
        spot=spot,
        fault=health.Fault.HARDWARE,
    )


_EVENTS: Mapping[health.EventKind, tuple[health.Key, str, str, str]] = MappingProxyType(
    {
        health.EventKind.SINGLE_BIT_ECC_STORM: (
            _Key.MEMORY,
            "ecc",
            taints.NONE,
            "a storm of corrected memory errors; if it comes again, ask the vendor of the machine",
        ),
        health.EventKind.DRAM_RETIREMENT_FAILURE: (
            _Key.MEMORY,
            "remap-failed",
            taints.NO_SCHEDULE,
            "bad memory could not be replaced; have the card replaced",
        ),
        health.EventKind.NON_FATAL_POISON: (
            _Key.MEMORY,
            "ecc",
            taints.NONE,
            "poisoned memory that was contained; restart the application",
        ),
        health.EventKind.FATAL_POISON: (
            _Key.MEMORY,
            "ecc",
            taints.NO_SCHEDULE,
            "poisoned memory; the GPU needs a reset",
        ),
        health.EventKind.GPU_UNAVAILABLE: (
            _Key.GPU_LOST,
            "",
            taints.NO_SCHEDULE,
            "the GPU is not available, says the driver; look at the kernel log (dmesg)",
        ),
    }
)


def _of_xid(event: health.Event, spot: mig.Spot | None, policy: Policy) -> health.Finding:
    xid = xids.of(event.data)
    value = str(event.data)
    is_applications = xid.fault is health.Fault.APPLICATION
    lasts = health.Lasts.UNTIL_CLAIMS_END if is_applications else health.Lasts.UNTIL_RECOVERED
    return health.Finding(
        gpu=event.gpu,
        key=_Key.XID,
        value=value,
        effect=policy.effect(_Key.XID, value, xid.effect),
        message=xid.message,
        lasts=lasts,
        spot=spot,
        fault=xid.fault,
    )


def of_absence(gpu: devices.GpuUuid, problem: str | None, policy: Policy) -> Seen:
    """A GPU that was there and is not now. `problem`: the driver does not answer at all."""
    if problem is not None:
        return Seen((driverless(gpu, problem, policy),), _ALL - {_Key.DRIVER})
    return Seen((lost(gpu, policy),), _ALL - {_Key.GPU_LOST, _Key.DRIVER}, is_recovered=False)


_ALL = frozenset(health.Key)


def of_facts(gpu: devices.GpuUuid, facts: health.Facts, policy: Policy) -> Seen:
    """What the facts of one look say of a GPU. Of one that is lost nothing else is known."""
    if facts.is_lost:
        return of_absence(gpu, None, policy)
    found = tuple(
        health.Finding(gpu, key, value, policy.effect(key, value, usual), message)
        for key, value, usual, message in (
            *_recovery(facts),
            *_memory(facts),
            *_heat(facts),
            *_fabric(facts),
        )
    )
    if "is_lost" in facts.unread:
        # A GPU that is not even found: whatever it had, it may have still.
        unknown = _ALL
    else:
        unknown = frozenset(_FIELDS[field] for field in facts.unread if field in _FIELDS)
    return Seen(found, unknown | UNSEEN, _is_recovered(facts))


def lost(gpu: devices.GpuUuid, policy: Policy) -> health.Finding:
    """The GPU has fallen off the bus."""
    message = (
        "the GPU is lost: it has fallen off the bus, or does not answer; look for Xid messages in "
        "the kernel log (dmesg), reset the GPU or reboot the node"
    )
    effect = policy.effect(_Key.GPU_LOST, "", taints.NO_SCHEDULE)
    return health.Finding(gpu, _Key.GPU_LOST, "", effect, message)


def driverless(gpu: devices.GpuUuid, problem: str, policy: Policy) -> health.Finding:
    """NVIDIA's driver does not answer at all; `problem` is what is known of that."""
    effect = policy.effect(_Key.DRIVER, "", taints.NO_SCHEDULE)
    return health.Finding(gpu, _Key.DRIVER, "", effect, f"the driver does not answer: {problem}")


def hung(gpu: devices.GpuUuid, seconds: float, policy: Policy) -> health.Finding:
    """NVIDIA's driver has not come back for so long from a question about the GPU."""
    problem = (
        f"a question about the GPU has not come back for {seconds:g} s. This GPU, or another of "
        "the node, hangs: look for Xid messages in the kernel log (dmesg), reset it or reboot "
        "the node"
    )
    return driverless(gpu, problem, policy)


def unmonitored(gpu: devices.GpuUuid, reason: str, policy: Policy) -> health.Finding:
    """Nobody listens to events of the GPU."""
    effect = policy.effect(_Key.UNMONITORED, "", taints.NONE)
    message = f"events of the GPU are not heard, so that errors are seen late: {reason}"
    return health.Finding(gpu, _Key.UNMONITORED, "", effect, message)


def stranded(gpu: devices.GpuUuid, reason: str, policy: Policy) -> health.Finding:
    """A GPU that was bound for a virtual machine is not where it should be."""
    effect = policy.effect(_Key.PASSTHROUGH, "", taints.NO_SCHEDULE)
    return health.Finding(gpu, _Key.PASSTHROUGH, "", effect, reason)


def of_bound() -> Seen:
    """A GPU that a VFIO driver has: nothing is to be seen of it, and what was before stays."""
    return Seen(unknown=_ALL)


_Row = tuple[health.Key, str, str, str]
"""Key, value, usual effect, message."""

_SYSTEM_REBOOT = 7
"""Known to newer drivers; for this node it is a reboot."""
_ACTIONS: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        health.Recovery.RESET: ("reset", "the driver wants the GPU reset"),
        health.Recovery.REBOOT: ("reboot", "the driver wants the node rebooted"),
        _SYSTEM_REBOOT: ("reboot", "the driver wants the whole system rebooted"),
        health.Recovery.DRAIN: (
            "drain",
            "the driver wants no more traffic with the GPU's peers: end the pods on it",
        ),
        health.Recovery.DRAIN_AND_RESET: (
            "drain-and-reset",
            "the driver wants the GPU emptied, and then reset",
        ),
    }
)


def _recovery(facts: health.Facts) -> Iterator[_Row]:
    wanted = dict.fromkeys(_wanted(facts))
    for value, message in wanted:
        yield _Key.RECOVERY, value, taints.NO_SCHEDULE, message


def _wanted(facts: health.Facts) -> Iterator[tuple[str, str]]:
    known = None if facts.recovery is None else _ACTIONS.get(facts.recovery)
    if known is not None:
        yield known
    elif facts.recovery:
        what = f"recovery action {facts.recovery}, which is not known here"
        yield "drain-and-reset", f"the driver wants {what}: empty the GPU, and reset it"
    elif facts.drain_and_reset_wanted:
        yield _ACTIONS[health.Recovery.DRAIN_AND_RESET]
    elif facts.reset_wanted:
        yield _ACTIONS[health.Recovery.RESET]


def _is_recovered(facts: health.Facts) -> bool | None:
    asked = (facts.recovery, facts.reset_wanted, facts.drain_and_reset_wanted)
    if any(asked):
        return False
    return None if facts.recovery is None or "recovery" in facts.unread else True


def _memory(facts: health.Facts) -> Iterator[_Row]:
    if facts.remap_failed:
        message = "bad memory could not be replaced; have the card replaced"
        yield _Key.MEMORY, "remap-failed", taints.NO_SCHEDULE, message
    if (facts.retired_pages or 0) >= MOST_RETIRED_PAGES:
        message = f"{facts.retired_pages} pages of memory are retired; have the card replaced"
        yield _Key.MEMORY, "remap-failed", taints.NO_SCHEDULE, message
    if facts.remap_pending or facts.retirement_pending:
        message = "bad memory is replaced with the next reset of the GPU; it needs one"
        yield _Key.MEMORY, "remap-pending", taints.NO_SCHEDULE, message
    if facts.uncorrectable_ecc:
        # Where rows are remapped an error is contained, and the driver asks for what it needs.
        contained = facts.remap_pending is not None
        yield (
            _Key.MEMORY,
            "ecc",
            taints.NONE if contained else taints.NO_SCHEDULE,
            f"{facts.uncorrectable_ecc} memory errors could not be corrected since the last reset"
            + ("" if contained else "; the GPU needs a reset"),
        )


def _heat(facts: health.Facts) -> Iterator[_Row]:
    if facts.thermal_slowdown:
        # Without the temperature: what is told would change with each look.
        message = "the GPU is too hot, and runs slowly; look at the cooling"
        yield _Key.THERMAL, "slowdown", taints.NONE, message
    if facts.power_brake:
        message = "the GPU is short of power and runs slowly; look at the power supply"
        yield _Key.THERMAL, "power-brake", taints.NONE, message


def _fabric(facts: health.Facts) -> Iterator[_Row]:
    fabric = facts.fabric
    if fabric is not None and fabric.state in {1, 2}:
        message = "the GPU is not (yet) part of its NVLink fabric; see nvidia-fabricmanager"
        yield _Key.FABRIC, "not-ready", taints.NONE, message
    if fabric is not None and fabric.state == _FABRIC_COMPLETED:
        if fabric.status:
            message = f"the GPU could not join its NVLink fabric (NVML error {fabric.status})"
            yield _Key.FABRIC, "failed", taints.NO_SCHEDULE, message
        for shift, value, effect, message in _FABRIC_FAULTS:
            if fabric.health >> shift & 3 == 1:
                yield _Key.FABRIC, value, effect, message
        if fabric.health >> 8 & 0xF > 1:
            message = "the NVLink fabric is configured wrongly for this GPU"
            yield _Key.FABRIC, "configuration", taints.NO_SCHEDULE, message
    if facts.links_down:
        listed = ", ".join(str(link) for link in facts.links_down)
        message = f"NVLinks are down: {listed}; traffic between GPUs is slower"
        yield _Key.FABRIC, "link-down", taints.NONE, message


_FIELDS: Mapping[str, health.Key] = MappingProxyType(
    {
        "recovery": _Key.RECOVERY,
        "reset_wanted": _Key.RECOVERY,
        "drain_and_reset_wanted": _Key.RECOVERY,
        "remap_pending": _Key.MEMORY,
        "remap_failed": _Key.MEMORY,
        "retired_pages": _Key.MEMORY,
        "retirement_pending": _Key.MEMORY,
        "uncorrectable_ecc": _Key.MEMORY,
        "thermal_slowdown": _Key.THERMAL,
        "power_brake": _Key.THERMAL,
        "fabric": _Key.FABRIC,
        "links_down": _Key.FABRIC,
    }
)
