"""What is done with the state that an earlier life of the driver left on the node."""

from collections.abc import Callable, Collection, Sequence

from dra_driver import errors, telemetry
from dra_driver.apps.effects import effect
from dra_driver.apps.preparing import attempts
from dra_driver.apps.upkeep import mending
from dra_driver.model import claims, prepared

ClaimList = Callable[[Collection[str]], list[claims.ResourceClaim]]


class Recovery:
    """Run once, before the first call is answered."""

    def __init__(
        self,
        store: attempts.Store,
        effects: Sequence[effect.Effect],
        mender: mending.Mender,
        claim_list: ClaimList,
    ) -> None:
        """It is asked only if something is lost.

        `claim_list` gives the claims with these UIDs, and maybe others.
        """
        self._known = store.records
        self._boot_id = store.boot_id
        self._effects = effects
        self._mender = mender
        self._claim_list = claim_list
        self._log = telemetry.logger("recovery")

    def run(self) -> None:
        """Drop what ended with an earlier boot, rebuild what is lost, clear what was half done."""
        self._drop_earlier_boots()
        if lost := self._mender.lost():
            self._mender.mend(self._found(lost))
        self._mender.clear_leftovers()

    def _drop_earlier_boots(self) -> None:
        """After a reboot no container runs, and the kubelet asks again for each claim it wants."""
        for uid, record in self._known.contents().records.items():
            unknown = effect.unknown(self._effects, record)
            if unknown:
                self._log.warning(
                    "what a newer driver did for a claim stays, and cannot be undone by this one",
                    claim=str(record.ref),
                    parts=unknown,
                )
            if record.boot_id == self._boot_id:
                continue
            with self._mender.claim(uid):
                # Another instance may have prepared the claim anew since the look.
                if self._known.contents().records.get(uid) != record:
                    continue
                if unknown:
                    self._mender.reduce(self._without_known(record))
                else:
                    self._mender.drop(uid)
            self._log.info("prepared before the node's last boot: dropped", claim=str(record.ref))

    def _without_known(self, record: prepared.Record) -> prepared.Record:
        """Of a claim from before the boot what this version cannot tell whether it has ended."""
        for one in self._effects:
            record = one.without(record, {device.device for device in record.devices})
        return record.model_copy(update={"phase": prepared.Phase.STARTED, "boot_id": self._boot_id})

    def _found(self, lost: Collection[str]) -> dict[str, claims.ResourceClaim] | None:
        try:
            return {claim.ref.uid: claim for claim in self._claim_list(lost)}
        except errors.DriverError as error:
            self._log.warning(
                "claims cannot be listed; rebuilding from CDI specs alone", reason=str(error)
            )
            return None
