"""The GPUs and the NVIDIA driver of the machine that this process runs on."""

import functools
from collections.abc import Sequence

from dra_driver import errors, settings
from dra_driver.adapters import (
    capabilities,
    driver_programs,
    driver_root,
    mps_local,
    nvidia_smi,
    nvml,
    sysfs,
)
from dra_driver.apps import injection, node_agent


def hardware(config: settings.KubeletPlugin) -> node_agent.Hardware:
    """What the settings say of where the driver is installed, as the agent needs it."""
    place = root_of_driver(config)
    root = installed_driver(config)
    smi = nvidia_smi.NvidiaSmi(
        functools.partial(
            driver_programs.find,
            place,
            nvidia_smi.PROGRAM,
            config.library_dirs,
            library=nvidia_smi.LIBRARY,
        )
    )
    return node_agent.Hardware(
        nvml=nvml.Nvml(driver_root=place.seen),
        place=sysfs.Sysfs(config.sysfs_root),
        injector=injection.HostDriver(
            root, capabilities.Capabilities(root.root_of_devices, config.proc_root)
        ),
        driver=place,
        launcher=mps_local.LocalLauncher(place.seen, private_shm=True),
        nvidia_smi=smi,
        with_time_slices=smi.with_time_slices,
        missing=functools.partial(missing_nodes, root),
    )


def missing_nodes(root: driver_root.DriverRoot, minors: Sequence[int]) -> str | None:
    """Which device nodes of the GPUs with these minor numbers are missing; None if none is."""
    try:
        root.device_nodes(minors)
    except (errors.Retryable, OSError) as error:
        return str(error)
    return None


def root_of_driver(config: settings.KubeletPlugin) -> driver_root.Root:
    """Where the settings say that the driver is installed."""
    seen = config.driver_root_seen or config.driver_root
    return driver_root.Root(str(config.driver_root), seen)


def installed_driver(config: settings.KubeletPlugin) -> driver_root.DriverRoot:
    """The driver that is installed there."""
    return driver_root.DriverRoot(
        root_of_driver(config),
        library_dirs=config.library_dirs,
        cdi_hook=str(config.cdi_hook) if config.cdi_hook else None,
    )
