"""The user-space NVIDIA driver of a node: which files and device nodes it consists of.

Paths come in pairs: `host_path` is what the container runtime opens on the host, `path` is where
a container expects the same thing.
"""

import dataclasses

LIBRARY_DIRS = (
    "/usr/local/nvidia/lib64",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/opt/nvidia/current/usr/lib64",
    "/run/opengl-driver/lib",
    "/usr/lib/nvidia/tesla",
    "/usr/local/lib",
    "/usr/local/glibc/usr/lib",
)
"""Where installers put driver libraries. A directory of the driver alone comes first, then those
of most distributions, of which `/usr/lib` (Arch; 32-bit files elsewhere) is the last; then those of
Flatcar (`setup-nvidia`), NixOS, Bottlerocket (its `kmod-*-nvidia` packages) and Talos (its
extensions from 1.13 on, and before)."""

BINARY_DIRS = (
    "/usr/local/nvidia/bin",
    "/opt/bin",
    "/usr/bin",
    "/usr/sbin",
    "/bin",
    "/sbin",
    "/usr/local/bin",
    "/run/current-system/sw/bin",
    "/usr/libexec/nvidia/tesla/bin",
)
"""Where installers put driver programs, in the order of `LIBRARY_DIRS`; the last two are those of
NixOS and of Bottlerocket before 2025."""

CDI_HOOK_DIRS = ("/usr/local/nvidia/toolkit", *BINARY_DIRS)
"""Where the NVIDIA container toolkit puts `nvidia-cdi-hook`; the first is the GPU Operator's."""


HOOK_COMMANDS = {
    "create-symlinks": "1.16",
    "enable-cuda-compat": "1.17.5",
    "update-ldcache": "1.16",
    "disable-device-node-modification": "1.18",
}
"""Commands of `nvidia-cdi-hook` that are used, in this order, and the release of the NVIDIA
container toolkit that each came with."""

NEEDED_HOOK_COMMANDS = frozenset({"create-symlinks", "update-ldcache"})
"""Without these, libraries are not found by their names. The first release has them."""


@dataclasses.dataclass(frozen=True, slots=True)
class HostFile:
    """A file or socket of the driver."""

    path: str
    host_path: str


@dataclasses.dataclass(frozen=True, slots=True)
class Library:
    """A shared library of the driver.

    `links` are the other names under which programs open it, sorted: its SONAME and the symbolic
    links beside it (`libcuda.so`, `libcuda.so.1`). `file_name` is not among them.
    """

    path: str
    host_path: str
    file_name: str
    links: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class DriverFiles:
    """What a container needs of one driver version. Every tuple is sorted by `path`.

    `cdi_hook` is the host path of `nvidia-cdi-hook`, with the commands `hook_commands`; None when
    the node has none.
    """

    version: str
    libraries: tuple[Library, ...]
    binaries: tuple[HostFile, ...]
    sockets: tuple[HostFile, ...]
    firmware: tuple[HostFile, ...]
    cdi_hook: str | None
    hook_commands: frozenset[str] = frozenset(HOOK_COMMANDS)


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceNode:
    """A character device that was there when it was looked at. `mode` holds permission bits."""

    path: str
    host_path: str
    major: int
    minor: int
    mode: int
