"""What a container needs of the host's NVIDIA driver, as CDI edits.

With `nvidia-cdi-hook` on the host, libraries keep their places and the hook makes links and the
loader's cache. Without it they are mounted, under each of their names, in one directory that the
loader finds through the environment: the directory that NVIDIA's own images have in their path.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from dra_driver import errors
from dra_driver.logic.preparing import cdi
from dra_driver.model import devices, driver, mig

LIBRARY_DIR = "/usr/local/nvidia/lib64"
BINARY_DIR = "/usr/bin"
NO_HOOK = (
    "containers find the libraries through LD_LIBRARY_PATH, which replaces one that the image sets"
)
HOOK_REMEDY = "install nvidia-container-toolkit-base 1.18 or newer, or set --cdi-hook"
"""What gives a node an `nvidia-cdi-hook` with all commands."""
_IN_PATH = frozenset(
    f"{place}/{kind}"
    for place in ("", "/usr", "/usr/local", "/usr/local/nvidia")
    for kind in ("bin", "sbin")
)
"""Where programs of images, NVIDIA's too, look for programs."""

NOTHING = cdi.Edits(env={"NVIDIA_VISIBLE_DEVICES": "void"})
"""Keeps NVIDIA's own runtime, where it is the default, from adding all GPUs."""
_SOCKET_OPTIONS = ("ro", "nosuid", "nodev", "rbind", "rprivate", "noexec")


def with_commands(files: driver.DriverFiles, commands: frozenset[str]) -> driver.DriverFiles:
    """The files of a node whose `nvidia-cdi-hook` has these commands.

    One that lacks what is needed is left alone, as if there were none.
    """
    if files.cdi_hook is None or not commands >= driver.NEEDED_HOOK_COMMANDS:
        return dataclasses.replace(files, cdi_hook=None)
    return dataclasses.replace(files, hook_commands=commands)


def lacking(path: str, commands: frozenset[str], problem: str | None) -> str:
    """What `nvidia-cdi-hook` lacks, and what follows, in a line; empty if it lacks nothing.

    `problem`: why it could not be asked for its commands.
    """
    missing = [name for name in driver.HOOK_COMMANDS if name not in commands]
    if not missing:
        return ""
    why = f"{path} could not be asked for its commands ({problem})" if problem else f"{path} is old"
    needed = [name for name in missing if name in driver.NEEDED_HOOK_COMMANDS]
    if needed:
        return f"{why}: it has no {', '.join(needed)}, and is not used; {NO_HOOK}"
    told = ", ".join(f"{name} (toolkit {driver.HOOK_COMMANDS[name]})" for name in missing)
    return f"{why}: containers are made without {told}"


def injection(
    files: driver.DriverFiles,
    control: Iterable[driver.DeviceNode],
    own: Mapping[str, Sequence[driver.DeviceNode]],
) -> cdi.Injection:
    """The edits for the devices with these nodes, by device name.

    `control` are the nodes that every device needs besides its own (`/dev/nvidiactl`, ...). Several
    instances of a GPU each bring the node of that GPU: any one of them may be injected alone, and a
    runtime takes a path that it is given twice once.
    """
    mounts = (
        *_library_mounts(files),
        *(_program(item, files) for item in files.binaries),
        *(cdi.Mount(item.host_path, item.path) for item in files.firmware),
        *(cdi.Mount(item.host_path, item.path, _SOCKET_OPTIONS) for item in files.sockets),
    )
    env = dict(NOTHING.env)
    if files.cdi_hook is None:
        env["LD_LIBRARY_PATH"] = LIBRARY_DIR
    common = cdi.Edits(env=env, device_nodes=tuple(control), mounts=mounts, hooks=_hooks(files))
    return cdi.Injection(
        common, {name: cdi.Edits(device_nodes=tuple(nodes)) for name, nodes in own.items()}
    )


def compute_instance(
    name: str, gpu: devices.Gpu, instance: mig.Instance
) -> tuple[int, mig.MigUuid]:
    """The id and the UUID of the compute instance that spans the instance, as device `name`.

    Raises:
        errors.Rejected: it has none, or is cut into several.
    """
    if instance.ci is None or instance.uuid is None:
        raise errors.Rejected(
            f"device {name!r}: GPU instance {instance.gi} of {gpu.uuid} has not one compute "
            "instance that spans it, and a container needs that; `nvidia-smi mig -lci` on the node "
            "lists those that there are"
        )
    return instance.ci, instance.uuid


def _library_mounts(files: driver.DriverFiles) -> list[cdi.Mount]:
    if files.cdi_hook is not None:
        return [cdi.Mount(library.host_path, library.path) for library in files.libraries]
    # Two directories may hold the same library: the first one, in the driver's order, serves.
    names: dict[str, str] = {}
    for library in files.libraries:
        for name in (library.file_name, *library.links):
            names.setdefault(name, library.host_path)
    return [cdi.Mount(host, f"{LIBRARY_DIR}/{name}") for name, host in sorted(names.items())]


def _program(item: driver.HostFile, files: driver.DriverFiles) -> cdi.Mount:
    directory, _, name = item.path.rpartition("/")
    keeps = files.cdi_hook is not None and directory in _IN_PATH
    return cdi.Mount(item.host_path, item.path if keeps else f"{BINARY_DIR}/{name}")


def _hooks(files: driver.DriverFiles) -> tuple[cdi.Hook, ...]:
    if files.cdi_hook is None:
        return ()
    links = [
        argument
        for library in files.libraries
        for link in library.links
        for argument in (
            "--link",
            f"{library.file_name}::{_folder(library)}/{link}",
        )
    ]
    folders = sorted({_folder(library) for library in files.libraries})
    commands = (
        ("create-symlinks", *links),
        ("enable-cuda-compat", f"--host-driver-version={files.version}"),
        ("update-ldcache", *(part for folder in folders for part in ("--folder", folder))),
        ("disable-device-node-modification",),
    )
    return tuple(
        cdi.Hook(files.cdi_hook, ("nvidia-cdi-hook", *command), ("NVIDIA_CTK_DEBUG=false",))
        for command in commands
        if command[0] in files.hook_commands
    )


def _folder(library: driver.Library) -> str:
    return library.path.rpartition("/")[0]
