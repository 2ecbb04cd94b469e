"""The effect of MIG: a claim's partitions are instances, its whole cards are whole.

See `effect.Effect`.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from dra_driver.apps.effects import effect, partitioning
from dra_driver.logic.preparing import cdi, planning
from dra_driver.model import devices, prepared


class Instances:
    """MIG instances of claims."""

    parts: Mapping[str, Collection[int]] = MappingProxyType({})

    def __init__(self, partitioner: partitioning.Partitioner) -> None:
        self._partitioner = partitioner

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
        """See `effect.Effect`. The MIG mode; which instances there are, the ledger tells."""
        self._partitioner.settle_mode(gpu)

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

    def without(self, record: prepared.Record, shared: Collection[str]) -> prepared.Record:
        """See `effect.Effect`."""
        left = tuple(one for one in record.partitions if one.device not in shared)
        return record.model_copy(update={"partitions": left})
