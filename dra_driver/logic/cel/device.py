"""The CEL variable `device`, which notes what an expression reads.

Source: Kubernetes 1.36 `staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go`.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from dra_driver import errors
from dra_driver.logic.cel import declarations, values
from dra_driver.model import quantities, slices, versions

Question = tuple[str, ...]
Answer = Any

_ATTRIBUTES, _CAPACITY = "attributes", "capacity"


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """A device as its driver publishes it: answers questions about it."""

    device: slices.Device
    driver: str

    def answer(self, question: Question) -> Answer:
        """The answer, of a type that tells 1 from true and `1.0.0` the text from the version."""
        match question:
            case ("value", table, domain, name):
                value = self._value(table, domain, name)
                return None if value is None else _typed(value)
            case ("names", table, domain):
                return tuple(own for found, own in self._names(table) if found == domain)
            case ("domains", table):
                return tuple(dict.fromkeys(domain for domain, _ in self._names(table)))
            case ("driver",):
                return self.driver
            case _:
                return bool(self.device.extra.get("allowMultipleAllocations"))

    def _table(self, table: str) -> Mapping[str, slices.AttributeValue | quantities.Quantity]:
        return self.device.attributes if table == _ATTRIBUTES else self.device.capacity

    def _value(self, table: str, domain: str, name: str) -> Any:
        values = self._table(table)
        value = values.get(f"{domain}/{name}")
        return values.get(name) if value is None and domain == self.driver else value

    def _names(self, table: str) -> Iterator[tuple[str, str]]:
        for qualified in self._table(table):
            domain, slash, name = qualified.partition("/")
            yield (domain, name) if slash else (self.driver, qualified)


class Recorder(Mapping[str, Any]):
    """The variable `device` for one evaluation; `answers` is what was read, in order."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.answers: dict[Question, Answer] = {}

    def ask(self, *question: str) -> Answer:
        """The answer, which the outcome now depends on."""
        if question not in self.answers:
            self.answers[question] = self._facts.answer(question)
        return self.answers[question]

    def value(self, table: str, domain: str, name: str) -> Any:
        """An attribute or a capacity as the engine has it.

        Raises:
            KeyError: the device has none.
            values.CallError: a version attribute that is no version.
        """
        answer = self.ask("value", table, domain, name)
        if answer is None:
            raise KeyError(name)
        value = answer[1]
        return [*map(_of_engine, value)] if isinstance(value, tuple) else _of_engine(value)

    def __getitem__(self, field: str) -> Any:
        """A field of the device."""
        if field in {_ATTRIBUTES, _CAPACITY}:
            return _Domains(self, field)
        if field not in declarations.DEVICE:
            raise KeyError(field)
        return self.ask(field)

    def __iter__(self) -> Iterator[str]:
        """The names of the fields."""
        return iter(sorted(declarations.DEVICE))

    def __len__(self) -> int:
        """How many fields there are."""
        return len(declarations.DEVICE)


def _typed(value: Any) -> Answer:
    """With the types of all items: Python takes 1 and true for equal."""
    if isinstance(value, tuple):
        return tuple(type(item) for item in value), value
    return type(value), value


def _of_engine(value: Any) -> Any:
    if not isinstance(value, slices.Version):
        return value
    try:
        return versions.parse(value.text)
    except errors.Rejected as error:
        raise values.CallError(str(error)) from error


class _Domains(Mapping[str, Any]):
    """Domain to names: a domain that the device lacks is an empty map, though not a member."""

    def __init__(self, device: Recorder, table: str) -> None:
        self._device = device
        self._table = table

    def __getitem__(self, domain: str) -> "_Names":
        # No domain is named by a number.
        return _Names(self._device, self._table, domain if isinstance(domain, str) else "")

    def __contains__(self, domain: object) -> bool:
        return isinstance(domain, str) and domain in self._device.ask("domains", self._table)

    def __iter__(self) -> Iterator[str]:
        return iter(self._device.ask("domains", self._table))

    def __len__(self) -> int:
        return len(self._device.ask("domains", self._table))


class _Names(Mapping[str, Any]):
    """Name to value within one domain."""

    def __init__(self, device: Recorder, table: str, domain: str) -> None:
        self._device = device
        self._key = (table, domain)

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str):
            raise KeyError(name)
        return self._device.value(*self._key, name)

    def __contains__(self, name: object) -> bool:
        return (
            isinstance(name, str) and self._device.ask("value", *self._key, str(name)) is not None
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._device.ask("names", *self._key))

    def __len__(self) -> int:
        return len(self._device.ask("names", *self._key))
