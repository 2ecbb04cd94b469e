"""Records that cannot be read, or are gone, made anew from what else is known of their claims.

What was done for a claim is told by its CDI spec: the devices, and the MPS daemons that its
containers use. What it is to have is told by the API. The node's GPUs tell of its MIG instances.
"""

from collections.abc import Callable, Iterable, Sequence

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import files, ledgers, records, stores
from dra_driver.apps.effects import specs
from dra_driver.apps.offering import inventory
from dra_driver.logic.passthrough import recalling
from dra_driver.logic.preparing import cdi, mps_edits, planning
from dra_driver.model import bindings, claims, devices, pci, prepared

ABSENT = "the file is gone"

Look = Callable[[], inventory.Snapshot]
FindClaim = Callable[[], claims.ResourceClaim | None]
Recall = Callable[[str, devices.Gpu, Sequence[str]], bindings.Binding | None]
"""What must have been remembered of a VFIO device: its name, its GPU, and the nodes that containers
get.

Raises:
    errors.DriverError: the disk, or the kernel, does not tell.
"""


def recalls(scan: Callable[[], pci.Bus], books: ledgers.Ledgers) -> Recall:
    """By what the bus tells, and the ledger of the GPU."""

    def recall(device: str, gpu: devices.Gpu, nodes: Sequence[str]) -> bindings.Binding | None:
        is_ours = books.get(gpu.uuid).handed_over is not None
        return recalling.binding(device, gpu, scan(), is_ours=is_ours, nodes=nodes)

    return recall


