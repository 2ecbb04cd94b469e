"""What is particular to a kind when it is written: defaults, dropped fields, validation."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dra_driver.sim.api.kinds import fields

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Surroundings:
    """What a rule may know beyond the object: settings of the server and other objects."""

    now: str
    """The time, RFC 3339 with seconds."""
    minor: int
    """The version of Kubernetes that is played: 1.`minor`."""
    disabled_gates: frozenset[str]
    expression_check: Callable[[str], str | None]
    """What is wrong with a CEL expression that selects devices, or None."""
    derivation_check: Callable[[str], str | None]
    """The same of one that derives an attribute."""
    namespace_labels: Callable[[str], Mapping[str, str]]
    others: Callable[[str], Sequence[Json]] = lambda _storage: ()
    """All objects of a resource, by where they are kept: `pods`, `deployments.apps`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Write:
    """A create (`old` is None) or an update, of the object or of its status alone.

    `new` belongs to the write: `prepare` changes it in place.
    """

    new: Json
    old: Json | None
    status: bool
    around: Surroundings


@dataclasses.dataclass(frozen=True, slots=True)
class Strategy:
    """The two steps of a write. `validate` sees the result of `prepare`."""

    prepare: Callable[[Write], None] = lambda _write: None
    validate: Callable[[Write], fields.Errors] = lambda _write: []
    warn: Callable[[Json], list[str]] = lambda _body: []
    """Of an object that was written."""
    admit: Callable[[Write], str | None] = lambda _write: None
    """Why the write is forbidden, by other objects. It is the first step, and may set fields."""


PLAIN = Strategy()
