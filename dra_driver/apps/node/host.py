"""The GPUs and the NVIDIA driver of the machine that this process runs on."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence

from dra_driver import errors, settings
from dra_driver.adapters.driver import capabilities, driver_programs, driver_root
from dra_driver.adapters.mps import mps_local
from dra_driver.adapters.nvml import nvidia_smi, nvml
from dra_driver.adapters.pci import host_kernel, pci_bus
from dra_driver.adapters.system import sysfs
from dra_driver.apps.node import injection, time_slice_probe
from dra_driver.logic.preparing import cdi
from dra_driver.model import devices
from dra_driver.model import driver as drivers


@dataclasses.dataclass(frozen=True, slots=True)
class Hardware:
    """The node's GPUs: real ones, or simulated.

    `driver` is where the programs of the driver are, and `launcher` runs MPS daemons from there.
    `missing` tells what containers would lack of GPUs, `with_time_slices` which of the GPUs with
    these UUIDs have time slices to set. `bus` tells cheaply something that changes when GPUs come
    or go, or their driver; `load` which load of the driver it is, empty while there is none.
    `nodes` are what processes have open that use a GPU, by its UUID and minor number. `pci` is the
    bus that the GPUs are on, and `handed_over` what containers get of device nodes of VFIO.
    """

    nvml: nvml.Nvml
    place: sysfs.Sysfs
    injector: injection.Injector
    driver: driver_root.Layout
    launcher: mps_local.LocalLauncher
    nvidia_smi: nvidia_smi.NvidiaSmi
    with_time_slices: time_slice_probe.Ask
    nodes: Callable[[str, int], Sequence[pathlib.Path]]
    pci: pci_bus.PciBus
    handed_over: Callable[[Sequence[drivers.DeviceNode]], cdi.Edits]
    missing: Callable[[Sequence[devices.Gpu]], str | None] = lambda _: None
    bus: Callable[[], object] = lambda: None
    load: Callable[[], str] = lambda: ""


def hardware(config: settings.KubeletPlugin) -> Hardware:
    """What the settings say of where the driver is installed, as the agent needs it."""
    layout = layout_of_driver(config)
    root = installed_driver(config)
    smi = nvidia_smi.NvidiaSmi(
        functools.partial(
            driver_programs.find, layout, nvidia_smi.PROGRAM, library=nvidia_smi.LIBRARY
        )
    )
    place = sysfs.Sysfs(config.sysfs_root)
    return Hardware(
        nvml=nvml.Nvml(layout=layout),
        place=place,
        injector=injection.HostDriver(
            root,
            capabilities.Capabilities(root.root_of_devices, config.proc_root),
            functools.partial(seen_hook, config),
        ),
        driver=layout,
        launcher=mps_local.LocalLauncher(
            layout.root.seen, library_dirs=layout.given, private_shm=True
        ),
        nvidia_smi=smi,
        with_time_slices=smi.with_time_slices,
        nodes=lambda _uuid, minor: [root.root_of_devices().at(f"/dev/nvidia{minor}")],
        pci=pci_bus.PciBus(
            host_kernel.HostKernel(config.host_root, config.proc_root),
            sysfs=config.sysfs_root,
            host_root=config.host_root,
        ),
        handed_over=lambda nodes: cdi.Edits(device_nodes=tuple(nodes)),
        missing=functools.partial(missing, root),
        bus=place.served,
        load=place.load,
    )


def missing(root: driver_root.DriverRoot, gpus: Sequence[devices.Gpu]) -> str | None:
    """What containers would lack of these GPUs: device nodes, libraries; None if nothing."""
    try:
        root.device_nodes([gpu.minor for gpu in gpus])
        for version in {gpu.driver_version for gpu in gpus if gpu.driver_version}:
            root.check(version)
    except (errors.DriverError, OSError) as error:
        return str(error)
    return None


def seen_hook(config: settings.KubeletPlugin, path: str) -> pathlib.Path | None:
    """Where this process sees `nvidia-cdi-hook`, of which `path` is that on the host."""
    if pathlib.Path(path).is_relative_to(config.plugin):
        # The kubelet is told paths in this directory: a container has it under its own name.
        return pathlib.Path(path)
    return layout_of_driver(config).root.seen_path(path)


def layout_of_driver(config: settings.KubeletPlugin) -> driver_root.Layout:
    """Where the settings say that the driver is installed."""
    seen = config.driver_root_seen or config.driver_root
    return driver_root.Layout(driver_root.Root(str(config.driver_root), seen), config.library_dirs)


def installed_driver(config: settings.KubeletPlugin) -> driver_root.DriverRoot:
    """The driver that is installed there."""
    return driver_root.DriverRoot(
        layout_of_driver(config),
        cdi_hook=str(config.cdi_hook) if config.cdi_hook else None,
    )
