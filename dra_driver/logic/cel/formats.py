"""Named formats: what a text must look like, and what is said if it does not.

Sources: Kubernetes 1.36 `staging/src/k8s.io/apiserver/pkg/cel/library/format.go`;
`apimachinery/pkg/util/validation/validation.go`.
"""

import base64
import binascii
import dataclasses
import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dra_driver.logic.cel import times, urls, values

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_UUID = r"(?i)[0-9A-F]{8}-?[0-9A-F]{4}-?[0-9A-F]{4}-?[0-9A-F]{4}-?[0-9A-F]{12}"
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class Format:
    """A format by its name."""

    name: str


def _shape(pattern: str, longest: int, text: str) -> Callable[[str], Iterator[str]]:
    def problems(value: str) -> Iterator[str]:
        if len(value) > longest:
            yield f"must be no more than {longest} characters"
        if not re.fullmatch(pattern, value):
            yield f"{text} (regex used for validation is '{pattern}')"

    return problems


_label = _shape(
    _LABEL,
    63,
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must"
    " start and end with an alphanumeric character",
)
_subdomain = _shape(
    _SUBDOMAIN,
    253,
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character",
)
_label_1035 = _shape(
    _LABEL_1035,
    63,
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
    " alphabetic character, and end with an alphanumeric character",
)
_name_part = _shape(
    _NAME,
    63,
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end"
    " with an alphanumeric character",
)
_label_value = _shape(
    f"({_NAME})?",
    63,
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character",
)


def _prefix(check: Callable[[str], Iterator[str]]) -> Callable[[str], Iterator[str]]:
    """What is generated behind a prefix may follow a dash."""
    return lambda value: check(f"{value[:-2]}a" if value[1:].endswith("-") else value)


def _qualified_name(value: str) -> Iterator[str]:
    *prefixes, name = value.split("/")
    if len(prefixes) > 1:
        yield "a qualified name must consist of a name with an optional subdomain prefix and '/'"
        return
    for prefix in prefixes:
        yield from (f"prefix part {text}" for text in _subdomain(prefix))
        if not prefix:
            yield "prefix part must be non-empty"
    if not name:
        yield "name part must be non-empty"
    yield from _name_part(name)


def _parsed(parse: Callable[[str], object], text: str) -> Callable[[str], Iterator[str]]:
    def problems(value: str) -> Iterator[str]:
        try:
            parse(value)
        except (ValueError, binascii.Error):
            yield text

    return problems


def _matched(pattern: str) -> Callable[[str], object]:
    def parse(value: str) -> None:
        if not re.fullmatch(pattern, value):
            raise ValueError(value)

    return parse


def _date(value: str) -> None:
    if not _DATE.fullmatch(value):
        raise ValueError(value)
    dt.date.fromisoformat(value)


_CHECKS: Mapping[str, Callable[[str], Iterator[str]]] = {
    "dns1123Label": _label,
    "dns1123Subdomain": _subdomain,
    "dns1035Label": _label_1035,
    "qualifiedName": _qualified_name,
    "labelValue": _label_value,
    "dns1123LabelPrefix": _prefix(_label),
    "dns1123SubdomainPrefix": _prefix(_subdomain),
    "dns1035LabelPrefix": _prefix(_label_1035),
    "uri": _parsed(urls.parse, "invalid URI"),
    "uuid": _parsed(_matched(_UUID), "does not match the UUID format"),
    "byte": _parsed(lambda value: base64.b64decode(value, validate=True), "invalid base64"),
    "date": _parsed(_date, "invalid date"),
    "datetime": _parsed(times.timestamp, "invalid datetime"),
}


def _named(name: str) -> values.Optional:
    return values.Optional((Format(name),) if values.text(name) in _CHECKS else ())


def _validate(form: Any, text: str) -> values.Optional:
    if not isinstance(form, Format):
        raise TypeError
    problems = list(_CHECKS[form.name](values.text(text)))
    return values.Optional((problems,) if problems else ())


def _constant(name: str) -> Callable[[], Format]:
    return lambda: Format(name)


GLOBALS: Mapping[str, Callable[..., Any]] = {
    "format.named": _named,
    **{f"format.{name}": _constant(name) for name in _CHECKS},
}
METHODS: Mapping[str, Callable[..., Any]] = {"validate": _validate}
