"""What `dra-driver doctor` looks at where GPUs are handed to virtual machines."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence

from dra_driver import errors, settings
from dra_driver.adapters.disk import files, records
from dra_driver.adapters.system import boots, file_holders, processes
from dra_driver.apps.node import host
from dra_driver.logic.doctor import diagnosis, passthrough_diagnosis
from dra_driver.logic.passthrough import cards, modules, nodes
from dra_driver.model import devices, pci, prepared

_LOADERS = ("usr/sbin/modprobe", "sbin/modprobe", "usr/bin/modprobe", "bin/modprobe")
_OWN = "dra-driver"
"""What the driver's processes are called: the plugin lets go of a GPU that is handed over."""


def findings(
    config: settings.KubeletPlugin, hardware: host.Hardware, gpus: Sequence[devices.Gpu]
) -> list[diagnosis.Finding]:
    """None where no GPU is handed over by the settings. `gpus` are those that NVML tells of."""
    if not config.passes_any:
        return []
    try:
        bus = hardware.pci.scan()
    except (errors.DriverError, OSError) as error:
        return [
            diagnosis.problem(
                "VFIO",
                str(config.sysfs_root / "bus" / "pci"),
                f"the PCI bus cannot be looked at: {error}",
                "mount the node's /sys, or correct --sysfs-root",
            )
        ]
    return passthrough_diagnosis.findings(
        passthrough_diagnosis.Seen(
            bus,
            gpus,
            _known(config.state / "claims", config.boot_id_file),
            tuple(_modules(config, hardware, bus)),
            hardware.pci.seen(nodes.API).exists(),
            _holders(config, hardware, gpus),
        )
    )


def _known(directory: pathlib.Path, boot_id_file: pathlib.Path) -> list[prepared.Record]:
    """The records of claims of this boot, as far as they can be read.

    Nothing is bound any more for an earlier one, and the plugin drops those when it starts.
    """
    if not directory.is_dir():
        return []
    try:
        boot_id = boots.current(boot_id_file)
        known = records.Records(directory).contents().records.values()
    except (errors.Fatal, *files.TROUBLE):
        # What is wrong with the file or the directory is told where those are looked at.
        return []
    return [record for record in known if record.boot_id == boot_id]


def _modules(
    config: settings.KubeletPlugin, hardware: host.Hardware, bus: pci.Bus
) -> Iterator[passthrough_diagnosis.Module]:
    lines = hardware.pci.aliases()
    known = {cards.plain(line.split()[-1]) for line in lines if line.startswith("alias ")}
    has_loader = config.simulate_gpus is not None or any(
        (config.host_root / path).exists() for path in _LOADERS
    )
    for module in dict.fromkeys(modules.best(one.modalias, lines) for one in bus.gpus):
        yield passthrough_diagnosis.Module(
            module,
            hardware.pci.driver_of(module),
            # Older kernels have no line for the module that fits any function.
            is_known=module in known or module == modules.GENERIC,
            has_loader=has_loader,
        )


def _holders(
    config: settings.KubeletPlugin, hardware: host.Hardware, gpus: Sequence[devices.Gpu]
) -> Mapping[devices.PciAddress, str]:
    """Who has GPUs open, but for this driver."""
    describe = processes.Processes(config.proc_root).describe
    found = {}
    for gpu in gpus:
        pids = file_holders.pids(config.proc_root, hardware.nodes(gpu.uuid, gpu.minor))
        named = [one for one in map(describe, pids) if not (one.command or "").startswith(_OWN)]
        if named:
            found[gpu.pci_address] = ", ".join(map(str, named))
    return found
