"""Finds the user-space NVIDIA driver and the device nodes of GPUs, under injected roots.

A root is known by two names: the path that the host has for it, which goes into CDI specs, and
the path under which this process sees it (a mount, when the plugin runs in a container).
"""

import dataclasses
import os
import pathlib
import re
import stat
from collections.abc import Iterable, Iterator, Sequence

from dra_driver import errors
from dra_driver.adapters.disk import files as disk
from dra_driver.adapters.driver import elf
from dra_driver.model import driver

_VERSION = re.compile(r"\d+(\.\d+)+")
_MAX_LINKS = 40
_BINARIES = (
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-smi",
)
_SOCKETS = ("/run/nvidia-fabricmanager/socket", "/run/nvidia-persistenced/socket")
_FIRMWARE_DIRS = ("/lib/firmware/nvidia", "/usr/lib/firmware/nvidia")
_ENTRY_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
"""Links to follow: distributions with alternatives keep the files elsewhere (Debian does)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Root:
    """A directory: `host` is its path on the host, `seen` its path in this process."""

    host: str
    seen: pathlib.Path

    def host_path(self, path: str) -> str:
        """The path on the host of an absolute path under this root."""
        return self.host.rstrip("/") + path

    def at(self, path: str) -> pathlib.Path:
        """Where this process sees an absolute path under this root."""
        return self.seen / path.lstrip("/")

    def seen_path(self, host_path: str) -> pathlib.Path | None:
        """Where this process sees a file of the host; None if it does not, as far as is known."""
        if str(self.seen) == self.host:
            return pathlib.Path(host_path)
        below = self.host.rstrip("/") + "/"
        if not host_path.startswith(below):
            return None
        return self.at(self.resolve(host_path.removeprefix(below)))

    def resolve(self, path: str) -> str:
        """The path without symbolic links, which are followed as if this root were `/`.

        The host's own resolution would start absolute links at the wrong root, so bind mounts are
        given resolved paths. A loop ends in a path that does not exist.
        """
        pending, done, links = path.split("/"), list[str](), 0
        while pending:
            part = pending.pop(0)
            if part in {"", "."}:
                continue
            if part == "..":
                done = done[:-1]
                continue
            here = self.seen.joinpath(*done, part)
            if links == _MAX_LINKS or not here.is_symlink():
                done.append(part)
                continue
            links += 1
            target = str(here.readlink())
            done = [] if target.startswith("/") else done
            pending = target.split("/") + pending
        return "/" + "/".join(done)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A file under a root: as it is named there, and without links."""

    root: Root
    path: str
    resolved: str

    @property
    def seen(self) -> pathlib.Path:
        """Where this process opens it: no link on the way leads out of the root."""
        return self.root.at(self.resolved)

    @property
    def host_file(self) -> driver.HostFile:
        """What the container runtime opens on the host for it."""
        return driver.HostFile(self.path, self.root.host_path(self.resolved))


class Layout:
    """Where under a root the libraries and programs of the driver are. All who use one ask here.

    Reads the disk at every call; remembers nothing.
    """

    def __init__(self, root: Root, given: Iterable[str] = ()) -> None:
        """`given`: directories of libraries that come before `driver.LIBRARY_DIRS`.

        A `bin` beside one of them comes before `driver.BINARY_DIRS`.
        """
        self.root = root
        self.given = tuple(f"/{directory.strip('/')}" for directory in given)
        self.library_dirs = (*self.given, *driver.LIBRARY_DIRS)
        beside = (f"{directory.rpartition('/')[0]}/bin" for directory in self.given)
        self.binary_dirs = tuple(dict.fromkeys((*beside, *driver.BINARY_DIRS)))

    def library(self, name: str) -> Place | None:
        """The first library of this name, as in `libcuda.so.1`; None where there is none."""
        return next(self.libraries(name), None)

    def libraries(self, name: str, among: Sequence[str] | None = None) -> Iterator[Place]:
        """Every library of this name, in the order of `among`, which is that of all directories."""
        directories = self.library_dirs if among is None else among
        return self._files(name, directories)

    def program(self, name: str) -> Place | None:
        """The first program of this name; None where there is none."""
        return self.first(name, self.binary_dirs)

    def first(self, name: str, directories: Sequence[str]) -> Place | None:
        """The first file of this name in these directories; None where there is none."""
        return next(self._files(name, directories), None)

    def directories(self, names: Sequence[str], among: Sequence[str] | None = None) -> list[Place]:
        """Existing directories of libraries, and those where links of these names in them end.

        Each is there once, however many links lead to it.
        """
        listed = self.library_dirs if among is None else among
        behind = [
            self.root.resolve(f"{directory}/{name}").rpartition("/")[0]
            for directory in listed
            for name in names
            if self.root.at(self.root.resolve(directory)).joinpath(name).is_symlink()
        ]
        found: dict[str, Place] = {}
        for directory in (*listed, *behind):
            resolved = self.root.resolve(directory)
            if self.root.at(resolved).is_dir():
                found.setdefault(resolved, Place(self.root, directory, resolved))
        return list(found.values())

    def why_no_library(self, name: str) -> str:
        """What is there in place of a library, and what to do about it."""
        directories = ", ".join(self.library_dirs)
        below = "" if str(self.root.seen) == self.root.host else f" below {self.root.seen}"
        return (
            f"driver root {self.root.host!r}: no {name} in {directories}{below}; "
            f"{self.remedy(name)}"
        )

    def remedy(self, name: str) -> str:
        """What makes the library be found that is not."""
        stem = name.rpartition(".")[0]
        for directory in self.directories(()):
            versions = sorted(directory.seen.glob(f"{stem}.*.*"))
            if versions:
                on_host = self.root.host_path(directory.resolved)
                return (
                    f"{on_host} has {versions[-1].name}, and no link {name} that leads to it: "
                    f"ldconfig on the node, or ln -s {versions[-1].name} {on_host}/{name}"
                )
        return (
            "install the NVIDIA driver, or wait until that is done; or set --driver-root to where "
            "it is on the host, and --driver-root-seen to where that is mounted in the container; "
            "or name the directory below it that has the library with --library-dirs"
        )

    def _files(self, name: str, directories: Sequence[str]) -> Iterator[Place]:
        for directory in directories:
            path = f"{directory}/{name}"
            resolved = self.root.resolve(path)
            if self.root.at(resolved).is_file():
                yield Place(self.root, path, resolved)


