"""Which processes have files or device nodes open, as procfs tells."""

import os
import pathlib
import stat
from collections.abc import Iterable, Iterator

Identity = tuple[str, int, int]


def pids(proc_root: pathlib.Path, paths: Iterable[pathlib.Path]) -> list[int]:
    """The processes that have one of these open, under whatever name; a path may be absent.

    Processes that end meanwhile, and those of which this one may not know, are left out. The
    numbers are those of the pid namespace that the procfs belongs to.
    """
    listed = list(paths)
    names = frozenset(map(str, listed))
    wanted = {found for path in listed if (found := _identity(path)) is not None}
    return [pid for pid in _listed(proc_root) if wanted & _open(proc_root / str(pid) / "fd", names)]


def own(proc_root: pathlib.Path) -> int | None:
    """The number of this process in that procfs; None where it is not in it."""
    try:
        return int((proc_root / "self").readlink().name)
    except (OSError, ValueError):
        return None


def _listed(proc_root: pathlib.Path) -> list[int]:
    return sorted(int(path.name) for path in proc_root.iterdir() if path.name.isdecimal())


def _open(folder: pathlib.Path, names: frozenset[str]) -> set[Identity]:
    found = (_identity(path) for path in _entries(folder, names))
    return {one for one in found if one is not None}


def _entries(folder: pathlib.Path, names: frozenset[str]) -> Iterator[pathlib.Path]:
    """The descriptors that may be meant: to look at others may hang, on a network's disk say."""
    try:
        for path in folder.iterdir():
            target = str(path.readlink())
            if "/dev/" in target or target in names:
                yield path
    except OSError:
        return


def _identity(path: pathlib.Path) -> Identity | None:
    """What stays the same by whatever name it is opened; of a device node that is its numbers."""
    try:
        facts = path.stat()
    except OSError:
        return None
    if stat.S_ISCHR(facts.st_mode):
        return ("device", os.major(facts.st_rdev), os.minor(facts.st_rdev))
    return ("file", facts.st_dev, facts.st_ino)
