"""A node with simulated GPUs whose driver can be reset; made again, it is the driver restarted."""

import dataclasses
import pathlib

import mig_node

from dra_driver.adapters.disk import health_records
from dra_driver.adapters.driver import driver_programs
from dra_driver.adapters.nvml import nvidia_smi, nvml_health, nvml_reset
from dra_driver.apps.health import book, card_health, recovering, resetting
from dra_driver.logic.health import conditions, meaning
from dra_driver.model import health
from dra_driver.sim.gpus import gpu_health_state, gpu_operations, gpu_state, host_nvidia_smi


class Facts:
    """What NVML tells; here older cards tell whether they want a reset, too."""

    def __init__(self, library, simulation):
        self._reader, self._file = nvml_health.HealthReader(library), simulation

    def want(self, *uuids):
        """The driver wants these GPUs reset."""
        with gpu_health_state.open_file(self._file).edit() as cards:
            for uuid in uuids:
                cards.of(uuid).recovery = health.Recovery.RESET

    def facts(self, gpus, asks=lambda _: None):
        known = gpu_health_state.open_file(self._file).read().cards
        wanted = {uuid: one.recovery for uuid, one in known.items()}
        return {
            uuid: dataclasses.replace(one, recovery=wanted.get(uuid, 0))
            if one.recovery is None and not one.is_lost
            else one
            for uuid, one in self._reader.facts(gpus, asks).items()
        }


class Events:
    """Who listens to events, with NVML open for as long."""

    def __init__(self, library):
        self._nvml, self.is_open = library, False

    def resume(self):
        if not self.is_open:
            self._nvml.init()
            self.is_open = True

    def pause(self, _seconds=0.0):
        if self.is_open:
            self._nvml.shutdown()
            self.is_open = False
        return True


class Node(mig_node.Node):
    """The parts that reset GPUs, on a clock that is set by hand."""

    def __init__(self, root, gpus, api, starter, *, on=True, reset_seconds=60.0, **options):
        """Without a starter nvidia-smi is the program that simulated nodes have, and slower."""
        self._starter, self._reset_seconds = starter, reset_seconds
        super().__init__(root, gpus, api, **options)
        self.time, self.alone, self.results = 1000.0, True, []
        self.library = self.found.nvml
        self.wanting = Facts(self.library, self.simulation)
        self.events = Events(self.library)
        self.events.resume()
        self.library.held_by(self.events.pause, self.events.resume)
        self.health = card_health.CardHealth(
            card_health.Sources(self.gpus, self.store.records, self.wanting),
            book.Kept(health_records.opened(root / "health"), self.store.boot_id),
            meaning.Policy(),
            interval=3600.0,
            listeners=book.Listeners(),
            clock=lambda: conditions.Now(self.time, "2026-11-30T10:00:00Z"),
        )
        self.health.book.load()
        self.begun = self.store.resets
        self.resetter = resetting.Resetter(
            resetting.Tools(
                self.library,
                self.smi,
                self.partitioner,
                self.wanting,
                self.found.nodes,
                pathlib.Path("/proc"),
            ),
            resetting.Kept(
                self.begun, self.store.records, self.books, self.held, self.store.boot_id
            ),
            self.health,
            is_alone=lambda: self.alone,
        )
        self.recovering = recovering.Recovering(
            recovering.Sources(
                self.identity,
                self.gpus,
                self.store.records,
                api,
                self.books,
                nvml_reset.ResetNvml(self.library),
            ),
            self.resetter,
            self.health,
            resets=on,
            is_alone=lambda: self.alone,
            on_result=lambda gpu, result, _message: self.results.append((gpu, result)),
            clock=lambda: self.time,
        )

    def programs(self, found):
        """nvidia-smi as a process of its own, and what runs MPS daemons."""
        self.found = found
        if self._starter is None:
            return self._smi(self.simulation / host_nvidia_smi.NAME), found.launcher
        script = self.root / "nvidia-smi"
        words = [*self._starter.command("nvidia-smi"), str(self.simulation)]
        script.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        return self._smi(script), found.launcher

    def _smi(self, path):
        program = driver_programs.Program(path, {})
        return nvidia_smi.NvidiaSmi(lambda: program, reset_seconds=self._reset_seconds)

    def ask(self, *numbers):
        """The driver wants these GPUs reset, and it is seen."""
        self.wanting.want(*(self.uuid(number) for number in numbers))
        self.health.look()

    def look(self):
        """What the driver does every half minute."""
        self.time += recovering.AFTER_LIST
        self.gpus.look()
        self.health.look()
        self.recovering.look()
        self.health.look()

    def told(self, number=0):
        """What is said of a GPU that is to be reset; None: nothing."""
        found = [
            one.finding.message
            for one in self.health.view.of_gpu(self.uuid(number))
            if one.finding.key is health.Key.RECOVERY and one.away is None
        ]
        return found[0].partition("; ")[2] if found else None

    def resets(self):
        """How often each GPU was reset."""
        return [card.resets for card in gpu_state.open_file(self.simulation).read().gpus]

    def persistence(self):
        return [card.persistence_mode for card in gpu_state.open_file(self.simulation).read().gpus]

    def link(self, *numbers):
        gpu_operations.link(self.simulation, *(self.uuid(number) for number in numbers))

    def is_over(self):
        """Nothing of a reset is left, and NVML is had by those who had it."""
        assert self.begun.contents().records == {}
        assert self.events.is_open
        assert all(self.persistence())
        return True

    def close(self):
        self.events.pause(60.0)
        self.held.close()
