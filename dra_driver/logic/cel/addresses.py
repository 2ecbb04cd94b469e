"""IP addresses and networks.

Sources: Kubernetes 1.36 `staging/src/k8s.io/apiserver/pkg/cel/library/ip.go` and `cidr.go`; Go's
`net/netip`.
"""

import dataclasses
import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.logic.cel import values

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_BITS = re.compile(r"0|[1-9][0-9]{0,2}")
_LINK_LOCAL_MULTICAST = ipaddress.ip_network("224.0.0.0/24")


@dataclasses.dataclass(frozen=True, slots=True)
class Ip:
    """An address."""

    address: _Address

    def __str__(self) -> str:
        """In canonical form."""
        return str(self.address)


@dataclasses.dataclass(frozen=True, slots=True)
class Cidr:
    """An address with the length of its network's prefix."""

    address: _Address
    bits: int

    def __str__(self) -> str:
        """In canonical form."""
        return f"{self.address}/{self.bits}"

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        """The network that it is in."""
        return ipaddress.ip_network(str(self), strict=False)


def parse_ip(text: str) -> Ip:
    """An address.

    Raises:
        values.CallError: the text is none, has a zone, or is an IPv4 address written as IPv6.
    """
    try:
        address = ipaddress.ip_address(values.text(text))
    except ValueError as error:
        raise values.CallError(f"IP Address {text!r} parse error: {error}") from error
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise values.CallError(f"IP address {text!r} with zone value is not allowed")
        if address.ipv4_mapped is not None:
            raise values.CallError(f"IPv4-mapped IPv6 address {text!r} is not allowed")
    return Ip(address)


def parse_cidr(text: str) -> Cidr:
    """A network.

    Raises:
        values.CallError: the text is none, has a zone, or is an IPv4 network written as IPv6.
    """
    host, slash, bits = values.text(text).rpartition("/")
    if not slash or not _BITS.fullmatch(bits):
        raise values.CallError(f"network address {text!r} parse error: write 10.0.0.0/8")
    address = parse_ip(host).address
    if int(bits) > address.max_prefixlen:
        raise values.CallError(f"network address {text!r} parse error: prefix length out of range")
    return Cidr(address, int(bits))


def _is_canonical(text: str) -> bool:
    return str(parse_ip(text)) == text


def _address(value: Any) -> _Address:
    if not isinstance(value, Ip):
        raise TypeError
    return value.address


def _network(value: Any) -> Cidr:
    if not isinstance(value, Cidr):
        raise TypeError
    return value


def _is_link_local_multicast(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address in _LINK_LOCAL_MULTICAST
    return (address.packed[0], address.packed[1] & 0x0F) == (0xFF, 0x02)


def _is_link_local(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_link_local
    return address.packed[0] == 0xFE and address.packed[1] & 0xC0 == 0x80  # fe80::/10


def _is_global_unicast(address: _Address) -> bool:
    broadcast = address == ipaddress.IPv4Address("255.255.255.255")
    special = address.is_unspecified or address.is_loopback or address.is_multicast
    return not (broadcast or special or _is_link_local(address))


def _contains_ip(cidr: Any, other: Any) -> bool:
    address = parse_ip(other).address if isinstance(other, str) else _address(other)
    return address in _network(cidr).network


def _contains_cidr(cidr: Any, other: Any) -> bool:
    inner, outer = parse_cidr(other) if isinstance(other, str) else _network(other), _network(cidr)
    return outer.bits <= inner.bits and inner.address in outer.network


def _masked(cidr: Any) -> Cidr:
    return Cidr(_network(cidr).network.network_address, cidr.bits)


GLOBALS: Mapping[str, Callable[..., Any]] = {
    "ip": parse_ip,
    "isIP": lambda text: values.succeeds(parse_ip, text),
    "ip.isCanonical": _is_canonical,
    "cidr": parse_cidr,
    "isCIDR": lambda text: values.succeeds(parse_cidr, text),
}
METHODS: Mapping[str, Callable[..., Any]] = {
    "family": lambda ip: _address(ip).version,
    "isUnspecified": lambda ip: _address(ip).is_unspecified,
    "isLoopback": lambda ip: _address(ip).is_loopback,
    "isLinkLocalMulticast": lambda ip: _is_link_local_multicast(_address(ip)),
    "isLinkLocalUnicast": lambda ip: _is_link_local(_address(ip)),
    "isGlobalUnicast": lambda ip: _is_global_unicast(_address(ip)),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "ip": lambda cidr: Ip(_network(cidr).address),
    "prefixLength": lambda cidr: _network(cidr).bits,
    "masked": _masked,
}
