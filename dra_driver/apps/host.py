"""The GPUs and the NVIDIA driver of the machine that this process runs on."""

import functools

from dra_driver import settings
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
    seen = config.driver_root_seen or config.driver_root
    place = driver_root.Root(str(config.driver_root), seen)
    root = driver_root.DriverRoot(
        place,
        library_dirs=config.library_dirs,
        cdi_hook=str(config.cdi_hook) if config.cdi_hook else None,
    )
    return node_agent.Hardware(
        nvml=nvml.Nvml(driver_root=seen),
        place=sysfs.Sysfs(config.sysfs_root),
        injector=injection.HostDriver(
            root, capabilities.Capabilities(root.root_of_devices, config.proc_root)
        ),
        driver=place,
        launcher=mps_local.LocalLauncher(seen, private_shm=True),
        nvidia_smi=nvidia_smi.NvidiaSmi(
            functools.partial(
                driver_programs.find,
                place,
                nvidia_smi.PROGRAM,
                config.library_dirs,
                library=nvidia_smi.LIBRARY,
            )
        ),
    )
