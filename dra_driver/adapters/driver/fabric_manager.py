"""Fabric Manager is asked by a process of its own, which is killed if it hangs: `dra-driver
fabric-partitions`, with one JSON document on standard output.
"""

import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pydantic

from dra_driver import errors
from dra_driver.adapters.driver import driver_root
from dra_driver.adapters.system import short_runs
from dra_driver.model import fabric

LIBRARIES = ("libnvfm.so.1", "libnvfm.so")
SECONDS = 10.0
"""How long an answer may take, the start of the process included."""
CONNECT_MS = 3000
"""How long the library may try to connect."""
_COMMAND = (sys.executable, "-m", "dra_driver", "fabric-partitions")
_KEPT = ("PYTHONPATH",)
"""Variables by which the process finds this package."""
_ERROR = "dra-driver: "
_FORM = pydantic.TypeAdapter(tuple[fabric.Partition, ...])


class FabricManager:
    """The Fabric Manager of this node.

    Args:
        layout: where the driver is installed, and so the library.
        address: where it listens; a socket by its path on the host.
        host: the root of the host as this process sees it.
        command: what asks it, before its flags.
    """

    def __init__(
        self,
        layout: driver_root.Layout,
        address: fabric.Address,
        *,
        host: pathlib.Path,
        seconds: float = SECONDS,
        command: Sequence[str] = _COMMAND,
    ) -> None:
        self._layout = layout
        self._address = address
        self._host = driver_root.Root("/", host)
        self._seconds = seconds
        self._command = command

    def partitions(self) -> tuple[fabric.Partition, ...]:
        """The partitions that it knows, active or not. Takes seconds at most; starts a process.

        Raises:
            errors.Retryable: it does not answer, or its library is not there (yet).
            errors.Rejected: the answer cannot be understood.
        """
        command = [
            *self._command,
            *("--library", str(self._library())),
            *("--address", str(self._seen())),
        ]
        try:
            done = short_runs.run(command, _environment(), self._seconds)
        except subprocess.TimeoutExpired as error:
            raise errors.Retryable(
                f"Fabric Manager at {self._address} does not answer within {self._seconds:g} s: "
                "systemctl status nvidia-fabricmanager on the node"
            ) from error
        except OSError as error:
            raise errors.Retryable(
                f"{' '.join(command)} cannot be run, to ask Fabric Manager: {error}"
            ) from error
        if done.returncode != 0:
            raise errors.Retryable(_said(done.stderr, done.returncode))
        return parsed(done.stdout)

    def _library(self) -> pathlib.Path:
        for name in LIBRARIES:
            if place := self._layout.library(name):
                return place.seen
        raise errors.Retryable(
            f"driver root {self._layout.root.host!r}: no {' or '.join(LIBRARIES)} in "
            f"{', '.join(self._layout.library_dirs)}: install the package "
            "nvidia-fabricmanager-dev (-devel) that fits the installed Fabric Manager, or set "
            "--fabric-manager to nothing"
        )

    def _seen(self) -> fabric.Address:
        """The address as this process reaches it: links to a socket end inside the host's root."""
        if not self._address.is_socket:
            return self._address
        path = self._host.at(self._host.resolve(self._address.text))
        return fabric.parse_address(f"{fabric.UNIX}{path}")


def written(partitions: Sequence[fabric.Partition]) -> str:
    """The answer as JSON."""
    return _FORM.dump_json(tuple(partitions)).decode()


def parsed(text: str) -> tuple[fabric.Partition, ...]:
    """The answer in such a text.

    Raises:
        errors.Rejected: it is no such text.
    """
    try:
        return _FORM.validate_json(text)
    except pydantic.ValidationError as error:
        raise errors.Rejected(
            f"Fabric Manager: the answer {text[:200]!r} is no list of partitions"
        ) from error


def _said(complaint: str, status: int) -> str:
    """The error that the process ended with; what the library wrote itself is not in it."""
    for line in reversed(complaint.splitlines()):
        if line.startswith(_ERROR):
            return line.removeprefix(_ERROR)
    return f"asking Fabric Manager ended with {status}: {complaint.strip()[-200:] or 'no reason'}"


def _environment() -> Mapping[str, str]:
    return {name: os.environ[name] for name in _KEPT if name in os.environ}
