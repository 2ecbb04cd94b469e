"""Processes that begin with few files, and what they make of that."""

import pathlib
import re
from collections.abc import Sequence


def command(given: Sequence[str], *, soft: int = 256, hard: int = 4096) -> list[str]:
    """The command, begun with these limits of open files."""
    return ["/bin/sh", "-c", f'ulimit -S -n {soft}; ulimit -H -n {hard}; exec "$0" "$@"', *given]


def soft_limit(pid: int) -> int:
    """How many files a process may have open now."""
    text = pathlib.Path(f"/proc/{pid}/limits").read_text(encoding="utf-8")
    found = re.search(r"^Max open files +(\d+)", text, re.MULTILINE)
    assert found is not None
    return int(found[1])
