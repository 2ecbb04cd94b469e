"""The directory of records: one file for each claim that is, or is being, prepared.

A file for each claim lets claims be prepared side by side, and keeps damage to one of them.
"""

import dataclasses
import errno
import pathlib
import threading
from collections.abc import Mapping

from dra_driver import errors
from dra_driver.adapters import files
from dra_driver.model import prepared

_SUFFIX = ".json"
_DAMAGED = frozenset({errno.EIO, errno.EUCLEAN, errno.EBADMSG})
"""What a disk that has lost a block says of the file; others can be read."""
_Signature = tuple[int, int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Contents:
    """All records by claim UID, and for each file that cannot be read the reason."""

    records: Mapping[str, prepared.Record]
    damaged: Mapping[str, str]


class Records:
    """Records of one node. Other instances of the driver may write to the directory too."""

    def __init__(self, directory: pathlib.Path) -> None:
        """The directory is made if it is absent; its parent must exist."""
        directory.mkdir(mode=0o700, exist_ok=True)
        self._directory = directory
        self._lock = threading.Lock()
        self._read: dict[str, tuple[_Signature, prepared.Record | str]] = {}

    def write(self, record: prepared.Record) -> None:
        """Remember, durably."""
        files.write(self._path(record.uid), prepared.encode(record))

    def remove(self, uid: str) -> None:
        """Forget, durably; unknown is fine."""
        files.remove(self._path(uid))

    def get(self, uid: str) -> prepared.Record | None:
        """The record of a claim.

        Raises:
            errors.Rejected: its file is damaged.
        """
        try:
            text = files.read(self._path(uid))
        except UnicodeDecodeError as error:
            raise errors.Rejected(f"not a record ({type(error).__name__}: {error})") from error
        except OSError as error:
            if error.errno not in _DAMAGED:
                raise
            raise errors.Rejected(f"its file cannot be read: {error}") from error
        record = None if text is None else prepared.decode(text)
        if record is not None and record.uid != uid:
            raise errors.Rejected(f"it is the record of claim {record.uid}: was the file copied?")
        return record

    def contents(self) -> Contents:
        """Everything on disk now; only files that have changed since the last look are read."""
        with self._lock:
            current: dict[str, tuple[_Signature, prepared.Record | str]] = {}
            for path in self._directory.iterdir():
                if path.suffix == _SUFFIX and not path.name.startswith("."):
                    self._look(path, current)
            self._read = current
        return Contents(
            {uid: seen for uid, (_, seen) in current.items() if isinstance(seen, prepared.Record)},
            {uid: seen for uid, (_, seen) in current.items() if isinstance(seen, str)},
        )

    def set_aside(self, uid: str) -> pathlib.Path:
        """Keep a damaged file for a person to look at, out of the way of a new one."""
        aside = self.keep_aside(uid)
        files.remove(self._path(uid))
        return aside

    def keep_aside(self, uid: str) -> pathlib.Path:
        """As `set_aside`, but the damaged file stays until it is written anew, or removed."""
        path = self._path(uid)
        number = 0
        while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
            # A process that was killed here has kept it already.
            if aside.samefile(path):
                return aside
            number += 1
        aside.hardlink_to(path)
        files.sync_directory(self._directory)
        return aside

    def leftovers(self) -> list[tuple[str, pathlib.Path]]:
        """What killed processes had begun to write, by claim UID."""
        found = []
        for path in sorted(self._directory.iterdir()):
            target = files.target_of_leftover(path)
            if target is not None:
                found.append((target.removesuffix(_SUFFIX), path))
        return found

    def _look(
        self, path: pathlib.Path, into: dict[str, tuple[_Signature, prepared.Record | str]]
    ) -> None:
        uid = path.name.removesuffix(_SUFFIX)
        try:
            status = path.stat()
        except FileNotFoundError:
            return
        signature = (status.st_ino, status.st_mtime_ns, status.st_size)
        known = self._read.get(uid)
        if known is not None and known[0] == signature:
            into[uid] = known
            return
        try:
            record = self.get(uid)
        except errors.Rejected as error:
            into[uid] = signature, str(error)
        else:
            if record is not None:
                into[uid] = signature, record

    def _path(self, uid: str) -> pathlib.Path:
        return self._directory / f"{uid}{_SUFFIX}"
