"""Files that are whole or absent: write aside, fsync, rename."""

import contextlib
import os
import pathlib


def write(path: pathlib.Path, text: str, *, mode: int = 0o600, durable: bool = True) -> None:
    """Put `text` under `path`; readers see the old content or the new, never a part.

    A file that is made anew after each boot need not be `durable`.

    The directory must exist. Nothing is left over when it fails; what a killed process left over
    is replaced by the next write, or goes with `remove`. Writers of one path must not overlap.
    """
    aside = _aside(path)
    try:
        with aside.open("w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        aside.rename(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            aside.unlink()
        raise
    if durable:
        sync_directory(path.parent)


def remove(path: pathlib.Path) -> None:
    """Remove the file, and see to it that it stays removed; absent is fine."""
    _aside(path).unlink(missing_ok=True)
    try:
        path.unlink()
    except FileNotFoundError:
        return
    sync_directory(path.parent)


def read(path: pathlib.Path) -> str | None:
    """The content, or None where there is no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def target_of_leftover(path: pathlib.Path) -> str | None:
    """The name of the file that a killed process was writing here; None for any other file."""
    if path.name.startswith(".") and path.name.endswith(".new"):
        return path.name[1 : -len(".new")]
    return None


def _aside(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f".{path.name}.new")


def sync_directory(path: pathlib.Path) -> None:
    """Make renames and removals in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
