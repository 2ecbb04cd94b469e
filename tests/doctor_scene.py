"""A node that the doctor looks at: real directories, sockets and driver files below one root."""

import dataclasses
import functools
import pathlib

import api_cluster
import elf_objects
import hook_programs
import plugin_process

from dra_driver import settings
from dra_driver.adapters.nvml import nvml
from dra_driver.apps.doctor import doctor
from dra_driver.apps.node import host
from dra_driver.logic.doctor import diagnosis
from dra_driver.sim.gpus import hardware

VERSION = "580.159.04"
"""Of the simulated driver."""
LIBRARIES = "usr/lib/x86_64-linux-gnu"
NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia1")
_DEVICES = "Character devices:\n195 nvidia\n235 nvidia-caps\n\nBlock devices:\n"


class Node:
    """`host` is the root of the node as the driver's container sees it, `proc` its procfs."""

    def __init__(self, machine: plugin_process.Machine, kubeconfig: pathlib.Path | None) -> None:
        self.machine = machine
        self.kubeconfig = kubeconfig
        self.host = machine.root / "host"
        self.proc = machine.root / "proc"
        self.host.mkdir()
        (self.proc / "2").mkdir(parents=True)
        (self.proc / "2" / "comm").write_text("kthreadd\n")
        (self.proc / "devices").write_text(_DEVICES)
        machine.cdi.mkdir(exist_ok=True)

    def configured(self, **flags: object) -> settings.KubeletPlugin:
        given = {
            "node_name": api_cluster.NODE,
            "kubeconfig": self.kubeconfig,
            "kubelet_root": self.machine.kubelet,
            "cdi_dir": self.machine.cdi,
            "boot_id_file": self.machine.boot_id,
            "proc_root": self.proc,
            "simulation_dir": self.machine.simulation,
            "simulate_gpus": "h100-80gb-hbm3:1,t4:1",
        }
        return settings.KubeletPlugin.model_validate(given | flags)

    def real(self, **flags: object) -> settings.KubeletPlugin:
        """Settings for the driver that is installed below `host`."""
        return self.configured(**{"simulate_gpus": None, "driver_root_seen": self.host} | flags)

    def install(self, below: str = "") -> None:
        """The driver, as distributions install it, and its device nodes."""
        root = self.host / below
        directory = root / LIBRARIES
        directory.mkdir(parents=True)
        # The loader refuses the second one, where it is loaded as it is.
        for name, content in (
            ("libcuda.so", elf_objects.shared_object("libcuda.so.1")),
            ("libnvidia-ml.so", b"no library"),
        ):
            file = directory / f"{name}.{VERSION}"
            file.write_bytes(content)
            (directory / f"{name}.1").symlink_to(file.name)
        (root / "usr" / "bin").mkdir()
        for name in ("nvidia-smi", "nvidia-cuda-mps-control"):
            (root / "usr" / "bin" / name).touch(mode=0o755)
        hook_programs.put(root / "usr" / "bin" / "nvidia-cdi-hook")
        self.make_nodes(below)

    def make_nodes(self, below: str = "") -> None:
        """A device of the kernel stands in for each of the driver's."""
        dev = self.host / below / "dev"
        dev.mkdir(parents=True)
        for name in NODES:
            (dev / name).symlink_to("/dev/null")

    def served(self, config: settings.KubeletPlugin, gpus: str) -> host.Hardware:
        """The installed driver, with simulated GPUs behind its NVML."""
        pretended = hardware.simulated(config.model_copy(update={"simulate_gpus": gpus}))
        missing = functools.partial(host.missing, host.installed_driver(config))
        return dataclasses.replace(pretended, driver=host.layout_of_driver(config), missing=missing)

    def unserved(self, config: settings.KubeletPlugin) -> host.Hardware:
        """The installed driver, whose library is loaded as it is."""
        found = self.served(config, "none")
        return dataclasses.replace(found, nvml=nvml.Nvml(layout=host.layout_of_driver(config)))


def examine(
    config: settings.KubeletPlugin, found: host.Hardware | None = None
) -> list[diagnosis.Finding]:
    """All findings; without `found` for the simulated GPUs of the settings."""
    return doctor.examine(
        config,
        lambda there: found or hardware.simulated(there),
        user_agent="dra-driver/test doctor",
    )


def by_check(findings: list[diagnosis.Finding]) -> dict[str, diagnosis.Finding]:
    """The findings, of which each has a name of its own."""
    told = {finding.check: finding for finding in findings}
    assert len(told) == len(findings)
    return told


def not_fine(findings: list[diagnosis.Finding]) -> list[tuple[str, str]]:
    """Level and check of what is not as it has to be."""
    return [
        (finding.level.value, finding.check)
        for finding in findings
        if finding.level is not diagnosis.Level.FINE
    ]
