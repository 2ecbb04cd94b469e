"""The effect of MIG: a claim's partitions are instances, its whole cards are whole.

See `effect.Effect`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from dra_driver import telemetry
from dra_driver.apps.effects import effect, partitioning
from dra_driver.logic.offering import catalog
from dra_driver.logic.preparing import cdi, planning
from dra_driver.model import devices, mig, prepared


class Instances:
    """MIG instances of claims."""

    parts: Mapping[str, Collection[int]] = MappingProxyType({})
    written_ahead = True

    def __init__(self, partitioner: partitioning.Partitioner, *, adopt: bool) -> None:
        """With `adopt` instances that others made count as ours."""
        self._partitioner = partitioner
        self._adopt = adopt
        self._log = telemetry.logger("instances")

    def remember(self, record: prepared.Record, job: effect.Job) -> prepared.Record:
        """See `effect.Effect`."""
        known = job.before.partitions if job.before and job.in_use else job.plan.partitions
        return record.model_copy(update={"partitions": known})

    def is_in(self, record: prepared.Record) -> bool:
        """See `effect.Effect`."""
        return bool(record.partitions)

    def is_intact(self, record: prepared.Record, plan: planning.Plan) -> bool:
        """See `effect.Effect`. A record that was rebuilt while a GPU was away lacks partitions."""
        known = {one.device for one in record.partitions}
        planned = {one.device for one in plan.partitions}
        return known == planned and self._partitioner.is_intact(record.partitions)

    def renounce(self, record: prepared.Record, others: effect.Others) -> None:
        """See `effect.Effect`."""
        self._partitioner.disown(record.partitions, others)

    def make(self, record: prepared.Record, job: effect.Job) -> effect.Made:
        """See `effect.Effect`."""
        if job.in_use:
            return effect.Made(record)
        offers = job.plan.offers
        for entry in job.plan.entries:
            if entry.kind == "gpu" and not entry.admin_access:
                self._partitioner.make_whole(offers[entry.device])
        made = [self._partitioner.make(one, offers[one.device].gpu) for one in record.partitions]
        return effect.Made(record.model_copy(update={"partitions": tuple(made)}))

    def edits(self, _record: prepared.Record, _gpus: Mapping[str, devices.Gpu]) -> effect.Edits:
        """See `effect.Effect`. Device nodes are the injector's."""
        return {}

    def undo(self, record: prepared.Record, others: effect.Others) -> None:
        """See `effect.Effect`."""
        for partition in reversed(record.partitions):
            self._partitioner.unmake(partition, others)

    def settle(self, gpu: str, _records: effect.Others | None) -> None:
        """See `effect.Effect`. The MIG mode."""
        self._partitioner.settle_mode(gpu)

    def leftovers(
        self, cards: Sequence[catalog.Card], records: Callable[[], effect.Others]
    ) -> Sequence[effect.Leftover]:
        """See `effect.Effect`: what ledgers tell of and, to be adopted, what others made.

        A card that a VFIO driver has is left alone until it is back.
        """
        cards = [card for card in cards if not card.is_bound]
        made = {card.gpu.uuid: self._partitioner.made(card.gpu.uuid) for card in cards}
        claimed = {(one.gpu, one.spot) for record in records() for one in record.partitions}
        return [
            self._leftover(card, spot, is_ours=spot in made[card.gpu.uuid])
            for card in cards
            for spot in sorted(made[card.gpu.uuid] | self._of_others(card))
            if (card.gpu.uuid, spot) not in claimed
        ]

    def _of_others(self, card: catalog.Card) -> frozenset[mig.Spot]:
        return frozenset(one.spot for one in card.foreign if self._adopt)

    def _leftover(self, card: catalog.Card, spot: mig.Spot, *, is_ours: bool) -> effect.Leftover:
        gpu = card.gpu
        profiles = {profile.id: profile.name for profile in gpu.profiles}
        name = devices.mig_device_name(card.name, profiles.get(spot.profile_id, "unknown"), spot)

        def remove() -> None:
            if not is_ours:
                # Nothing is offered in its place before it is gone.
                self._log.warning("MIG instance of others adopted", device=name)
                self._partitioner.adopt(gpu, [])
            self._partitioner.remove(gpu.uuid, spot)

        def keep() -> None:
            if not is_ours:
                self._log.warning("MIG instance of others adopted", device=name)
                self._partitioner.adopt(gpu, [spot])

        return effect.Leftover("MIG instance", name, (gpu.uuid,), remove, device=name, keep=keep)

    def tells(self, record: prepared.Record) -> effect.Told:
        """See `effect.Effect`: what nvidia-smi calls the instance, and where it is."""
        made = {one.device: one for one in record.partitions}
        return {
            cdi.device_key(one.device, one.share_id): {
                "uuid": made[one.device].uuid,
                "parentUUID": made[one.device].gpu,
                "profile": made[one.device].profile,
                "placement": f"{made[one.device].start}:{made[one.device].size}",
                "gpuInstanceId": made[one.device].gi,
                "computeInstanceId": made[one.device].ci,
            }
            for one in record.devices
            if one.device in made
        }

    def troubles(self, _record: prepared.Record, *, anew: bool) -> effect.Troubles:  # noqa: ARG002
        """See `effect.Effect`. Of a GPU that is gone `gpu_health` tells."""
        return {}

    def without(self, record: prepared.Record, shared: Collection[str]) -> prepared.Record:
        """See `effect.Effect`."""
        left = tuple(one for one in record.partitions if one.device not in shared)
        return record.model_copy(update={"partitions": left})
