"""What a scalar of YAML stands for, as kubectl understands it.

kubectl makes JSON of YAML first. So `yes` is true and `010` is 8, as in YAML 1.1; `1:30` and dates
are texts, as in JSON; `1.0` is 1, as JSON has one kind of number. Sources: sigs.k8s.io/yaml,
`yaml.go` and `goyaml.v2/resolve.go`; the tests compare with kubectl itself.
"""

import base64
import binascii
import decimal
import math
import re
import struct

Scalar = str | int | float | bool | None

_TRUE = frozenset(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"))
_FALSE = frozenset(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"))
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_INFINITE = re.compile(r"[+-]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_INTEGER = re.compile(
    r"[+-]?(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[oO](?P<octal>[0-7]+)|0[bB](?P<binary>[01]+)"
    r"|0(?P<old>[0-7]*)|(?P<decimal>[1-9][0-9]*))",
    re.ASCII,
)
_BASES = {"hex": 16, "octal": 8, "binary": 2, "old": 8, "decimal": 10}
_SIGNED_BINARY = re.compile(r"0b[+-][01]+")
"""Go's `strconv.ParseInt`, which is given what follows `0b`, takes a sign there."""
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_UNDERSCORES = re.compile(r"(?<=[0-9])_(?=[0-9])")
_MOST_DIGITS = 400
"""Of a number: one with more is beyond all that a float can be."""
_TOO_LARGE = 2**63
_SHOWN = 60
"""Characters of a text that a message shows."""


class Unknown(ValueError):  # noqa: N818 - what it is, for who reads the file
    """It stands for nothing; the text says why."""


def plain(text: str) -> Scalar:
    """The value of a scalar without quotes and without a tag.

    Raises:
        Unknown: it is a number that JSON does not have.
    """
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text[0] not in "+-.0123456789":
        return text
    if _INFINITE.fullmatch(text):
        raise Unknown(f"{text}: JSON has no such number; a text is written in quotes")
    found = _number(text)
    return text if found is None else found


def tagged(tag: str, text: str) -> Scalar:
    """The value of a scalar with a tag of YAML's own: `int`, `str`, `binary`.

    Raises:
        Unknown: the tag is another one, or what is there is nothing of that kind.
    """
    if tag in ("str", "timestamp"):
        return text
    if tag == "binary":
        try:
            return base64.b64decode(text, validate=True).decode("utf-8", "replace")
        except binascii.Error as error:
            raise Unknown(f"!!binary: it is no base64: {error}") from error
    found = plain(text)
    match tag, found:
        case ("bool", bool()) | ("null", None):
            return found
        case ("int", int()) | ("float", int() | float()) if not isinstance(found, bool):
            return found
        case ("bool" | "null" | "int" | "float", _):
            raise Unknown(f"!!{tag}: {text[:_SHOWN]!r} is none")
    raise Unknown(f"the tag !!{tag[:_SHOWN]} is not known here: leave it out")


def of_json(text: str) -> Scalar:
    """The value of a number of JSON.

    Raises:
        Unknown: it is too large.
    """
    found = float(text) if len(text) < _MOST_DIGITS else math.inf
    if math.isinf(found):
        raise Unknown(f"{text[:_SHOWN]}: the number is too large")
    return value(int(text) if text.removeprefix("-").isdecimal() else found)


def value(found: Scalar) -> Scalar:
    """What a scalar is as a value in JSON, which has one kind of number.

    What is whole is an int, within 64 bits; beyond them it is a float.
    """
    match found:
        case bool():
            return found
        case int() if not -_TOO_LARGE <= found < _TOO_LARGE:
            return float(found)
        case float() if found.is_integer() and abs(found) < _TOO_LARGE:
            # The digits that tell it from its neighbours, as they are written.
            return int(decimal.Decimal(repr(found)))
    return found


def key(found: Scalar) -> str:
    """What a scalar is as a key of an object.

    Raises:
        Unknown: it is null.
    """
    match found:
        case str():
            return found
        case bool():
            return "true" if found else "false"
        case int():
            return str(found)
        case float():
            return _short(found)
    raise Unknown("null is no key: write it in quotes")


def _number(text: str) -> int | float | None:
    # Of one that begins with a point only underscores between digits are passed over.
    text = _UNDERSCORES.sub("", text) if text[0] == "." else text.replace("_", "")
    if len(text) > _MOST_DIGITS:
        return None
    if _SIGNED_BINARY.fullmatch(text):
        number = int(text.removeprefix("0b"), 2)
        return number if -_TOO_LARGE <= number < _TOO_LARGE else None
    if found := _INTEGER.fullmatch(text):
        base = str(found.lastgroup)
        number = int(found[base] or "0", _BASES[base])
        number = -number if text[0] == "-" else number
        if -_TOO_LARGE <= number < 2 * _TOO_LARGE:
            return number
    if not _FLOAT.fullmatch(text) or math.isinf(float(text)):
        return None
    return float(text)


def _short(number: float) -> str:
    """As Go writes a float of 32 bits: `strconv.FormatFloat`, 'g', -1, 32."""
    try:
        packed = struct.pack("f", number)
    except OverflowError:
        return "-.inf" if number < 0 else ".inf"
    [near] = struct.unpack("f", packed)
    shortest = next(
        text
        for text in (f"{near:.{digits}e}" for digits in range(17))
        if struct.pack("f", float(text)) == packed
    )
    mantissa, _, exponent = shortest.partition("e")
    if not -5 < int(exponent) < 6:
        return shortest
    decimals = len(mantissa.partition(".")[2]) - int(exponent)
    return f"{near:.{max(0, decimals)}f}"
