"""Errors about single fields, in the words of `k8s.io/apimachinery/pkg/util/validation/field`."""

import dataclasses
import json
from collections.abc import Callable, Iterable
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class FieldError:
    """One thing that is wrong with one field."""

    reason: str
    """As in `Status.details.causes[].reason`."""
    field: str
    text: str
    """The message without the field."""

    def __str__(self) -> str:
        """As it stands in the message of the `Status`."""
        return f"{self.field}: {self.text}"


Errors = list[FieldError]


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def required(path: str, detail: str = "") -> FieldError:
    """The field has to be set."""
    return FieldError("FieldValueRequired", path, _joined("Required value", detail))


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """The value is not of the form that is asked for."""
    return FieldError("FieldValueInvalid", path, f"Invalid value: {_shown(value)}: {detail}")


def broken(path: str, detail: str) -> FieldError:
    """A rule does not hold for the value, which is too large to be shown."""
    return FieldError("FieldValueInvalid", path, f"Invalid value: {detail}")


def not_supported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    """The value is none of the words that are allowed."""
    words = ", ".join(_shown(word) for word in sorted(supported))
    text = f"Unsupported value: {_shown(value)}: supported values: {words}"
    return FieldError("FieldValueNotSupported", path, text)


def duplicate(path: str, value: Any) -> FieldError:
    """The value stands in the list before."""
    return FieldError("FieldValueDuplicate", path, f"Duplicate value: {_shown(value)}")


def forbidden(path: str, detail: str) -> FieldError:
    """The field may not be set, or not be changed, here."""
    return FieldError("FieldValueForbidden", path, _joined("Forbidden", detail))


def too_long(path: str, limit: int) -> FieldError:
    """The text has more than `limit` bytes."""
    return FieldError("FieldValueTooLong", path, f"Too long: may not be more than {limit} bytes")


def too_many(path: str, count: int, limit: int) -> FieldError:
    """The list has more than `limit` entries."""
    items = "item" if limit == 1 else "items"
    text = f"Too many: {count}: must have at most {limit} {items}"
    return FieldError("FieldValueTooMany", path, text)


def not_found(path: str, value: Any) -> FieldError:
    """What the field refers to is not there."""
    return FieldError("FieldValueNotFound", path, f"Not found: {_shown(value)}")


def _joined(head: str, detail: str) -> str:
    return f"{head}: {detail}" if detail else head


def each(items: Any, path: str, check: Callable[[Any, str], Errors]) -> Errors:
    """What is wrong with the entries of a list."""
    found = []
    for index, item in enumerate(items or ()):
        found += check(item, f"{path}[{index}]")
    return found


def listed(items: Any, limit: int, path: str, check: Callable[[Any, str], Errors]) -> Errors:
    """What is wrong with a list of at most `limit` entries; of a longer one only its length."""
    count = len(items or ())
    return [too_many(path, count, limit)] if count > limit else each(items, path, check)


def distinct(
    items: Any,
    limit: int | None,
    path: str,
    check: Callable[[Any, str], Errors],
    key: Callable[[Any], Any] = lambda item: item,
) -> Errors:
    """Like `listed`, and no two entries may have the same key; without a limit if it is None."""
    count = len(items or ())
    if limit is not None and count > limit:
        return [too_many(path, count, limit)]
    return each(items, path, check) + duplicates(items, path, key)


def duplicates(items: Any, path: str, key: Callable[[Any], Any] = lambda item: item) -> Errors:
    """The entries of a list whose key stands in it before."""
    found, seen = [], set()
    for index, item in enumerate(items or ()):
        identity = key(item)
        if identity in seen:
            found.append(duplicate(f"{path}[{index}]", identity))
        seen.add(identity)
    return found


def mapped(
    entries: Any,
    limit: int | None,
    path: str,
    *,
    key: Callable[[str, str], Errors],
    value: Callable[[Any, str], Errors],
    longest_key: int,
) -> Errors:
    """What is wrong with the keys and values of a map.

    In the path of a value a key of more than `longest_key` bytes is cut in its middle.
    """
    count = len(entries or ())
    if limit is not None and count > limit:
        return [too_many(path, count, limit)]
    found = []
    for name in sorted(entries or ()):
        found += key(name, path)
        found += value(entries[name], f"{path}[{_cut(name, longest_key)}]")
    return found


def _cut(text: str, limit: int) -> str:
    data = text.encode()
    if len(data) <= limit:
        return text
    left = limit - len("...")
    return (data[: (left + 1) // 2] + b"..." + data[len(data) - left // 2 :]).decode(
        errors="replace"
    )


def nothing(_item: Any, _path: str) -> Errors:
    """For entries of which every value is right."""
    return []
