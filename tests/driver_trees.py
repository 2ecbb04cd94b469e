"""How distributions and installers lay out the NVIDIA driver, as trees of files.

From the file lists of their packages and from their installers: Debian's `libnvidia-ml1`,
`libcuda1`, `nvidia-smi` and `nvidia-alternative`; flatcar/scripts, `setup-nvidia`; bottlerocket-os,
the packages `filesystem` and `kmod-6.1-nvidia`; siderolabs/extensions, `nvidia-pkgs`; NixOS,
`hardware.graphics`; Google's `cos-gpu-installer`.
"""

import dataclasses
import pathlib
from collections.abc import Mapping

import elf_objects

VERSION = "580.65.06"
CONTROL, SERVER, SMI = "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-smi"
_X86 = "/usr/lib/x86_64-linux-gnu"


@dataclasses.dataclass(frozen=True)
class Tree:
    """A node with the driver.

    `libraries` and `programs` are the directories of its files, `links` go from paths to targets,
    and `c_library` is where that of the distribution is. All paths are those of the host.
    `root` and `given` are the settings that find the driver. `named` is the directory under which a
    container gets the libraries, as a path below `root`; None is `libraries`. `search` is what the
    loader of programs is given: directories to search, or else the library itself.
    """

    name: str
    libraries: str
    programs: str
    links: Mapping[str, str] = dataclasses.field(default_factory=dict)
    c_library: str | None = None
    root: str = "/"
    given: tuple[str, ...] = ()
    named: str | None = None
    searches: bool = True

    def make(self, place: pathlib.Path) -> pathlib.Path:
        """Make the tree; `place` is the root of its node."""
        for stem in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"):
            file = _at(place, f"{self.libraries}/{stem}.so.{VERSION}")
            file.parent.mkdir(parents=True, exist_ok=True)
            # The loader refuses it, and says of which file it is.
            content = b"no library".ljust(100)
            if stem == "libcuda":
                content = elf_objects.shared_object("libcuda.so.1")
            file.write_bytes(content)
            (file.parent / f"{stem}.so.1").symlink_to(file.name)
        for name in (CONTROL, SERVER, SMI):
            program = _at(place, f"{self.programs}/{name}")
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
        if self.c_library:
            library = _at(place, f"{self.c_library}/libc.so.6")
            library.parent.mkdir(parents=True, exist_ok=True)
            library.write_text("of another distribution")
        for path, target in self.links.items():
            link = _at(place, path)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
        return place

    def library(self, stem: str) -> str:
        """The path on the host of one of its libraries, without links."""
        return f"{self.libraries}/{stem}.so.{VERSION}"

    def below_root(self, path: str) -> str:
        """A path on the host, as it is below the driver root."""
        return path.removeprefix(self.root.rstrip("/"))


