"""The kernel of this node: files of sysfs are written, and modules loaded, by child processes.

What the kernel holds up cannot be ended, not even killed: it is left behind, and found again.
"""

import errno
import os
import pathlib
import re
import subprocess
import sys
import threading

from dra_driver.adapters.pci import pci_kernel
from dra_driver.adapters.system import processes, short_runs
from dra_driver.model import devices

_MARK = "dra-driver: write for a PCI function"
_FAILED = 100
"""Exit statuses above are an errno: Linux has up to 133, and a status has eight bits."""
_SCRIPT = f"""# {_MARK}
import os, sys
try:
    file = os.open(sys.argv[1], os.O_WRONLY)
    os.write(file, sys.argv[2].encode())
    os.close(file)
except OSError as error:
    os._exit({_FAILED} + error.errno)
"""
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
"""`modprobe` is in one of these."""


class HostKernel:
    """See `pci_kernel.Kernel`."""

    def __init__(self, host_root: pathlib.Path, proc_root: pathlib.Path) -> None:
        self._host_root = host_root
        self._proc_root = proc_root
        self._lock = threading.Lock()
        self._left: list[subprocess.Popen[bytes]] = []

    def write(self, path: pathlib.Path, text: str, seconds: float) -> None:
        """See `pci_kernel.Kernel`."""
        self._bury()
        command = [sys.executable, "-I", "-S", "-c", _SCRIPT, str(path), text]
        # It has nothing of ours open, and gets no signal of ours: it may outlive this process.
        child = subprocess.Popen(
            command,
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            status = child.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise pci_kernel.Hung(
                f"writing {text.strip()!r} to {path} did not end within {seconds:g} s "
                f"(pid {child.pid})"
            ) from error
        finally:
            if child.returncode is None:
                with self._lock:
                    self._left.append(child)
        _check(status, path)

    def load(self, module: str, seconds: float) -> None:
        """See `pci_kernel.Kernel`."""
        doing = f"kernel module {module!r}"
        if not _MODULE.fullmatch(module):
            raise pci_kernel.Refused(f"{doing}: a name has to match {_MODULE.pattern}")
        command = ["modprobe", module]
        if self._host_root != pathlib.Path("/"):
            command = ["chroot", str(self._host_root), *command]
        told = f"{doing}: {' '.join(command)}"
        try:
            done = short_runs.run(command, _ENVIRONMENT, seconds)
        except OSError as error:
            raise pci_kernel.Refused(
                f"{told} cannot be run: {error}: load the module on the node"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise pci_kernel.Hung(
                f"{told} did not end within {seconds:g} s: see dmesg on the node"
            ) from error
        if done.returncode != 0:
            said = "; ".join(f"{done.stdout}\n{done.stderr}".split("\n")).strip("; ")
            raise pci_kernel.Refused(
                f"{told} ended with {done.returncode} and said: {said or 'nothing'}: install the "
                "module for the running kernel (it is in the kernel's own packages), or load it "
                "on the node; --host-root has to be the root of the host"
            )

    def hanging(self, address: devices.PciAddress) -> tuple[int, ...]:
        """See `pci_kernel.Kernel`."""
        self._bury()
        return tuple(processes.Processes(self._proc_root).running(_MARK, address))

    def _bury(self) -> None:
        """Hear of those that were left behind and have ended since: until then they are zombies."""
        with self._lock:
            self._left = [child for child in self._left if child.poll() is None]


def _check(status: int, path: pathlib.Path) -> None:
    """Raise what the child met."""
    if status == 0:
        return
    if status > _FAILED and status - _FAILED in errno.errorcode:
        code = status - _FAILED
        raise OSError(code, os.strerror(code), str(path))
    raise OSError(errno.EIO, f"the process that was to write it ended with {status}", str(path))
