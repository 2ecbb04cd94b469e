"""A disk that refuses: what the operating system would answer is raised in its place.

What is patched are the functions of `os` and `io` that the driver, `pathlib` and `shutil` call.
"""

import contextlib
import io
import os
import pathlib
from unittest import mock

WRITES = ("write", "pwrite", "fsync", "rename", "replace", "link", "mkdir", "symlink")
"""What needs space."""
REMOVALS = ("unlink", "remove", "rmdir")
CHANGES = (*WRITES, *REMOVALS, "fchmod", "chmod", "utime")
"""What a read-only file system refuses."""
READS = ("stat", "lstat", "listdir", "scandir", "statvfs")
DESCRIPTORS = ("listdir", "scandir", "pidfd_open")
"""What takes a file descriptor, besides opening a file."""


class Disk:
    """What fails from one step on, in some directories. Steps are numbered from 1."""

    def __init__(self, code, functions, folders, *, opens):
        """`opens`: which files cannot be opened: `new` ones, those to be `changed`, or `all`."""
        self._code, self._functions, self._opens = code, functions, opens
        self._folders = tuple(str(folder) for folder in folders)
        self.steps = []
        self._first = None

    @contextlib.contextmanager
    def failing(self, first=1):
        """Inside the block, everything from this step on is refused."""
        self.steps, self._first = [], first
        with contextlib.ExitStack() as stack:
            for name in self._functions:
                stack.enter_context(self._patched(os, name))
            if self._opens:
                stack.enter_context(self._opening(os, "open"))
                stack.enter_context(self._opening(io, "open"))
            yield self

    @property
    def has_failed(self):
        return len(self.steps) >= self._first

    def _patched(self, module, name):
        original = getattr(module, name)

        def call(*arguments, **options):
            target = _path(arguments[0] if arguments else None)
            if self._is_meant(target):
                self._step(f"{name} {pathlib.PurePath(target).name}", target)
            return original(*arguments, **options)

        return mock.patch.object(module, name, call)

    def _opening(self, module, name):
        original = getattr(module, name)

        def call(path, flags="r", *arguments, **options):
            target = _path(path)
            if self._is_meant(target) and self._counts(target, flags):
                self._step(f"open {pathlib.PurePath(target).name}", target)
            return original(path, flags, *arguments, **options)

        return mock.patch.object(module, name, call)

    def _counts(self, target, flags):
        if self._opens == "all":
            return True
        if isinstance(flags, str):
            changes = any(letter in flags for letter in "wax+")
        else:
            changes = bool(flags & (os.O_WRONLY | os.O_RDWR))
        return changes and (self._opens == "changed" or not pathlib.Path(target).exists())

    def _is_meant(self, target):
        return target is not None and target.startswith(self._folders)

    def _step(self, what, target):
        self.steps.append(what)
        if len(self.steps) >= self._first:
            raise OSError(self._code, os.strerror(self._code), target)


def _path(target):
    if isinstance(target, int):
        # Nothing is looked up through what is patched.
        with contextlib.suppress(OSError):
            return _READLINK(f"/proc/self/fd/{target}")
        return None
    if isinstance(target, (str, os.PathLike)):
        return os.fspath(target)
    return None


_READLINK = os.readlink
