"""Capability nodes of MIG instances: which ones a container needs, made where they are missing.

The nvidia module tells their numbers in procfs and leaves the nodes to user space, where
nvidia-modprobe makes them; this module makes them in the same way. Source:
https://github.com/NVIDIA/nvidia-modprobe, `modprobe-utils/nvidia-modprobe-utils.c`.
"""

import dataclasses
import os
import pathlib
import re
import stat
from collections.abc import Callable

from dra_driver import errors
from dra_driver.adapters.driver import driver_root
from dra_driver.model import driver

_PROC = pathlib.Path("/proc")
_DIRECTORY = "/dev/nvidia-caps"
_FIELD = re.compile(r"^(\w+): (\d+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class _Capability:
    """What procfs says of a capability. `access` is the path of its file on the node."""

    access: str
    minor: int
    mode: int
    modify: bool

    @property
    def node(self) -> str:
        return f"{_DIRECTORY}/nvidia-cap{self.minor}"

    @property
    def command(self) -> str:
        return f"nvidia-modprobe -f {self.access}"


class Capabilities:
    """Reads procfs and the device nodes at every call; remembers nothing.

    Args:
        dev_root: gives the root under which `/dev` is; asked at each call.
        proc_root: procfs as this process sees it.
    """

    def __init__(
        self, dev_root: Callable[[], driver_root.Root], proc_root: pathlib.Path = _PROC
    ) -> None:
        self._dev_root = dev_root
        self._proc_root = proc_root

    def device_nodes(self, minor: int, gi: int, ci: int) -> tuple[driver.DeviceNode, ...]:
        """The nodes of a GPU instance and of a compute instance in it, in this order.

        `minor` is that of the GPU's own node. Nodes that are missing are made, if the nvidia module
        allows that.

        Raises:
            errors.Retryable: there is no such instance, or a node is missing and is not made.
            errors.Rejected: a node is there with other numbers than the nvidia module's.
        """
        instance = f"/driver/nvidia/capabilities/gpu{minor}/mig/gi{gi}"
        found = [self._capability(f"{instance}{part}/access") for part in ("", f"/ci{ci}")]
        major = self.major()
        root = self._dev_root()
        return tuple(_node(root, major, capability) for capability in found)

    def major(self) -> int:
        """The major number of capability nodes; there is one on every node whose module has MIG.

        Raises:
            errors.Retryable: the nvidia module is not loaded, or this is not the node's procfs.
        """
        try:
            text = self._at("/devices").read_text(encoding="ascii", errors="replace")
        except OSError as error:
            raise errors.Retryable(f"{_PROC}/devices: {error.strerror}") from error
        for line in text.partition("Block devices:")[0].splitlines():
            number, _, name = line.strip().partition(" ")
            if name == "nvidia-caps" and number.isdecimal():
                return int(number)
        raise errors.Retryable(
            f"{_PROC}/devices has no character device nvidia-caps: is the nvidia module loaded? "
            "`modprobe nvidia` on the node loads it"
        )

    def _capability(self, path: str) -> _Capability:
        access = f"{_PROC}{path}"
        try:
            text = self._at(path).read_text(encoding="ascii", errors="replace")
        except OSError as error:
            raise errors.Retryable(
                f"MIG capability {access}: {error.strerror}; the instance is gone, or the plugin's "
                "proc root is not the procfs of the node"
            ) from error
        fields = {name: int(value) for name, value in _FIELD.findall(text)}
        if "DeviceFileMinor" not in fields:
            raise errors.Rejected(
                f"MIG capability {access}: {text!r} has no line `DeviceFileMinor: <number>`; "
                "this NVIDIA driver is not one that is known"
            )
        return _Capability(
            access=access,
            minor=fields["DeviceFileMinor"],
            # Where the module says nothing, nvidia-modprobe takes these.
            mode=fields.get("DeviceFileMode", 0o666),
            modify=fields.get("DeviceFileModify", 1) == 1,
        )

    def _at(self, path: str) -> pathlib.Path:
        return self._proc_root / path.lstrip("/")


def _node(root: driver_root.Root, major: int, capability: _Capability) -> driver.DeviceNode:
    path = root.host_path(capability.node)
    node = driver_root.device_node(root, capability.node)
    reason = "the nvidia module does not let its device files be made (DeviceFileModify: 0)"
    if node is None and capability.modify:
        try:
            _make(root.at(capability.node), major, capability)
        except OSError as error:
            reason = f"making it failed: {error.strerror}"
        else:
            reason = "something else is in its place"
        node = driver_root.device_node(root, capability.node)
    if node is None:
        raise errors.Retryable(
            f"no such character device: {path}; {reason}. As root on the node, make it with: "
            f"{capability.command}"
        )
    if (node.major, node.minor) != (major, capability.minor):
        raise errors.Rejected(
            f"{path} is the character device {node.major}:{node.minor}, and {capability.access} "
            f"belongs to {major}:{capability.minor}; a container would be given another device. "
            f"As root on the node, make it anew with: {capability.command}"
        )
    return node


def _make(node: pathlib.Path, major: int, capability: _Capability) -> None:
    try:
        node.parent.mkdir()
    except FileExistsError:
        pass
    else:
        node.parent.chmod(0o755)
    try:
        os.mknod(node, stat.S_IFCHR | capability.mode, os.makedev(major, capability.minor))
    except FileExistsError:
        # Another process was faster; what it has made is looked at like any other node.
        return
    # The umask may have taken bits from both.
    node.chmod(capability.mode)
