"""Maps of an expression, and how values are looked up by hash.

Source: cel-go 0.26 `common/types/map.go`; which types of Go have no hash.
"""

import datetime as dt
import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from dra_driver.logic.cel import addresses, formats, values
from dra_driver.model import versions


class Map(Mapping[Any, Any]):
    """A map literal, or what a macro makes. `1`, `1u` and `1.0` find each other."""

    def __init__(self) -> None:
        """Without entries."""
        self._entries: dict[Hashable, tuple[Any, Any]] = {}

    def put(self, key: Any, value: Any) -> None:
        """Set an entry; one with the same key and type of key goes.

        Raises:
            HashError: the key cannot be one.
        """
        self._entries[_key(key)] = (key, value)

    def insert(self, key: Any, value: Any) -> None:
        """Add an entry.

        Raises:
            HashError: the key cannot be one.
            CallError: there is one with this key.
        """
        if key in self:
            raise values.CallError(f"insert failed: key {key} already exists")
        self.put(key, value)

    def remove(self, key: Any) -> None:
        """Remove the entry, if there is one.

        Raises:
            HashError: the key cannot be one.
        """
        self._entries.pop(_key(key), None)

    def __getitem__(self, key: Any) -> Any:
        """The value."""
        if not self._entries:
            raise KeyError(key)
        entry = self._entries.get(_key(key))
        if entry is None and values.is_number(key):
            entry = next(filter(None, map(self._entries.get, _other_keys(key))), None)
        if entry is None:
            raise KeyError(key)
        return entry[1]

    def __contains__(self, key: object) -> bool:
        """Whether there is such a key."""
        return bool(lookup(self, key).items)

    def __iter__(self) -> Iterator[Any]:
        """The keys."""
        return (key for key, _ in self._entries.values())

    def __len__(self) -> int:
        """How many there are."""
        return len(self._entries)


def lookup(container: Mapping[Any, Any], key: Any) -> values.Optional:
    """What a map gives for a key, if anything. A map may give something for no key of its own."""
    try:
        return values.Optional((container[key],))
    except KeyError:
        return values.Optional()


def hashed(value: Any) -> Hashable:
    """What stands for a value where it is looked up by hash: its type too, or that it is itself.

    Raises:
        HashError: values of its type have no hash.
    """
    if isinstance(value, float) and math.isnan(value):
        return object()  # It is equal to nothing, itself included.
    if type(value) in _WITHOUT_HASH:
        raise values.HashError(_WITHOUT_HASH[type(value)])
    if value is None or isinstance(value, _BY_VALUE):
        return (type(value), value)
    return (type(value), id(value))


def _key(value: Any) -> Hashable:
    # A text is what it is; the type tells 1, 1u, 1.0 and true apart.
    return value if isinstance(value, str) else hashed(value)


def _other_keys(number: Any) -> Iterator[Hashable]:
    """Those of the same whole number in other types."""
    if isinstance(number, float) and not number.is_integer():
        return
    whole = int(number)
    for kind, known in ((int, values.INT64), (values.Uint, values.UINT64)):
        if type(number) is not kind and whole in known:
            yield (kind, whole)


_BY_VALUE = (
    bool, int, float, str, dt.datetime, dt.timedelta, addresses.Ip, addresses.Cidr,
)  # fmt: skip
_WITHOUT_HASH = {
    bytes: "types.Bytes",
    formats.Format: "cel.Format",
    versions.Semver: "cel.Semver",
}
"""As the error calls them."""
