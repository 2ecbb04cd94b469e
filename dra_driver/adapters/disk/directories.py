"""Whether a directory takes files: tried, as permissions do not tell it all, and nothing is left.

Not even for a moment has a directory another entry, or another time of its last change: nobody who
watches it sees anything.
"""

import dataclasses
import errno
import os
import pathlib

_NOT_THERE = frozenset({errno.EOPNOTSUPP, errno.EISDIR})
"""What file systems say that have no files without a name, and kernels before 3.11."""


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """A directory that is there, or that is to be made.

    `failure`: why no file can be put into it, or why it cannot be made; None if that can be.
    """

    exists: bool
    failure: str | None


def look(path: pathlib.Path) -> State:
    """Makes a file without a name in the directory, or in the nearest one above it."""
    try:
        if path.is_dir():
            return State(exists=True, failure=_failure(path))
        above = next(parent for parent in (path, *path.parents) if parent.exists())
    except OSError as error:
        return State(exists=False, failure=f"{error.filename}: {error.strerror}")
    if not above.is_dir():
        return State(exists=False, failure=f"{above}: not a directory")
    return State(exists=False, failure=_failure(above))


@dataclasses.dataclass(frozen=True, slots=True)
class Loss:
    """Why a directory that took files takes none any more.

    `was_replaced`: somebody removed it, and what this process sees is the old one.
    `is_lasting`: that, or it is not there at all; the files that were in it are gone.
    """

    reason: str
    was_replaced: bool = False
    is_lasting: bool = False


def loss(path: pathlib.Path) -> Loss | None:
    """What has become of a directory, as far as that can be told without a file; None: nothing."""
    try:
        status = path.stat()
        if not path.is_dir():
            return Loss("it is no directory any more", is_lasting=True)
        # Its entries count: its own and that in the directory above, or 1 where nobody counts.
        if status.st_nlink == 0:
            reason = "it was removed, and this is the old one"
            return Loss(reason, was_replaced=True, is_lasting=True)
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return Loss("it is mounted read-only now")
    except FileNotFoundError:
        return Loss("it is gone", is_lasting=True)
    except OSError as error:
        return Loss(f"it cannot be looked at: {error.strerror}")
    return None


def _failure(path: pathlib.Path) -> str | None:
    try:
        os.close(os.open(path, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        why_not = _refusal(path) if error.errno in _NOT_THERE else error.strerror
        return None if why_not is None else f"{path}: {why_not}"
    return None


def _refusal(path: pathlib.Path) -> str | None:
    """What permissions and the file system say, where trying would leave traces."""
    if not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        read_only = os.statvfs(path).f_flag & os.ST_RDONLY
        return os.strerror(errno.EROFS if read_only else errno.EACCES)
    room = os.statvfs(path)
    if not room.f_blocks:
        return "its file system takes no files"
    return None if room.f_bfree else os.strerror(errno.ENOSPC)
