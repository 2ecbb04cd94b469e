"""Files that are whole or absent: write aside, fsync, rename. What the disk refuses is an answer.

Every function raises `Unusable` or `Exhausted`, and never OSError: the text names the path and what
to do about it.
"""

import contextlib
import errno
import os
import pathlib
import stat
from collections.abc import Iterator, Mapping

from dra_driver import errors


class Unusable(errors.Rejected):
    """The disk, or the operating system, refuses, and does so until somebody does something."""

    code: int | None = None
    """Why, as `errno` has it."""


class Exhausted(errors.Retryable):
    """Something has run out, or is busy, and may be there again in a moment."""

    code: int | None = None


TROUBLE = (Unusable, Exhausted)

_SPACE = "free space on its file system (df {folder}; for inodes df -i {folder})"
_MEDIUM = "the disk has lost it: look at dmesg, check the file system, and replace the disk"
_FILES = "close what holds files open (ls /proc/*/fd | wc -l), or restart the driver's pod"
_RIGHTS = "run the driver as root, with {folder} mounted writable; SELinux may refuse as well"
_PLACE = "restart the driver's pod: it makes its directories, and mounts them, when it starts"
_PASSING: Mapping[int, str] = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: f"raise the quota, or {_SPACE}",
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.ENOMEM: "free memory on the node, or raise the memory limit of the driver's pod",
    errno.EAGAIN: "it is tried again",
    errno.EBUSY: "it is tried again",
    errno.EINTR: "it is tried again",
}
"""What runs out, and how there is more of it."""
_LASTING: Mapping[int, str] = {
    errno.EIO: _MEDIUM,
    errno.EUCLEAN: _MEDIUM,
    errno.EBADMSG: _MEDIUM,
    errno.EROFS: "its file system is read-only: dmesg may tell why; mount it writable",
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.ENOENT: _PLACE,
    errno.ENOTDIR: _PLACE,
    errno.ESTALE: _PLACE,
}
_ABSENT = (FileNotFoundError, NotADirectoryError)
_CHUNK = 64 * 1024
_ELSE = "look at dmesg on the node, and at {folder}"


def explained(error: OSError, doing: str, path: pathlib.Path | str) -> Unusable | Exhausted:
    """The error for what could not be done, as in `explained(error, "written", path)`.

    In place of a path, what many are below of: the error tells which of them it is.
    """
    if error.filename is not None and not pathlib.PurePath(path).is_absolute():
        path = error.filename
    remedy = _PASSING.get(error.errno or 0) or _LASTING.get(error.errno or 0) or _ELSE
    kind = Exhausted if error.errno in _PASSING else Unusable
    told = kind(
        f"{path} cannot be {doing}: {error.strerror or error}. "
        f"Remedy: {remedy.format(folder=pathlib.PurePath(path).parent)}"
    )
    told.code = error.errno
    return told


@contextlib.contextmanager
def explaining(doing: str, path: pathlib.Path | str) -> Iterator[None]:
    """An OSError of the block becomes one of ours; those of the path that is missing as well."""
    try:
        yield
    except OSError as error:
        raise explained(error, doing, path) from error


def write(
    path: pathlib.Path,
    text: str,
    *,
    mode: int = 0o600,
    durable: bool = True,
    folder_mode: int | None = None,
) -> None:
    """Put `text` under `path`; readers see the old content or the new, never a part.

    A file that is made anew after each boot need not be `durable`.

    The directory must exist; with `folder_mode` one that vanished is made again. Nothing is left
    over when it fails; what a killed process left over is replaced by the next write, or goes with
    `remove`. Writers of one path must not overlap.
    """
    _put(path, text.encode(), mode, durable=durable, folder_mode=folder_mode)


def copy(source: pathlib.Path, path: pathlib.Path, *, mode: int) -> None:
    """Put what is in `source` under `path`, as `write` puts a text there; programs may run it."""
    with explaining("read", source):
        content = source.read_bytes()
    _put(path, content, mode, durable=True, folder_mode=None)


def _put(
    path: pathlib.Path, content: bytes, mode: int, *, durable: bool, folder_mode: int | None
) -> None:
    aside = _aside(path)
    with explaining("written", path):
        try:
            try:
                _fill(aside, content, mode, durable=durable)
            except FileNotFoundError:
                if folder_mode is None:
                    raise
                path.parent.mkdir(folder_mode, exist_ok=True)
                _fill(aside, content, mode, durable=durable)
            os.rename(aside, path)  # noqa: PTH104 - a path is parsed in the time of a system call
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(aside)  # noqa: PTH108
            raise
        if durable:
            _sync_directory(path)


