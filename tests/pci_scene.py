"""A node with simulated GPUs, as the driver sees its PCI bus."""

import pathlib

from dra_driver.adapters.nvml import nvml
from dra_driver.adapters.pci import pci_bus
from dra_driver.sim.gpus import gpu_driver, gpu_session, gpu_state, gpus
from dra_driver.sim.pci import nodes

SECONDS = 0.05
"""How long the kernel may take: it takes far less, or hangs."""


class Scene:
    """The GPUs of a directory, with persistence mode off."""

    def __init__(
        self, directory: pathlib.Path, spec="h100-80gb-hbm3:1,l4:1", *, seconds=SECONDS
    ) -> None:
        self.directory = directory
        self.seconds = seconds
        self.install(spec)
        with gpu_state.open_file(directory).edit() as node:
            for gpu in node.gpus:
                gpu.persistence_mode = False

    def install(self, spec):
        """The machine with these GPUs; what starts anew looks at it."""
        self.library = gpus.SimulatedNvml(self.directory, spec=spec)
        self.sys = self.library.write_sysfs()
        self.kernel = gpu_driver.kernel(self.directory)
        self.bus = pci_bus.PciBus(
            self.kernel,
            sysfs=self.sys,
            host_root=self.directory,
            node=nodes.plain,
            seconds=self.seconds,
        )

    @property
    def gpus(self):
        """The cards as they are."""
        return gpu_state.open_file(self.directory).read().gpus

    def gpu(self, address):
        """The card at an address."""
        return next(one for one in self.gpus if one.pci_address == address)

    def edit(self, address, **facts):
        """Have these facts of a card be so."""
        uuid = self.gpu(address).uuid
        with gpu_state.open_file(self.directory).edit() as node:
            for name, value in facts.items():
                setattr(gpu_session.find(node, uuid), name, value)

    @property
    def listed(self):
        """The addresses of the GPUs that NVML tells of once it is opened anew."""
        return {one.pci_address for one in nvml.Nvml(self.library).discover().gpus}

    def passed(self, address, driver="vfio-pci"):
        """Give a function to a VFIO driver, step by step."""
        self.bus.load(driver)
        self.bus.unbind(address)
        self.bus.allow(address, driver)
        self.bus.bind(address, driver)

    def returned(self, address, driver="nvidia"):
        """Give it back."""
        self.bus.unbind(address)
        self.bus.allow(address, None)
        self.bus.bind(address, driver)

    def override(self, address):
        """The driver that alone may have a function, as `/sys` tells; None: any that fits."""
        path = self.sys / "bus/pci/devices" / address / "driver_override"
        text = path.read_text().strip()
        return None if text == "(null)" else text

    def links(self, address):
        """The drivers in whose directories a function is linked."""
        return {path.parent.name for path in self.sys.glob(f"bus/pci/drivers/*/{address}")}

    @property
    def devices(self):
        """The names of all files below `/dev`."""
        root = self.directory / "dev"
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
