"""Parts of a card -> amounts, for each size of card of the fleet.

CEL cannot compute what a request asks for, so each size is an alternative of its own.
"""

from collections.abc import Sequence
from fractions import Fraction

from dra_driver.logic.converting import (
    alternatives,
    asks,
    conversion,
    expressions,
    notes,
    partitions,
)
from dra_driver.logic.offering import shares
from dra_driver.model import quantities

_UNKNOWN_CORES = 10
"""Percent of a share, where neither the manifest nor the fleet tells."""


def of(
    where: str, ask: asks.Ask, policy: conversion.Policy, said: notes.Notes
) -> tuple[alternatives.Alternative, ...]:
    """What devices do for an ask, the first before the others; none if that was refused."""
    match ask.kind:
        case asks.Kind.WHOLE:
            return _whole(where, ask, policy, said)
        case asks.Kind.SHARE:
            return _shares(where, ask, policy, said)
        case asks.Kind.REPLICA | asks.Kind.PART:
            return _replicas(where, ask, policy, said)
        case asks.Kind.PARTITION:
            return partitions.of(where, ask, policy, said)


def _whole(
    where: str, ask: asks.Ask, policy: conversion.Policy, said: notes.Notes
) -> tuple[alternatives.Alternative, ...]:
    selectors = [*ask.selectors]
    if ask.memory is not None:
        kinds = policy.fleet.kinds if policy.fleet is not None else ()
        sizes = [kind.memory for kind in kinds]
        if _is_too_large(where, ask, ask.memory, (sizes, "card"), said):
            return ()
        selectors.append(expressions.memory(policy.driver, ">=", ask.memory))
    return (alternatives.Alternative(policy.driver, tuple(selectors)),)


def _is_too_large(
    where: str,
    ask: asks.Ask,
    amount: int,
    cards: tuple[Sequence[int], str],
    said: notes.Notes,
) -> bool:
    """Refuse more than any of these cards has, of which nothing may be known."""
    sizes, what = cards
    largest = max(sizes, default=amount)
    if amount > largest:
        alternatives.refuse_large(where, ask, amount, largest, what, said)
    return amount > largest


def _cards(policy: conversion.Policy) -> tuple[Sequence[int], str]:
    """Bytes of memory of cards that are shared by memory; of all, where none is."""
    if policy.fleet is None:
        return (), "card"
    if policy.fleet.sizes:
        return policy.fleet.sizes, "card that is shared"
    return [kind.memory for kind in policy.fleet.kinds], "card"


def _shares(
    where: str, ask: asks.Ask, policy: conversion.Policy, said: notes.Notes
) -> tuple[alternatives.Alternative, ...]:
    known = policy.fleet.sizes if policy.fleet is not None else ()
    if ask.memory is None and ask.fraction is None:
        return (_share(ask, policy, None, ask.cores or 100),)
    if ask.fraction is not None:
        return _fractions(where, ask, ask.fraction, policy, known, said)
    amount = ask.memory or 0
    fitting = [size for size in known if size >= amount]
    if _is_too_large(where, ask, amount, _cards(policy), said):
        return ()
    if ask.cores:
        return (_share(ask, policy, amount, ask.cores),)
    if not fitting:
        said.warn(
            where,
            ", ".join(ask.asked),
            f"cores {_UNKNOWN_CORES}: nothing was said of them, and it is not known how much "
            "memory cards that are shared have; change capacity.requests.cores of the claim if "
            "that is not it",
        )
        return (_share(ask, policy, amount, _UNKNOWN_CORES),)
    parts = [(size, amount, Fraction(amount, size)) for size in fitting]
    return _by_size(where, ask, policy, parts, said)


def _fractions(
    where: str,
    ask: asks.Ask,
    fraction: Fraction,
    policy: conversion.Policy,
    known: Sequence[int],
    said: notes.Notes,
) -> tuple[alternatives.Alternative, ...]:
    if not known:
        none = "no card of this cluster is shared by memory: share some (`--shares memory`)"
        alternatives.refuse_unknown(where, ask, policy, none, said)
        return ()
    parts = [(size, alternatives.part(size, fraction), fraction) for size in known]
    return _by_size(where, ask, policy, parts, said)


def _by_size(
    where: str,
    ask: asks.Ask,
    policy: conversion.Policy,
    parts: Sequence[tuple[int, int, Fraction]],
    said: notes.Notes,
) -> tuple[alternatives.Alternative, ...]:
    """A share for each size of card: that, the amount, and what part of the card it is."""
    alternatives.tell_left_out(
        where, ask, [size for size, _, _ in parts[alternatives.MOST :]], said
    )
    one_kind = len(parts) == 1 and ask.fraction is None
    return tuple(
        _share(
            ask,
            policy,
            amount,
            ask.cores or max(int(100 * part), 1),
            size=0 if one_kind else size,
        )
        for size, amount, part in parts[: alternatives.MOST]
    )


def _share(
    ask: asks.Ask, policy: conversion.Policy, amount: int | None, cores: int, *, size: int = 0
) -> alternatives.Alternative:
    selectors = [expressions.is_gpu(policy.driver), *ask.selectors]
    if size:
        selectors.append(expressions.memory(policy.driver, "==", size))
    capacity = {} if amount is None else {shares.MEMORY: str(quantities.of_bytes(amount))}
    capacity[shares.CORES] = str(cores)
    name = alternatives.name(size) if size else ""
    return alternatives.Alternative(policy.share_class, tuple(selectors), capacity, size, name)


def _replicas(
    where: str, ask: asks.Ask, policy: conversion.Policy, said: notes.Notes
) -> tuple[alternatives.Alternative, ...]:
    kind = (
        expressions.of_profile(policy.driver, ask.profile)
        if ask.profile
        else expressions.is_gpu(policy.driver)
    )
    selectors = (kind, *ask.selectors)
    kinds = policy.fleet.kinds if policy.fleet is not None else ()
    found = []
    if any(one.shared == "count" for one in kinds):
        found.append(
            alternatives.Alternative(
                policy.share_class, selectors, {shares.SHARES: "1"}, name="share"
            )
        )
    sizes = {
        size
        for one in kinds
        if one.shared == "memory"
        for size in (
            [one.memory]
            if not ask.profile
            else [memory for profile, memory in one.profiles if profile == ask.profile]
        )
    }
    cores = str(max(100 // policy.replicas, 1))
    for size in sorted(sizes):
        amount = max(size // policy.replicas // alternatives.MIB, 1) * alternatives.MIB
        found.append(
            alternatives.Alternative(
                policy.share_class,
                (*selectors, expressions.memory(policy.driver, "==", size)),
                {shares.MEMORY: str(quantities.of_bytes(amount)), shares.CORES: cores},
                size,
                alternatives.name(size),
            )
        )
    if not found:
        said.warn(
            where,
            ", ".join(ask.asked),
            "no amounts: it is not known how cards are shared; one share where that is by count, "
            "and all of a card where it is by memory. Set capacity.requests of the claim then",
        )
        return (alternatives.Alternative(policy.share_class, selectors),)
    alternatives.tell_left_out(where, ask, [one.size for one in found[alternatives.MOST :]], said)
    return tuple(found[: alternatives.MOST])