def rewrite(path: pathlib.Path, text: str) -> bool:
    """Put `text` into a file that is there and stays the same file: it is mounted into containers.

    Whether there was one. Who reads it meanwhile may see a part of the new content before the rest
    of the old; it is written by one call of the system, and cut to its length after that. It is not
    durable.
    """
    content = text.encode()
    with explaining("written", path):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except _ABSENT:
            return False
        try:
            written = 0
            while written < len(content):
                written += os.pwrite(descriptor, content[written:], written)
            os.ftruncate(descriptor, len(content))
        finally:
            os.close(descriptor)
    return True


def mark(path: pathlib.Path) -> None:
    """Have an empty file there, that says all by its name; its directory must exist."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with explaining("written", path):
        os.close(os.open(path, flags, 0o600))
        _sync_directory(path)


def remove(path: pathlib.Path) -> None:
    """Remove the file, and what a killed process left of a write to it; absent is fine.

    It takes no space, so it works on a full disk; and nothing waits until the disk has heard of it.
    A file that comes back with the disk, after the machine went down, is one of an earlier boot: of
    what is kept there, each thing says of which.
    """
    clear(path)
    _remove(path)


def clear(path: pathlib.Path) -> None:
    """Remove what a killed process left of a write to the file, which stays as it is."""
    _remove(_aside(path))


def read(path: pathlib.Path | str) -> str | None:
    """The content, or None where there is no such file.

    Raises:
        UnicodeDecodeError: it is no text.
    """
    try:
        # Without the layers of `open`, which take three times as long for a small file.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = b"".join(iter(lambda: os.read(descriptor, _CHUNK), b""))
        finally:
            os.close(descriptor)
    except _ABSENT:
        return None
    except OSError as error:
        raise explained(error, "read", path) from error
    return content.decode()


def make_directory(path: pathlib.Path, mode: int) -> None:
    """Have the directory, whose parent must exist; one that is there stays as it is."""
    with explaining("made", path):
        path.mkdir(mode=mode, exist_ok=True)


def have_directory(path: pathlib.Path, mode: int) -> None:
    """Have the directory with this mode, whatever the process masks; its parent must exist."""
    with explaining("made", path):
        path.mkdir(mode=mode, exist_ok=True)
        if stat.S_IMODE(path.stat().st_mode) != mode:
            path.chmod(mode)


def remove_directory(path: pathlib.Path) -> None:
    """Remove an empty directory; absent is fine."""
    with explaining("removed", path), contextlib.suppress(*_ABSENT):
        path.rmdir()


def names(directory: pathlib.Path) -> list[str]:
    """The names of what is in a directory, in order; none where there is no such directory."""
    with explaining("listed", directory):
        try:
            return sorted(os.listdir(directory))  # noqa: PTH208 - names are what is wanted
        except FileNotFoundError:
            return []


def target_of_leftover(name: str) -> str | None:
    """The name of the file that a killed process was writing here; None for any other file."""
    if name.startswith(".") and name.endswith(".new"):
        return name[1 : -len(".new")]
    return None


def keep_copy(path: pathlib.Path, suffix: str) -> pathlib.Path:
    """Give a file a second name, `<name>.<suffix>-N`, under which it stays when it is replaced.

    One that has such a name already keeps to it. It must exist.
    """
    number = 0
    with explaining("set aside", path):
        while (aside := path.with_name(f"{path.name}.{suffix}-{number}")).exists():
            # A process that was killed here has kept it already.
            if aside.samefile(path):
                return aside
            number += 1
        aside.hardlink_to(path)
    return aside


def _remove(path: pathlib.Path | str) -> None:
    with explaining("removed", path), contextlib.suppress(*_ABSENT):
        os.unlink(path)  # noqa: PTH108 - as in `write`


def _fill(path: str, content: bytes, mode: int, *, durable: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, mode)
    try:
        os.fchmod(descriptor, mode)
        while content:
            content = content[os.write(descriptor, content) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _aside(path: pathlib.Path) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.new")  # noqa: PTH118 - as in `write`


def _sync_directory(path: pathlib.Path) -> None:
    """Make what was done with the name of a file in its directory durable."""
    folder = os.path.dirname(path) or os.curdir  # noqa: PTH120 - as in `write`
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
