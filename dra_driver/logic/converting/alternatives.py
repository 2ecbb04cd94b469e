"""Devices that would do for an ask: alternatives of one request.

CEL cannot compute what a request asks for, so each size of card is an alternative of its own.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction

from dra_driver.logic.converting import asks, conversion, notes
from dra_driver.model import quantities

MOST = 8
"""Alternatives of a request (`FirstAvailableDeviceRequestMaxSize`)."""
MIB = 2**20


@dataclasses.dataclass(frozen=True, slots=True)
class Alternative:
    """Devices that would do. `size` is bytes of memory of the cards that it is for, 0 for any.

    `least` are bytes that a partition has to have. `name` is that of the subrequest.
    """

    device_class: str
    selectors: tuple[str, ...] = ()
    capacity: Mapping[str, str] = dataclasses.field(default_factory=dict)
    size: int = 0
    name: str = ""
    least: int = 0


def name(size: int) -> str:
    """The name of the alternative for cards of a size in bytes."""
    return f"mib-{size // MIB}"


def part(size: int, fraction: Fraction) -> int:
    """A part of so many bytes, in whole MiB: rounded down, so that all parts fit on a card."""
    return max(int(size * fraction) // MIB, 1) * MIB


def percent(fraction: Fraction) -> str:
    """As in messages."""
    return f"{float(100 * fraction):g} %"


def tell_left_out(where: str, ask: asks.Ask, sizes: Sequence[int], said: notes.Notes) -> None:
    """Warn of cards for which there is no room among the alternatives."""
    if sizes:
        left = ", ".join(str(quantities.of_bytes(size)) for size in sizes)
        becomes = f"cards of {left} are left out: a claim has {MOST} alternatives at most"
        said.warn(where, ", ".join(ask.asked), becomes)


def refuse_large(
    where: str, ask: asks.Ask, amount: int, largest: int, what: str, said: notes.Notes
) -> None:
    """Refuse more bytes than the largest card or partition has."""
    has = quantities.of_bytes(largest)
    rule = f"the largest {what} has {has}: ask for no more than that"
    said.refuse(where, ", ".join(ask.asked), str(quantities.of_bytes(amount)), rule)


def refuse_unknown(
    where: str, ask: asks.Ask, policy: conversion.Policy, none: str, said: notes.Notes
) -> None:
    """Refuse a part of a card whose size nobody knows; `none` is why the fleet does not help."""
    if policy.fleet is not None and policy.fleet.kinds:
        rule = f"{none}, or ask for an amount"
    else:
        rule = (
            "a part of a card is an amount only where the sizes of cards are known: give the "
            "cluster's slices (`--slices`, or a kubeconfig), or ask for an amount"
        )
    shown = percent(ask.fraction) if ask.fraction is not None else ""
    said.refuse(where, ", ".join(ask.asked), shown, rule)
