"""The effect of device metadata (KEP-5304): containers find in a file which devices they have.

See `effect.Effect`. The files are mounted by CDI specs of their own, whose names come with the
answer to the kubelet (`logic.preparing.metadata.answered`). A claim that containers may use keeps
what it has, files or none, whatever the setting says by now: its containers have been started with
that.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from dra_driver import errors, telemetry
from dra_driver.apps.effects import effect, metadata_files
from dra_driver.logic.offering import catalog
from dra_driver.logic.preparing import metadata, planning
from dra_driver.model import device_metadata, devices, prepared

KIND = "device metadata"


class Metadata:
    """Descriptions of devices of claims."""

    parts: Mapping[str, Collection[int]] = MappingProxyType({})
    written_ahead = False

    def __init__(
        self,
        files: metadata_files.MetadataFiles,
        others: Sequence[effect.Effect],
        *,
        is_on: bool,
    ) -> None:
        """`others` are all other effects, which tell of what they have made.

        If it is not on, claims that are prepared from now on have none.
        """
        self._files = files
        self._others = others
        self._is_on = is_on
        self._log = telemetry.logger("metadata")

    def remember(self, record: prepared.Record, job: effect.Job) -> prepared.Record:
        """See `effect.Effect`.

        Raises:
            errors.Rejected: a name of the claim is not fit to be part of a path.
        """
        before = job.before
        known = device_metadata.of(before) if before is not None else None
        if before is not None and job.in_use:
            if known is None and before.rebuilt:
                known = self._recalled(record)
        elif self._is_on:
            known = self._wanted(record, job.plan, known)
        return device_metadata.into(record, known)

    def is_in(self, record: prepared.Record) -> bool:
        """See `effect.Effect`."""
        return record.described is not None

    def is_intact(self, _record: prepared.Record, _plan: planning.Plan) -> bool:
        """See `effect.Effect`. What is lost is written again, and nobody has less meanwhile."""
        return True

    def renounce(self, record: prepared.Record, others: effect.Others) -> None:
        """See `effect.Effect`."""

    def make(self, record: prepared.Record, job: effect.Job) -> effect.Made:
        """See `effect.Effect`. The files come before the record that tells of them.

        Raises:
            errors.Retryable: another claim of that name has the directory, or there is no room.
        """
        content = device_metadata.of(record)
        if content is None:
            return effect.Made(record)
        metadata.check(record.ref, content)
        for other in _namesakes(record, job.others):
            raise errors.Retryable(
                f"claim {record.ref}: the devices of an earlier claim of that name, with UID "
                f"{other.uid}, are not given back yet, and containers read of them where those "
                "of this claim would be described"
            )
        record, documents = self.said(record, job.plan.offers)
        self._files.put(record, documents)
        return effect.Made(record)

    def said(
        self, record: prepared.Record, offers: Mapping[str, devices.Offer]
    ) -> tuple[prepared.Record, tuple[metadata.Document, ...]]:
        """See `logic.preparing.metadata.said`; nothing is written."""
        told = effect.told(self._others, record)
        return metadata.said(self._files.driver_name, record, offers, told)

    def says(self, record: prepared.Record, documents: Sequence[metadata.Document]) -> bool:
        """Whether the files say just this."""
        return self._files.says(record, documents)

    def put(self, record: prepared.Record, documents: Sequence[metadata.Document]) -> bool:
        """Have the files say this; whether any of them did not."""
        return self._files.put(record, documents)

    def edits(self, _record: prepared.Record, _gpus: Mapping[str, devices.Gpu]) -> effect.Edits:
        """See `effect.Effect`. The mounts are in specs of their own."""
        return {}

    def undo(self, record: prepared.Record, others: effect.Others) -> None:
        """See `effect.Effect`. Whatever the record tells of it: a rebuilt one may tell nothing."""
        folder = metadata.folder(record.namespace, record.name) if record.name else None
        is_alone = not any(_namesakes(record, others))
        self._files.remove(record.uid, folder, unknown=is_alone)

    def settle(self, gpu: str, _records: effect.Others | None) -> None:
        """See `effect.Effect`. No GPU is set to anything."""

    def leftovers(
        self, cards: Sequence[catalog.Card], records: Callable[[], effect.Others]
    ) -> Sequence[effect.Leftover]:
        """See `effect.Effect`: files of claims of which no record tells, and of none at all."""
        found, mounted = self._files.found(), self._files.mounted()
        known = records()
        # One that was rebuilt may tell nothing of files that containers have mounted.
        uids = {
            one.uid for one in known if self.is_in(one) or one.phase is prepared.Phase.COMPLETED
        }
        described: dict[str, set[str]] = {uid: set() for uid in mounted - uids}
        unknown = {one.folder for one in found}
        for one in found:
            if one.owner is not None:
                unknown.discard(one.folder)
                if one.owner.uid not in uids:
                    described.setdefault(one.owner.uid, set()).update(one.owner.devices)
        unknown -= {metadata.folder(one.namespace, one.name) for one in known}
        return [
            *(self._of_claim(uid, names, cards) for uid, names in sorted(described.items())),
            *(self._of_nobody(folder) for folder in sorted(unknown)),
        ]

    def _of_claim(
        self, uid: str, names: Collection[str], cards: Sequence[catalog.Card]
    ) -> effect.Leftover:
        there = {card.name: card.gpu.uuid for card in cards}
        on = {devices.card_of(name) for name in names}
        gpus = tuple(there[name] for name in sorted(on)) if on <= there.keys() else ()
        return effect.Leftover(KIND, f"claim {uid}", gpus, lambda: self._files.remove(uid))

    def _of_nobody(self, folder: str) -> effect.Leftover:
        return effect.Leftover(KIND, folder, (), lambda: self._files.remove_folder(folder))

    def tells(self, _record: prepared.Record) -> effect.Told:
        """See `effect.Effect`. It repeats what the others tell."""
        return {}

    def troubles(self, _record: prepared.Record, *, anew: bool) -> effect.Troubles:  # noqa: ARG002
        """See `effect.Effect`. Devices work without."""
        return {}

    def without(self, record: prepared.Record, shared: Collection[str]) -> prepared.Record:
        """See `effect.Effect`. Nobody else has a part of a file: all of it is undone by its UID."""
        content = device_metadata.of(record)
        if content is None:
            return record
        left = {
            request
            for one in record.devices
            if one.device not in shared
            for request in one.requests
        }
        kept = {name: one for name, one in content.requests.items() if name in left}
        if kept == content.requests:
            return record
        fewer = content.model_copy(update={"requests": kept}) if kept else None
        return device_metadata.into(record, fewer)

    def _wanted(
        self,
        record: prepared.Record,
        plan: planning.Plan,
        known: device_metadata.Content | None,
    ) -> device_metadata.Content | None:
        """What is to be remembered; generations go on from those that are known."""
        before = known.requests if known is not None else {}
        requests = {
            base: before[base].model_copy(update={"name": one.name}) if base in before else one
            for base, one in plan.described.requests.items()
        }
        content = plan.described.model_copy(update={"requests": requests})
        metadata.check(record.ref, content)
        if metadata.is_too_long(record.ref):
            self._log.warning(
                "devices are not described in containers: namespace and name of the claim are too "
                "long for the name of a directory",
                claim=str(record.ref),
                allowed=metadata.LONGEST_NAME - 1,
            )
            return None
        return content

    def _recalled(self, record: prepared.Record) -> device_metadata.Content | None:
        """What the files of a claim tell whose record was lost."""
        owners = {
            one.request: one.owner
            for one in self._files.found()
            if one.owner is not None and one.owner.uid == record.uid
        }
        if not owners:
            return None
        return device_metadata.Content(
            requests={request: owner.described for request, owner in owners.items()},
            pod_claim_name=next(iter(owners.values())).pod_claim_name,
        )


def _namesakes(record: prepared.Record, others: effect.Others) -> Iterator[prepared.Record]:
    """Other claims of that namespace and name that have files."""
    return (
        one
        for one in others
        if one.uid != record.uid
        and (one.namespace, one.name) == (record.namespace, record.name)
        and (one.described is not None or one.rebuilt)
    )
