"""Timestamps and durations: as text, as parts. To the microsecond; cel-go counts nanoseconds.

Sources: cel-go `common/types/timestamp.go` and `duration.go`; Go's `time.ParseDuration`.
"""

import datetime as dt
import re
import zoneinfo
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from dra_driver.logic.cel import values

_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6}
_UNITS |= {"s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_OFFSET = re.compile(r"([+-]?)(\d\d):(\d\d)", re.ASCII)
_SECOND = dt.timedelta(seconds=1)
_LONGEST = 40
"""Characters of a number in a duration that matter: more digits are out of range, or too fine."""


def timestamp(value: Any) -> dt.datetime:
    """A point in time from RFC 3339, or from seconds since 1970.

    Raises:
        values.CallError: the text is none, or it is out of range.
    """
    if isinstance(value, dt.datetime):
        return value
    try:
        return dt.datetime.fromtimestamp(value, dt.UTC) if type(value) is int else _moment(value)
    except (OverflowError, OSError) as error:
        raise values.CallError(f"timestamp out of range: {value}") from error
    except ValueError as error:
        raise values.CallError(f"invalid timestamp {value!r}: {error}") from error


def _moment(text: Any) -> dt.datetime:
    found = _TIMESTAMP.fullmatch(values.text(text))
    if found is None:
        raise ValueError("write 2025-01-31T12:00:00Z")
    day, clock, fraction, zone = found.groups()
    micros = f".{fraction[:6]:0<6}" if fraction else ""
    moment = dt.datetime.fromisoformat(f"{day}T{clock}{micros}{zone.upper()}")
    return moment.astimezone(dt.UTC)


def duration(value: Any) -> dt.timedelta:
    """A duration from Go's notation: `1h30m`, `-1.5s`, `0`.

    Raises:
        values.CallError: the text is none, or it is out of range.
    """
    if isinstance(value, dt.timedelta):
        return value
    sign, body = ("-", value[1:]) if values.text(value)[:1] == "-" else ("", value)
    body = body.removeprefix("+") if not sign else body
    parts = _PART.findall(body)
    if body != "0" and ("".join(map("".join, parts)) != body or not parts):
        raise values.CallError(f"invalid duration {value!r}: write for example 1h30m or 1.5s")
    numbers = [(number.lstrip("0")[:_LONGEST], unit) for number, unit in parts]
    nanos = sum((Fraction(f"0{n}") * _UNITS[unit] for n, unit in numbers), start=Fraction(0))
    if nanos >= 2**63:
        raise values.CallError(f"duration out of range: {value}")
    micros = int(nanos) // 1000
    return dt.timedelta(microseconds=-micros if sign else micros)


def timestamp_text(moment: dt.datetime) -> str:
    """RFC 3339, without a fraction that is zero."""
    fraction = f".{moment.microsecond:06}".rstrip("0").rstrip(".")
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def duration_text(span: dt.timedelta) -> str:
    """Seconds: `5400s`, `0.5s`."""
    micros = span // dt.timedelta(microseconds=1)
    whole, rest = divmod(abs(micros), 10**6)
    fraction = f".{rest:06}".rstrip("0") if rest else ""
    return f"{'-' if micros < 0 else ''}{whole}{fraction}s"


def seconds(moment: dt.datetime) -> int:
    """Since 1970, rounded down."""
    return (moment - dt.datetime.fromtimestamp(0, dt.UTC)) // _SECOND


def nanoseconds(span: dt.timedelta) -> int:
    """How long it is."""
    return span // dt.timedelta(microseconds=1) * 1000


def _in_zone(moment: Any, zone: str) -> dt.datetime:
    if not isinstance(moment, dt.datetime):
        raise TypeError
    offset = _OFFSET.fullmatch(values.text(zone))
    try:
        if offset is None:
            return moment.astimezone(zoneinfo.ZoneInfo(zone or "UTC"))
        minutes = int(offset[2]) * 60 + int(offset[3])
        shift = dt.timedelta(minutes=-minutes if offset[1] == "-" else minutes)
        return moment.astimezone(dt.timezone(shift))
    except (ValueError, OverflowError, OSError, zoneinfo.ZoneInfoNotFoundError) as error:
        raise values.CallError(f"unknown time zone {zone}") from error


def _calendar(part: Callable[[dt.datetime], int]) -> Callable[..., int]:
    def get(moment: Any, zone: str = "UTC") -> int:
        return part(_in_zone(moment, zone))

    return get


def _clock(part: Callable[[dt.datetime], int], unit: dt.timedelta) -> Callable[..., int]:
    def get(value: Any, zone: str | None = None) -> int:
        if isinstance(value, dt.timedelta) and zone is None:
            return -(-value // unit) if value < dt.timedelta(0) else value // unit
        return part(_in_zone(value, "UTC" if zone is None else zone))

    return get


METHODS: Mapping[str, Callable[..., Any]] = {
    "getFullYear": _calendar(lambda t: t.year),
    "getMonth": _calendar(lambda t: t.month - 1),
    "getDayOfYear": _calendar(lambda t: t.timetuple().tm_yday - 1),
    "getDayOfMonth": _calendar(lambda t: t.day - 1),
    "getDate": _calendar(lambda t: t.day),
    "getDayOfWeek": _calendar(lambda t: t.isoweekday() % 7),
    "getHours": _clock(lambda t: t.hour, dt.timedelta(hours=1)),
    "getMinutes": _clock(lambda t: t.minute, dt.timedelta(minutes=1)),
    "getSeconds": _clock(lambda t: t.second, _SECOND),
    "getMilliseconds": _clock(lambda t: t.microsecond // 1000, dt.timedelta(milliseconds=1)),
}
"""Parts of a timestamp, in UTC or a given zone, and lengths of a duration."""
