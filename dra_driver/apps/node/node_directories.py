"""The directories of the node that the kubelet plugin needs: what the doctor says of them.

The plugin itself waits for those that are not as they have to be, with the same words.
"""

import pathlib
from collections.abc import Iterator

from dra_driver import settings
from dra_driver.adapters.disk import directories
from dra_driver.logic.doctor import diagnosis

ONLY_ANEW = "Only a new container of the plugin mends that"
"""In what the liveness probe is told, too."""


def of_sockets(config: settings.KubeletPlugin) -> list[diagnosis.Finding]:
    """Those in which the kubelet looks for sockets: the kubelet's own, and that of the plugin."""
    return [
        _registry(config.registry),
        _looked_at("plugin directory", config.plugin, "--plugin-dir"),
    ]


def of_state(config: settings.KubeletPlugin) -> Iterator[diagnosis.Finding]:
    """That of records, where it is another one than that of the plugin."""
    if config.state != config.plugin:
        yield _looked_at("state directory", config.state, "--state-dir")


def of_cdi(config: settings.KubeletPlugin) -> diagnosis.Finding:
    """That of CDI specs, in which the container runtime must look, too."""
    check, path = "CDI directory", config.cdi_dir
    state = directories.look(path)
    if state.exists or state.failure is not None:
        return _usable(check, path, state, "--cdi-dir")
    return diagnosis.note(
        check,
        str(path),
        "it is absent, and is made when the plugin starts: the container runtime may not look "
        "there",
        f"mkdir -p {path}; containerd and CRI-O have it in cdi_spec_dirs, containerd before 2.0 "
        "needs enable_cdi = true too",
    )


def hindrance_of_sockets(config: settings.KubeletPlugin) -> str | None:
    """What is in the way of the plugin's sockets, in one line; None if nothing is."""
    return diagnosis.hindrance(of_sockets(config))


def hindrance_of_state(config: settings.KubeletPlugin) -> str | None:
    """What is in the way of records."""
    return diagnosis.hindrance(of_state(config))


def hindrance_of_cdi(config: settings.KubeletPlugin) -> str | None:
    """What is in the way of CDI specs."""
    return diagnosis.hindrance([of_cdi(config)])


def _registry(path: pathlib.Path) -> diagnosis.Finding:
    check, state = "registration directory", directories.look(path)
    if state.exists:
        return _usable(check, path, state, "--registry-dir")
    return diagnosis.problem(
        check,
        str(path),
        "it is absent: the kubelet makes it when it starts, so it has another root directory, "
        "or does not run here",
        "set --kubelet-root to the kubelet's --root-dir; ps -o args= -C kubelet shows that",
    )


def _looked_at(check: str, path: pathlib.Path, setting: str) -> diagnosis.Finding:
    return _usable(check, path, directories.look(path), setting)


def _usable(
    check: str, path: pathlib.Path, state: directories.State, setting: str
) -> diagnosis.Finding:
    if state.failure is None:
        told = "is there and takes files" if state.exists else "is made when the plugin starts"
        return diagnosis.fine(check, str(path), told)
    doing = "no file can be put there" if state.exists else "it cannot be made"
    return diagnosis.problem(
        check,
        str(path),
        f"{doing}: {state.failure}",
        f"run as root, mount it writable into the container, or correct {setting}",
    )
