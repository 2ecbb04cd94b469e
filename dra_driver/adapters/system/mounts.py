"""Mounts, through libc: a tmpfs of bounded size, and a namespace of mounts for this process."""

import ctypes
import os
import pathlib
import re

from dra_driver import errors
from dra_driver.adapters.disk import files

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 0x2, 0x4, 0x8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 0x20, 0x1000, 0x4000, 0x80000
_MNT_DETACH, _UMOUNT_NOFOLLOW = 0x2, 0x8
_CLONE_NEWNS = 0x20000
_TMPFS_FLAGS = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
_BYTES_PER_INODE, _FEWEST_INODES = 16 * 1024, 1024
_MOUNTS = pathlib.Path("/proc/self/mountinfo")
_ESCAPE = re.compile(r"\\([0-7]{3})")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (
    *(ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p),
    *(ctypes.c_ulong, ctypes.c_char_p),
)


def mount_tmpfs(path: pathlib.Path, size: int) -> None:
    """Have a tmpfs of `size` bytes at an existing directory, which anybody may write to.

    It has room for `inodes(size)` files, since empty ones take memory too. One that is there
    already stays, with what is in it, and gets that size, and room for as many unless it has more.

    Raises:
        errors.Rejected: this process may not mount.
    """
    bounded, unbounded = f"mode=1777,size={size},nr_inodes={inodes(size)}", f"size={size}"
    if not is_mounted(path):
        _mount("shm", path, "tmpfs", _TMPFS_FLAGS, bounded)
        return
    try:
        _mount("shm", path, "tmpfs", _TMPFS_FLAGS | _MS_REMOUNT, bounded)
    except errors.Rejected:
        # One that has more files refuses to have fewer.
        _mount("shm", path, "tmpfs", _TMPFS_FLAGS | _MS_REMOUNT, unbounded)


def inodes(size: int) -> int:
    """How many files a tmpfs of that many bytes may have: the kernel has about 1 KiB for each."""
    return max(_FEWEST_INODES, size // _BYTES_PER_INODE)


def unmount(path: pathlib.Path) -> None:
    """Have nothing mounted at a path; nothing there is fine. Open files stay usable.

    Raises:
        errors.Rejected: this process may not unmount.
    """
    while is_mounted(path):
        if _libc.umount2(os.fsencode(path), _MNT_DETACH | _UMOUNT_NOFOLLOW) != 0:
            failure = _failure("unmount", path)
            # Somebody else may have taken it away since it was seen.
            if is_mounted(path):
                raise failure


def is_mounted(path: pathlib.Path) -> bool:
    """Whether something is mounted at this very path."""
    with files.explaining("looked up", path):
        resolved = str(path.resolve())
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return any(_unescaped(line.split(" ")[4]) == resolved for line in lines)


def leave_namespace() -> None:
    """Give this process mounts of its own: what it mounts from now on, no other process sees.

    What the others mount and unmount it still sees. The process must have one thread.

    Raises:
        errors.Rejected: this process may not do so.
    """
    if _libc.unshare(_CLONE_NEWNS) != 0:
        raise _failure("have mounts of its own instead of those", pathlib.Path("/"))
    _mount(None, pathlib.Path("/"), None, _MS_REC | _MS_SLAVE, None)


def bind(source: pathlib.Path, target: pathlib.Path) -> None:
    """Have `source` at `target` too, in this process's namespace of mounts.

    Raises:
        errors.Rejected: this process may not mount.
    """
    _mount(str(source), target, None, _MS_BIND, None)


def _mount(
    source: str | None, target: pathlib.Path, kind: str | None, flags: int, data: str | None
) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, kind, data)]
    if _libc.mount(texts[0], os.fsencode(target), texts[1], flags, texts[2]) != 0:
        raise _failure("mount", target)


def _failure(verb: str, path: pathlib.Path) -> errors.Rejected:
    reason = os.strerror(ctypes.get_errno())
    return errors.Rejected(
        f"cannot {verb} {path}: {reason}; the process needs to be root, with CAP_SYS_ADMIN"
    )


def _unescaped(text: str) -> str:
    """A path of mountinfo: space, tab, newline and backslash are written in octal (proc(5))."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)
