"""Files of people that get a new content: all of it, or none."""

import contextlib
import os
import pathlib
import stat
from collections.abc import Iterator, Mapping

from dra_driver import errors


def replace(contents: Mapping[pathlib.Path, bytes]) -> None:
    """Put new content into files that are there; their mode stays. A link stays a link.

    All are written beside first, and take their places when every one of them is on the disk. Who
    reads a file meanwhile, or after this process has been killed, has the old or the new one.

    Raises:
        errors.Rejected: one cannot be written. No file has been changed, unless the text says so.
    """
    targets = {path.resolve(): content for path, content in contents.items()}
    done: list[pathlib.Path] = []
    try:
        for path, content in targets.items():
            with _telling(path, done):
                _put_aside(path, content)
        for path in targets:
            with _telling(path, done):
                _aside(path).rename(path)
            done.append(path)
        for folder in {path.parent for path in targets}:
            with _telling(folder, done):
                _sync(folder)
    finally:
        for path in targets:
            with contextlib.suppress(OSError):
                _aside(path).unlink()


@contextlib.contextmanager
def _telling(path: pathlib.Path, done: list[pathlib.Path]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        shown = f" Changed before: {', '.join(map(str, done))}" if done else " Nothing was changed"
        raise errors.Rejected(
            f"{path} cannot be written: {error.strerror or error}. Make its folder writable, with "
            f"room for another copy.{shown}"
        ) from error


def _aside(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f".{path.name[:200]}.dra-driver")


def _put_aside(path: pathlib.Path, content: bytes) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    aside = _aside(path)
    # What a killed process has left over; never through a link that somebody has put there.
    with contextlib.suppress(FileNotFoundError):
        aside.unlink()
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - it is open
        file.write(content)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())


def _sync(folder: pathlib.Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