def _alternatives(root: str = "") -> dict[str, str]:
    """Debian's: each name leads through `/etc/alternatives`, always absolutely."""
    libraries, programs = f"{_X86}/nvidia/current", "/usr/lib/nvidia/current"
    names = {f"{_X86}/{stem}.so.1": (libraries, f"{stem}.so.1", "-x86_64-linux-gnu")
             for stem in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")}  # fmt: skip
    names |= {f"/usr/bin/{name}": (programs, name, "") for name in (CONTROL, SERVER, SMI)}
    links = {}
    for path, (directory, name, ending) in names.items():
        links[root + path] = f"/etc/alternatives/nvidia--{name}{ending}"
        links[f"{root}/etc/alternatives/nvidia--{name}{ending}"] = f"{directory}/{name}"
    return {**links, f"{root}/lib": "usr/lib", f"{root}/bin": "usr/bin"}


_STORE = "/nix/store/0c1hg2-nvidia-x11-580.65.06"
_NIXOS = {
    "/run/opengl-driver": "/nix/store/7q9w3k-graphics-drivers",
    **{
        f"/nix/store/7q9w3k-graphics-drivers/lib/{name}": f"{_STORE}/lib/{name}"
        for stem in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
        for name in (f"{stem}.so.1", f"{stem}.so.{VERSION}")
    },
    "/run/current-system": "/nix/store/5k2m8z-nixos-system",
    "/nix/store/5k2m8z-nixos-system/sw": "/nix/store/9d4xvn-system-path",
    **{
        f"/nix/store/9d4xvn-system-path/bin/{name}": f"{_STORE}-bin/bin/{name}"
        for name in (CONTROL, SERVER, SMI)
    },
}
_BOTTLEROCKET = "/x86_64-bottlerocket-linux-gnu/sys-root/usr"

TREES = (
    Tree("ubuntu", _X86, "/usr/bin", {"/lib": "usr/lib", "/bin": "usr/bin"}, _X86, searches=False),
    Tree(
        "ubuntu-arm64",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/bin",
        {"/lib": "usr/lib", "/bin": "usr/bin"},
        "/usr/lib/aarch64-linux-gnu",
        searches=False,
    ),
    Tree(
        "debian", f"{_X86}/nvidia/current", "/usr/lib/nvidia/current", _alternatives(), _X86
    ),
    Tree(
        "fedora",
        "/usr/lib64",
        "/usr/bin",
        {"/lib64": "usr/lib64", "/bin": "usr/bin"},
        "/usr/lib64",
        searches=False,
    ),
    Tree(
        "gpu-operator",
        f"/run/nvidia/driver{_X86}",
        "/run/nvidia/driver/usr/bin",
        {"/run/nvidia/driver/lib": "usr/lib", "/run/nvidia/driver/bin": "usr/bin"},
        f"/run/nvidia/driver{_X86}",
        root="/run/nvidia/driver",
        searches=False,
    ),
    Tree(
        "a-driver-container-with-alternatives",
        f"/run/nvidia/driver{_X86}/nvidia/current",
        "/run/nvidia/driver/usr/lib/nvidia/current",
        _alternatives("/run/nvidia/driver"),
        f"/run/nvidia/driver{_X86}",
        root="/run/nvidia/driver",
    ),
    Tree(
        "gke",
        "/home/kubernetes/bin/nvidia/lib64",
        "/home/kubernetes/bin/nvidia/bin",
        root="/home/kubernetes/bin/nvidia",
    ),
    Tree(
        "gke-below-the-root-of-the-host",
        "/home/kubernetes/bin/nvidia/lib64",
        "/home/kubernetes/bin/nvidia/bin",
        given=("/home/kubernetes/bin/nvidia/lib64",),
    ),
    Tree(
        "talos",
        "/usr/local/lib",
        "/usr/local/bin",
        {"/usr/bin/nvidia-smi": "/usr/local/bin/nvidia-smi"},
    ),
    Tree(
        "talos-1.12",
        "/usr/local/glibc/usr/lib",
        "/usr/local/bin",
        c_library="/usr/local/glibc/usr/lib",
        searches=False,
    ),
    Tree(
        "bottlerocket",
        f"{_BOTTLEROCKET}/lib/nvidia/tesla",
        f"{_BOTTLEROCKET}/libexec/nvidia/tesla/bin",
        {"/usr": f".{_BOTTLEROCKET}", "/lib": f".{_BOTTLEROCKET}/lib", "/bin": "./usr/bin",
         "/lib64": f".{_BOTTLEROCKET}/lib", f"{_BOTTLEROCKET}/lib64": "lib"},
        c_library=f"{_BOTTLEROCKET}/lib",
        named="/usr/lib/nvidia/tesla",
    ),
    Tree(
        "flatcar",
        "/opt/nvidia/580.65.06/6.6.95-flatcar/usr/lib64",
        "/opt/bin",
        {"/opt/nvidia/current": "580.65.06/6.6.95-flatcar", "/lib64": "usr/lib64"},
        c_library="/usr/lib64",
        named="/opt/nvidia/current/usr/lib64",
    ),
    Tree("nixos", f"{_STORE}/lib", f"{_STORE}-bin/bin", _NIXOS, named="/run/opengl-driver/lib"),
    Tree("anywhere", "/data/gpu/lib64", "/data/gpu/bin", given=("/data/gpu/lib64",)),
)  # fmt: skip


def _at(place: pathlib.Path, path: str) -> pathlib.Path:
    return place / path.lstrip("/")
