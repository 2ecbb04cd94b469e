"""`string.format(list)`, `strings.quote(string)` and how numbers are written.

Source: cel-go `ext/formatting.go` (what version 2 of the strings library has) and
`ext/strings.go`; Go's `strconv.FormatFloat(value, 'g', -1, 64)`.
"""

import decimal
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.logic.cel import times, values

_CLAUSE = re.compile(r"%(?:(%)|(?:\.(\d*))?(.?))", re.DOTALL)
_LONGEST_PRECISION = 1000
_DEFAULT_PRECISION = 6
_QUOTED: dict[str, str | int | None] = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n"}
_QUOTED |= {"\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\""}
_RAISED = str.maketrans("+-0123456789", "\u207a\u207b\u2070\u00b9\u00b2\u00b3⁴⁵⁶⁷⁸⁹")
_SPELLED = {"NaN", "Infinity", "-Infinity"}


def quote(text: str) -> str:
    """The text in quotes, with what is special escaped."""
    return '"' + values.text(text).translate(str.maketrans(_QUOTED)) + '"'


def verbs(pattern: str) -> list[str]:
    """The letters of the clauses of a pattern, in order.

    Raises:
        values.CallError: a clause is none.
    """
    return [_verb(found) for found in _CLAUSE.finditer(pattern) if not found[1]]


def expand(pattern: str, arguments: list[Any]) -> str:
    """The pattern with `%s`, `%d`, `%f`, `%e`, `%b`, `%o`, `%x`, `%X` replaced by the arguments."""
    rest, size = list(values.items(arguments)), len(values.text(pattern))
    used = 0

    def clause(found: re.Match[str]) -> str:
        nonlocal used, size
        if found[1]:
            return "%"
        write = _VERBS[_verb(found)]
        if used >= len(rest):
            raise values.CallError(f"index {used} out of range")
        used += 1
        precision = int(found[2]) if found[2] is not None else _DEFAULT_PRECISION
        text = write(rest[used - 1], precision)
        size += len(text)
        values.afford(size)
        return text

    return _CLAUSE.sub(clause, pattern)


def _verb(clause: re.Match[str]) -> str:
    if clause[3] not in _VERBS:
        raise values.CallError(f"unrecognized formatting clause {clause[0]!r}")
    if clause[2] == "" or (clause[2] is not None and int(clause[2]) > _LONGEST_PRECISION):
        raise values.CallError(f"the precision of {clause[0]!r} is no number that is allowed")
    return clause[3]


def text_of(value: Any) -> str:
    """The value as `string(x)` and `%s` show it.

    Raises:
        values.CallError: there is no text for values of its type.
    """
    kind = values.type_name(value)
    if kind not in _TEXTS:
        raise values.CallError(f"no formatting function for {kind}")
    return _TEXTS[kind](value)


def _literal(value: Any) -> str:
    """A value within a list or a map, as one would write it."""
    kind = values.type_name(value)
    return _LITERALS[kind](value) if kind in _LITERALS else text_of(value)


def _map_text(value: Mapping[Any, Any]) -> str:
    shown = sorted((_literal(key), _literal(value[key])) for key in value)
    return f"{{{', '.join(f'{key}:{item}' for key, item in shown)}}}"


def _double_text(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    number = decimal.Decimal(repr(value)).normalize()
    exponent = number.adjusted() if value else 0
    if -5 < exponent < 6:
        return f"{number:f}" if value else "-0" if math.copysign(1, value) < 0 else "0"
    digits = "".join(map(str, number.as_tuple().digits))
    fraction = f".{digits[1:]}" if digits[1:] else ""
    return f"{'-' if value < 0 else ''}{digits[0]}{fraction}e{exponent:+03}"


def _double_literal(value: float) -> str:
    return f"{value:.6f}" if math.isfinite(value) else f'"{_double_text(value)}"'


def _refused(what: str, value: Any) -> values.CallError:
    return values.CallError(f"{what}, was given {values.type_name(value)}")


def _decimal(value: Any, _: int) -> str:
    if type(value) not in {int, values.Uint}:
        raise _refused("decimal clause can only be used on integers", value)
    return str(int(value))


def _real(name: str, write: Callable[[float, int], str]) -> Callable[[Any, int], str]:
    def written(value: Any, precision: int) -> str:
        if not isinstance(value, float) and value not in _SPELLED:
            raise _refused(f"{name} clause can only be used on doubles", value)
        number = float(value)
        if math.isfinite(number):
            return write(number, precision)
        return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"

    return written


def _scientific(number: float, precision: int) -> str:
    """`1.05 x 10^03` in the typography of Go's English locale."""
    mantissa, _, exponent = f"{number:.{precision}e}".partition("e")
    return f"{mantissa}\u202f\u00d7\u202f10{exponent.removeprefix('+').translate(_RAISED)}"


def _base(style: str, what: str) -> Callable[[Any, int], str]:
    def write(value: Any, _: int) -> str:
        if isinstance(value, str | bytes) and style in "xX":
            digits = (value.encode() if isinstance(value, str) else value).hex()
            return digits.upper() if style == "X" else digits
        allowed = {int, values.Uint} | ({bool} if style == "b" else set())
        if type(value) not in allowed:
            raise _refused(what, value)
        return f"{int(value):{style}}"

    return write


_HEX = "only integers, byte buffers, and strings can be formatted as hex"
_VERBS: Mapping[str, Callable[[Any, int], str]] = {
    "s": lambda value, _: text_of(value),
    "d": _decimal,
    "f": _real("fixed-point", lambda number, precision: f"{number:,.{precision}f}"),
    "e": _real("scientific", _scientific),
    "b": _base("b", "only integers and bools can be formatted as binary"),
    "o": _base("o", "octal clause can only be used on integers"),
    "x": _base("x", _HEX),
    "X": _base("X", _HEX),
}
_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "null": lambda _: "null",
    "bool": lambda value: "true" if value else "false",
    "string": lambda value: value,
    "bytes": lambda value: value.decode(errors="replace"),
    "double": _double_text,
    "int": str,
    "uint": lambda value: str(int(value)),
    "type": lambda value: value.name,
    "timestamp": times.timestamp_text,
    "duration": times.duration_text,
    "list": lambda value: f"[{', '.join(map(_literal, value))}]",
    "map": _map_text,
}
_LITERALS: Mapping[str, Callable[[Any], str]] = {
    "string": lambda value: json.dumps(value, ensure_ascii=False),
    "bytes": lambda value: f"b{json.dumps(text_of(value), ensure_ascii=False)}",
    "double": _double_literal,
    "timestamp": lambda value: f'timestamp("{times.timestamp_text(value)}")',
    "duration": lambda value: f'duration("{times.duration_text(value)}")',
}
