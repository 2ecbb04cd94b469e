"""What is told of the health of GPUs by events: of their node, and of the claims that have them.

What is wrong is told once, and again when it has come back; the same thing at most once in a
minute, how often it came back meanwhile being counted. That a GPU is well again is told where it
had been told that it was withdrawn.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dra_driver.logic.health import conditions
from dra_driver.model import devices, events, health, mig, prepared, taints

NOTICE, UNHEALTHY, REBOOT, WELL = "GpuNotice", "GpuUnhealthy", "GpuNeedsReboot", "GpuHealthy"
"""Reasons: it is only told; nobody new gets it; the node is to be rebooted too; it is over."""
RESET, NOT_RESET = "GpuReset", "GpuResetFailed"
PAUSE = 60.0
"""Seconds between two events about the same thing."""
MOST_A_MINUTE = 60
"""Events of a node."""

Places = Mapping[tuple[str, mig.Spot | None], str]
"""Names of devices by the UUID of their GPU and their place in it; None: the whole."""


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """Something to be told of an object: what is wrong with one GPU, or that nothing is any more.

    `name` is that of the device. `thing` makes it the same when it comes back; `since` tells one
    time from the other.
    """

    about: events.About
    gpu: str
    name: str
    reason: str
    type: str
    message: str
    since: str
    thing: tuple[str, ...]
    count: int = 1

    @property
    def key(self) -> tuple[str, ...]:
        """What there is one of."""
        return (self.about.kind, self.about.namespace, self.about.name, *self.thing)

    def said(self, now: str) -> events.Said:
        """As an event says it."""
        return events.Said(self.type, self.reason, self.message, self.since, now, self.count)

    @property
    def distinct(self) -> tuple[str, ...]:
        """What makes it another event of the same object."""
        return (self.reason, *self.thing, self.since)


def needs_reboot(one: health.Condition) -> bool:
    """Whether what is wrong goes with a reboot of the node, and with nothing less.

    Of what was there before a boot that is not known until it is found again: whoever reboots
    nodes by it would not come to an end.
    """
    finding = one.finding
    if one.before_boot:
        return False
    if finding.key is health.Key.RECOVERY:
        return finding.value == "reboot"
    is_bus = finding.key is health.Key.XID and finding.fault is health.Fault.BUS
    return is_bus and finding.effect != taints.NONE


def of_node(view: conditions.View, node: events.About, places: Places) -> Iterator[Item]:
    """What the node is told. What an application did is told to its claim alone.

    What was there before a boot is told if it is found again.
    """
    for one in conditions.grave_first(view.conditions):
        finding = one.finding
        if finding.only_claims or finding.fault is health.Fault.APPLICATION or one.before_boot:
            continue
        name = places.get((finding.gpu, finding.spot))
        card = places.get((finding.gpu, None), finding.gpu)
        yield _item(node, one, name or f"a part of {card}")


def of_claims(view: conditions.View, known: Iterable[prepared.Record]) -> Iterator[Item]:
    """What the claims are told that have what is wrong, or were hit when it happened."""
    listed = conditions.grave_first(view.conditions)
    for record in known if listed else ():
        about = of_record(record)
        if about is None:
            continue
        for one in listed:
            if names := hit(one, record):
                yield _item(about, one, ", ".join(names))


def of_record(record: prepared.Record) -> events.About | None:
    """A claim; None where its name is not known any more."""
    if not record.name:
        return None
    return events.About(
        "resource.k8s.io/v1", "ResourceClaim", record.name, record.uid, record.namespace
    )


def hit(one: health.Condition, record: prepared.Record) -> tuple[str, ...]:
    """Names of the devices of a claim that something is wrong with."""
    finding = one.finding
    is_blamed = record.uid in one.claims
    by_claims = finding.only_claims or finding.lasts is health.Lasts.UNTIL_CLAIMS_END
    if by_claims and not is_blamed:
        return ()
    cards, spots = record.cards, {part.device: part.spot for part in record.partitions}
    names = dict.fromkeys(
        device.device
        for device in record.devices
        if cards.get(devices.card_of(device.device)) == finding.gpu
    )
    there = [name for name in names if finding.spot in {None, spots.get(name)}]
    return tuple(there or (names if is_blamed else ()))


def of_reset(
    node: events.About, gpu: str, places: Places, message: str, now: str, *, is_done: bool
) -> Item:
    """What a node is told of a reset of a GPU that was tried `now` (RFC 3339, UTC)."""
    name = places.get((gpu, None), gpu)
    return Item(
        about=node,
        gpu=gpu,
        name=name,
        reason=RESET if is_done else NOT_RESET,
        type=events.NORMAL if is_done else events.WARNING,
        message=f"{name}: {message}",
        since=now,
        thing=(gpu, "reset"),
    )


_EVICTS = "; pods that have it and do not tolerate that are ended"


def _item(about: events.About, one: health.Condition, name: str) -> Item:
    finding = one.finding
    is_withdrawn = finding.effect != taints.NONE
    reason = REBOOT if needs_reboot(one) else UNHEALTHY if is_withdrawn else NOTICE
    is_grave = is_withdrawn or finding.fault is health.Fault.APPLICATION
    evicts = _EVICTS if finding.effect == taints.NO_EXECUTE else ""
    return Item(
        about=about,
        gpu=finding.gpu,
        name=name,
        reason=reason,
        type=events.WARNING if is_grave else events.NORMAL,
        message=f"{name}: {finding.message}{evicts}",
        since=one.since,
        thing=finding.identity,
    )


@dataclasses.dataclass(slots=True)
class _Told:
    """The last time of something: which it was, when it was told, how often it came since."""

    since: str
    at: float
    unsaid: int = 0
    seen: str = ""


class Desk:
    """Decides what is to be told now. For one thread; seconds are of the monotonic clock."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, ...], _Told] = {}
        self._unwell: dict[tuple[str, ...], Item] = {}
        self._times: collections.deque[float] = collections.deque(maxlen=MOST_A_MINUTE)

    def __len__(self) -> int:
        """Of how many things it is remembered when they were told."""
        return len(self._told)

    def due(
        self, items: Sequence[Item], there: Iterable[events.About], now: conditions.Now
    ) -> tuple[list[Item], float | None]:
        """What is to be told, the gravest first, and in how many seconds there is more, if known.

        `items` are all that is wrong; `there` are the objects that are to be told of it.
        """
        self._forget({item.key for item in items}, now.seconds)
        ready, pauses = [], []
        for item in (*items, *self._well(items, {*map(_name, there)}, now)):
            counted = self._counted(item)
            if counted is None:
                continue
            pause = self._pause(item, now.seconds)
            pauses += [pause] if pause > 0 else []
            ready += [counted] if pause <= 0 else []
        return sorted(ready, key=_urgency), min(pauses, default=None)

    def wait(self, now: float) -> float:
        """Seconds until one more may be told."""
        if len(self._times) < MOST_A_MINUTE:
            return 0.0
        return max(self._times[0] + PAUSE - now, 0.0)

    def told(self, item: Item, now: float) -> None:
        """It has been told, or cannot be."""
        self._times.append(now)
        self._told[item.key] = _Told(item.since, now)
        place = (*_name(item.about), item.gpu)
        if item.reason == WELL:
            self._unwell.pop(place, None)
        elif item.reason in {UNHEALTHY, REBOOT}:
            self._unwell.setdefault(place, item)

    def _forget(self, there: set[tuple[str, ...]], now: float) -> None:
        """What is over is kept as long as it counts for how often it may be told."""
        for key, told in list(self._told.items()):
            if key not in there and now - told.at >= PAUSE:
                del self._told[key]

    def _counted(self, item: Item) -> Item | None:
        """With how often it has come; None if it has been told of this time."""
        told = self._told.get(item.key)
        if told is None or item.reason == WELL:
            return item
        if item.since == told.since:
            return None
        if item.since != told.seen:
            told.seen = item.since
            told.unsaid += 1
        return dataclasses.replace(item, count=told.unsaid)

    def _pause(self, item: Item, now: float) -> float:
        told = self._told.get(item.key)
        return 0.0 if told is None else told.at + PAUSE - now

    def _well(
        self, items: Sequence[Item], there: set[tuple[str, ...]], now: conditions.Now
    ) -> Iterator[Item]:
        """That GPUs are well again, to those who are there and were told that they were not."""
        bad = {
            (*_name(item.about), item.gpu) for item in items if item.reason in {UNHEALTHY, REBOOT}
        }
        for place, before in list(self._unwell.items()):
            if _name(before.about) not in there:
                del self._unwell[place]
            elif place not in bad:
                yield dataclasses.replace(
                    before,
                    reason=WELL,
                    type=events.NORMAL,
                    message=f"{before.name} is well again; since {before.since} it was not",
                    since=now.text,
                    thing=(before.gpu, "well"),
                    count=1,
                )


def _name(about: events.About) -> tuple[str, ...]:
    return (about.kind, about.namespace, about.name)


_URGENCY = (REBOOT, UNHEALTHY, NOT_RESET, RESET, WELL, NOTICE)


def _urgency(item: Item) -> int:
    return _URGENCY.index(item.reason)
