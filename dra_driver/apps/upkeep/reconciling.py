"""Unprepares claims that the kubelet forgot, and lists the cluster's claims where that is needed.

Each node asks for the few claims that it remembers. A list of all claims costs the API server much
more, and thousands of nodes may want it: it is taken only where names do not tell enough. A read
that fails says nothing about any claim, and nothing is done then.
"""

import dataclasses
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import records
from dra_driver.adapters.system import patience, workers
from dra_driver.logic.preparing import planning, staleness
from dra_driver.model import backoff, claims, prepared

INTERVAL = 600.0
"""Seconds between looks."""
GRACE = 60.0
"""Seconds that a record has to look stale: an Unprepare may be on its way."""
SPREAD = 60.0
"""Seconds over which the first looks of nodes that start together are spread."""
AFTER_FAILURE = 30.0
"""Seconds until the next look after one that failed, at most."""
ANSWER_SECONDS = 5.0
"""How long the API server may take to tell of one claim."""


class ClaimSource(Protocol):
    """Where claims come from; `fetching.ApiClaims` is one."""

    def concerning(self, node: planning.Node, uids: Collection[str]) -> list[claims.ResourceClaim]:
        """The claims of the cluster that have devices of the node, or one of these UIDs.

        Raises:
            errors.DriverError: the list is not to be had, or not whole.
        """

    def fetch(
        self, ref: claims.ClaimRef, waiting: patience.Patience
    ) -> claims.ResourceClaim | None:
        """The claim of that namespace and name; None where there is none, or the name is not known.

        Raises:
            errors.DriverError: the API server did not answer while there was patience.
        """


class Unprepare(Protocol):
    """How a claim is unprepared."""

    def __call__(self, ref: claims.ClaimRef, only_if: Callable[[], bool]) -> None:
        """Undo what was done for the claim, if `only_if()` is true.

        A claim that was deallocated may be allocated anew, and prepared, at any moment: a call of
        the kubelet for the claim goes first, and ends this one.

        Raises:
            errors.DriverError: it did not work, a call of the kubelet came, or `only_if` could not
                tell.
        """


class Orphans(Protocol):
    """What else may be left over on the node; `orphans.Orphans` is one."""

    def settle(self) -> None:
        """Clean up what can be without the API."""

    def needs_view(self) -> bool:
        """Whether a list of all claims is needed to clean up the rest."""

    def rebuild(self, found: Mapping[str, claims.ResourceClaim]) -> None:
        """Rebuild the records that are lost, with the claims that have devices here, by UID."""

    def remove(self, allocated: frozenset[str]) -> None:
        """Clean up the rest.

        `allocated` are the names of the devices of this node that claims have, by such a list.
        """


class Users(Protocol):
    """Who uses the devices of claims; `device_users.DeviceUsers` is one."""

    def of_claim(self, record: prepared.Record, others: Iterable[prepared.Record]) -> str | None:
        """The processes on the devices of a claim, in words; None where there are none.

        Raises:
            errors.DriverError: it is not to be known.
        """


