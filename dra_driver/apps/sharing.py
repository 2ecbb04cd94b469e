"""What lets processes share a device: time slices, compute modes, and MPS daemons.

Whoever calls holds the locks of the GPUs, and has written into the claim's record what is about to
be set up.
"""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from dra_driver import errors, telemetry
from dra_driver.adapters import (
    ledgers,
    mps_domain,
    mps_local,
    nvidia_smi,
    nvml_compute,
    patience,
)
from dra_driver.apps import card_settings, waits
from dra_driver.logic import cdi, config_checks, sharing_plan
from dra_driver.model import mps, prepared, sharing

READY_SECONDS = 20.0
"""How long a daemon may take until it has its limits; it takes 0.1 s on an H100."""
PIPE_DIR = "/tmp/nvidia-mps"  # noqa: S108 - where CUDA looks for it in a container
"""Mounted at the default place, so that unsetting the variable is no way around the limits."""
_PERCENT, _MEMORY = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_LIMIT = re.compile(r"(?:[\w-]+)=(\d+)M", re.ASCII)
"""Of one device: its UUID, or its number in a client's order; an earlier form had only numbers."""
_ONLY = "0"
"""The number of the only device that a client sees: CUDA uses one MIG instance a process."""
_WRITABLE = ("rw", "nosuid", "nodev", "rbind", "rprivate")


