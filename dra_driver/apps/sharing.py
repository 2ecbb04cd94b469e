"""What lets processes share a device: time slices, compute modes, and MPS daemons.

Whoever calls holds the locks of the GPUs, and has written into the claim's record what is about to
be set up. What a GPU was set to before goes into its ledger first, so that the last claim that
needs the setting can put it back.
"""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from dra_driver import errors, telemetry
from dra_driver.adapters import (
    files,
    ledgers,
    mps_domain,
    mps_local,
    nvidia_smi,
    nvml_compute,
    nvml_errors,
    stores,
)
from dra_driver.logic import cdi, config_checks, sharing_plan
from dra_driver.model import mps, prepared, sharing

READY_SECONDS = 20.0
"""How long a daemon may take until it has its limits; it takes 0.1 s on an H100."""
STOP_SECONDS = 10.0
PIPE_DIR = "/tmp/nvidia-mps"  # noqa: S108 - where CUDA looks for it in a container
"""Mounted at the default place, so that unsetting the variable is no way around the limits."""
_PERCENT, _MEMORY = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_LIMIT = re.compile(r"0=(\d+)M", re.ASCII)
DAMAGED = "description of an MPS daemon cannot be read"
_WRITABLE = ("rw", "nosuid", "nodev", "rbind", "rprivate")


