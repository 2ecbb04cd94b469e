"""NVIDIA's driver as the simulated kernel asks it: who has a GPU open, and what it forgets.

The real one waits in its `remove` for as long as somebody has the device open, and lets nobody else
open it (`nv_pci_remove_helper` in NVIDIA/open-gpu-kernel-modules, `nv-pci.c`); persistence mode
keeps it open, too.
"""

import pathlib

from dra_driver.sim.gpus import gpu_clients, gpu_operations, gpu_state
from dra_driver.sim.pci import pci_state, sim_kernel


def kernel(directory: pathlib.Path) -> sim_kernel.SimKernel:
    """The kernel of a node with simulated GPUs."""
    return sim_kernel.SimKernel(directory, {pci_state.NVIDIA: NvidiaDriver(directory)})


class NvidiaDriver:
    """See `sim_kernel.Driver`."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._state = gpu_state.open_file(directory)

    def is_used(self, address: str) -> bool:
        """See `sim_kernel.Driver`. What is no GPU, a virtual function say, nobody uses."""
        gpu = self._at(address)
        if gpu is None:
            return False
        if gpu.processes or gpu.persistence_mode:
            return True
        with gpu_clients.alone(self._directory, [gpu.uuid]) as taken:
            return bool(taken)

    def left(self, address: str) -> None:
        """See `sim_kernel.Driver`."""
        gpu = self._at(address)
        if gpu is not None:
            gpu_operations.leave(self._directory, gpu.uuid)

    def _at(self, address: str) -> gpu_state.Gpu | None:
        return next((one for one in self._state.read().gpus if one.pci_address == address), None)
