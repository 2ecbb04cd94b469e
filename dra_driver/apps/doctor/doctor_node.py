"""What `dra-driver doctor` looks at on the node beside its driver: directories, sockets, procfs."""

import pathlib
import time
from collections.abc import Iterator

from dra_driver import errors, settings
from dra_driver.adapters.kubelet import dra_client, unix_sockets
from dra_driver.adapters.system import instances, processes
from dra_driver.apps.node import node_directories
from dra_driver.logic.doctor import diagnosis

START_SECONDS = 5.0
"""How long a plugin may take from its sockets to its state, by which it is known as ours."""
_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 10.0
"""How long a plugin may take to tell its name; where nobody listens that is known at once."""

_KERNEL_THREADS = 2, "kthreadd"
"""Process 2 of a node is the parent of the kernel's threads (`rest_init` in Linux' `init/main.c`),
which no other pid namespace has."""


def findings(config: settings.KubeletPlugin) -> list[diagnosis.Finding]:
    """All of them; nothing is left behind."""
    return [
        *node_directories.of_sockets(config),
        *node_directories.of_state(config),
        node_directories.of_cdi(config),
        *_socket_paths(config),
        *_neighbours(config),
        _boot_id(config.boot_id_file),
        _process_names(config.proc_root),
    ]


def _socket_paths(config: settings.KubeletPlugin) -> Iterator[diagnosis.Finding]:
    for path, setting in (
        (config.service_socket, "--plugin-dir"),
        (config.registration_socket, "--registry-dir"),
    ):
        try:
            unix_sockets.check_path(path, setting=setting)
        except errors.Fatal as error:
            yield diagnosis.problem(
                "socket path", str(path), str(error), f"choose a shorter {setting}"
            )


def _neighbours(config: settings.KubeletPlugin) -> list[diagnosis.Finding]:
    found = list(_plugins(config.registry))
    same = any(each.name == config.driver_name for each in found)
    return diagnosis.neighbours(
        found,
        name=config.driver_name,
        own_directory=str(config.plugin),
        ours=same and _is_ours(config.state),
        looked_at=str(config.registry / "*.sock"),
    )


def _is_ours(state: pathlib.Path) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while not instances.any_alive(state):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _plugins(registry: pathlib.Path) -> Iterator[diagnosis.Neighbour]:
    """Those that answer. A socket that nobody listens on is no plugin."""
    for path in sorted(registry.glob("*.sock")):
        try:
            with dra_client.Client(str(path)) as client:
                info = client.get_info(_ANSWER_SECONDS)
        except errors.Retryable:
            continue
        yield diagnosis.Neighbour(str(path), info.name, info.endpoint)


def _boot_id(path: pathlib.Path) -> diagnosis.Finding:
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        text, cause = "", f"it cannot be read: {error.strerror}"
    else:
        cause = "it is empty"
    if text:
        return diagnosis.fine("boot id", str(path), text)
    return diagnosis.problem(
        "boot id",
        str(path),
        f"{cause}; without it what was prepared before a reboot would count as prepared",
        "mount -t proc proc /proc, or correct --boot-id-file",
    )


def _process_names(proc_root: pathlib.Path) -> diagnosis.Finding:
    pid, name = _KERNEL_THREADS
    if processes.Processes(proc_root).describe(pid).command == name:
        return diagnosis.fine("process names", str(proc_root), "the processes of the node are seen")
    return diagnosis.note(
        "process names",
        str(proc_root),
        "it is not the node's: messages cannot name the processes and pods that hold a GPU",
        "hostPID: true in the pod, or --proc-root with the node's /proc",
    )
