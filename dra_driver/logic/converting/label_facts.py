"""Facts of devices that labels of GPU feature discovery tell of, each in CEL.

Source of names, spelling and units: GPU feature discovery 0.18 (`internal/lm/resource.go`,
`nvml.go` of the device plugin).
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence

from dra_driver.logic.cel import quoting
from dra_driver.logic.converting import label_expressions
from dra_driver.model import texts, versions

_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_PADDED = re.compile(r"[0-9]{1,9}", re.ASCII)
_DRIVER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){1,2}", re.ASCII)
_RUNTIME = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})", re.ASCII)
_FAMILIES = {
    "kepler": "Kepler",
    "maxwell": "Maxwell",
    "pascal": "Pascal",
    "volta": "Volta",
    "turing": "Turing",
    "ampere": "Ampere",
    "ada-lovelace": "Ada Lovelace",
    "hopper": "Hopper",
    "blackwell": "Blackwell",
    "rubin": "Rubin",
}
_LARGEST = 2**31 - 1


class UnsaidError(ValueError):
    """No selector says it. The text is why; with `refused` nothing may be left as it is either."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.refused = refused


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """What the pod asks for: whether for partitions of GPUs, and of which profiles."""

    driver: str
    partitions: bool = False
    profiles: frozenset[str] = frozenset()

    @property
    def attributes(self) -> str:
        """The driver's attributes in CEL."""
        return quoting.attributes(self.driver)

    @property
    def capacity(self) -> str:
        """The driver's capacities in CEL."""
        return quoting.capacities(self.driver)


@dataclasses.dataclass(frozen=True, slots=True)
class Fact:
    """A fact of a device: when it is there, and what equals a value, or is above or below it."""

    known: str
    equals: Callable[[Sequence[str]], str]
    above: Callable[[int], str] | None = None
    below: Callable[[int], str] | None = None


def of(name: str, asked: Asked) -> Fact:
    """The fact by the name of its label, without the domain.

    Raises:
        UnsaidError: it is no fact of a device.
    """
    if name not in _FACTS:
        raise UnsaidError("it tells of a node, and no device has it")
    return _FACTS[name](asked.attributes)


def memory(asked: Asked) -> Fact:
    """MiB, rounded down."""
    amount = f"{asked.capacity}.memory"

    def from_(mebibytes: int) -> str:
        return f"{amount}.compareTo(quantity('{mebibytes}Mi')) >= 0"

    def below(mebibytes: int) -> str:
        return f"{amount}.compareTo(quantity('{mebibytes}Mi')) < 0"

    def equals(amounts: Sequence[str]) -> str:
        numbers = [integer(amount) for amount in amounts]
        parts = [f"{from_(number)} && {below(number + 1)}" for number in numbers]
        return (
            parts[0]
            if len(parts) == 1
            else label_expressions.any_of([f"({part})" for part in parts])
        )

    return Fact(
        label_expressions.known("memory", asked.capacity),
        equals,
        lambda number: from_(number + 1),
        below,
    )


def engine(name: str, asked: Asked) -> Fact:
    """A number of engines or of multiprocessors, by the name of the capacity."""
    capacity = f"{asked.capacity}.{name}"

    def compared(operator: str) -> Callable[[int], str]:
        return lambda number: f"{capacity}.compareTo(quantity('{number}')) {operator} 0"

    def equals(numbers: Sequence[str]) -> str:
        return label_expressions.any_of([compared("==")(integer(number)) for number in numbers])

    return Fact(label_expressions.known(name, asked.capacity), equals, compared(">"), compared("<"))


def _part(attribute: str, part: str, a: str, *, padded: bool = False) -> Fact:
    """A number of a version. Drivers have numbers with a leading zero, and some no third."""
    value = f"{a}.{attribute}.{part}()"

    def equals(numbers: Sequence[str]) -> str:
        read = _padded if padded else integer
        return label_expressions.one_of(value, [read(number) for number in numbers])

    return Fact(
        label_expressions.known(attribute, a),
        equals,
        lambda n: f"{value} > {n}",
        lambda n: f"{value} < {n}",
    )


