"""A node with simulated GPUs, as the kubelet plugin needs it."""

import pathlib
from collections.abc import Mapping

from dra_driver import settings
from dra_driver.adapters import files, nvml, sysfs
from dra_driver.apps import node_agent
from dra_driver.logic import cdi
from dra_driver.model import devices
from dra_driver.sim import gpus

VARIABLE_PREFIX = "SIMULATED_GPU_"


class SimulatedDriver:
    """See `preparing.Injector`: no device nodes, but a container can ask what it was given."""

    def __init__(self, nvidia_smi: pathlib.Path) -> None:
        """`nvidia_smi` is the stand-in for nvidia-smi, at a path that the runtime can mount."""
        self._nvidia_smi = nvidia_smi

    def injection(self, gpus_by_name: Mapping[str, devices.Gpu]) -> cdi.Injection:
        """The edits for GPUs by device name."""
        return cdi.Injection(
            cdi.Edits(mounts=(cdi.Mount(str(self._nvidia_smi), "/usr/bin/nvidia-smi"),)),
            {name: _edits(gpu) for name, gpu in gpus_by_name.items()},
        )


def simulated(config: settings.KubeletPlugin) -> node_agent.Hardware:
    """The GPUs of `--simulate-gpus`; their state outlives the process."""
    directory = config.simulation
    directory.mkdir(parents=True, exist_ok=True)
    library = gpus.SimulatedNvml(directory, spec=config.simulate_gpus, node=config.node_name)
    # Out of the package and into a directory of the node: there the runtime can mount it.
    nvidia_smi = directory / "nvidia-smi"
    files.write(nvidia_smi, gpus.NVIDIA_SMI.read_text(encoding="utf-8"), mode=0o755)
    return node_agent.Hardware(
        source=nvml.Nvml(library),
        place=sysfs.Sysfs(library.write_sysfs()),
        injector=SimulatedDriver(nvidia_smi),
    )


def _edits(gpu: devices.Gpu) -> cdi.Edits:
    return cdi.Edits(env={f"{VARIABLE_PREFIX}{gpu.minor}": f"{gpu.product_name}|{gpu.uuid}"})
