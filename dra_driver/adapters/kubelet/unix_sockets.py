"""Paths of unix sockets, and the sockets that dead processes leave behind."""

import os
import pathlib
import socket

from dra_driver import errors

MAX_PATH = 107
"""Bytes: `sun_path` holds 108 with its terminating NUL."""
PROBE_SECONDS = 1.0
"""How long a listener may take to accept a connection; the kernel does it at once."""


def check_path(path: pathlib.Path, *, setting: str) -> None:
    """Refuse a path that no unix socket can have.

    Raises:
        errors.Fatal: the path, or the hidden name it is bound under first, is too long.
    """
    length = len(os.fsencode(path)) + 1
    if length > MAX_PATH:
        raise errors.Fatal(
            f"socket path {path} has {length - 1} bytes; at most {MAX_PATH - 1} are "
            f"possible for a unix socket that is bound under a hidden name first. "
            f"Choose a shorter {setting}"
        )


def clear_dead(directory: pathlib.Path, pattern: str) -> list[pathlib.Path]:
    """Remove sockets that nobody listens on: instances that were killed leave theirs behind.

    `pattern` is a glob for names in the directory. The sockets that were removed are returned.
    """
    dead = [path for path in sorted(directory.glob(pattern)) if _is_dead(path)]
    for path in dead:
        path.unlink(missing_ok=True)
    return dead


def _is_dead(path: pathlib.Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            # Busy, gone, or no socket at all: not ours to judge.
            return False
    return False