class Several:
    """Several of them as one."""

    def __init__(self, *parts: Orphans) -> None:
        self._parts = parts

    def settle(self) -> None:
        """See `Orphans`."""
        for part in self._parts:
            part.settle()

    def needs_view(self) -> bool:
        """See `Orphans`. Each of them is asked: some take note of the time."""
        answers = [part.needs_view() for part in self._parts]
        return any(answers)

    def rebuild(self, found: Mapping[str, claims.ResourceClaim]) -> None:
        """See `Orphans`."""
        for part in self._parts:
            part.rebuild(found)

    def remove(self, allocated: frozenset[str]) -> None:
        """See `Orphans`."""
        for part in self._parts:
            part.remove(allocated)


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between looks; how long a record has to look stale; monotonic seconds.

    `chance` spreads the pauses after failures.
    """

    interval: float = INTERVAL
    grace: float = GRACE
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random


class Reconciler:
    """A thread that compares records with claims, again and again.

    A record has to look stale twice, the grace apart at least, and once more right before it
    is acted on. Records whose claim is still allocated to their devices are never touched, and no
    device is taken back that a process is on: a pod that was deleted by force may still run.
    """

    def __init__(
        self,
        node: planning.Node,
        known: records.Records,
        source: ClaimSource,
        unprepare: Unprepare,
        orphans: Orphans,
        users: Users,
        *,
        boot_id: str,
        pace: Pace = Pace(),
    ) -> None:
        """`orphans` are settled at each look, and removed after each list of all claims.

        Stale records are dealt with in between.
        """
        self._node = node
        self._known = known
        self._source = source
        self._unprepare = unprepare
        self._orphans = orphans
        self._users = users
        self._kept: dict[str, str] = {}
        self._boot_id = boot_id
        self._pace = pace
        self._log = telemetry.logger("reconciler")
        self._looking = threading.Lock()
        self._suspects: Mapping[str, staleness.Suspect] = {}
        self._named: Mapping[str, claims.ClaimRef] = {}
        self._problem: str | None = None
        self._worker = workers.Worker("reconciler", self._run)

    @property
    def kept(self) -> int:
        """How many stale claims stay because their devices are in use, or may be."""
        return len(self._kept)

    def start(self) -> None:
        """Begin to look, after `first_pause`."""
        self._worker.start()

    def stop(self) -> None:
        """Stop looking."""
        self._worker.end()

    def first_pause(self) -> float:
        """Seconds from the start to the first look: none where something waits for a list.

        The kubelet has to settle first as well, and many nodes may start at the same time.
        """
        if self._orphans.needs_view():
            return 0.0
        return self._pace.grace + staleness.offset(self._node.pool, SPREAD)

    def look(self) -> float:
        """Look now; the seconds until it should be done again.

        Raises:
            errors.DriverError: a claim, or the list of them, cannot be read; nothing was done.
        """
        with self._looking:
            return self._look()

    def _run(self) -> None:
        step = self.first_pause
        tries = backoff.Backoff(backoff.Schedule(AFTER_FAILURE, AFTER_FAILURE), self._pace.chance)
        while not self._worker.is_ending():
            try:
                pause = step()
                self._problem = None
            except errors.DriverError as error:
                pause = tries.failed(error)
                if str(error) != self._problem:
                    self._problem = str(error)
                    self._log.warning(
                        "claims cannot be read; nothing is cleaned up meanwhile",
                        reason=self._problem,
                    )
            except Exception:  # noqa: BLE001 - a thread that ends would never clean up again
                pause = tries.failed()
                self._log.exception("comparing records with claims failed unexpectedly")
            step = self.look
            self._worker.pause(min(pause, self._pace.interval))

    def _look(self) -> float:
        self._orphans.settle()
        now = self._pace.clock()
        # Before the claims: one that is prepared in between is in neither.
        known = {
            uid: record
            for uid, record in self._known.contents().records.items()
            # Those of an earlier boot are dropped when the driver starts.
            if record.boot_id == self._boot_id
        }
        if self._needs_list(known.values()):
            listed = self._source.concerning(self._node, known.keys())
            by_uid: Mapping[str, claims.ResourceClaim] = {one.ref.uid: one for one in listed}
            found = {uid: by_uid.get(uid) for uid in known}
            self._named = {uid: one.ref if one else known[uid].ref for uid, one in found.items()}
            pause = self._compare(known.values(), found, now)
            self._orphans.rebuild(by_uid)
            self._orphans.remove(staleness.devices_here(listed, self._node))
            return pause
        return self._compare(known.values(), self._fetch(known.values()), now)

    def _needs_list(self, known: Iterable[prepared.Record]) -> bool:
        # A record that was rebuilt without the API has no name; it is looked for by its UID, once.
        return self._orphans.needs_view() or any(
            not record.name and record.uid not in self._named for record in known
        )

    def _fetch(self, known: Iterable[prepared.Record]) -> Mapping[str, claims.ResourceClaim | None]:
        """What the API has under the names of the records, by UID.

        One that had no name, and was in no list by its UID, is not there: UIDs do not come back.
        """
        return {
            record.uid: self._source.fetch(
                record.ref if record.name else self._named[record.uid],
                patience.Patience(ANSWER_SECONDS),
            )
            for record in known
        }

    def _compare(
        self,
        known: Iterable[prepared.Record],
        found: Mapping[str, claims.ResourceClaim | None],
        now: float,
    ) -> float:
        """Act on what has looked stale for long enough; the seconds until the next look."""
        before = self._suspects
        stale = staleness.suspects(known, found, self._node, before, now=now)
        self._suspects = stale
        for uid in sorted(stale.keys() - before.keys()):
            self._log.info(
                "claim is remembered but looks stale; looking again",
                claim=str(stale[uid].ref),
                reason=stale[uid].reason,
            )
        due = staleness.due(stale, now=now, grace=self._pace.grace)
        self._kept = {uid: users for uid, users in self._kept.items() if uid in stale}
        # What cannot be undone now, as a GPU that does not come back, may be in a minute.
        failed = [
            suspect
            for suspect in due
            if not self._worker.is_ending()
            and not self._is_kept(suspect)
            and not self._act(suspect)
        ]
        waits = self._kept or failed or len(stale) > len(due)
        return self._pace.grace if waits else self._pace.interval

    def _is_kept(self, suspect: staleness.Suspect) -> bool:
        """Whether processes are on the claim's devices; asked without any lock: NVML may hang."""
        uid = suspect.record.uid
        others = [
            record for other, record in self._known.contents().records.items() if other != uid
        ]
        try:
            users = self._users.of_claim(suspect.record, others)
            reason = None if users is None else f"its devices are used by {users}"
        except errors.DriverError as error:
            reason = f"whether processes use its devices is not known: {error}"
        if reason is None:
            self._kept.pop(uid, None)
            return False
        if self._kept.get(uid) != reason:
            self._log.warning(
                "stale claim stays prepared, as containers may still run; end the processes, or "
                "restart the node",
                claim=str(suspect.ref),
                stale=suspect.reason,
                reason=reason,
                devices=[device.device for device in suspect.record.devices],
            )
        self._kept[uid] = reason
        return True

    def _act(self, suspect: staleness.Suspect) -> bool:
        """Unprepare it, if it is stale still; whether it need not be tried again."""
        reason: str | None = None

        def only_if() -> bool:
            nonlocal reason
            reason = self._reason_now(suspect)
            return reason is not None

        try:
            self._unprepare(suspect.record.ref, only_if)
        except errors.DriverError as error:
            self._log.warning(
                "stale claim not unprepared; looking again",
                claim=str(suspect.ref),
                stale=suspect.reason,
                reason=str(error),
            )
            return False
        if reason is None:
            self._log.info("claim no longer looks stale", claim=str(suspect.ref))
        else:
            self._log.warning(
                "stale claim unprepared, as the kubelet had not done it",
                claim=str(suspect.ref),
                reason=reason,
                devices=[device.device for device in suspect.record.devices],
            )
        return True

    def _reason_now(self, suspect: staleness.Suspect) -> str | None:
        """Why the suspect is stale at this moment; None where it is not."""
        if self._known.get(suspect.record.uid) != suspect.record:
            return None
        # One whose name is not known was in no list by its UID, and UIDs do not come back.
        claim = self._source.fetch(suspect.ref, patience.Patience(ANSWER_SECONDS))
        return staleness.why_stale(suspect.record, claim, self._node)
