"""The GPUs of the node, what it offers of them, and its slices, as its settings have it."""

from collections.abc import Callable

from dra_driver.adapters.system import instances
from dra_driver.apps.node import base, slice_form, time_slice_probe
from dra_driver.apps.offering import (
    fabric,
    inventory,
    names,
    offers,
    passing,
    per_gpu,
    publishing,
    withdrawing,
)
from dra_driver.logic.health import conditions


class Offering:
    """What is seen, and what is published of it by the newest instance of the driver."""

    def __init__(
        self,
        on: base.Base,
        *,
        on_change: Callable[[], None],
        on_error: Callable[[], None],
        health: Callable[[], conditions.View] = conditions.View,
        allocated: withdrawing.Allocated = tuple,
    ) -> None:
        """Nothing is started yet.

        `on_change` is told when other GPUs are seen, `on_error` when slices cannot be written;
        `health` tells what is wrong with GPUs, and `allocated` which devices claims have.
        """
        config, hardware = on.config, on.hardware
        self._state = config.state
        self._instance: instances.Instances | None = None
        self.names = names.of_node(config, on.client, on.locks, on.records)
        self._fabric = fabric.of_node(config, hardware.driver)
        self.gpus = inventory.Inventory(
            inventory.Looking(
                hardware.nvml,
                hardware.place,
                on.books,
                per_gpu.mig_mode(config),
                per_gpu.division(config),
                time_slice_probe.Probe(hardware.with_time_slices).filled,
                self._fabric.placed,
                self.names.named,
                is_busy=on.locks.is_held,
                bus=passing.Passing(
                    hardware.pci.scan,
                    on.records,
                    on.books.handed_over,
                    per_gpu.vfio_mode(config),
                    boot_id=on.boot_id,
                    is_on=config.passes_any,
                ),
            ),
            interval=config.rescan_seconds,
            on_change=on_change,
        )
        self._offers = offers.Offers(
            self.gpus,
            on.records,
            driver_name=config.driver_name,
            policy=config.packing,
            seconds=config.repacking_seconds,
            later=lambda: self.publisher.changed(),  # noqa: PLW0108 - it is made after this
            health=health,
            allocated=allocated,
        )
        self.publisher = publishing.Publisher(
            on.client,
            publishing.Identity(config.driver_name, config.node_name),
            wanted=self._offers.wanted,
            form=slice_form.SliceForm(
                on.client,
                avoids=config.scheduler_defects == "avoid",
                shared=config.shares_any,
                cut=config.cuts_any,
                passed=config.passes_any,
            ),
            may_publish=self.is_newest,
            on_error=on_error,
        )

    @property
    def serves(self) -> bool:
        """Whether it publishes, unless a newer instance does."""
        return self._instance is not None

    def serve(self) -> None:
        """From now on it publishes, as long as it is the newest instance that does."""
        if self._instance is None:
            self._instance = instances.Instances(self._state)
            self.publisher.changed()

    def has_others(self) -> bool:
        """Whether another instance is alive that publishes, or would."""
        return self._instance is not None and self._instance.has_others()

    def is_published(self) -> bool:
        """Whether this instance has published what there is, or another one does."""
        return self.publisher.wait_published(0) or not self.is_newest()

    def clear_dead(self) -> None:
        """Forget instances that have died."""
        if self._instance is not None:
            self._instance.clear_dead()

    def start(self) -> None:
        """Begin to look; to publish, `publisher` has to be started."""
        self._fabric.start()
        self.gpus.start()

    def stop(self) -> None:
        """Stop to publish and to look. Slices stay."""
        self.publisher.stop()
        self._offers.stop()
        self.gpus.stop()
        self._fabric.stop()

    def close(self) -> None:
        """Be no instance any more."""
        if self._instance is not None:
            self._instance.close()

    def is_newest(self) -> bool:
        """Whether it is the newest instance that publishes."""
        return self._instance is not None and self._instance.is_newest()
