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
from dra_driver.adapters import elf
from dra_driver.adapters import files as disk
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


class DriverRoot:
    """The driver installed under a root. Reads the disk at every call; remembers nothing.

    Args:
        root: where the driver is installed.
        dev_root: where `dev/` is. None: the driver root if it has `dev/nvidiactl` (a driver
            container), else the root of this process, whose `/dev` then is the host's.
        library_dirs: looked through before `driver.LIBRARY_DIRS`.
        cdi_hook: the host path of `nvidia-cdi-hook`; None looks for it under the driver root.
    """

    def __init__(
        self,
        root: Root,
        *,
        dev_root: Root | None = None,
        library_dirs: Sequence[str] = (),
        cdi_hook: str | None = None,
    ) -> None:
        self._root = root
        self._dev_root = dev_root
        self._library_dirs = (*library_dirs, *driver.LIBRARY_DIRS)
        self._cdi_hook = cdi_hook

    @disk.explaining("looked through", "driver root")
    def files(self, version: str) -> driver.DriverFiles:
        """The files of this driver version. Looks through whole directories: keep the answer.

        Raises:
            errors.Rejected: `version` is no version.
            errors.Retryable: `libcuda` of this version is not there (yet).
        """
        if not _VERSION.fullmatch(version):
            raise errors.Rejected(f"driver version {version!r}: expected numbers, as in 580.65.06")
        libraries = self._libraries(version)
        if not any(library.file_name == f"libcuda.so.{version}" for library in libraries):
            raise errors.Retryable(
                f"driver root {self._root.host!r}: no libcuda.so.{version} in "
                f"{', '.join(self._library_dirs)}; install the libraries of the loaded driver, "
                "or correct the driver root or the library directories"
            )
        return driver.DriverFiles(
            version=version,
            libraries=libraries,
            binaries=tuple(self._found(_BINARIES, driver.BINARY_DIRS)),
            sockets=tuple(self._sockets()),
            firmware=tuple(self._firmware(version)),
            cdi_hook=self._cdi_hook or self._find_cdi_hook(),
        )

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

    def _libraries(self, version: str) -> tuple[driver.Library, ...]:
        found: dict[str, driver.Library] = {}
        for directory in self._directories_of_libraries():
            for library in _libraries_in(self._root, directory, f".so.{version}"):
                found.setdefault(library.file_name, library)
        return tuple(sorted(found.values(), key=lambda library: library.path))

    def _directories_of_libraries(self) -> list[str]:
        """Existing directories, each once however many links lead to it, with `vdpau` below."""
        behind_links = [
            self._root.resolve(f"{directory}/{name}").rpartition("/")[0]
            for directory in self._library_dirs
            for name in _ENTRY_LIBRARIES
            if self._root.at(f"{directory}/{name}").is_symlink()
        ]
        directories: dict[str, str] = {}
        for directory in (*self._library_dirs, *behind_links):
            for candidate in (directory, f"{directory}/vdpau"):
                resolved = self._root.resolve(candidate)
                if self._root.at(resolved).is_dir():
                    directories.setdefault(resolved, candidate)
        return list(directories.values())

    def _found(self, names: Iterable[str], directories: Sequence[str]) -> Iterator[driver.HostFile]:
        files = (
            self._first_of(f"{directory}/{name}" for directory in directories) for name in names
        )
        yield from sorted((file for file in files if file), key=lambda file: file.path)

    def _first_of(self, paths: Iterable[str]) -> driver.HostFile | None:
        for path in paths:
            resolved = self._root.resolve(path)
            if self._root.at(resolved).is_file():
                return driver.HostFile(path, self._root.host_path(resolved))
        return None

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
