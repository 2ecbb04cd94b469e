"""How many devices of the cluster match what is asked for, and why not more."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from dra_driver.logic.cel import selection
from dra_driver.logic.offering import classes
from dra_driver.logic.parameters import claims, selecting
from dra_driver.model import slices, texts

_MOST_TOLD = 512
"""Bytes of what was written, in a message."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ask:
    """What devices have to be: of a class, with all these expressions true. Equal asks are one."""

    device_class: str
    expressions: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Matches:
    """How many devices there are of the class, and how many of them match.

    `each` is how many meet each expression, in order; `most` the most that match on one node.
    """

    devices: int = 0
    of: int = 0
    each: tuple[int, ...] = ()
    most: int = 0


def ask(made: claims.Made) -> Ask | None:
    """What is asked for; None where it cannot be said."""
    if made.request is None:
        return None
    return Ask(made.request["deviceClassName"], made.expressions)


class Count:
    """Counts slices one by one, so that they need not be kept. Not for several threads.

    Of a pool only its newest generation counts. A device that is in use counts too.
    """

    def __init__(self, asks: Iterable[Ask], driver: str) -> None:
        selectors = _class_selectors(driver)
        self._driver = driver
        self._asks = {
            each: (
                selectors.get(each.device_class, ()),
                tuple(map(selection.compile, each.expressions)),
            )
            for each in asks
        }
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
        for asked, (of_class, own) in self._asks.items():
            pool[asked] = _added(pool.get(asked), self._of_slice(item.devices, of_class, own))

    def result(self) -> Mapping[Ask, Matches]:
        """What was found for each ask."""
        found = dict.fromkeys(self._asks, Matches())
        for pool in self._found.values():
            for asked, here in pool.items():
                most = max(found[asked].most, here.devices)
                found[asked] = dataclasses.replace(_added(found[asked], here), most=most)
        return found

    def _of_slice(
        self,
        devices: Sequence[slices.Device],
        of_class: tuple[selection.Selector, ...],
        own: tuple[selection.Selector, ...],
    ) -> Matches:
        rows = [
            [_holds(each, device, self._driver) for each in own]
            for device in devices
            if all(_holds(each, device, self._driver) for each in of_class)
        ]
        each = tuple(map(sum, zip(*rows, strict=True))) if rows else ()
        return Matches(sum(map(all, rows)), len(rows), each)


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
    never = [each for each, number in met if not number]
    if never:
        told = "; ".join(f"{_said(each)}{each.advice}" for each in never)
        return f"of {found.of} devices of class {device_class} none has {told}"
    told = "; ".join(f"{number} have {_said(each)}" for each, number in met if number < found.of)
    return f"of {found.of} devices of class {device_class} none has all of it: {told}"


def _said(condition: selecting.Condition) -> str:
    return texts.told(condition.said, _MOST_TOLD)


def _added(before: Matches | None, more: Matches) -> Matches:
    if before is None or not before.of:
        return more
    if not more.of:
        return before
    each = tuple(map(sum, zip(before.each, more.each, strict=True)))
    return Matches(before.devices + more.devices, before.of + more.of, each)


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