def _versions(value: str, wanted: Sequence[str], syntax: re.Pattern[str]) -> str:
    for text in wanted:
        if not syntax.fullmatch(text):
            raise UnsaidError(
                f"{texts.quoted(text)} is no version as GPU feature discovery writes it"
            )
    parts = [f"{value} == semver('{versions.normalize(text)}')" for text in wanted]
    return label_expressions.any_of(parts)


def _families(values: Sequence[str]) -> list[str]:
    unknown = [value for value in values if value not in _FAMILIES]
    if unknown:
        raise UnsaidError(
            f"{texts.quoted(unknown[0])} is no family; there are {', '.join(_FAMILIES)}"
        )
    return [_FAMILIES[value] for value in values]


def _capable(values: Sequence[str], a: str) -> str:
    """A partition is of a card that can be cut, and says nothing of that."""
    if {*values} - {"true", "false"}:
        raise UnsaidError("its value is neither true nor false")
    if {"true", "false"} <= {*values}:
        return "true"
    can = f"({label_expressions.known('migCapable', a)} ? {a}.migCapable : {a}.type == 'mig')"
    return can if values[0] == "true" else f"!{can}"


def integer(text: str) -> int:
    """The number in a label or in what is compared with it, else UnsaidError."""
    if not _NUMBER.fullmatch(text) or int(text) > _LARGEST:
        raise UnsaidError(f"{texts.quoted(text)} is no whole number from 0 to {_LARGEST}")
    return int(text)


def _padded(text: str) -> int:
    if text and not _PADDED.fullmatch(text):
        raise UnsaidError(f"{texts.quoted(text)} is no whole number")
    return int(text or "0")


def _family(a: str) -> Fact:
    def equals(values: Sequence[str]) -> str:
        return label_expressions.one_of(f"{a}.architecture", _families(values))

    return Fact(label_expressions.known("architecture", a), equals)


def _version(attribute: str, syntax: re.Pattern[str], a: str) -> Fact:
    def equals(values: Sequence[str]) -> str:
        return _versions(f"{a}.{attribute}", values, syntax)

    return Fact(label_expressions.known(attribute, a), equals)


def _mig_capable(a: str) -> Fact:
    return Fact("true", lambda values: _capable(values, a))


def _driver(part: str, *, padded: bool = False) -> Callable[[str], Fact]:
    return functools.partial(_part, "driverVersion", part, padded=padded)


def _runtime(part: str) -> Callable[[str], Fact]:
    return functools.partial(_part, "cudaDriverVersion", part)


_FACTS: Mapping[str, Callable[[str], Fact]] = {
    "gpu.family": _family,
    "gpu.compute.major": functools.partial(_part, "cudaComputeCapability", "major"),
    "gpu.compute.minor": functools.partial(_part, "cudaComputeCapability", "minor"),
    "cuda.driver.major": _driver("major"),
    "cuda.driver.minor": _driver("minor", padded=True),
    "cuda.driver.rev": _driver("patch", padded=True),
    "cuda.driver-version.major": _driver("major"),
    "cuda.driver-version.minor": _driver("minor", padded=True),
    "cuda.driver-version.revision": _driver("patch", padded=True),
    "cuda.driver-version.full": functools.partial(_version, "driverVersion", _DRIVER),
    "cuda.runtime.major": _runtime("major"),
    "cuda.runtime.minor": _runtime("minor"),
    "cuda.runtime-version.major": _runtime("major"),
    "cuda.runtime-version.minor": _runtime("minor"),
    "cuda.runtime-version.full": functools.partial(_version, "cudaDriverVersion", _RUNTIME),
    "mig.capable": _mig_capable,
}
"""The fact by the name of its label; made of the driver's attributes in CEL."""
