"""Gives the cards of the node their names, remembers them on disk, and takes them back late.

A name is on disk before a slice with it can be published. No card gets one before the slices of the
node have been looked at: they tell what names meant to whom the disk tells nothing.
"""

import dataclasses
import datetime as dt
import threading
import time
from collections.abc import Callable, Mapping

from dra_driver import errors, settings, telemetry
from dra_driver.adapters.disk import card_names, records
from dra_driver.adapters.kube import kube
from dra_driver.adapters.system import locks, patience
from dra_driver.apps.offering import published
from dra_driver.logic.offering import naming, sites
from dra_driver.model import card_names as model_names
from dra_driver.model import claims, devices, pci

LOCK = "card names"
LOCK_SECONDS = 10.0
"""How long another instance may be busy with names: it writes a few small files."""
QUIET = 3600.0
"""Seconds for which the name of a card that is gone has to be published no more before another card
can get it. A scheduler may have decided on what it saw earlier, and write that down only after it
has waited for other pods."""


@dataclasses.dataclass(frozen=True, slots=True)
class Named:
    """The GPUs of a look that have a name, with it, and what is remembered.

    `nameless` says of each GPU that has no name yet, by its UUID, why that is so.
    """

    gpus: tuple[devices.Gpu, ...]
    memory: naming.Memory = dataclasses.field(default_factory=dict)
    nameless: Mapping[str, str] = dataclasses.field(default_factory=dict)


Namer = Callable[[devices.Discovery], Named]


def by_minor(discovery: devices.Discovery) -> Named:
    """Names as they are where nothing is remembered."""
    return Named(discovery.gpus)


