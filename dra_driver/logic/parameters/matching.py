"""How many devices of the cluster match what is asked for, and why not more."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from dra_driver.logic.cel import selection
from dra_driver.logic.offering import classes
from dra_driver.logic.parameters import claims, selecting
from dra_driver.model import slices, texts

_MOST_TOLD = 512
"""Bytes of what was written, in a message."""
_MOST_SEEN = 5
"""Values of devices that a message shows."""
_CAPACITIES = frozenset({"memory", "addressableMemory"})


@dataclasses.dataclass(frozen=True, slots=True)
class Ask:
    """What devices have to be: of a class, with all these expressions true. Equal asks are one.

    `reads` is what each expression is about, for messages (`selecting.Condition`).
    """

    device_class: str
    expressions: tuple[str, ...]
    reads: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Matches:
    """How many devices there are of the class, and how many of them match.

    `each` is how many meet each expression, in order; `most` the most that match on one node.
    `seen` is what some of the devices have of what each expression reads.
    """

    devices: int = 0
    of: int = 0
    each: tuple[int, ...] = ()
    most: int = 0
    seen: tuple[frozenset[str], ...] = ()


def ask(made: claims.Made) -> Ask | None:
    """What is asked for; None where it cannot be said."""
    if made.request is None:
        return None
    reads = tuple(each.reads for each in made.conditions)
    return Ask(made.request["deviceClassName"], made.expressions, reads)


class Count:
    """Counts slices one by one, so that they need not be kept. Not for several threads.

    Of a pool only its newest generation counts. A device that is in use counts too.
    """

    def __init__(self, asks: Iterable[Ask], driver: str) -> None:
        self._driver = driver
        self._asks = tuple(asks)
        self._selectors = {
            text: selection.compile(text) for each in self._asks for text in each.expressions
        }
        self._classes = _class_selectors(driver)
        self._generations: dict[str, int] = {}
        self._found: dict[str, dict[Ask, Matches]] = {}

    def add(self, item: slices.ResourceSlice) -> None:
        """One more slice, in any order; another driver's is passed over."""
        known = self._generations.get(item.pool, -1)
        if item.driver != self._driver or item.generation < known:
            return
        if item.generation > known:
            self._generations[item.pool] = item.generation
            self._found[item.pool] = {}
        pool = self._found[item.pool]
        # Asks have much in common: each question is answered once for a slice.
        members = {
            name: self._members(item.devices, name)
            for name in {each.device_class for each in self._asks}
        }
        columns = {
            (name, text): [_holds(self._selectors[text], each, self._driver) for each in devices]
            for name, devices in members.items()
            for text in {
                text
                for each in self._asks
                if each.device_class == name
                for text in each.expressions
            }
        }
        for asked in self._asks:
            devices = members[asked.device_class]
            own = [columns[asked.device_class, text] for text in asked.expressions]
            here = _of_slice(devices, asked.reads, own)
            pool[asked] = _added(pool.get(asked), here)

    def result(self) -> Mapping[Ask, Matches]:
        """What was found for each ask."""
        found = dict.fromkeys(self._asks, Matches())
        for pool in self._found.values():
            for asked, here in pool.items():
                most = max(found[asked].most, here.devices)
                found[asked] = dataclasses.replace(_added(found[asked], here), most=most)
        return found

    def _members(
        self, devices: Iterable[slices.Device], device_class: str
    ) -> Sequence[slices.Device]:
        """Those of the class, as the chart makes it."""
        selectors = self._classes[device_class]
        return [
            each
            for each in devices
            if all(_holds(selector, each, self._driver) for selector in selectors)
        ]


def _of_slice(
    devices: Sequence[slices.Device], reads: Sequence[str], own: Sequence[Sequence[bool]]
) -> Matches:
    """`own` is for each expression whether it holds, by device."""
    every = [all(held) for held in zip(*own, strict=True)] if own else [True] * len(devices)
    seen = tuple(_few({_value(device, name) for device in devices} - {""}) for name in reads)
    return Matches(sum(every), len(devices), tuple(map(sum, own)), seen=seen)


def reason(made: claims.Made, found: Matches) -> str | None:
    """Why a claim cannot be met whatever is free; None where there are enough devices."""
    request = made.request or {}
    device_class, count = request.get("deviceClassName"), int(request.get("count", 1))
    if not found.of:
        return (
            f"no device of class {device_class} is published: look for it with kubectl get "
            "resourceslices, and with dra-driver doctor on a node"
        )
    if found.devices:
        return (
            None
            if found.most >= count
            else (
                f"{found.devices} devices match, but no more than {found.most} on one node, and "
                f"{count} are asked for"
            )
        )
    met = tuple(zip(made.conditions, found.each, strict=True))
    never = [
        f"{_said(each)}{_found(seen)}{each.advice}"
        for (each, number), seen in zip(met, found.seen, strict=True)
        if not number
    ]
    if never:
        told = "; ".join(never)
        return f"of {found.of} devices of class {device_class} none has {told}"
    told = "; ".join(f"{number} have {_said(each)}" for each, number in met if number < found.of)
    return f"of {found.of} devices of class {device_class} none has all of it: {told}"


def _said(condition: selecting.Condition) -> str:
    return texts.told(condition.said, _MOST_TOLD)


def _found(seen: frozenset[str]) -> str:
    shown = ", ".join(sorted(texts.told(each, _MOST_TOLD) for each in seen))
    return f" (there are {shown}{', …' if len(seen) == _MOST_SEEN else ''})" if seen else ""


def _few(values: Iterable[str]) -> frozenset[str]:
    """The first of them, in the order of texts."""
    return frozenset(sorted(values)[:_MOST_SEEN])


def _value(device: slices.Device, name: str) -> str:
    """An attribute or a capacity of the driver's own, as it is published; empty for none."""
    value = device.capacity.get(name) if name in _CAPACITIES else device.attributes.get(name)
    if isinstance(value, slices.Version):
        return value.text
    return "" if value is None else str(value)


def _added(before: Matches | None, more: Matches) -> Matches:
    if before is None or not before.of:
        return more
    if not more.of:
        return before
    each = tuple(map(sum, zip(before.each, more.each, strict=True)))
    seen = tuple(_few(a | b) for a, b in zip(before.seen, more.seen, strict=True))
    return Matches(before.devices + more.devices, before.of + more.of, each, seen=seen)


def _holds(selector: selection.Selector, device: slices.Device, driver: str) -> bool:
    try:
        return selector.matches(device, driver)
    except selection.EvaluationError:
        return False


def _class_selectors(driver: str) -> Mapping[str, tuple[selection.Selector, ...]]:
    """Those of the classes as the chart makes them."""
    return {
        body["metadata"]["name"]: tuple(
            selection.compile(each["cel"]["expression"]) for each in body["spec"]["selectors"]
        )
        for body in classes.device_classes(driver)
    }
