"""A node with simulated GPUs, as the kubelet plugin needs it."""

import functools
import pathlib
from collections.abc import Mapping, Sequence

from dra_driver import settings
from dra_driver.adapters.disk import files
from dra_driver.adapters.driver import driver_programs, driver_root
from dra_driver.adapters.mps import mps_local
from dra_driver.adapters.nvml import nvidia_smi, nvml
from dra_driver.adapters.pci import pci_bus
from dra_driver.adapters.system import sysfs
from dra_driver.apps.node import host
from dra_driver.logic.preparing import cdi, injecting
from dra_driver.model import devices
from dra_driver.model import driver as drivers
from dra_driver.sim import hardware_files
from dra_driver.sim.gpus import gpu_clients, gpu_driver, gpus, host_nvidia_smi, mps_program
from dra_driver.sim.pci import nodes

GPU_VARIABLE = "SIMULATED_GPU_"
INSTANCE_VARIABLE = "SIMULATED_MIG_"


class SimulatedDriver:
    """See `injection.Injector`: no device nodes, but a container can ask what it was given."""

    def __init__(self, nvidia_smi: pathlib.Path) -> None:
        """`nvidia_smi` is the stand-in for nvidia-smi, at a path that the runtime can mount."""
        self._nvidia_smi = nvidia_smi

    def injection(self, grants: Mapping[str, devices.Grant]) -> cdi.Injection:
        """The edits for GPUs and instances by device name."""
        return cdi.Injection(
            cdi.Edits(mounts=(cdi.Mount(str(self._nvidia_smi), "/usr/bin/nvidia-smi"),)),
            {name: _edits(name, grant) for name, grant in grants.items()},
        )


def simulated(config: settings.KubeletPlugin) -> host.Hardware:
    """The GPUs of `--simulate-gpus`; their state outlives the process."""
    directory = config.simulation
    directory.mkdir(parents=True, exist_ok=True)
    # During a rolling update two plugins of the node may start at the same moment.
    with hardware_files.locked(directory / "hardware"):
        return _made(config, directory)


def _made(config: settings.KubeletPlugin, directory: pathlib.Path) -> host.Hardware:
    library = gpus.SimulatedNvml(directory, spec=config.simulate_gpus, node=config.node_name)
    # Out of the package and into a directory of the node: there the runtime can mount it.
    containers = directory / "nvidia-smi"
    files.write(containers, gpus.NVIDIA_SMI.read_text(encoding="utf-8"), mode=0o755)
    driver = directory / "driver"
    mps_program.install(driver, directory)
    program = driver_programs.Program(host_nvidia_smi.write(directory), {})
    bus = library.write_sysfs()
    return host.Hardware(
        nvml=nvml.Nvml(library),
        place=sysfs.Sysfs(bus),
        injector=SimulatedDriver(containers),
        driver=driver_root.Layout(driver_root.Root(str(driver), driver)),
        launcher=mps_local.LocalLauncher(driver, private_shm=False),
        nvidia_smi=nvidia_smi.NvidiaSmi(lambda: program),
        with_time_slices=functools.partial(host_nvidia_smi.with_time_slices, directory),
        nodes=lambda uuid, _minor: [gpu_clients.file(directory, uuid)],
        pci=pci_bus.PciBus(
            gpu_driver.kernel(directory), sysfs=bus, host_root=directory, node=nodes.plain
        ),
        handed_over=_mounted,
        bus=library.present,
        load=library.load,
    )


def _mounted(nodes: Sequence[drivers.DeviceNode]) -> cdi.Edits:
    """Plain files stand for device nodes, which only root can make."""
    return cdi.Edits(mounts=tuple(cdi.Mount(node.host_path, node.path) for node in nodes))


def _edits(name: str, grant: devices.Grant) -> cdi.Edits:
    """One variable for each device, which a container may have beside those of other claims."""
    gpu, instance = grant.gpu, grant.instance
    card = f"{gpu.product_name}|{gpu.uuid}"
    if instance is None:
        return cdi.Edits(env={f"{GPU_VARIABLE}{gpu.minor}": card})
    _, uuid = injecting.compute_instance(name, gpu, instance)
    variable = f"{INSTANCE_VARIABLE}{gpu.minor}_{instance.gi}"
    return cdi.Edits(env={variable: f"{card}|{grant.profile or 'MIG'}|{uuid}"})
