"""Partitions of the NVLink fabric of a machine with NVSwitches, as Fabric Manager tells of them."""

import dataclasses
import ipaddress
import re

from dra_driver import errors

UNIX = "unix:"
MOST_BYTES = 255
"""Of an address: NVIDIA's library has 256, one of which ends it."""
_PORT = re.compile(r"[1-9]\d{0,4}")


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """A GPU of a partition.

    `physical_id` is its module id. `uuid` and `address` are as Fabric Manager writes them, and
    empty where it does not know: from Hopper on it never does (NVIDIA's Fabric Manager User Guide,
    "Data Structures", note).
    """

    physical_id: int
    uuid: str = ""
    address: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Partition:
    """GPUs that can be activated together; others do not reach them by NVLink then."""

    id: int
    members: tuple[Member, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """Where Fabric Manager listens: a Unix socket, or IPv4 address and port."""

    text: str
    is_socket: bool

    def __str__(self) -> str:
        """As in settings."""
        return f"{UNIX}{self.text}" if self.is_socket else self.text


def parse_address(text: str) -> Address:
    """The address in a text such as `unix:/run/nvidia-fabricmanager/socket`, `127.0.0.1:6666`.

    NVIDIA's library resolves no names (nv_fm_agent.h, `fmConnect`).

    Raises:
        errors.Rejected: it is neither.
    """
    path = text.removeprefix(UNIX)
    if path != text and path.startswith("/") and "\0" not in path:
        found = Address(path, is_socket=True)
    elif _is_host_and_port(text):
        found = Address(text, is_socket=False)
    else:
        raise errors.Rejected(
            f"address of Fabric Manager {text!r}: write unix:PATH with an absolute path, for "
            "example unix:/run/nvidia-fabricmanager/socket, or an IPv4 address and a port, for "
            "example 127.0.0.1:6666"
        )
    if len(found.text.encode()) > MOST_BYTES:
        raise errors.Rejected(
            f"address of Fabric Manager {text!r}: at most {MOST_BYTES} bytes are allowed"
        )
    return found


def _is_host_and_port(text: str) -> bool:
    host, _, port = text.rpartition(":")
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return _PORT.fullmatch(port) is not None and int(port) < 2**16
