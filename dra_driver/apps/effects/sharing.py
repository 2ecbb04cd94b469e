"""The effect of MPS: daemons that let processes share devices, on GPUs that are theirs alone.

See `effect.Effect`.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import files, ledgers, stores
from dra_driver.adapters.mps import mps_domain, mps_local
from dra_driver.adapters.nvml import nvidia_smi, nvml_compute
from dra_driver.adapters.system import patience
from dra_driver.apps.effects import card_settings, effect, specs, waits
from dra_driver.apps.mps import launching, mps_health
from dra_driver.logic.offering import catalog
from dra_driver.logic.preparing import cdi, mps_edits, planning, reports, sharing_plan
from dra_driver.model import devices, mps, prepared, quantities, sharing

READY_SECONDS = 20.0
"""How long a daemon may take until it has its limits; it takes 0.1 s on an H100."""
DAMAGED = "description of an MPS daemon cannot be read"


@dataclasses.dataclass(frozen=True, slots=True)
class Tools:
    """What sets GPUs, and runs daemons under `directory`."""

    smi: nvidia_smi.NvidiaSmi
    modes: nvml_compute.ComputeModes
    launcher: launching.Launcher
    directory: pathlib.Path
    shm_bytes: int


Others = effect.Others


class Sharer:
    """MPS daemons of claims, and the compute modes of their GPUs."""

    parts: Mapping[str, Collection[int]] = MappingProxyType({})
    written_ahead = True

    def __init__(self, tools: Tools, books: ledgers.Ledgers, health: mps_health.Health) -> None:
        """`health` looks after the daemons; whoever wires it starts it."""
        self._tools = tools
        self.health = health
        self.cards = card_settings.CardSettings(tools.smi, tools.modes, books)
        self._log = telemetry.logger("sharing")

    def remember(self, record: prepared.Record, job: effect.Job) -> prepared.Record:
        """See `effect.Effect`. A record that was rebuilt does not say all, but its daemons run."""
        uses, before = job.plan.needs.remembered.mps, job.before
        if before is not None and job.in_use:
            uses = (*before.sharing.mps, *uses) if before.rebuilt else before.sharing.mps
        return _with(record, tuple({(use.domain, use.keys): use for use in uses}.values()))

    def is_in(self, record: prepared.Record) -> bool:
        """See `effect.Effect`."""
        return bool(record.sharing.mps)

    def is_intact(self, _record: prepared.Record, _plan: planning.Plan) -> bool:
        """See `effect.Effect`. One that has ended is started again, and its clients come back."""
        return True

    def renounce(self, record: prepared.Record, others: Others) -> None:
        """See `effect.Effect`."""

    def make(self, record: prepared.Record, job: effect.Job) -> effect.Made:
        """See `effect.Effect`.

        Raises:
            errors.Rejected: it cannot work.
            waits.Wait: a daemon is not ready yet, or an earlier one has not ended.
            errors.Retryable: a GPU does not answer.
        """
        known, settings = job.others, job.plan.needs.mps
        uuids = specs.uuids(record, {name: offer.gpu for name, offer in job.plan.offers.items()})
        edits: dict[str, cdi.Edits] = {}
        daemons = []
        for use in record.sharing.mps:
            wanted = settings.get(use.domain)
            limits = self._limits(use, record, known, wanted)
            daemon = self._adopted(
                self._daemon(use, uuids, limits), in_use=job.in_use or _have(known, use.domain)
            )
            self.cards.make_exclusive(use)
            self._tools.launcher.start(daemon)
            daemons.append(daemon)
            edits |= {key: self._edits(use, daemon, wanted) for key in use.keys}
        for daemon in daemons:
            if self._tools.launcher.state(daemon) is not mps_local.State.READY:
                raise self._is_not_ready(daemon)
        for use in record.sharing.mps:
            self.cards.confirm_exclusive(use)
        for use, daemon in zip(record.sharing.mps, daemons, strict=True):
            if unlike := mps_edits.unlike(use, daemon, settings.get(use.domain)):
                self._log.warning(unlike, mps=use.domain, devices=list(use.devices))
        return effect.Made(record, edits)

    def edits(self, record: prepared.Record, gpus: Mapping[str, devices.Gpu]) -> effect.Edits:
        """See `effect.Effect`.

        Of several cards with unlike limits each has the largest, which the daemon holds them to.
        """
        uuids = specs.uuids(record, gpus)
        edits: dict[str, cdi.Edits] = {}
        for use in record.sharing.mps:
            daemon = self._described(use.domain)
            if daemon is None:
                daemon = self._daemon(use, uuids, _cap([use]))
            edits |= {key: self._edits(use, daemon, None) for key in use.keys}
        return edits

    def undo(self, record: prepared.Record, others: Others) -> None:
        """See `effect.Effect`.

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
        exclusive = {gpu for use in record.sharing.mps if use.exclusive for gpu in use.gpus}
        for gpu in sorted(exclusive):
            self.cards.settle(gpu, known)

    def settle(self, gpu: str, records: Others | None) -> None:
        """See `effect.Effect`. The compute mode."""
        if records is not None:
            self.cards.settle(gpu, records)

    def leftovers(
        self, _cards: Sequence[catalog.Card], records: Callable[[], Others]
    ) -> Sequence[effect.Leftover]:
        """See `effect.Effect`: daemons that a crash, a reboot or a lost record left over."""
        found = [name for name in files.names(self._tools.directory) if mps.is_id(name)]
        used = {use.domain for record in records() for use in record.sharing.mps}
        return [self._leftover(domain) for domain in found if domain not in used]

    def serving(self, gpu: str) -> list[str]:
        """The daemons that are to serve a whole GPU, by UUID, whether they run or not."""
        found = [name for name in files.names(self._tools.directory) if mps.is_id(name)]
        described = ((name, self._described(name)) for name in found)
        return [name for name, daemon in described if daemon and gpu in daemon.devices]

    def _leftover(self, domain: str) -> effect.Leftover:
        # Which GPUs it is on is told by UUIDs; those of instances say nothing of the card.
        described = self._described(domain)
        uses = tuple(described.devices) if described else ()
        return effect.Leftover(
            "MPS daemon",
            domain,
            tuple(uuid for uuid in uses if uuid.startswith("GPU-")),
            lambda: self._stop(domain),
            uses=uses,
        )

    def tells(self, record: prepared.Record) -> effect.Told:
        """See `effect.Effect`: what each process of the claim may take."""
        return {
            key: {
                "activeThreadPercentage": use.percent,
                "deviceMemoryLimit": None
                if use.memory_bytes is None
                else quantities.of_bytes(use.memory_bytes),
            }
            for use in record.sharing.mps
            for key in use.keys
        }

    def troubles(self, record: prepared.Record, *, anew: bool) -> effect.Troubles:
        """See `effect.Effect`: which of its daemons are down."""
        down = self.health.down(record) if anew else self.health.told_of(record)
        return reports.of_daemons(record, down)

    def without(self, record: prepared.Record, shared: Collection[str]) -> prepared.Record:
        """See `effect.Effect`."""
        uses = record.sharing.mps
        return _with(record, tuple(use for use in uses if not {*shared} & {*use.devices}))

    def _limits(
        self,
        use: prepared.MpsUse,
        record: prepared.Record,
        others: Others,
        settings: sharing.Mps | None,
    ) -> mps.Limits:
        """What the daemon has to allow: the most that one of its users may take."""
        if len(use.devices) > 1 and use.exclusive and settings is not None:
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
        return mps_edits.edits(use, daemon, settings, private_shm=self._tools.launcher.private_shm)

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
        """The daemon as it goes on: one that is there keeps its shared memory, which is in use, and
        the order of its devices.

        One that cannot become this one is ended. It served an instance that a reset of the GPU
        took, or somebody was killed who ended it. One whose description is damaged is described
        anew if claims may be at work with it: it serves what they have.

        Raises:
            waits.Wait: that has not ended yet.
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
        return self._daemon(use, uuids, self._limits(use, record, others, None))

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


def _with(record: prepared.Record, uses: tuple[prepared.MpsUse, ...]) -> prepared.Record:
    kept = record.sharing.model_copy(update={"mps": uses})
    return record.model_copy(update={"sharing": kept})


def _have(records: Others, domain: str) -> bool:
    """Whether one of these claims has the daemon."""
    return any(use.domain == domain for one in records for use in one.sharing.mps)


def _cap(uses: Iterable[prepared.MpsUse]) -> mps.Limits:
    """The most that one of the users of a daemon may take."""
    percent, memory = sharing_plan.cap(uses)
    return mps.Limits(percent, memory)
