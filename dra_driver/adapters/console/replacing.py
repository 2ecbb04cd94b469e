"""Files of people that get a new content: all of it, or none."""

import contextlib
import errno
import os
import pathlib
import stat
from collections.abc import Iterator, Mapping

from dra_driver import errors


def replace(contents: Mapping[pathlib.Path, bytes]) -> None:
    """Put new content into files that are there; their mode and owner stay. A link stays a link.

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
            f"{path} cannot be written: {error.strerror or error}. It and its folder have to be "
            f"writable, with room for another copy, by its owner or root.{shown}"
        ) from error


def _aside(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f".{path.name[:200]}.dra-driver")


def _put_aside(path: pathlib.Path, content: bytes) -> None:
    before = path.stat()
    if not os.access(path, os.W_OK, effective_ids=True):
        # It could be replaced all the same; somebody has said that it is not to be changed.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    aside = _aside(path)
    # What a killed process has left over; never through a link that somebody has put there.
    with contextlib.suppress(FileNotFoundError):
        aside.unlink()
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - it is open
        file.write(content)
        file.flush()
        own = os.fstat(file.fileno())
        if (own.st_uid, own.st_gid) != (before.st_uid, before.st_gid):
            os.fchown(file.fileno(), before.st_uid, before.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
        os.fsync(file.fileno())


def _sync(folder: pathlib.Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
