"""Programs of the NVIDIA driver under its root, and what they need to run outside of it."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from dra_driver import errors
from dra_driver.adapters import driver_root
from dra_driver.model import driver

_C_LIBRARY = "libc.so.6"


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """A program as this process sees it, and the variables that it needs to find its libraries."""

    path: pathlib.Path
    environment: Mapping[str, str]


def find(
    root: driver_root.Root, name: str, library_dirs: Sequence[str] = (), *, library: str
) -> Program:
    """The program of the driver that is installed under a root. Links end inside the root.

    Args:
        root: where the driver is installed.
        name: of the program, as in `nvidia-smi`.
        library_dirs: looked through before `driver.LIBRARY_DIRS`.
        library: the driver's library that the program loads, as in `libnvidia-ml.so.1`. Without
            it the program is left to say so.

    Raises:
        errors.Retryable: the root has no such program (yet).
    """
    path = _first(root, driver.BINARY_DIRS, name)
    if path is None:
        raise errors.Retryable(
            f"driver root {root.host!r}: no {name} in {', '.join(driver.BINARY_DIRS)}, looked for "
            f"below {str(root.seen)!r}; wait for the driver to be installed, install the package "
            "that has it, or correct the driver root"
        )
    if root.seen == pathlib.Path("/"):
        return Program(path, {})
    directories = (*library_dirs, *driver.LIBRARY_DIRS)
    searched = _of_the_driver_alone(root, directories, library)
    if searched:
        return Program(path, {"LD_LIBRARY_PATH": ":".join(map(str, searched))})
    preloaded = _first(root, directories, library)
    return Program(path, {"LD_PRELOAD": str(preloaded)} if preloaded else {})


def _first(root: driver_root.Root, directories: Sequence[str], name: str) -> pathlib.Path | None:
    paths = (root.at(root.resolve(f"{directory}/{name}")) for directory in directories)
    return next((path for path in paths if path.is_file()), None)


def _of_the_driver_alone(
    root: driver_root.Root, directories: Sequence[str], library: str
) -> list[pathlib.Path]:
    """The directories that have the library, but no C library.

    The root of a driver container is that of a whole distribution. Its C library, with the loader
    of our container, ends a program before it begins.
    """
    found: dict[pathlib.Path, None] = {}
    for directory in directories:
        path = root.at(root.resolve(directory))
        if (path / _C_LIBRARY).exists() or (path / _C_LIBRARY).is_symlink():
            continue
        if root.at(root.resolve(f"{directory}/{library}")).is_file():
            found[path] = None
    return list(found)
