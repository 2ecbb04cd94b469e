"""Parts of a card -> amounts, for each size of card of the fleet.

CEL cannot compute what a request asks for, so each size is an alternative of its own.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction

from dra_driver.logic.converting import asks, conversion, expressions, notes
from dra_driver.logic.offering import classes, shares
from dra_driver.model import quantities, sharing

MOST = 8
"""Alternatives of a request (`FirstAvailableDeviceRequestMaxSize`)."""
_MIB = 2**20
_UNKNOWN_CORES = 10
"""Percent of a share, where neither the manifest nor the fleet tells."""


@dataclasses.dataclass(frozen=True, slots=True)
class Alternative:
    """Devices that would do. `size` is bytes of memory of the cards that it is for, 0 for any."""

    device_class: str
    selectors: tuple[str, ...] = ()
    capacity: Mapping[str, str] = dataclasses.field(default_factory=dict)
    size: int = 0
    name: str = ""


def alternatives(
    where: str, ask: asks.Ask, policy: conversion.Policy, said: notes.Notes
) -> tuple[Alternative, ...]:
    """What devices do for an ask, the first before the others; none if that was refused."""
    match ask.kind:
        case asks.Kind.WHOLE:
            return _whole(ask, policy)
        case asks.Kind.SHARE:
            return _shares(where, ask, policy, said)
        case asks.Kind.REPLICA | asks.Kind.PART:
            return _replicas(where, ask, policy, said)
        case asks.Kind.PARTITION:
            return _partitions(where, ask, policy, said)


def _whole(ask: asks.Ask, policy: conversion.Policy) -> tuple[Alternative, ...]:
    selectors = [*ask.selectors]
    if ask.memory is not None:
        selectors.append(expressions.memory(policy.driver, ">=", ask.memory))
    return (Alternative(policy.driver, tuple(selectors)),)


def _shares(
    where: str, ask: asks.Ask, policy: conversion.Policy, said: notes.Notes
) -> tuple[Alternative, ...]:
    known = policy.fleet.sizes if policy.fleet is not None else ()
    if ask.memory is None and ask.fraction is None:
        return (_share(ask, policy, None, ask.cores or 100),)
    if ask.fraction is not None:
        return _fractions(where, ask, ask.fraction, policy, known, said)
    amount = ask.memory or 0
    fitting = [size for size in known if size >= amount]
    if known and not fitting:
        said.refuse(
            where,
            ", ".join(ask.asked),
            str(quantities.of_bytes(amount)),
            f"the largest card that is shared has {quantities.of_bytes(known[-1])}: "
            "ask for no more than that",
        )
        return ()
    if ask.cores:
        return (_share(ask, policy, amount, ask.cores),)
    if not fitting:
        said.warn(
            where,
            ", ".join(ask.asked),
            f"cores {_UNKNOWN_CORES}: nothing was said of them, and it is not known how much "
            "memory the cards have; change capacity.requests.cores of the claim if that is not it",
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
) -> tuple[Alternative, ...]:
    if not known:
        said.refuse(
            where,
            ", ".join(ask.asked),
            f"{_percent(fraction)} %",
            _unknown(policy, "no card is shared by memory"),
        )
        return ()
    parts = [(size, _part(size, fraction), fraction) for size in known]
    return _by_size(where, ask, policy, parts, said)


def _by_size(
    where: str,
    ask: asks.Ask,
    policy: conversion.Policy,
    parts: Sequence[tuple[int, int, Fraction]],
    said: notes.Notes,
) -> tuple[Alternative, ...]:
    """A share for each size of card: that, the amount, and what part of the card it is."""
    if len(parts) > MOST:
        left = ", ".join(str(quantities.of_bytes(size)) for size, _, _ in parts[MOST:])
        said.warn(
            where,
            ", ".join(ask.asked),
            f"cards of {left} are left out: a claim has {MOST} alternatives at most",
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
        for size, amount, part in parts[:MOST]
    )


def _share(
    ask: asks.Ask, policy: conversion.Policy, amount: int | None, cores: int, *, size: int = 0
) -> Alternative:
    selectors = [expressions.is_gpu(policy.driver), *ask.selectors]
    if size:
        selectors.append(expressions.memory(policy.driver, "==", size))
    capacity = {} if amount is None else {shares.MEMORY: str(quantities.of_bytes(amount))}
    capacity[shares.CORES] = str(cores)
    name = f"mib-{size // _MIB}" if size else ""
    return Alternative(policy.share_class, tuple(selectors), capacity, size, name)


def _replicas(
    where: str, ask: asks.Ask, policy: conversion.Policy, said: notes.Notes
) -> tuple[Alternative, ...]:
    kind = (
        expressions.of_profile(policy.driver, ask.profile)
        if ask.profile
        else expressions.is_gpu(policy.driver)
    )
    selectors = (kind, *ask.selectors)
    kinds = policy.fleet.kinds if policy.fleet is not None else ()
    found = []
    if any(one.shared == "count" for one in kinds):
        found.append(Alternative(policy.share_class, selectors, {shares.SHARES: "1"}, name="share"))
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
        amount = max(size // policy.replicas // _MIB, 1) * _MIB
        found.append(
            Alternative(
                policy.share_class,
                (*selectors, expressions.memory(policy.driver, "==", size)),
                {shares.MEMORY: str(quantities.of_bytes(amount)), shares.CORES: cores},
                size,
                f"mib-{size // _MIB}",
            )
        )
    if not found:
        said.warn(
            where,
            ", ".join(ask.asked),
            "no amounts: it is not known how cards are shared; one share where that is by count, "
            "and all of a card where it is by memory. Set capacity.requests of the claim then",
        )
        return (Alternative(policy.share_class, selectors),)
    if len(found) > MOST:
        left = ", ".join(str(quantities.of_bytes(one.size)) for one in found[MOST:])
        said.warn(where, ", ".join(ask.asked), f"cards of {left} are left out: 8 alternatives")
    return tuple(found[:MOST])


def _partitions(
    where: str, ask: asks.Ask, policy: conversion.Policy, said: notes.Notes
) -> tuple[Alternative, ...]:
    driver = policy.driver
    name = next(n for n, t in classes.types(driver).items() if t is sharing.DeviceType.MIG)
    if ask.profile:
        selector = expressions.of_profile(driver, ask.profile)
        return (Alternative(name, (selector, *ask.selectors)),)
    if ask.memory is not None:
        selector = expressions.memory(driver, ">=", ask.memory)
        return (Alternative(name, (selector, *ask.selectors)),)
    said.refuse(where, ", ".join(ask.asked), "", "not known how much")
    return ()


def _part(size: int, fraction: Fraction) -> int:
    """A part of so many bytes, in whole MiB, no less than it is."""
    return min(-(-(size * fraction) // _MIB), size // _MIB) * _MIB


def _percent(fraction: Fraction) -> str:
    return f"{float(100 * fraction):g}"


def _unknown(policy: conversion.Policy, none: str) -> str:
    if policy.fleet is not None and policy.fleet.kinds:
        return f"{none} in this cluster: share some (`--shares memory`), or ask for an amount"
    return (
        "a part of a card is an amount only where the sizes of cards are known: give the "
        "cluster's slices (`--slices`, or a kubeconfig), or ask for an amount"
    )
