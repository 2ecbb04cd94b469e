"""Whether a directory takes files: tried, as permissions do not tell it all."""

import dataclasses
import os
import pathlib
import tempfile


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """A directory that is there, or that is to be made.

    `failure`: why no file can be put into it, or why it cannot be made; None if that can be.
    """

    exists: bool
    failure: str | None


def look(path: pathlib.Path) -> State:
    """Puts a hidden file into the directory, or into the nearest one above it, and removes it."""
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
        # The kubelet, which watches one of them, leaves hidden files alone.
        with tempfile.TemporaryFile(dir=path, prefix="."):
            return None
    except OSError as error:
        return f"{path}: {error.strerror}"
