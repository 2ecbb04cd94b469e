"""What allocated claims hold of which devices: whole devices, and shares of devices."""

import dataclasses
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from dra_driver.model import claims, quantities, slices

PoolKey = tuple[str, str]
"""(driver, pool name)."""

Amounts = Mapping[str, quantities.Amount]

_NOTHING: Amounts = MappingProxyType({})


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """What is held of one device: by how many results as a whole, by how many as a share.

    `consumed` is what all shares together take, by capacity.
    """

    whole: int = 0
    shares: int = 0
    consumed: Amounts = dataclasses.field(default_factory=lambda: _NOTHING)

    def __bool__(self) -> bool:
        """Whether anything is held."""
        return bool(self.whole or self.shares)


Devices = Mapping[str, Held]
"""What is held in one pool, by device name; devices of which nothing is held are absent."""

_FREE = Held()
_EMPTY: Devices = MappingProxyType({})


class InUse:
    """What a set of allocations holds. Immutable: a change makes a new one.

    A change copies the pools that it touches, and shares all others. Results with admin access
    hold nothing.
    """

    def __init__(self, by_pool: Mapping[PoolKey, Devices] | None = None) -> None:
        """Use `of`; without arguments nothing is in use."""
        self._by_pool: Mapping[PoolKey, Devices] = by_pool or {}

    @classmethod
    def of(cls, allocations: Iterable[claims.Allocation]) -> "InUse":
        """What these allocations hold together."""
        return cls().changed(added=allocations)

    def changed(
        self,
        *,
        added: Iterable[claims.Allocation] = (),
        removed: Iterable[claims.Allocation] = (),
    ) -> "InUse":
        """What is in use after allocations were made and others, known before, given back."""
        by_pool, fresh = dict(self._by_pool), dict[PoolKey, dict[str, Held]]()
        for sign, allocations in ((1, added), (-1, removed)):
            for result in (result for item in allocations for result in item.results):
                if result.admin_access:
                    continue
                key = (result.device.driver, result.device.pool)
                if key not in fresh:
                    by_pool[key] = fresh[key] = dict(by_pool.get(key, _EMPTY))
                _count(fresh[key], result, sign)
        for key, devices in fresh.items():
            if not devices:
                del by_pool[key]
        return InUse(by_pool)

    def pool(self, key: PoolKey) -> Devices:
        """What is held in a pool."""
        return self._by_pool.get(key, _EMPTY)

    def device(self, device: slices.DeviceId) -> Held:
        """What is held of a device."""
        return self.pool((device.driver, device.pool)).get(device.device, _FREE)


def _count(devices: dict[str, Held], result: claims.Result, sign: int) -> None:
    name = result.device.device
    before = devices.get(name, _FREE)
    if result.share_id is None:
        after = Held(before.whole + sign, before.shares, before.consumed)
    else:
        after = Held(before.whole, before.shares + sign, _sum(before.consumed, result, sign))
    if after:
        devices[name] = after
    else:
        devices.pop(name, None)


def _sum(before: Amounts, result: claims.Result, sign: int) -> Amounts:
    taken = {name: sign * amount.exact for name, amount in result.consumed_capacity.items()}
    return {name: before.get(name, 0) + taken.get(name, 0) for name in {**before, **taken}}
