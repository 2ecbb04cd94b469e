"""What is done on a node for claims, as its settings and its hardware have it."""

import dataclasses

from dra_driver.adapters.disk import card_names
from dra_driver.adapters.driver import persistence_daemon
from dra_driver.adapters.nvml import nvml_compute, nvml_mig
from dra_driver.adapters.system import processes
from dra_driver.apps.effects import (
    effect,
    handing_over,
    instances,
    metadata,
    metadata_files,
    partitioning,
    passthrough,
    sharing,
    time_slices,
)
from dra_driver.apps.mps import launching, mps_health, mps_pods
from dra_driver.apps.node import base, injection
from dra_driver.model import quantities


@dataclasses.dataclass(frozen=True, slots=True)
class Effects:
    """What is done on the node for a claim."""

    injector: injection.Injector
    partitioner: partitioning.Partitioner
    sharer: sharing.Sharer
    passthrough: passthrough.Passthrough
    files: metadata_files.MetadataFiles
    adopt_foreign_mig: bool = False
    device_metadata: bool = True

    @property
    def listed(self) -> tuple[effect.Effect, ...]:
        """In the order in which they are made; they are undone backwards.

        Last what tells of the others, so that it knows what came of them, and goes first.
        """
        return (*self._on_devices, self.metadata)

    @property
    def metadata(self) -> metadata.Metadata:
        """What tells containers of their devices."""
        return metadata.Metadata(self.files, self._on_devices, is_on=self.device_metadata)

    @property
    def _on_devices(self) -> tuple[effect.Effect, ...]:
        return (
            instances.Instances(self.partitioner, adopt=self.adopt_foreign_mig),
            time_slices.TimeSlices(self.sharer.cards),
            self.sharer,
            self.passthrough,
        )


def launcher(on: base.Base) -> launching.Launcher:
    """What runs MPS daemons: as processes of this pod, or as pods.

    Raises:
        errors.Fatal: the settings do not do for pods.
    """
    config, hardware = on.config, on.hardware
    if config.mps_launcher == "pod":
        return mps_pods.launcher(config, on.client, hardware.driver, hardware.launcher)
    return hardware.launcher


def effects(on: base.Base, launched: launching.Launcher) -> Effects:
    """What is done on the node; `launched` runs its MPS daemons."""
    config, hardware, books = on.config, on.hardware, on.books
    partitioner = partitioning.Partitioner(
        nvml_mig.MigNvml(hardware.nvml),
        books,
        processes.Processes(config.proc_root).describe,
    )
    tools = sharing.Tools(
        hardware.nvidia_smi,
        nvml_compute.ComputeModes(hardware.nvml),
        launched,
        config.mps,
        quantities.parse(config.mps_shm_size).value,
    )
    health = mps_health.Health(on.records, on.locks, launched, config.mps)
    sharer = sharing.Sharer(tools, books, health)
    handover = handing_over.Handover(
        handing_over.Tools(
            hardware.pci,
            hardware.nvml,
            partitioner,
            books,
            hardware.nodes,
            hardware.missing,
            config.proc_root,
            sharer.serving,
            persistence_daemon.PersistenceDaemon(hardware.driver.root.seen),
        )
    )
    passed = passthrough.Passthrough(
        handover,
        hardware.pci,
        books,
        hardware.handed_over,
        card_names.CardNames(config.state / "names").devices,
    )
    files = metadata_files.MetadataFiles(config.plugin, config.cdi_dir, config.driver_name)
    return Effects(
        hardware.injector,
        partitioner,
        sharer,
        passed,
        files,
        config.adopt_foreign_mig,
        config.device_metadata,
    )