class Rebuilder:
    """Makes records anew. Whoever calls, but for `guess`, holds the claim's lock."""

    def __init__(
        self,
        node: planning.Node,
        known: records.Records,
        written: specs.Specs,
        look: Look,
        *,
        boot_id: str,
        recall: Recall = lambda _device, _gpu, _nodes: None,
    ) -> None:
        """`look` gives what there is of GPUs now; it is not asked unless something is lost."""
        self._node = node
        self._known = known
        self._specs = written
        self._boot_id = boot_id
        self._look = look
        self._recall = recall
        self._told: dict[str, str] = {}
        self._log = telemetry.logger("rebuilder")

    def loss(self, uid: str) -> str | None:
        """Why the record of a claim has to be rebuilt; None where it has not."""
        try:
            record = self._known.get(uid)
        except stores.Damaged as error:
            return str(error)
        return ABSENT if record is None and self._specs.read(uid) is not None else None

    def recorded(self, uid: str, find: FindClaim = lambda: None) -> prepared.Record | None:
        """What is remembered of a claim; where that is damaged, what can be known of it.

        `find` asks the API for the claim; it is called only where nothing on the node tells.
        """
        try:
            return self._known.get(uid)
        except stores.Damaged as error:
            claim = None if cdi.device_keys(uid, self._specs.read(uid) or "") else find()
            return self.rebuild(uid, str(error), claim)

    def rebuild(
        self, uid: str, reason: str, claim: claims.ResourceClaim | None
    ) -> prepared.Record | None:
        """Put a record in the place of one that is lost, which is told and kept aside.

        It goes on without a record on disk where there is no room for it; None where nothing tells
        what the claim has.
        """
        aside = None if reason == ABSENT else self._known.keep_aside(uid)
        if self._told.get(uid) != reason:
            self._told[uid] = reason
            self._log.error(
                "record of a claim cannot be read; rebuilding it",
                claim_uid=uid,
                reason=reason,
                set_aside=None if aside is None else str(aside),
            )
        record = self.guess(uid, claim)
        if record is None:
            return None
        try:
            self._known.write(record)
        except files.TROUBLE as error:
            # Its damaged file stays, and it is rebuilt again by whoever comes next.
            self._log.warning("rebuilt record is not kept", claim_uid=uid, reason=str(error))
            return record
        self._told.pop(uid, None)
        self._log.warning(
            "record rebuilt",
            claim_uid=uid,
            source="API" if record.name else "CDI spec",
            devices=[entry.device for entry in record.devices],
        )
        return record

    def guess(
        self,
        uid: str,
        claim: claims.ResourceClaim | None = None,
        seen: inventory.Snapshot | None = None,
    ) -> prepared.Record | None:
        """The record that a claim must have had, as far as that is told; nothing is written.

        `seen` is what is known of the GPUs, for whoever cannot wait for a look.
        """
        text = self._specs.read(uid)
        entries, claim = self._entries(uid, claim, text)
        if not entries:
            return None
        is_guess = seen is not None
        seen = seen or self._look()
        bound = self._bindings(uid, entries, text, seen, is_guess=is_guess)
        record = prepared.Record(
            uid=uid,
            namespace=claim.ref.namespace if claim else "",
            name=claim.ref.name if claim else "",
            phase=prepared.Phase.COMPLETED,
            boot_id=self._boot_id,
            devices=entries,
            rebuilt=True,
            partitions=self._partitions(entries, seen),
            sharing=self._sharing(claim, seen) or _recalled(uid, entries, text, seen),
            gpus=_gpus(entries, seen) | {devices.card_of(one.device): one.gpu for one in bound},
        )
        return bindings.into(record, bound)

    def _entries(
        self, uid: str, claim: claims.ResourceClaim | None, text: str | None
    ) -> tuple[tuple[prepared.PreparedDevice, ...], claims.ResourceClaim | None]:
        """What the claim has, and the claim if it is the API that tells.

        A claim that was allocated anew meanwhile has what its spec says, until that is undone.
        """
        keys = cdi.device_keys(uid, text) if text else ()
        if claim is not None and claim.allocation is not None:
            try:
                entries = planning.allocated_entries(claim.ref, claim, self._node)
            except errors.Rejected as error:
                self._log.warning("claim is allocated elsewhere", reason=str(error))
                entries = ()
            if {*keys} <= {cdi.device_key(entry.device, entry.share_id) for entry in entries}:
                return entries, claim
        return tuple(self._entry(uid, key) for key in keys), None

    def _entry(self, uid: str, key: str) -> prepared.PreparedDevice:
        device, share_id = cdi.parse_device_key(key)
        return prepared.PreparedDevice(
            requests=(),
            pool=self._node.pool,
            device=device,
            cdi_ids=(cdi.device_id(self._node.driver_name, uid, key),),
            share_id=share_id,
            kind=planning.kind(device),
        )

    def _partitions(
        self, entries: Iterable[prepared.PreparedDevice], seen: inventory.Snapshot
    ) -> tuple[prepared.Partition, ...]:
        """The MIG instances of the devices, as far as their GPUs are there to tell."""
        found: dict[str, prepared.Partition] = {}
        for entry in entries:
            offer = seen.offered.get(entry.device)
            if entry.kind == "mig" and offer is not None and offer.spot is not None:
                found[entry.device] = planning.existing(planning.partition(entry, offer), offer)
            elif entry.kind == "mig":
                self._log.error(
                    "of the partition nothing but its name is known", device=entry.device
                )
        return tuple(found.values())

    def _bindings(
        self,
        uid: str,
        entries: Iterable[prepared.PreparedDevice],
        text: str | None,
        seen: inventory.Snapshot,
        *,
        is_guess: bool,
    ) -> tuple[bindings.Binding, ...]:
        """What is bound for the devices, as the bus and ledgers tell; of a guess what they can.

        Raises:
            errors.DriverError: they do not tell. A record without it would strand the GPU.
        """
        paths = cdi.node_paths(uid, text) if text else {}
        gpus = {offer.card: offer.gpu for offer in seen.lost.values()}
        gpus |= {card.name: card.gpu for card in seen.cards}
        found = []
        for entry in entries:
            gpu = gpus.get(devices.card_of(entry.device))
            if entry.kind != "vfio" or gpu is None:
                continue
            nodes = paths.get(cdi.device_key(entry.device, entry.share_id), ())
            try:
                one = self._recall(entry.device, gpu, nodes)
            except errors.DriverError:
                if not is_guess:
                    raise
                continue
            found += [] if one is None else [one]
        return tuple(found)

    def _sharing(
        self, claim: claims.ResourceClaim | None, seen: inventory.Snapshot
    ) -> prepared.Sharing:
        """What was set up so that processes share the devices, as far as the API tells."""
        if claim is None:
            return prepared.Sharing()
        try:
            plan = planning.plan(claim.ref, claim, self._node, seen.offered, seen.divisions)
        except errors.DriverError as error:
            self._log.error(
                "of what shares the claim's devices only its CDI spec tells",
                claim_uid=claim.ref.uid,
                reason=str(error),
            )
            return prepared.Sharing()
        return plan.needs.remembered


def _gpus(entries: Iterable[prepared.PreparedDevice], seen: inventory.Snapshot) -> dict[str, str]:
    """The UUIDs of the whole GPUs by name, as far as they are there to tell."""
    offers = (seen.offered.get(entry.device) for entry in entries)
    return {offer.card: offer.gpu.uuid for offer in offers if offer is not None}


def _recalled(
    uid: str,
    entries: Iterable[prepared.PreparedDevice],
    text: str | None,
    seen: inventory.Snapshot,
) -> prepared.Sharing:
    """What a claim's CDI spec tells of that: the daemons that its containers use."""
    gpus = {name: offer.gpu.uuid for name, offer in seen.offered.items() if offer.spot is None}
    return mps_edits.recalled(entries, cdi.edits(uid, text) if text else {}, gpus)