class Launcher(Protocol):
    """Runs MPS daemons, as processes or as pods. All methods are idempotent.

    Only those that say so wait for anything, and ask anything outside of the node.
    """

    @property
    def private_shm(self) -> bool:
        """Whether each daemon has a shared memory of its own, which its clients need."""

    def start(self, daemon: mps.Daemon) -> None:
        """Want it, with these limits. It has begun to run only after `bring_up`."""

    def bring_up(self, daemon: mps.Daemon, waiting: patience.Patience) -> None:
        """Have one that is wanted begin to run; may ask the API server, and wait."""

    def state(self, daemon: mps.Daemon) -> mps_local.State:
        """How far it is, with these limits."""

    def wait_ready(self, daemon: mps.Daemon, waiting: patience.Patience) -> None:
        """Bring it up, and wait until it answers and has its limits."""

    def retire(self, daemon: mps.Daemon) -> bool:
        """Have it end, and stay away; whether it has ended."""

    def wait_ended(self, daemon: mps.Daemon, waiting: patience.Patience) -> None:
        """Wait until one that was retired has ended; it is killed if that takes too long."""

    def remove(self, daemon: mps.Daemon) -> None:
        """Leave nothing of one that has ended."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tools:
    """What sets GPUs, and runs daemons under `directory`."""

    smi: nvidia_smi.NvidiaSmi
    modes: nvml_compute.ComputeModes
    launcher: Launcher
    directory: pathlib.Path
    shm_bytes: int


Others = card_settings.Others


class Sharer:
    """Sets up what a record says, and takes down what no other record needs."""

    def __init__(self, tools: Tools, books: ledgers.Ledgers) -> None:
        self._tools = tools
        self.cards = card_settings.CardSettings(tools.smi, tools.modes, books)
        self._log = telemetry.logger("sharing")

    def set_up(
        self,
        record: prepared.Record,
        uuids: Mapping[str, str],
        others: Others,
        settings: Mapping[str, sharing.Mps],
    ) -> dict[str, cdi.Edits]:
        """Do what the record says; the edits that its devices need for it, by device key.

        `uuids` are those of devices by name, `settings` those of MPS by domain.

        Raises:
            errors.Rejected: it cannot work.
            waits.Wait: a daemon is not ready yet, or an earlier one has not ended.
            errors.Retryable: a GPU does not answer.
        """
        known = list(others)
        for one in record.sharing.time_slices:
            self.cards.set_time_slice(one)
        edits: dict[str, cdi.Edits] = {}
        daemons = []
        for use in record.sharing.mps:
            wanted = settings.get(use.domain)
            limits = self._limits(use, record, known, wanted)
            daemon = self._adopted(self._daemon(use, uuids, limits))
            self.cards.make_exclusive(use)
            self._tools.launcher.start(daemon)
            daemons.append(daemon)
            edits |= {key: self._edits(use, daemon, wanted) for key in use.keys}
        for daemon in daemons:
            if self._tools.launcher.state(daemon) is not mps_local.State.READY:
                raise self._is_not_ready(daemon)
        for use in record.sharing.mps:
            self.cards.confirm_exclusive(use)
        return edits

    def take_down(self, record: prepared.Record, others: Others) -> None:
        """Undo what the record says, however far it got, where no other record needs it.

        Raises:
            waits.Wait: a daemon has not ended yet.
        """
        known = list(others)
        for use in reversed(record.sharing.mps):
            left = [
                other for one in known for other in one.sharing.mps if other.domain == use.domain
            ]
            if left:
                self._lower(use.domain, left)
            else:
                self._stop(use.domain)
        for gpu in self._ledgers_of(record):
            self.settle(gpu, known)

    def remove_unused(self, records: Callable[[], Iterable[prepared.Record]]) -> None:
        """Stop the daemons that no record has: what a crash or a reboot left over.

        Raises:
            waits.Wait: one of them has not ended yet; all have been told to.
        """
        directory = self._tools.directory
        found = sorted(directory.iterdir()) if directory.is_dir() else []
        # Read after the directory: a record is written before its daemon is made.
        used = {use.domain for record in records() for use in record.sharing.mps}
        pending: list[waits.Wait] = []
        for path in found:
            if path.name not in used:
                try:
                    self._stop(path.name)
                except waits.Wait as wait:
                    pending.append(wait)
                except errors.DriverError as error:
                    self._log.error(
                        "MPS daemon without a claim cannot be removed",
                        domain=path.name,
                        reason=str(error),
                    )
                else:
                    self._log.warning("MPS daemon without a claim removed", domain=path.name)
        if pending:
            raise pending[0]

    def _ledgers_of(self, record: prepared.Record) -> list[str]:
        return sorted(
            {one.gpu for one in record.sharing.time_slices}
            | {gpu for use in record.sharing.mps if use.exclusive for gpu in use.gpus}
        )

    def settle(self, gpu: str, others: Others) -> None:
        """Put a GPU back to what it was before, as far as none of the records needs it set."""
        self.cards.settle(gpu, others)

    def _limits(
        self,
        use: prepared.MpsUse,
        record: prepared.Record,
        others: Others,
        settings: sharing.Mps | None,
    ) -> mps.Limits:
        """What the daemon has to allow: the most that one of its users may take."""
        if len(use.devices) > 1 and settings is not None:
            # Whole GPUs have no other user. The record may be of an earlier driver, which did not
            # remember the largest of several limits.
            return mps.Limits(use.percent, sharing_plan.most_memory(settings, use.gpus))
        uses = [
            other
            for one in (record, *others)
            for other in one.sharing.mps
            if other.domain == use.domain
        ]
        return _cap(uses)

    def _daemon(
        self,
        use: prepared.MpsUse,
        uuids: Mapping[str, str],
        limits: mps.Limits,
    ) -> mps.Daemon:
        several = len(use.devices) > 1
        return mps.daemon(
            root=str(self._tools.directory),
            daemon_id=use.domain,
            device=",".join(use.gpus if several else (uuids[name] for name in use.devices)),
            shm_bytes=self._tools.shm_bytes,
            limits=limits,
        )

    def _edits(
        self, use: prepared.MpsUse, daemon: mps.Daemon, settings: sharing.Mps | None
    ) -> cdi.Edits:
        env = {"CUDA_MPS_PIPE_DIRECTORY": PIPE_DIR}
        if use.percent is not None:
            env[_PERCENT] = str(use.percent)
        amounts = _amounts(use, daemon.devices, settings)
        if amounts:
            texts = [f"{device}={amount // mps.MIB}M" for device, amount in amounts.items()]
            env[_MEMORY] = ",".join(texts)
        # A client connects and writes nothing: one that is root must not take the door away.
        mounts = [cdi.Mount(daemon.pipe_dir, PIPE_DIR)]
        if self._tools.launcher.private_shm:
            mounts.append(cdi.Mount(daemon.shm_dir, "/dev/shm", _WRITABLE))  # noqa: S108
        return cdi.Edits(env=env, mounts=tuple(mounts))

    def _lower(self, domain: str, left: Iterable[prepared.MpsUse]) -> None:
        """Let a daemon allow no more than those need who are left; that holds nobody up."""
        running = self._described(domain)
        if running is None:
            return
        try:
            self._tools.launcher.start(running.limited(_cap(left)))
        except errors.DriverError as error:
            self._log.warning("MPS daemon keeps its limits", domain=domain, reason=str(error))

    def _adopted(self, wanted: mps.Daemon) -> mps.Daemon:
        """The daemon as it goes on: one that is there keeps its shared memory, which is in use, and
        the order of its devices.

        One that cannot become this one is ended. It served an instance that a reset of the GPU
        took, or somebody was killed who ended it.

        Raises:
            waits.Wait: that has not ended yet.
        """
        described = self._described(wanted.id)
        if described is None:
            is_unfit = self._tools.launcher.state(wanted) is not mps_local.State.ABSENT
        else:
            is_unfit = set(described.devices) != set(wanted.devices)
        if is_unfit:
            self._end(wanted)
        elif described is not None:
            return dataclasses.replace(
                wanted, device=described.device, shm_bytes=described.shm_bytes
            )
        return wanted

    def _described(self, domain: str) -> mps.Daemon | None:
        try:
            return mps_domain.Domain(self._tools.directory / domain).read()
        except errors.Rejected as error:
            self._log.warning("description of an MPS daemon not used", reason=str(error))
            return None

    def _stop(self, domain: str) -> None:
        # Whose it was matters no more: only where it is.
        self._end(
            mps.daemon(
                root=str(self._tools.directory), daemon_id=domain, device="GPU-0", shm_bytes=0
            )
        )

    def _end(self, daemon: mps.Daemon) -> None:
        """End a daemon, and leave nothing of it.

        Raises:
            waits.Wait: it has not ended yet.
        """
        launcher = self._tools.launcher
        if not launcher.retire(daemon):
            raise waits.Wait(
                f"MPS daemon {daemon.id} has not ended yet",
                f"mps {daemon.id}",
                lambda waiting: launcher.wait_ended(daemon, waiting),
            )
        launcher.remove(daemon)

    def _is_not_ready(self, daemon: mps.Daemon) -> waits.Wait:
        def over(waiting: patience.Patience) -> None:
            with waiting.at_most(READY_SECONDS) as shorter, self.cards.remembered():
                self._tools.launcher.wait_ready(daemon, shorter)

        return waits.Wait(
            f"MPS daemon {daemon.id} on {daemon.device} is not ready yet", f"mps {daemon.id}", over
        )


def recalled(
    entries: Iterable[prepared.PreparedDevice],
    edits: Mapping[str, cdi.Edits],
    gpus: Mapping[str, str],
) -> prepared.Sharing:
    """What the edits of a claim's devices, by key, tell of the daemons that `set_up` made.

    `gpus` are the UUIDs of whole GPUs by device name, in PCI order. Time slices leave no trace in
    edits.
    """
    found: dict[tuple[str, str | None], dict[str, str]] = {}
    limits: dict[tuple[str, str | None], cdi.Edits] = {}
    for entry in entries:
        key = cdi.device_key(entry.device, entry.share_id)
        own = edits.get(key, cdi.Edits())
        for mount in own.mounts:
            if mount.container_path == PIPE_DIR:
                use = pathlib.PurePath(mount.host_path).parent.name, entry.share_id
                found.setdefault(use, {})[key] = entry.device
                limits[use] = own
    return prepared.Sharing(
        mps=tuple(
            _recalled_use(use, devices, limits[use].env, gpus) for use, devices in found.items()
        )
    )


def _recalled_use(
    use: tuple[str, str | None],
    devices: Mapping[str, str],
    env: Mapping[str, str],
    gpus: Mapping[str, str],
) -> prepared.MpsUse:
    domain, share_id = use
    percent = env.get(_PERCENT, "")
    amounts = [int(text) * mps.MIB for text in _LIMIT.findall(env.get(_MEMORY, ""))]
    names = set(devices.values())
    whole = tuple(uuid for name, uuid in gpus.items() if name in names)
    return prepared.MpsUse(
        domain=domain,
        keys=tuple(devices),
        devices=tuple(sorted(devices.values())),
        percent=int(percent) if percent.isdecimal() else None,
        # A device that is not among them has no limit, and so the daemon none.
        memory_bytes=max(amounts) if amounts and len(amounts) >= len(names) else None,
        exclusive=share_id is None and bool(whole),
        gpus=whole if share_id is None else (),
    )


def _amounts(
    use: prepared.MpsUse, uuids: Sequence[str], settings: sharing.Mps | None
) -> dict[str, int]:
    """What the variables of a client hold it to: bytes, by what they call a device.

    A UUID means the same card in whatever order a client sees its cards.
    """
    if len(uuids) > 1 and settings is not None:
        by_uuid = config_checks.memory_limits(settings, uuids)
        return {uuid: by_uuid[uuid] for uuid in uuids if uuid in by_uuid}
    if use.memory_bytes is None:
        return {}
    names = [uuid if uuid.startswith("GPU-") else _ONLY for uuid in uuids]
    return dict.fromkeys(names, use.memory_bytes)


def _cap(uses: Iterable[prepared.MpsUse]) -> mps.Limits:
    """The most that one of the users of a daemon may take."""
    percent, memory = sharing_plan.cap(uses)
    return mps.Limits(percent, memory)
