"""What is damaged or half done among the files of claims, put in order: at the start, and later.

Nobody's claim is forgotten because its record cannot be read: it is rebuilt from the CDI spec, or
else from a list of all claims. Only where both say nothing of it the claim is given up.
"""

import contextlib
from collections.abc import Iterator, Mapping

from dra_driver import errors, telemetry
from dra_driver.adapters.system import patience
from dra_driver.apps.effects import specs
from dra_driver.apps.preparing import attempts, rebuilding
from dra_driver.logic.preparing import planning
from dra_driver.model import claims, prepared

LOCK_SECONDS = 30.0
"""How long a claim may be busy, also with another instance of the driver."""


class Mender:
    """Looks at all claims. Each of them is locked while something is done about it."""

    def __init__(self, node: planning.Node, store: attempts.Store, look: rebuilding.Look) -> None:
        """`look` as for `rebuilding.Rebuilder`."""
        self._known = store.records
        self._locks = store.locks
        self._specs = specs.Specs(store.cdi_dir, node.driver_name)
        self._rebuilder = rebuilding.Rebuilder(
            node,
            store.records,
            self._specs,
            look,
            boot_id=store.boot_id,
            recall=store.recall,
        )
        self._log = telemetry.logger("mender")

    def drop(self, uid: str) -> None:
        """Forget a claim whose lock is held, and nothing of which is on the node any more."""
        self._specs.remove(uid)
        self._known.remove(uid)

    def reduce(self, record: prepared.Record) -> None:
        """Remember no more than this of a claim whose lock is held; its containers have ended."""
        self._specs.remove(record.uid)
        self._known.write(record)

    def lost(self) -> list[str]:
        """The claims whose record is damaged, or gone while there is a spec."""
        # In this order: a record is there before its spec is.
        written = self._specs.uids()
        contents = self._known.contents()
        candidates = contents.damaged.keys() | (written - contents.records.keys())
        return [uid for uid in sorted(candidates) if self._rebuilder.loss(uid) is not None]

    def mend(self, found: Mapping[str, claims.ResourceClaim] | None = None) -> None:
        """Rebuild what is lost.

        `found` are the claims of the cluster that have devices of this node, by UID. Without them a
        claim of which its spec tells nothing stays lost.
        """
        for uid in self.lost():
            try:
                with self.claim(uid):
                    self._mend(uid, found)
            except errors.DriverError as error:
                self._log.warning(
                    "record of a claim not rebuilt for now", claim_uid=uid, reason=str(error)
                )

    def _mend(self, uid: str, found: Mapping[str, claims.ResourceClaim] | None) -> None:
        # Another instance, or a call, may have been busy with the claim during the first look.
        reason = self._rebuilder.loss(uid)
        claim = found.get(uid) if found is not None else None
        if reason is None or (found is None and self._rebuilder.guess(uid) is None):
            return
        if self._rebuilder.rebuild(uid, reason, claim) is None:
            self.drop(uid)
            self._log.error(
                "neither the API nor a CDI spec tells what was prepared; nothing is remembered of "
                "the claim. If its pod still runs, delete it",
                claim_uid=uid,
            )

    def clear_leftovers(self) -> None:
        """Remove what a killed process had begun to write; a live one holds the claim's lock."""
        for uid in sorted({*self._specs.leftovers(), *self._known.leftovers()}):
            with self.claim(uid):
                self._specs.clear(uid)
                self._known.clear(uid)

    @contextlib.contextmanager
    def claim(self, uid: str) -> Iterator[None]:
        """Hold a claim's lock.

        Raises:
            errors.Retryable: somebody else is busy with it for too long.
        """
        with self._locks.hold([f"claim {uid}"], patience.Patience(LOCK_SECONDS)):
            yield
