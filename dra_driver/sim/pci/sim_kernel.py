"""The kernel of a simulated node: what is written into its `/sys` is done there."""

import pathlib

from dra_driver.model import devices


class SimKernel:
    """See `pci_kernel.Kernel`. State and faults are files in `state_dir`."""

    def __init__(self, state_dir: pathlib.Path) -> None:
        self._state_dir = state_dir

    def write(self, path: pathlib.Path, text: str, seconds: float) -> None:
        """See `pci_kernel.Kernel`."""
        raise NotImplementedError

    def load(self, module: str, seconds: float) -> None:
        """See `pci_kernel.Kernel`."""
        raise NotImplementedError

    def hanging(self, address: devices.PciAddress) -> tuple[int, ...]:
        """See `pci_kernel.Kernel`."""
        raise NotImplementedError
