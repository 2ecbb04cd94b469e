"""URLs as Go's `net/url` reads them.

Sources: Kubernetes 1.36 `staging/src/k8s.io/apiserver/pkg/cel/library/urls.go`; Go's
`net/url/url.go` (`ParseRequestURI` decides, `Parse` splits).
"""

import dataclasses
import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.logic.cel import values

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HOST = re.compile(r"(?:\[[0-9a-fA-F:.%a-zA-Z]*\]|[^\[\]:\s<>\"\\^`{|}/%]*)(?::[0-9]*)?")
_ENCODED = re.compile(r"[A-Za-z0-9\-_.~!$&'()*+,;=:@\[\]%/]*")


@dataclasses.dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL; `path` and `query` as they were written."""

    scheme: str
    host: str
    path: str
    query: str
    text: str

    def __eq__(self, other: object) -> bool:
        """Whether they are written alike, but for the case of the scheme."""
        return isinstance(other, Url) and (self.scheme, self.text) == (other.scheme, other.text)

    def __hash__(self) -> int:
        """Equal ones hash alike."""
        return hash((self.scheme, self.text))


def parse(text: str) -> Url:
    """An absolute URL or an absolute path.

    Raises:
        values.CallError: the text is neither.
    """
    if not values.text(text) or _CONTROL.search(text):
        raise _invalid(text, "it is empty or has control characters")
    scheme, rest = "", text.partition("#")[0]
    if found := _SCHEME.match(rest):
        scheme, rest = found[1].lower(), rest[found.end() :]
    elif ":" in rest.partition("/")[0]:
        raise _invalid(text, "first path segment contains colon or no scheme")
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if not scheme:
            raise _invalid(text, "neither a scheme nor an absolute path")
        return Url(scheme, "", "", query, text)
    host, path = "", rest
    if scheme and rest.startswith("//"):
        authority, slash, tail = rest[2:].partition("/")
        host, path = authority.rpartition("@")[2], slash + tail
    if not _HOST.fullmatch(host):
        raise _invalid(text, f"invalid host or port {host!r}")
    if _BAD_ESCAPE.search(path):
        raise _invalid(text, "invalid escape")
    return Url(scheme, host, path, query, text)


def _invalid(text: str, reason: str) -> values.CallError:
    return values.CallError(f"URL parse error during conversion from string: {text!r}: {reason}")


def _url(value: Any) -> Url:
    if not isinstance(value, Url):
        raise TypeError
    return value


def _hostname(value: Any) -> str:
    host = _url(value).host
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _port(value: Any) -> str:
    host = _url(value).host
    return host.rpartition("]")[2].partition(":")[2]


def _escaped_path(value: Any) -> str:
    path = _url(value).path
    if _ENCODED.fullmatch(path):
        return path
    return urllib.parse.quote(urllib.parse.unquote(path), safe="/$&+,:;=@~")


def _query(value: Any) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pair in _url(value).query.split("&"):
        if not pair or ";" in pair or _BAD_ESCAPE.search(pair):
            continue
        key, _, item = map(urllib.parse.unquote_plus, pair.partition("="))
        found.setdefault(key, []).append(item)
    return found


GLOBALS: Mapping[str, Callable[..., Any]] = {
    "url": parse,
    "isURL": lambda text: values.succeeds(parse, text),
}
METHODS: Mapping[str, Callable[..., Any]] = {
    "getScheme": lambda url: _url(url).scheme,
    "getHost": lambda url: _url(url).host,
    "getHostname": _hostname,
    "getPort": _port,
    "getEscapedPath": _escaped_path,
    "getQuery": _query,
}