class Launcher(Protocol):
    """Runs MPS daemons, as processes or as pods. All methods are idempotent."""

    @property
    def private_shm(self) -> bool:
        """Whether each daemon has a shared memory of its own, which its clients need."""

    def start(self, daemon: mps.Daemon) -> None:
        """Have it run, with these limits; it need not be ready when this returns."""

    def state(self, daemon: mps.Daemon) -> mps_local.State:
        """How far it is, with these limits."""

    def wait_ready(self, daemon: mps.Daemon, seconds: float) -> None:
        """Wait until it answers and has its limits."""

    def stop(self, daemon: mps.Daemon, seconds: float) -> None:
        """End it, and leave nothing of it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tools:
    """What sets GPUs, and runs daemons under `directory`."""

    smi: nvidia_smi.NvidiaSmi
    modes: nvml_compute.ComputeModes
    launcher: Launcher
    directory: pathlib.Path
    shm_bytes: int


Others = Iterable[prepared.Record]
"""The records of all other claims."""


class Sharer:
    """Sets up what a record says, and takes down what no other record needs."""

    def __init__(self, tools: Tools, books: ledgers.Ledgers) -> None:
        self._tools = tools
        self._books = books
        self._log = telemetry.logger("sharing")

    def set_up(
        self,
        record: prepared.Record,
        uuids: Mapping[str, str],
        others: Others,
        settings: Mapping[str, sharing.Mps],
        seconds: float = READY_SECONDS,
        *,
        in_use: bool = False,
    ) -> dict[str, cdi.Edits]:
        """Do what the record says; the edits that its devices need for it, by device key.

        `uuids` are those of devices by name, `settings` those of MPS by domain. `seconds` is how
        long a daemon may take at most. `in_use`: containers of the claim may run.

        Raises:
            errors.Rejected: it cannot work.
            errors.Retryable: a daemon is not ready, or a GPU does not answer.
        """
        known = list(others)
        for one in record.sharing.time_slices:
            self._set_time_slice(one)
        edits: dict[str, cdi.Edits] = {}
        for use in record.sharing.mps:
            if use.exclusive:
                for name in use.devices:
                    self._make_exclusive(uuids[name])
            limits = self._limits(use, record, known)
            wanted = self._daemon(use, uuids, limits, settings.get(use.domain))
            daemon = self._adopted(wanted, in_use=in_use or _have(known, use.domain))
            self._tools.launcher.start(daemon)
            self._tools.launcher.wait_ready(daemon, min(seconds, READY_SECONDS))
            edits |= {key: self._edits(use, daemon) for key in use.keys}
        return edits

    def edits(self, record: prepared.Record, uuids: Mapping[str, str]) -> dict[str, cdi.Edits]:
        """The edits as from `set_up`, of a claim that is prepared; nothing is done.

        Raises:
            errors.Retryable: of a daemon that has several devices nothing tells their limits.
        """
        edits: dict[str, cdi.Edits] = {}
        for use in record.sharing.mps:
            daemon = self._described(use.domain)
            if daemon is None:
                if len(use.devices) > 1:
                    raise errors.Retryable(
                        f"MPS daemon {use.domain}: nothing tells what each of its devices may be "
                        "used for. Delete the pods of the claim"
                    )
                daemon = self._daemon(use, uuids, _cap([use]), None)
            edits |= {key: self._edits(use, daemon) for key in use.keys}
        return edits

    def take_down(self, record: prepared.Record, others: Others) -> None:
        """Undo what the record says, however far it got, where no other record needs it."""
        known = list(others)
        for use in reversed(record.sharing.mps):
            left = [
                other for one in known for other in one.sharing.mps if other.domain == use.domain
            ]
            if left:
                self._lower(use.domain, left)
            else:
                self._stop(use)
        for gpu in self._ledgers_of(record):
            self.settle(gpu, known)

    def unused(self, records: Callable[[], Iterable[prepared.Record]]) -> Mapping[str, str | None]:
        """The daemons that none of the records has, by domain: which devices each one serves.

        What a crash, a reboot or a lost record left over. None where nothing tells of the devices.
        """
        found = [name for name in files.names(self._tools.directory) if mps.is_id(name)]
        # Read after the directory: a record is written before its daemon is made.
        used = {use.domain for record in records() for use in record.sharing.mps}
        described = {name: self._described(name) for name in found if name not in used}
        return {name: one.device if one else None for name, one in described.items()}

    def remove(self, domain: str) -> None:
        """End a daemon, and leave nothing of it.

        Raises:
            errors.DriverError: it does not end; it is to be tried again.
        """
        self._stop_at(domain)

    def _set_time_slice(self, wanted: prepared.TimeSlice) -> None:
        ledger = self._books.get(wanted.gpu)
        if ledger.time_slice_before is None:
            before = self._tools.smi.time_slice(wanted.gpu)
            if before is None:
                raise nvidia_smi.NotSupported(
                    f"device {wanted.device!r}: {wanted.gpu} has no time slices to set. Remove "
                    "`sharing`, or select on `timeSliceCapable`"
                )
            self._books.put(ledger.model_copy(update={"time_slice_before": before}))
        self._tools.smi.set_time_slice(wanted.gpu, wanted.number)

    def _make_exclusive(self, gpu: str) -> None:
        ledger = self._books.get(gpu)
        if ledger.compute_mode_before is None:
            before = self._tools.modes.get(gpu)
            self._books.put(ledger.model_copy(update={"compute_mode_before": before}))
        self._tools.modes.set(gpu, nvml_compute.ComputeMode.EXCLUSIVE_PROCESS)

    def _ledgers_of(self, record: prepared.Record) -> list[str]:
        return sorted(
            {one.gpu for one in record.sharing.time_slices}
            | {gpu for use in record.sharing.mps if use.exclusive for gpu in use.gpus}
        )

    def settle(self, gpu: str, others: Others) -> None:
        """Put a GPU back to what it was before, as far as none of the records needs it set."""
        try:
            self._put_back(gpu, others)
        except nvml_errors.GpuGone as error:
            # What it was set to, it forgets with its driver.
            self._log.warning("GPU is gone, and its settings with it", reason=str(error))
            forgotten = {"time_slice_before": None, "compute_mode_before": None}
            self._books.put(self._books.get(gpu).model_copy(update=forgotten))

    def _put_back(self, gpu: str, others: Others) -> None:
        """Put settings back that no claim needs any more."""
        ledger = self._books.get(gpu)
        if ledger.is_blank:
            # Away with what somebody who was killed had begun to write.
            self._books.put(ledger)
            return
        slices = {one.gpu for record in others for one in record.sharing.time_slices}
        if ledger.time_slice_before is not None and gpu not in slices:
            # To set one that is there already takes permission, too.
            if self._tools.smi.time_slice(gpu) != ledger.time_slice_before:
                self._tools.smi.set_time_slice(gpu, ledger.time_slice_before)
            ledger = ledger.model_copy(update={"time_slice_before": None})
            self._books.put(ledger)
        exclusive = {
            one for record in others for use in record.sharing.mps if use.exclusive
            for one in use.gpus
        }  # fmt: skip
        if ledger.compute_mode_before is not None and gpu not in exclusive:
            self._tools.modes.set(gpu, ledger.compute_mode_before)
            self._books.put(ledger.model_copy(update={"compute_mode_before": None}))

    def _limits(self, use: prepared.MpsUse, record: prepared.Record, others: Others) -> mps.Limits:
        """What the daemon has to allow: the most that one of its users may take."""
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
        settings: sharing.Mps | None,
    ) -> mps.Daemon:
        devices = sorted({uuids[name] for name in use.devices})
        if len(devices) > 1 and settings is not None and settings.per_device:
            by_uuid = config_checks.memory_limits(settings, devices)
            by_device = tuple(by_uuid.get(uuid) for uuid in devices)
            limits = dataclasses.replace(limits, memory_by_device=by_device)
        return mps.daemon(
            root=str(self._tools.directory),
            daemon_id=use.domain,
            device=",".join(devices),
            shm_bytes=self._tools.shm_bytes,
            limits=limits,
        )

    def _edits(self, use: prepared.MpsUse, daemon: mps.Daemon) -> cdi.Edits:
        env = {"CUDA_MPS_PIPE_DIRECTORY": PIPE_DIR}
        if use.percent is not None:
            env[_PERCENT] = str(use.percent)
        # What several devices may take differs; a share has its own limit, not that of the daemon.
        amounts = daemon.limits.memory_by_device or (use.memory_bytes,) * daemon.count
        memory = [f"{n}={amount // mps.MIB}M" for n, amount in enumerate(amounts) if amount]
        if memory:
            env[_MEMORY] = ",".join(memory)
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

    def _adopted(self, wanted: mps.Daemon, *, in_use: bool) -> mps.Daemon:
        """The daemon as it goes on: one that is there keeps its shared memory, which is in use.

        One that cannot become this one is ended. It served an instance that a reset of the GPU
        took, or somebody was killed who ended it. One whose description is damaged is described
        anew if claims may be at work with it: it serves what they have.
        """
        domain = mps_domain.Domain(self._tools.directory / wanted.id)
        try:
            described = domain.read()
        except stores.Damaged as error:
            aside = domain.keep_aside()
            self._log.error(DAMAGED, mps=wanted.id, reason=str(error), set_aside=str(aside))
            if in_use:
                domain.describe(wanted)
                return wanted
            described = None
        if described is None:
            is_unfit = self._tools.launcher.state(wanted) is not mps_local.State.ABSENT
        else:
            is_unfit = described.device != wanted.device
        if is_unfit:
            self._tools.launcher.stop(wanted, STOP_SECONDS)
        elif described is not None:
            return dataclasses.replace(wanted, shm_bytes=described.shm_bytes)
        return wanted

    def _described(self, domain: str) -> mps.Daemon | None:
        try:
            return mps_domain.Domain(self._tools.directory / domain).read()
        except stores.Damaged as error:
            self._log.warning("description of an MPS daemon not used", reason=str(error))
            return None

    def wanted(
        self,
        use: prepared.MpsUse,
        record: prepared.Record,
        uuids: Mapping[str, str],
        others: Others,
    ) -> mps.Daemon:
        """What the daemon of a use has to be, by what claims are remembered to have.

        Of several devices the limits of each are not among that.
        """
        return self._daemon(use, uuids, self._limits(use, record, others), None)

    def _stop(self, use: prepared.MpsUse) -> None:
        self._stop_at(use.domain)

    def _stop_at(self, domain: str) -> None:
        # Whose it was matters no more: only where it is.
        daemon = mps.daemon(
            root=str(self._tools.directory), daemon_id=domain, device="GPU-0", shm_bytes=0
        )
        self._tools.launcher.stop(daemon, STOP_SECONDS)


def recalled(
    entries: Iterable[prepared.PreparedDevice],
    edits: Mapping[str, cdi.Edits],
    gpus: Mapping[str, str],
) -> prepared.Sharing:
    """What the edits of a claim's devices, by key, tell of the daemons that `set_up` made.

    `gpus` are the UUIDs of whole GPUs by device name. Time slices leave no trace in edits.
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
    memory = _LIMIT.match(env.get(_MEMORY, ""))
    whole = tuple(sorted(gpus[name] for name in devices.values() if name in gpus))
    return prepared.MpsUse(
        domain=domain,
        keys=tuple(devices),
        devices=tuple(sorted(devices.values())),
        percent=int(percent) if percent.isdecimal() else None,
        memory_bytes=int(memory[1]) * mps.MIB if memory else None,
        exclusive=share_id is None and bool(whole),
        gpus=whole if share_id is None else (),
    )


def _have(records: Others, domain: str) -> bool:
    """Whether one of these claims has the daemon."""
    return any(use.domain == domain for one in records for use in one.sharing.mps)


def _cap(uses: Iterable[prepared.MpsUse]) -> mps.Limits:
    """The most that one of the users of a daemon may take."""
    percent, memory = sharing_plan.cap(uses)
    return mps.Limits(percent, memory)