class DriverRoot:
    """The driver installed under a root. Reads the disk at every call; remembers nothing.

    Args:
        layout: where the driver is installed.
        dev_root: where `dev/` is. None: the driver root if it has `dev/nvidiactl` (a driver
            container), else the root of this process, whose `/dev` then is the host's.
        cdi_hook: the host path of `nvidia-cdi-hook`; None looks for it under the driver root.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        dev_root: Root | None = None,
        cdi_hook: str | None = None,
    ) -> None:
        self._root = layout.root
        self._dev_root = dev_root
        self._layout = layout
        self._cdi_hook = cdi_hook

    @disk.explaining("looked through", "driver root")
    def files(self, version: str) -> driver.DriverFiles:
        """The files of this driver version. Looks through whole directories: keep the answer.

        Raises:
            errors.Rejected: `version` is no version.
            errors.Retryable: `libcuda` of this version is not there (yet).
        """
        self.check(version)
        libraries = self._libraries(version)
        if not any(library.file_name == f"libcuda.so.{version}" for library in libraries):
            # What there is of it is for programs of 32 bits.
            raise errors.Retryable(self._why_not(version))
        return driver.DriverFiles(
            version=version,
            libraries=libraries,
            binaries=tuple(self._found(_BINARIES, self._layout.binary_dirs)),
            sockets=tuple(self._sockets()),
            firmware=tuple(self._firmware(version)),
            cdi_hook=self._cdi_hook or self._find_cdi_hook(),
        )

    def check(self, version: str) -> None:
        """Whether the driver of this version is there: `libcuda`, without which nothing works.

        Raises:
            errors.Rejected: `version` is no version.
            errors.Retryable: it is not there (yet).
        """
        if not _VERSION.fullmatch(version):
            raise errors.Rejected(f"driver version {version!r}: expected numbers, as in 580.65.06")
        directories = [place.path for place in self._layout.directories(_ENTRY_LIBRARIES)]
        if self._layout.first(f"libcuda.so.{version}", directories) is None:
            raise errors.Retryable(self._why_not(version))

    @disk.explaining("looked through", "device root")
    def device_nodes(self, minors: Iterable[int]) -> tuple[driver.DeviceNode, ...]:
        """The device nodes that a container needs for the GPUs with these minor numbers, by path.

        Raises:
            errors.Retryable: some are missing; the message says how to make them.
        """
        required = {f"/dev/nvidia{minor}": f"nvidia-modprobe -c {minor}" for minor in minors} | {
            "/dev/nvidiactl": "nvidia-modprobe -c 0",
            "/dev/nvidia-uvm": "nvidia-modprobe -u -c 0",
            "/dev/nvidia-uvm-tools": "nvidia-modprobe -u -c 0",
        }
        root = self.root_of_devices()
        nodes = {path: device_node(root, path) for path in (*required, "/dev/nvidia-modeset")}
        missing = [
            f"{root.host_path(path)} (make it with: {command})"
            for path, command in sorted(required.items())
            if nodes[path] is None
        ]
        if missing:
            raise errors.Retryable(
                f"no such character device: {', '.join(missing)}; "
                "the commands need root on the node, where the nvidia kernel modules are loaded"
            )
        return tuple(node for _, node in sorted(nodes.items()) if node is not None)

    def root_of_devices(self) -> Root:
        """The root under which `/dev` is; see `dev_root` above."""
        if self._dev_root is not None:
            return self._dev_root
        if self._root.at("/dev/nvidiactl").exists():
            return self._root
        return Root("/", pathlib.Path("/"))

    def _why_not(self, version: str) -> str:
        """Why there is no driver of this version, and what to do about it."""
        layout, others = self._layout, [each for each in self._versions() if each != version]
        what = f"driver root {self._root.host!r}: no libcuda.so.{version} in"
        where = ", ".join(layout.library_dirs)
        if others:
            return (
                f"{what} {where}; there is that of {', '.join(others)}: kernel module and "
                "libraries are of different versions. Load the module of the libraries (or reboot "
                f"the node), or install the libraries of {version}"
            )
        return (
            f"{what} {where}; install the libraries of the loaded driver, correct the driver root "
            "(--driver-root), or name the directory below it that has them (--library-dirs)"
        )

    def _versions(self) -> list[str]:
        """The versions of which there is a `libcuda`."""
        found: list[str] = []
        for directory in self._layout.directories(_ENTRY_LIBRARIES):
            for file in directory.seen.glob("libcuda.so.*"):
                version = file.name.removeprefix("libcuda.so.")
                if _VERSION.fullmatch(version) and version not in found:
                    found.append(version)
        return found

    def _libraries(self, version: str) -> tuple[driver.Library, ...]:
        found: dict[str, driver.Library] = {}
        for directory in self._directories_of_libraries():
            for library in _libraries_in(self._root, directory, f".so.{version}"):
                found.setdefault(library.file_name, library)
        return tuple(sorted(found.values(), key=lambda library: library.path))

    def _directories_of_libraries(self) -> list[str]:
        """Existing directories, each once however many links lead to it, with `vdpau` below."""
        directories: dict[str, str] = {}
        for directory in self._layout.directories(_ENTRY_LIBRARIES):
            for candidate in (directory.path, f"{directory.path}/vdpau"):
                resolved = self._root.resolve(candidate)
                if self._root.at(resolved).is_dir():
                    directories.setdefault(resolved, candidate)
        return list(directories.values())

    def _found(self, names: Iterable[str], directories: Sequence[str]) -> Iterator[driver.HostFile]:
        places = (self._layout.first(name, directories) for name in names)
        yield from sorted(
            (place.host_file for place in places if place), key=lambda file: file.path
        )

    def _sockets(self) -> Iterator[driver.HostFile]:
        for path in _SOCKETS:
            resolved = self._root.resolve(path)
            if self._root.at(resolved).is_socket():
                yield driver.HostFile(path, self._root.host_path(resolved))

    def _firmware(self, version: str) -> Iterator[driver.HostFile]:
        for directory in _FIRMWARE_DIRS:
            names = sorted(
                file.name for file in self._root.at(f"{directory}/{version}").glob("gsp*.bin")
            )
            if names:
                yield from self._found(names, [f"{directory}/{version}"])
                return

    def _find_cdi_hook(self) -> str | None:
        hooks = [file.host_path for file in self._found(["nvidia-cdi-hook"], driver.CDI_HOOK_DIRS)]
        return hooks[0] if hooks else None


def _libraries_in(root: Root, directory: str, ending: str) -> Iterator[driver.Library]:
    names = sorted(entry.name for entry in root.at(root.resolve(directory)).iterdir())
    for name in names:
        if not name.endswith(ending):
            continue
        path = root.resolve(f"{directory}/{name}")
        facts = elf.read(root.at(path))
        if not root.at(path).is_file() or (facts is not None and facts.bits != 64):
            continue
        stem = name.removesuffix(ending) + ".so"
        links = {
            other
            for other in names
            if other.startswith(stem) and root.resolve(f"{directory}/{other}") == path
        }
        if facts is not None and facts.soname is not None:
            links.add(facts.soname)
        if stem == "libcuda.so":
            # Many programs open it by this name, which only development packages install.
            links.add(stem)
        yield driver.Library(
            path=f"{directory}/{name}",
            host_path=root.host_path(path),
            file_name=name,
            links=tuple(sorted(links - {name})),
        )


def device_node(root: Root, path: str) -> driver.DeviceNode | None:
    """The character device at a path under a root; None where there is none."""
    try:
        facts = root.at(path).stat()
    except OSError:
        return None
    if not stat.S_ISCHR(facts.st_mode):
        return None
    return driver.DeviceNode(
        path=path,
        host_path=root.host_path(path),
        major=os.major(facts.st_rdev),
        minor=os.minor(facts.st_rdev),
        mode=stat.S_IMODE(facts.st_mode),
    )
