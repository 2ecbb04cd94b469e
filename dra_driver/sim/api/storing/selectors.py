"""Label and field selectors, as they come in the query of a request."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.sim.api.kinds import kinds, problems

Json = dict[str, Any]
Test = Callable[[str | None], bool]
"""Whether a value (None: not set) meets one requirement."""

_KEY = r"(?P<key>[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?)"
_SET = re.compile(rf"{_KEY}\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)")
_COMPARED = re.compile(rf"{_KEY}\s*(?P<op>==|=|!=|>|<)\s*(?P<value>[-A-Za-z0-9_.]*)")
_BARE = re.compile(rf"(?P<op>!?)\s*{_KEY}")
_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")


@dataclasses.dataclass(frozen=True, slots=True)
class Selector:
    """Which objects a list, watch or deletecollection is about."""

    namespace: str = ""
    labels: tuple[tuple[str, Test], ...] = ()
    fields: tuple[tuple[tuple[str, ...], Test], ...] = ()
    """Path in the stored form, and what its value has to meet."""

    def matches(self, body: Json) -> bool:
        """Whether the object is one of them."""
        metadata = body["metadata"]
        if self.namespace and metadata.get("namespace") != self.namespace:
            return False
        if self.labels:
            labels = metadata.get("labels") or {}
            if not all(test(labels.get(key)) for key, test in self.labels):
                return False
        return all(test(_at(body, path)) for path, test in self.fields)


def parse(kind: kinds.Kind, *, namespace: str, labels: str, fields: str, minor: int) -> Selector:
    """The selector that the query texts stand for, in Kubernetes 1.`minor`.

    Raises:
        problems.ApiError: 400, a text cannot be read or names a field that is not selectable.
    """
    return Selector(namespace, parse_labels(labels), _parse_fields(kind, fields, minor))


def parse_labels(text: str) -> tuple[tuple[str, Test], ...]:
    """The requirements of a label selector; all of them have to be met."""
    if not text.strip():
        return ()
    parts = _COMMA_OUTSIDE_PARENTHESES.split(text)
    return tuple(_parse_label(part.strip()) for part in parts)


def _parse_label(text: str) -> tuple[str, Test]:
    if match := _SET.fullmatch(text):
        values = frozenset(value.strip() for value in match["values"].split(","))
        if match["op"] == "in":
            return match["key"], lambda value: value in values
        return match["key"], lambda value: value not in values
    if match := _COMPARED.fullmatch(text):
        return match["key"], _comparison(match["op"], match["value"])
    if match := _BARE.fullmatch(text):
        wanted = not match["op"]
        return match["key"], lambda value: (value is not None) == wanted
    raise problems.bad_request(
        f"unable to parse requirement: {text!r} is not of the form key, !key, key=value, "
        "key!=value, key in (value,...), key notin (value,...), key>number or key<number"
    )


def _comparison(operator: str, wanted: str) -> Test:
    if operator in ("=", "=="):
        return lambda value: value == wanted
    if operator == "!=":
        return lambda value: value != wanted
    try:
        bound = int(wanted)
    except ValueError:
        message = f"unable to parse requirement: values[0][{operator}]: {wanted!r}: must be an int"
        raise problems.bad_request(message) from None

    def compare(value: str | None) -> bool:
        if value is None or not re.fullmatch(r"-?\d+", value):
            return False
        return int(value) > bound if operator == ">" else int(value) < bound

    return compare


def _parse_fields(
    kind: kinds.Kind, text: str, minor: int
) -> tuple[tuple[tuple[str, ...], Test], ...]:
    parsed = []
    for part in text.split(","):
        if not part.strip():
            continue
        label, operator, value = re.fullmatch(r"([^=!]*)(==|!=|=|)(.*)", part.strip()).groups()  # type: ignore[union-attr]
        if not operator:
            raise problems.bad_request(f"invalid selector: {text!r}; can't understand {part!r}")
        path = kind.selectable(label, minor)
        if path is None:
            raise problems.bad_request(
                f'Unable to find "{kind.api_version(kind.versions[0])}, Resource={kind.plural}" '
                f'that match label selector "", field selector "{text}": '
                f"field label not supported: {label}"
            )
        parsed.append((tuple(path.split(".")), _field_test(operator, value)))
    return tuple(parsed)


def _field_test(operator: str, wanted: str) -> Test:
    if operator == "!=":
        return lambda value: (value or "") != wanted
    return lambda value: (value or "") == wanted


def _at(body: Mapping[str, Any], path: tuple[str, ...]) -> str | None:
    value: Any = body
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)
