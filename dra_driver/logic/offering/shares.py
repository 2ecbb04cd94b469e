"""Devices that many claims consume, and what one share of them may take."""

import dataclasses
import re
from collections.abc import Mapping

from dra_driver.logic.offering import attributes
from dra_driver.model import devices, quantities, request_policies, shares, slices

CORES = "cores"
SHARES = "shares"
MEMORY = "memory"
ENFORCEMENT = "enforcement"
_MIB = 2**20
_SLICE = re.compile(r"memorySlice\d+")


def shareable(device: slices.Device, kind: shares.Shares) -> slices.Device:
    """The device as one that many claims consume.

    Without a policy a share would take all of a capacity that it does not ask for, so each has one.
    The memory slices of an instance are left out: no share has one for itself, and eight of them
    would be more than Kubernetes allows in one device.
    One without memory that is known cannot be divided, and stays as it is.
    """
    memory = device.capacity.get(MEMORY)
    whole = memory.value // _MIB * _MIB if memory is not None else 0
    if not whole:
        return device
    by_count = kind.count is not None
    capacity = {
        name: amount for name, amount in device.capacity.items() if not _SLICE.fullmatch(name)
    }
    policies = {name: _policy(0, 0, capacity[name].value) for name in capacity if name != MEMORY}
    capacity[MEMORY] = quantities.of_bytes(whole)
    policies[MEMORY] = request_policies.RequestPolicy(
        default=quantities.of_bytes(0 if by_count else whole),
        within=request_policies.ValidRange(
            quantities.of_bytes(0 if by_count else _MIB),
            quantities.of_bytes(whole),
            quantities.of_bytes(_MIB),
        ),
    )
    if kind.count is None:
        capacity[CORES], policies[CORES] = _number(100), _policy(100, 1, 100)
    else:
        capacity[SHARES], policies[SHARES] = _number(kind.count), _policy(1, 1, kind.count)
    return dataclasses.replace(
        device,
        attributes={**device.attributes, ENFORCEMENT: str(kind.enforcement)},
        capacity=capacity,
        policies=policies,
        extra={**device.extra, "allowMultipleAllocations": True},
    )


def capacity_of(offer: devices.Offer, kind: shares.Shares) -> Mapping[str, quantities.Quantity]:
    """How much of everything the device has that claims share."""
    is_whole = offer.spot is None
    device = attributes.device(offer.gpu) if is_whole else attributes.partition(offer)
    return shareable(device, kind).capacity


def limits(
    consumed: Mapping[str, quantities.Quantity], kind: shares.Shares, memory_bytes: int
) -> shares.Limits:
    """What a share that took `consumed` of a device with so much memory may use.

    A numbered share without an amount of memory of its own has its part of all of it.
    """
    asked = consumed[MEMORY].value if MEMORY in consumed else 0
    if kind.count is None:
        percent = consumed[CORES].value if CORES in consumed else 100
        return shares.Limits(asked or memory_bytes, percent)
    percent = 100 * _count(consumed) // kind.count
    return shares.Limits(asked or part(consumed, kind, memory_bytes), max(percent, 1))


def part(
    consumed: Mapping[str, quantities.Quantity], kind: shares.Shares, memory_bytes: int
) -> int:
    """How much of so much memory a share may have at most: a numbered one its part of it."""
    if kind.count is None:
        return memory_bytes
    return memory_bytes * _count(consumed) // kind.count // _MIB * _MIB


def _count(consumed: Mapping[str, quantities.Quantity]) -> int:
    return consumed[SHARES].value if SHARES in consumed else 1


def _policy(default: int, least: int, most: int) -> request_policies.RequestPolicy:
    # Kubernetes refuses a step that leads beyond the capacity.
    step = _number(1) if least < most else None
    return request_policies.RequestPolicy(
        default=_number(default),
        within=request_policies.ValidRange(_number(least), _number(most), step),
    )


def _number(amount: int) -> quantities.Quantity:
    return quantities.of_amount(amount, quantities.Format.DECIMAL_SI)
