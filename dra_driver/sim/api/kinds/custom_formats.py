"""Formats of texts in schemas of custom resources, of which the server knows these.

Source: Kubernetes 1.36, `apiextensions-apiserver/pkg/apiserver/validation/formats.go` and
`kube-openapi/pkg/validation/strfmt`. Of others nothing is checked, there neither.
"""

import base64
import binascii
import datetime as dt
import ipaddress
import re
import urllib.parse
from collections.abc import Callable, Mapping

from dra_driver.logic.cel import times, values

_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?(Z|[+-][0-9:]{4,5})", re.IGNORECASE
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?", re.IGNORECASE)
_MAC = re.compile(r"([0-9a-f]{2}[:-]){5}[0-9a-f]{2}", re.IGNORECASE)
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")


def meets(text: str, form: str) -> bool:
    """Whether a text is of a format; of one that is not known it is."""
    check = _FORMATS.get(form.replace("-", ""))
    return check is None or check(text)


def _is_moment(text: str) -> bool:
    if not _MOMENT.fullmatch(text):
        return False
    try:
        dt.datetime.fromisoformat(text.upper())
    except ValueError:
        return False
    return True


def _is_date(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return _DATE.fullmatch(text) is not None


def _is_span(text: str) -> bool:
    return values.succeeds(times.duration, text)


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _is_made_by(make: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            make(text)
        except ValueError:
            return False
        return True

    return check


def _is_uri(text: str) -> bool:
    try:
        found = urllib.parse.urlsplit(text)
    except ValueError:
        return False
    return bool(found.scheme) or text.startswith("/")


def _is_like(pattern: re.Pattern[str], longest: int = 1024) -> Callable[[str], bool]:
    return lambda text: len(text) <= longest and pattern.fullmatch(text) is not None


_FORMATS: Mapping[str, Callable[[str], bool]] = {
    "datetime": _is_moment,
    "date": _is_date,
    "duration": _is_span,
    "byte": _is_base64,
    "ipv4": _is_made_by(ipaddress.IPv4Address),
    "ipv6": _is_made_by(ipaddress.IPv6Address),
    "cidr": _is_made_by(lambda text: ipaddress.ip_network(text, strict=False)),
    "uri": _is_uri,
    "uuid": _is_like(_UUID),
    "hostname": _is_like(_HOST, 255),
    "mac": _is_like(_MAC),
    "email": _is_like(_EMAIL),
    "k8sshortname": _is_like(re.compile(_LABEL), 63),
    "k8slongname": _is_like(re.compile(rf"{_LABEL}(\.{_LABEL})*"), 253),
}
"""By name, without dashes."""
