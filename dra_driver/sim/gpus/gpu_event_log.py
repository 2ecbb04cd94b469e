"""What simulated cards have told by events: `<directory>/events.log`, a line of JSON for each.

Every process that looks at the cards reads along. Lines are numbered, and are never written twice.
Once the file is too long its older half goes, as if nobody had been quick enough to hear it.
"""

import collections
import dataclasses
import json
import os
import pathlib
from collections.abc import Callable

from dra_driver.adapters.disk import files
from dra_driver.sim import hardware_files

FILE = "events.log"
ROOM = 1 << 20
"""Bytes that the file may have."""
WAITING = 4096
"""Events that wait for whoever is too slow to ask for them; older ones go."""
_TAIL = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """An event: its bit and data as NVML has them. No ids of instances: it is about the card."""

    uuid: str
    kind: int
    data: int = 0
    gi: int | None = None
    ci: int | None = None


def tell(directory: pathlib.Path, *events: Told) -> None:
    """Have the cards tell this from now on, in this order."""
    path = directory / FILE
    with hardware_files.locked(path):
        number = _last_number(path)
        lines = [
            json.dumps({"number": number + place, **dataclasses.asdict(event)}) + "\n"
            for place, event in enumerate(events, start=1)
        ]
        content = "".join(lines).encode()
        if _size(path) + len(content) > ROOM:
            kept = (files.read(path) or "").splitlines(keepends=True)
            text = "".join([*kept[len(kept) // 2 :], *lines])
            # A new file, which readers tell from the one that they have read.
            files.write(path, text, durable=False)
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)


class Reader:
    """Reads along from now on. Not for several threads at a time."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._path = directory / FILE
        self._number = _last_number(self._path)
        self._inode: int | None = None
        self._offset = 0
        self._waiting: collections.deque[Told] = collections.deque(maxlen=WAITING)

    def listen(self, is_wanted: Callable[[Told], bool]) -> None:
        """Keep of what was told since the last time that which is wanted."""
        self._waiting.extend(event for event in self._fresh() if is_wanted(event))

    def next(self) -> Told | None:
        """The oldest that was kept and not given out yet."""
        return self._waiting.popleft() if self._waiting else None

    def _fresh(self) -> list[Told]:
        try:
            with self._path.open("rb") as file:
                facts = os.fstat(file.fileno())
                if facts.st_ino != self._inode or facts.st_size < self._offset:
                    self._inode, self._offset = facts.st_ino, 0
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        found = []
        for line in whole.splitlines():
            event = json.loads(line)
            number = event.pop("number")
            if number > self._number:
                self._number = number
                found.append(Told(**event))
        return found


def _last_number(path: pathlib.Path) -> int:
    try:
        with path.open("rb") as file:
            file.seek(max(_size(path) - _TAIL, 0))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return 0
    return int(json.loads(lines[-1])["number"]) if lines else 0


def _size(path: pathlib.Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
