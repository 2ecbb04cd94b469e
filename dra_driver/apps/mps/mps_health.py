"""Sees to it that the MPS daemons of prepared claims run, and has it told where one does not.

A supervisor brings its daemon back by itself; one that is gone itself is started again here.
"""

import collections
import pathlib
import threading
from collections.abc import Callable, Container, Iterable, Mapping

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import records
from dra_driver.adapters.mps import mps_domain, mps_local
from dra_driver.adapters.system import locks, patience, workers
from dra_driver.apps.mps import launching
from dra_driver.logic.preparing import planning
from dra_driver.model import mps, prepared

INTERVAL = 5.0
"""Seconds between looks; a look costs a few small files for each daemon."""
FIRST_PAUSE = 0.5
"""Seconds until the next look after one that found something down; they double up to INTERVAL."""
LOCK_SECONDS = 1.0
"""How long a claim on the same GPU may be busy; what it does is seen by the next look."""
BRING_UP_SECONDS = 10.0
"""How long the API server, and a pod that ends, may take."""

Down = Mapping[str, str]
"""What is wrong with daemons, by domain."""


class Health:
    """A thread that looks at daemons, starts those again that are gone, and tells of changes."""

    def __init__(
        self,
        known: records.Records,
        held: locks.Locks,
        launcher: launching.Launcher,
        directory: pathlib.Path,
        *,
        interval: float = INTERVAL,
    ) -> None:
        """`directory` is that of the daemons."""
        self._known = known
        self._locks = held
        self._launcher = launcher
        self._directory = directory
        self._on_change: Callable[[prepared.Record], None] = lambda _: None
        self._keep: Callable[[], Down] = dict
        self._interval = interval
        self._log = telemetry.logger("mps-health")
        self._guard = threading.Lock()
        self._told: dict[str, Down] = {}
        self._problems: dict[str, str] = {}
        self._worker = workers.Worker("mps-health", self._run)

    def wire(
        self, *, on_change: Callable[[prepared.Record], None], keep: Callable[[], Down] = dict
    ) -> None:
        """Before the first look: whom it tells, and what it asks.

        `keep` sees to it that GPUs stay set as claims need them, and tells by domain where they are
        not: a daemon of which a GPU is not set as it should be counts as down.
        `on_change` is told of each claim some of whose daemons went down or came back, once it is
        among what is told; it must not take long.
        """
        self._on_change = on_change
        self._keep = keep

    def start(self) -> None:
        """Begin to look."""
        self._worker.start()

    def stop(self) -> None:
        """Stop looking."""
        self._worker.end()

    @property
    def told(self) -> Down:
        """What was told to be wrong last."""
        with self._guard:
            return {domain: text for down in self._told.values() for domain, text in down.items()}

    def told_of(self, record: prepared.Record) -> Down:
        """What was told last of the claim's daemons."""
        with self._guard:
            return self._told.get(record.uid, {})

    def down(self, record: prepared.Record) -> Down:
        """What is wrong with the claim's daemons now; from now on that counts as told."""
        found = {use.domain: self._trouble(use.domain) for use in record.sharing.mps}
        down = {domain: trouble for domain, trouble in found.items() if trouble is not None}
        with self._guard:
            self._told[record.uid] = down
        return down

    def look(self) -> bool:
        """Look at all daemons once, and start again those that are gone; whether all are ready."""
        down: dict[str, str | None] = {}
        for domain, users in _users(self._prepared()).items():
            if self._worker.is_ending():
                break
            down[domain] = None
            if self._trouble(domain) is not None:
                down[domain] = self._confirm_and_mend(domain, planning.cards(users[0]))
        down |= self._unkept({domain for domain, trouble in down.items() if trouble is None})
        # What is down was told when it was found; a claim that came since may have mended it.
        self._tell({domain: None for domain, trouble in down.items() if trouble is None})
        return not any(down.values())

    def _unkept(self, ready: Container[str]) -> Down:
        """Which of the daemons that are ready have a GPU that could not be set as it should be."""
        found = {domain: text for domain, text in self._keep().items() if domain in ready}
        self._tell(found)
        return found

    def _run(self) -> None:
        pause, next_pause = self._interval, FIRST_PAUSE
        while not self._worker.pause(pause):
            pause = self._interval
            try:
                if self.look():
                    next_pause = FIRST_PAUSE
                else:
                    pause = min(next_pause, self._interval)
                    next_pause = pause * 2
            except Exception:  # noqa: BLE001 - a thread that ends would bring nothing back any more
                self._log.exception("looking at MPS daemons failed unexpectedly")

    def _prepared(self) -> list[prepared.Record]:
        return [
            record
            for record in self._known.contents().records.values()
            if record.phase is prepared.Phase.COMPLETED and record.sharing.mps
        ]

    def _confirm_and_mend(self, domain: str, cards: Iterable[str]) -> str | None:
        """What is wrong with a daemon while nobody is at it, who may only be changing its limits.

        `cards` are the names of the GPUs that it is on.
        """
        try:
            with self._locks.hold(cards, patience.Patience(LOCK_SECONDS)):
                trouble = self._mend(domain)
        except errors.Retryable:
            return self._as_told(domain)
        if trouble is not None:
            self._bring_up(domain)
        return trouble

    def _mend(self, domain: str) -> str | None:
        # Read with the GPU's lock held: a claim that is being unprepared has no record any more.
        trouble = self._trouble(domain) if domain in _users(self._prepared()) else None
        if trouble is None:
            return None
        # It is told before anything is done about it, since that can take long.
        self._tell({domain: trouble})
        problem = ""
        try:
            daemon = self._read(domain)
            if daemon is None:
                problem = "nothing says what it was; delete the pods of its claims"
            elif self._launcher.state(daemon) is mps_local.State.ABSENT:
                self._launcher.start(daemon)
        except errors.DriverError as error:
            problem = str(error)
        self._complain(domain, problem)
        return trouble

    def _bring_up(self, domain: str) -> None:
        """What the API server may be asked for, with no lock held."""
        try:
            daemon = self._read(domain)
            if daemon is not None and self._launcher.state(daemon) is mps_local.State.ABSENT:
                self._launcher.bring_up(daemon, patience.Patience(BRING_UP_SECONDS))
        except errors.DriverError as error:
            self._complain(domain, str(error))

    def _complain(self, domain: str, problem: str) -> None:
        if problem and self._problems.get(domain) != problem:
            self._log.warning("MPS daemon not brought back for now", mps=domain, reason=problem)
        self._problems[domain] = problem

    def _trouble(self, domain: str) -> str | None:
        """What is wrong with a daemon; None if it is ready."""
        try:
            daemon = self._read(domain)
        except errors.DriverError as error:
            return f"MPS daemon {domain}: {error}"
        state = None if daemon is None else self._launcher.state(daemon)
        if state is mps_local.State.READY:
            return None
        said = ""
        if state is mps_local.State.RUNNING:
            said = mps_domain.Domain(self._directory / domain).problem()
        return (
            f"MPS daemon {domain} is not ready: {said or 'it is being started again'}; until then "
            "processes that start wait for it, or run without its limits"
        )

    def _read(self, domain: str) -> mps.Daemon | None:
        return mps_domain.Domain(self._directory / domain).read()

    def _as_told(self, domain: str) -> str | None:
        with self._guard:
            return next((down[domain] for down in self._told.values() if domain in down), None)

    def _tell(self, down: Mapping[str, str | None]) -> None:
        """Have it told which claims are worse or better off; of other domains nothing is said."""
        known = self._prepared()
        with self._guard:
            uids = {record.uid for record in known}
            self._told = {uid: told for uid, told in self._told.items() if uid in uids}
        for record in known:
            self._tell_of(record, down)

    def _tell_of(self, record: prepared.Record, down: Mapping[str, str | None]) -> None:
        with self._guard:
            before = self._told.get(record.uid, {})
            now = {domain: text for domain, text in before.items() if domain not in down}
            for use in record.sharing.mps:
                if (trouble := down.get(use.domain)) is not None:
                    now[use.domain] = trouble
            self._told[record.uid] = now
        if now == before:
            return
        for domain in now.keys() - before.keys():
            claim, reason = str(record.ref), now[domain]
            self._log.error("MPS daemon is down", mps=domain, claim=claim, reason=reason)
        for domain in before.keys() - now.keys():
            self._log.info("MPS daemon is back", mps=domain, claim=str(record.ref))
        self._on_change(record)


def _users(known: Iterable[prepared.Record]) -> dict[str, list[prepared.Record]]:
    """The claims of each domain."""
    users = collections.defaultdict(list)
    for record in known:
        for use in record.sharing.mps:
            users[use.domain].append(record)
    return dict(users)
