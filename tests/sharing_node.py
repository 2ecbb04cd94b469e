"""A node whose GPUs are shared: with an nvidia-smi, MPS daemons that run, and CUDA programs.

It is `mig_node.Node` with what daemons and settings need besides. Everything is below one short
directory: a socket's path may have 107 bytes.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal

import mig_node
import polling

from dra_driver.adapters.driver import driver_programs
from dra_driver.adapters.mps import mps_domain, mps_local
from dra_driver.adapters.nvml import nvidia_smi
from dra_driver.adapters.system import pids
from dra_driver.apps.effects import effect
from dra_driver.apps.upkeep import (
    card_upkeep,
    describing,
    recovering,
)
from dra_driver.logic.preparing import cdi, mps_edits
from dra_driver.model import mps
from dra_driver.model import shares as share_model
from dra_driver.sim.gpus import cuda_program, gpu_operations, gpu_state

MIB, GIB = 2**20, 2**30
DEFAULT, PROHIBITED, EXCLUSIVE = 0, 2, 3
"""Compute modes."""
SHORT, MEDIUM, LONG = 1, 2, 3
"""Time slices."""
BY_MEMORY = share_model.Shares()
NOT_ENFORCED = share_model.Shares(enforcement=share_model.Enforcement.NONE)
FOLDERS = (*mig_node.FOLDERS, "mps")


class Node(mig_node.Node):
    """The driver's parts that change the node; made again, it is the driver after a restart."""

    def __init__(
        self, root, gpus, api, starter=None, *, mode="dynamic", boot="boot-1", shares=None,
        shm_bytes=16 * MIB, vfio="on", device_metadata=True,
    ):  # fmt: skip
        self._starter = starter
        super().__init__(
            root, gpus, api, mode=mode, boot=boot, shares=shares, shm_bytes=shm_bytes, vfio=vfio,
            device_metadata=device_metadata,
        )  # fmt: skip
        self.upkeep = card_upkeep.CardUpkeep(
            lambda: [card.gpu for card in self.gpus.snapshot.cards],
            self.store.records,
            self.held,
            self.sharer.cards,
        )
        self.describer = describing.Describer(
            self.store,
            self.gpus,
            self.sharer,
            self.mps,
            leaving=self.preparer.leaving,
        )

    def programs(self, found):
        """The same programs, sooner where somebody starts them."""
        if self._starter is None:
            return super().programs(found)
        script = self.root / "nvidia-smi"
        words = [*self._starter.command("nvidia-smi"), str(self.simulation)]
        script.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        launcher = mps_local.LocalLauncher(
            self.simulation / "driver",
            private_shm=False,
            command=self._starter.command("supervisor"),
        )
        return nvidia_smi.NvidiaSmi(lambda: driver_programs.Program(script, {})), launcher

    def start(self):
        """What the driver does when it starts, before it answers."""
        recovering.Recovery(self.store, self.effects.listed, self.mender, self.api.everywhere).run()
        self.restorer.look()
        self.refresher.look()
        self.orphans.sweep()
        self.orphans.settle()
        self.upkeep.look()
        return self

    def leftovers(self):
        """What any effect made of which no record tells, by kind and name."""
        known = self.store.records.contents().records
        found = effect.leftovers(self.effects.listed, self.gpus.snapshot.cards, known.values)
        return [left.key for left in found]

    def tidy(self, allocated):
        """What the driver does once in a while, and with a list of all claims' devices."""
        self.orphans.sweep()
        self.orphans.settle()
        if self.orphans.needs_view():
            self.orphans.remove(frozenset(allocated))

    def look_after(self):
        """What the driver does every few seconds once it runs, until all daemons are ready."""
        polling.until(self.sharer.health.look, what="daemons that are ready")
        return self

    def reboot(self):
        """The node restarts: nothing runs any more, and GPUs have forgotten what they were set to.

        The driver has to be made again, with another boot id.
        """
        self._kill_all()
        gpu_operations.reboot(self.simulation)

    def set_card(self, number=0, **fields):
        """An administrator sets a GPU: `time_slice`, `compute_mode`, `persistence_mode`, …"""
        with gpu_state.open_file(self.simulation).edit() as state:
            for name, value in fields.items():
                setattr(state.gpus[number], name, value)

    def set_to(self, number=0):
        """What a GPU is set to: time slice and compute mode."""
        card = self.card(number)
        return card.time_slice, card.compute_mode

    def mode(self, number=0):
        """The compute mode as somebody finds it who opens NVML for that alone."""
        return self.modes.get(self.uuid(number))

    def daemons(self):
        """The daemons that have a directory."""
        return sorted(path.name for path in self.mps.iterdir()) if self.mps.is_dir() else []

    def domain(self, ref, number=0):
        """The place of a claim's daemon."""
        return mps_domain.Domain(self.mps / self.record(ref).sharing.mps[number].domain)

    def described(self, ref, number=0):
        """What a claim's daemon is to be."""
        found = self.domain(ref, number).read()
        assert found is not None
        return found

    def daemon(self, ref, number=0):
        """The process of a claim's daemon, which is ready and has its limits."""
        domain = self.domain(ref, number)
        ready, wanted = domain.ready(), domain.read()
        assert ready is not None, "it is not ready"
        assert wanted is not None, "it is not described"
        assert ready.limits == wanted.limits
        process = pids.Process(ready.pid, ready.start_time)
        assert pids.is_alive(process), "it does not run"
        return process

    def limits(self, ref, number=0):
        """What the cap of a claim's daemon is that runs: percent and GiB."""
        self.daemon(ref, number)
        found = self.described(ref, number).limits
        memory = found.memory_bytes
        return found.thread_percentage, None if memory is None else memory / GIB

    def kill_daemon(self, ref):
        process = self.daemon(ref)
        kill(process)
        return process

    def kill_supervisor(self, ref):
        process = self.domain(ref).supervisor()
        assert process is not None
        kill(process)

    def comes_back(self, ref, old):
        """The daemon that is ready in place of an old one."""

        def found():
            ready = self.domain(ref).ready()
            return ready is not None and ready.pid != old.pid and self.daemon(ref)

        return polling.until(found, what="another daemon")

    def cdi_name(self, ref):
        return cdi.file_name(mig_node.DRIVER, ref.uid)

    def edits(self, ref, key=None):
        """What containers get with a device or share of a claim: variables, host paths by path."""
        spec = json.loads((self.cdi / self.cdi_name(ref)).read_text())
        by_key = {device["name"]: device["containerEdits"] for device in spec["devices"]}
        names = [name for name in by_key if key in {None, name.removeprefix(f"{ref.uid}-")}]
        [name] = names
        found = by_key[name]
        variables = dict(text.split("=", 1) for text in found.get("env", []))
        mounts = {one["containerPath"]: one["hostPath"] for one in found.get("mounts", [])}
        return variables, mounts

    def connect(self, ref, key=None, **environment):
        """A CUDA program begins in a container of the claim, with these variables besides."""
        variables, mounts = self.edits(ref, key)
        inside = {**variables, **environment}
        path = inside.get("CUDA_MPS_PIPE_DIRECTORY", mps_edits.PIPE_DIR)
        outside = mounts.get(path, str(self.root / "nothing"))
        cards = [gpu.uuid for gpu in gpu_state.open_file(self.simulation).read().gpus]
        return cuda_program.connect({**inside, "CUDA_MPS_PIPE_DIRECTORY": outside}, cards)

    def gets(self, ref, key=None, **environment):
        """What such a program may take: percent and GiB; it has ended when this returns."""
        caps = self._caps(ref, key, environment)
        return caps.percentage, None if caps.memory is None else caps.memory / GIB

    def gets_each(self, ref, key=None, **environment):
        """What such a program may take of the memory of each card that it sees: GiB, in order."""
        caps = self._caps(ref, key, environment)
        memories = (caps.memory, *caps.others.values())
        return [None if memory is None else memory / GIB for memory in memories]

    def _caps(self, ref, key, environment):
        client = self.connect(ref, key, **environment)
        client.close()
        assert client.server is not None, "it runs without MPS"
        return client.caps

    def files(self):
        """What there is of claims, of GPUs that were changed, and of daemons."""
        return sorted(
            str(path.relative_to(self.root))
            for folder in FOLDERS
            if (self.root / folder).is_dir()
            for path in (self.root / folder).iterdir()
        )

    def hardware(self):
        return [(*state, *self.set_to(number)) for number, state in enumerate(super().hardware())]

    def is_clean(self):
        assert super().is_clean()
        assert self.runs_nothing()
        assert {self.set_to(0), self.set_to(1)} == {(0, DEFAULT)}
        return True

    def runs_nothing(self):
        polling.until(lambda: self._processes() == [], what="the end of all daemons")
        return True

    def _processes(self):
        """Whatever runs for a daemon: supervisors, which write into its directory, and what has
        that among its variables or flags: daemons, their servers, and who asks them.
        """
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                output = os.readlink(entry / "fd/1")  # noqa: PTH115 - the end may be deleted
                told = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                if output.startswith(f"{self.mps}/") or f"{self.mps}/".encode() in told:
                    process = pids.find(int(entry.name))
                    found += [process] if process is not None else []
        return found

    def _kill_all(self):
        # A supervisor that is killed after its daemon has begun to start another one.
        while found := self._processes():
            for process in found:
                kill(process)

    def close(self):
        """End what runs, and remove everything."""
        self._kill_all()
        self.held.close()
        polling.until(_all_are_buried, what="the end of all supervisors")
        shutil.rmtree(self.root, ignore_errors=True)


def limits(percent=None, gib=None):
    return mps.Limits(percent, None if gib is None else int(gib * GIB))


def kill(process):
    pids.send(process, signal.SIGKILL)
    assert pids.wait(process, 60)


def _all_are_buried():
    started = [*mps_local._children.values(), *mps_local._leaving]
    return all(child.poll() is not None for child in started)
