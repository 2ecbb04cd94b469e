"""Programs of the NVIDIA driver under its root, and what they need to run outside of it."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from dra_driver import errors
from dra_driver.adapters.driver import driver_root

_C_LIBRARY = "libc.so.6"


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """A program as this process sees it, and the variables that it needs to find its libraries."""

    path: pathlib.Path
    environment: Mapping[str, str]


def find(layout: driver_root.Layout, name: str, *, library: str) -> Program:
    """The program of the driver that is installed under a root. Links end inside the root.

    Args:
        layout: where the driver is installed.
        name: of the program, as in `nvidia-smi`.
        library: the driver's library that the program loads, as in `libnvidia-ml.so.1`. Without
            it the program is left to say so.

    Raises:
        errors.Retryable: the root has no such program (yet).
    """
    root, place = layout.root, layout.program(name)
    if place is None:
        raise errors.Retryable(
            f"driver root {root.host!r}: no {name} in {', '.join(layout.binary_dirs)}, looked for "
            f"below {str(root.seen)!r}; wait for the driver to be installed, install the package "
            "that has it, or correct the driver root (--driver-root). A bin beside a directory of "
            "--library-dirs is looked through, too"
        )
    # What else is under the root of this process, the loader finds by itself.
    directories = layout.given if root.seen == pathlib.Path("/") else layout.library_dirs
    searched = _of_the_driver_alone(layout, directories, library)
    if searched:
        return Program(place.seen, {"LD_LIBRARY_PATH": ":".join(map(str, searched))})
    preloaded = next(layout.libraries(library, directories), None)
    return Program(place.seen, {"LD_PRELOAD": str(preloaded.seen)} if preloaded else {})


def _of_the_driver_alone(
    layout: driver_root.Layout, directories: Sequence[str], library: str
) -> list[pathlib.Path]:
    """The directories that have the library, but no C library.

    The root of a driver container is that of a whole distribution. Its C library, with the loader
    of our container, ends a program before it begins.
    """
    return [
        directory.seen
        for directory in layout.directories([library], directories)
        if not _is_there(directory.seen / _C_LIBRARY)
        # The loader follows links as the kernel does: an absolute one would leave the root.
        and (directory.seen / library).is_file()
        and (directory.seen / library).samefile(
            layout.root.at(layout.root.resolve(f"{directory.resolved}/{library}"))
        )
    ]


def _is_there(path: pathlib.Path) -> bool:
    return path.exists() or path.is_symlink()
