"""Whether a directory takes files: tried, as permissions do not tell it all."""

import dataclasses
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


def _failure(path: pathlib.Path) -> str | None:
    try:
        # The kubelet, which watches one of them, leaves hidden files alone.
        with tempfile.TemporaryFile(dir=path, prefix="."):
            return None
    except OSError as error:
        return f"{path}: {error.strerror}"
