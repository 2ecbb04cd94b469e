"""Partitions by profile or by memory -> what such devices have to meet.

The order in which partitions are published makes the smallest that fits the first.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from dra_driver.logic.converting import (
    alternatives,
    asks,
    conversion,
    expressions,
    fleet,
    notes,
)
from dra_driver.logic.offering import classes
from dra_driver.model import sharing


def of(
    where: str, ask: asks.Ask, policy: conversion.Policy, said: notes.Notes
) -> tuple[alternatives.Alternative, ...]:
    """What partitions do for an ask, the first before the others; none if that was refused."""
    kinds = [
        kind for kind in (policy.fleet.kinds if policy.fleet is not None else ()) if kind.profiles
    ]
    if ask.fraction is not None:
        return _of_cards(where, ask, ask.fraction, policy, kinds, said)
    selectors = ask.selectors
    if ask.profile:
        selectors = (expressions.of_profile(policy.driver, ask.profile), *selectors)
    if ask.memory is not None:
        largest = max(map(_largest, kinds), default=0)
        if kinds and ask.memory > largest:
            alternatives.refuse_large(where, ask, ask.memory, largest, "partition", said)
            return ()
        selectors = (expressions.memory(policy.driver, ">=", ask.memory), *selectors)
    return (alternatives.Alternative(_class(policy), selectors, least=ask.memory or 0),)


def _of_cards(
    where: str,
    ask: asks.Ask,
    fraction: Fraction,
    policy: conversion.Policy,
    kinds: Sequence[fleet.CardKind],
    said: notes.Notes,
) -> tuple[alternatives.Alternative, ...]:
    """A partition with a part of the card's memory, for each size of card."""
    if not kinds:
        none = "no card of this cluster is cut into partitions: let some be (`--mig dynamic`)"
        alternatives.refuse_unknown(where, ask, policy, none, said)
        return ()
    found = []
    for size in sorted({kind.memory for kind in kinds}):
        products, least = _that_fit([kind for kind in kinds if kind.memory == size], fraction)
        if products:
            selectors = (
                expressions.memory(policy.driver, ">=", least),
                expressions.one_of(policy.driver, "productName", products),
                *ask.selectors,
            )
            name = alternatives.name(size)
            found.append(
                alternatives.Alternative(
                    _class(policy), selectors, size=size, name=name, least=least
                )
            )
    if not found:
        largest = max(map(_largest, kinds))
        amount = min(alternatives.part(kind.memory, fraction) for kind in kinds)
        alternatives.refuse_large(where, ask, amount, largest, "partition", said)
    left = [one.size for one in found[alternatives.MOST :]]
    alternatives.tell_left_out(where, ask, left, said)
    return tuple(found[: alternatives.MOST])


def _that_fit(kinds: Iterable[fleet.CardKind], fraction: Fraction) -> tuple[list[str], int]:
    """Products of cards of one size with such partitions, and the bytes of these at least.

    The largest partition has all that a card has for partitions, which is less than its memory.
    """
    products, least = [], 0
    for kind in kinds:
        largest = _largest(kind)
        amount = largest if fraction == 1 else alternatives.part(kind.memory, fraction)
        if amount <= largest:
            products.append(kind.product)
            least = min(least or amount, amount)
    return products, least


def _largest(kind: fleet.CardKind) -> int:
    return max(memory for _, memory in kind.profiles)


def _class(policy: conversion.Policy) -> str:
    types = classes.types(policy.driver).items()
    return next(name for name, kind in types if kind is sharing.DeviceType.MIG)