def _called(gpu: devices.Gpu) -> str:
    """Which GPU, in messages."""
    if pci.is_unseen(gpu.uuid):
        return f"the GPU at {gpu.pci_address}"
    return f"GPU {gpu.index} ({gpu.uuid})"


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Names:
    """The names of one node; threads may share it. Other instances of the driver write them too.

    Towards the reconciler it is one of the things that are cleaned up with a list of all claims,
    see `reconciling.Orphans`.
    """

    def __init__(
        self,
        store: card_names.CardNames,
        held: locks.Locks,
        known: records.Records,
        ask: published.Published,
        *,
        now: Callable[[], str] = _now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ask` tells what is published; `now` is the time as RFC 3339 text, `clock` in seconds."""
        self._store = store
        self._locks = held
        self._known = known
        self._ask = ask
        self._now = now
        self._clock = clock
        self._log = telemetry.logger("names")
        self._lock = threading.Lock()
        self._memory: naming.Memory = {}
        self._on_disk: naming.Memory = {}
        self._damaged: Mapping[str, str] = {}
        self._outdated: tuple[model_names.CardName, ...] = ()
        self._quiet: dict[str, float] = {}
        self._problem = ""

    def named(self, discovery: devices.Discovery) -> Named:
        """See `Namer`. What disk or API server refuse keeps new cards alone from being offered."""
        with self._lock:
            problem = self._remember(discovery)
            gpus = naming.applied(self._memory, discovery.gpus, discovery.sites)
            named = {gpu.pci_address for gpu in gpus}
            for one in self._memory.values():
                if one.gone_since is None:
                    self._quiet.pop(one.device, None)
            nameless: dict[str, str] = {
                gpu.uuid: f"{_called(gpu)} is not offered, as it has no name yet: {problem}"
                for gpu in discovery.gpus
                if gpu.pci_address not in named
            }
            return Named(gpus, self._memory, nameless)

    def settle(self) -> None:
        """Nothing is done without the API."""

    def needs_view(self) -> bool:
        """Whether a name can be taken back if no claim of the cluster has a device of it."""
        with self._lock:
            unneeded = self._unneeded()
        try:
            still = {devices.card_of(device.name) for device in self._ask()} if unneeded else set()
        except errors.DriverError:
            # Whether they are published is not known.
            return False
        with self._lock:
            now = self._clock()
            self._quiet = {name: self._quiet.get(name, now) for name in unneeded - still}
            return bool(self._ripe())

    def rebuild(self, _found: Mapping[str, claims.ResourceClaim]) -> None:
        """Claims tell of names what they were allocated to, and not which cards these were."""

    def remove(self, allocated: frozenset[str]) -> None:
        """Take back the names that nobody means a card by any more.

        `allocated` are the names of all devices of this node that claims have. For a name that is
        among them no list is needed again for an hour.
        """
        meant = {devices.card_of(name) for name in allocated}
        with self._lock:
            now = self._clock()
            ripe = self._ripe()
            self._quiet |= dict.fromkeys(ripe & meant, now)
            for name in sorted(ripe - meant):
                try:
                    self._take_back(name)
                except (OSError, errors.DriverError) as error:
                    self._log.warning("name is kept for now", device=name, reason=str(error))

    def _remember(self, discovery: devices.Discovery) -> str:
        """Have memory and disk say what was seen; else why not."""
        try:
            self._read()
            known = self._seen(self._memory, discovery)
            self._memory = known
            found = naming.applied(known, discovery.gpus, discovery.sites)
            has_new = len(found) < len(discovery.gpus)
            told = naming.published(self._ask()) if has_new else {}
            if has_new or known != self._on_disk or self._damaged or self._outdated:
                with self._locks.hold([LOCK], patience.Patience(LOCK_SECONDS)):
                    self._write(discovery, told, has_new=has_new)
        except (OSError, errors.DriverError) as error:
            if str(error) != self._problem:
                self._log.warning("names of cards are not remembered for now", reason=str(error))
            self._problem = str(error)
        else:
            self._problem = ""
        return self._problem

    def _read(self) -> None:
        """What is on disk now; what was there and is lost stays in memory."""
        contents = self._store.contents()
        self._damaged = contents.damaged
        # One that was taken back and comes again with a disk, after the machine went down, is gone.
        # So is what stood for a card of which NVML tells by now.
        found = sorted(
            contents.records.values(),
            key=lambda one: (one.gone_since is not None, pci.is_unseen(one.gpu)),
        )
        self._on_disk, clashing = naming.memory(found)
        self._outdated = tuple(one for one in clashing if pci.is_unseen(one.gpu))
        for one in clashing:
            if one not in self._outdated:
                self._log.error("two cards have one name", device=one.device, gpu=one.gpu)
        self._memory = naming.recalled(self._on_disk, self._memory)

    def _write(self, discovery: devices.Discovery, told: naming.Memory, *, has_new: bool) -> None:
        # Another instance may have been faster.
        self._read()
        self._set_aside()
        wanted = self._memory
        if has_new:
            known = list(self._known.contents().records.values())
            wanted = naming.recalled(wanted, told, naming.recorded(known))
            # One of those may be the card that was known by its place alone.
            wanted = sites.seated(wanted, discovery)
            wanted = naming.given(wanted, discovery.gpus, naming.in_use(known), discovery.sites)
        for name, one in self._seen(wanted, discovery).items():
            before = self._on_disk.get(name)
            if before != one:
                self._store.write(one)
                self._log.info(
                    "name of a card", device=name, gpu=one.gpu, gone_since=one.gone_since
                )
            if before is not None and before.gpu != one.gpu:
                self._store.remove(before.gpu)
            self._memory = {**self._memory, name: one}
        for one in self._outdated:
            self._store.remove(one.gpu)

    def _seen(self, known: naming.Memory, discovery: devices.Discovery) -> naming.Memory:
        """With where the cards are, and which are not there."""
        return naming.missed(sites.seated(known, discovery), discovery, self._now())

    def _set_aside(self) -> None:
        """Put damaged files where a person can look at them; what was never finished goes."""
        for gpu in self._store.leftovers():
            self._store.clear(gpu)
        for gpu, reason in sorted(self._damaged.items()):
            aside = self._store.keep_aside(gpu)
            self._store.remove(gpu)
            self._log.error(
                "name of a card cannot be read; it is looked up in what is published",
                gpu=gpu,
                reason=reason,
                set_aside=str(aside),
            )

    def _unneeded(self) -> frozenset[str]:
        """The names that no claim here has; none where it is not known what claims have."""
        known = self._known.contents()
        if known.damaged:
            return frozenset()
        return naming.unneeded(self._memory, naming.in_use(known.records.values()))

    def _ripe(self) -> frozenset[str]:
        due = self._clock() - QUIET
        return frozenset(name for name, since in self._quiet.items() if since <= due)

    def _take_back(self, name: str) -> None:
        with self._locks.hold([LOCK], patience.Patience(LOCK_SECONDS)):
            self._read()
            if name not in self._unneeded():
                return
            gpu = self._memory[name].gpu
            self._store.remove(gpu)
            self._memory = {device: one for device, one in self._memory.items() if device != name}
        self._quiet.pop(name, None)
        self._log.info("card is gone, and its name can be given anew", device=name, gpu=gpu)


def of_node(
    config: settings.KubeletPlugin, client: kube.Client, held: locks.Locks, known: records.Records
) -> Names:
    """The names of the node that the settings are of."""
    return Names(
        card_names.CardNames(config.state / "names"),
        held,
        known,
        published.Soon(lambda: published.devices(client, config.driver_name, config.node_name)),
    )
