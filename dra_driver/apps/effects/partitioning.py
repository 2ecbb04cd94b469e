"""MIG instances of claims: made where the scheduler placed them, and unmade.

Whoever calls holds the lock of the GPU. The ledger of the GPU is written before an instance is
made and corrected after one is destroyed, so that a process that dies in between leaves nothing
behind that is taken for somebody else's, and never destroys what is.
"""

import dataclasses
from collections.abc import Callable, Iterable

from dra_driver import errors, telemetry
from dra_driver.adapters.disk import ledgers
from dra_driver.adapters.nvml import nvml_mig
from dra_driver.adapters.system import processes
from dra_driver.logic.offering import abilities
from dra_driver.model import devices, mig, prepared
from dra_driver.model import ledgers as ledger_model


class Partitioner:
    """Makes and unmakes instances; what is left when one cannot be made is undone by `unmake`."""

    def __init__(
        self,
        nvml: nvml_mig.MigNvml,
        books: ledgers.Ledgers,
        describe: Callable[[int], processes.Process],
    ) -> None:
        """`describe` tells who a process is, by its pid."""
        self._nvml = nvml
        self._books = books
        self._describe = describe
        self._minors: dict[str, int] = {}
        """Of the GPUs, by UUID, as they were when they were cut, or looked at for that."""
        self._log = telemetry.logger("partitioner")

    def make(self, partition: prepared.Partition, gpu: devices.Gpu) -> prepared.Partition:
        """The partition with its instance, which is made on the GPU unless it is there.

        Raises:
            errors.Retryable: somebody is in the way; the text says who.
            errors.Rejected: it cannot work.
        """
        with self._nvml.kept_open():
            state = self._state(partition.gpu)
            self._prepare_to_make(partition, gpu, state)
            if state.enabled or not partition.made:
                return self._make(partition, state)
        # NVML is not kept open meanwhile: what it tells of the GPU may be otherwise afterwards.
        self._switch_on(partition)
        with self._nvml.kept_open():
            return self._make(partition, self._state(partition.gpu))

    def _prepare_to_make(
        self, partition: prepared.Partition, gpu: devices.Gpu, state: nvml_mig.MigState
    ) -> None:
        """Refuse what cannot work, and write down what is about to be made."""
        if not partition.made:
            return
        found = _at(partition.spot, state.instances)
        ledger = self._books.get(partition.gpu)
        if found is not None and partition.spot not in ledger.spots:
            raise errors.Retryable(
                f"device {partition.device!r}: GPU instance {found.gi} is at "
                f"{partition.spot.placement} of {partition.gpu} already, and this driver did not "
                "make it. Destroy it (nvidia-smi mig -dci, -dgi) or see --adopt-foreign-mig"
            )
        if not state.enabled and not abilities.switches_at_run_time(gpu):
            raise errors.Rejected(
                f"device {partition.device!r}: MIG mode of {partition.gpu} is off, and "
                f"{gpu.product_name} changes it with a reset only. Delete the pod, so that the "
                "claim can be allocated anew"
            )
        self._books.put(ledger.adding(partition.spot))

    def _make(self, partition: prepared.Partition, state: nvml_mig.MigState) -> prepared.Partition:
        found = _at(partition.spot, state.instances)
        if not partition.made:
            return self._existing(partition, found)
        gi = found.gi if found else self._create(partition, state.instances)
        if found is None or found.uuid is None:
            found = self._create_compute(partition.gpu, gi)
        self._log.info("MIG instance made", device=partition.device, uuid=found.uuid)
        return _with(partition, found)

    def numbered(self, gpu: devices.Gpu) -> devices.Gpu:
        """The GPU with the minor number that it has now.

        A card that changes its MIG mode at run time may change its number with it: where the last
        look at the GPUs has another one than it had when it was cut, NVML is asked.

        Raises:
            errors.Retryable: NVML does not tell.
        """
        if not abilities.switches_at_run_time(gpu):
            return gpu
        if self._minors.get(gpu.uuid) != gpu.minor:
            self._minors[gpu.uuid] = self._nvml.minor(gpu.uuid)
        minor = self._minors[gpu.uuid]
        if minor == gpu.minor:
            return gpu
        self._log.warning("minor number changed", uuid=gpu.uuid, old=gpu.minor, new=minor)
        return dataclasses.replace(gpu, minor=minor)

    def unmake(self, partition: prepared.Partition, others: Iterable[prepared.Record] = ()) -> None:
        """Destroy what `make` made, however far it got; gone already is fine.

        What a claim of `others` has another share of stays: it may be at work.

        Raises:
            errors.Retryable: a process still uses it; the text says which.
        """
        shared = _shared(partition, others)
        if not partition.made or (partition.uuid is not None and partition.uuid in shared):
            return
        with self._nvml.kept_open():
            self._unmake(partition, shared)

    def _unmake(self, partition: prepared.Partition, shared: frozenset[str | None]) -> None:
        ledger = self._books.get(partition.gpu)
        try:
            found = _at(partition.spot, self._state(partition.gpu).instances)
            if found is not None and _may_be_of(found, shared):
                return
            if found is not None and _is_of(partition, found, ledger):
                self._destroy(partition.gpu, found)
                self._log.info("MIG instance destroyed", device=partition.device, uuid=found.uuid)
        except nvml_mig.GpuGone as error:
            # An instance does not outlive its GPU.
            self._log.warning("GPU is gone, and its instances with it", reason=str(error))
        self._books.put(ledger.without(partition.spot))
        self.settle_mode(partition.gpu)

    def made(self, gpu: str) -> frozenset[mig.Spot]:
        """Where on a GPU there is, or was begun, an instance of this driver."""
        return self._books.get(gpu).spots

    def remove(self, gpu: devices.GpuUuid, spot: mig.Spot) -> None:
        """Destroy the instance that is there; it has been made sure that it may be.

        Raises:
            errors.Retryable: a process still uses it; the text says which.
        """
        found = _at(spot, self._state(gpu).instances)
        if found is not None:
            self._destroy(gpu, found)
        self._books.put(self._books.get(gpu).without(spot))

    def is_intact(self, partitions: Iterable[prepared.Partition]) -> bool:
        """Whether all of them exist as they were made; a reset of the GPU destroys them."""
        states: dict[str, tuple[mig.Instance, ...]] = {}
        for one in partitions:
            if one.gpu not in states:
                states[one.gpu] = self._state(one.gpu).instances
            found = _at(one.spot, states[one.gpu])
            if found is None or one.uuid is None or found.uuid != one.uuid:
                return False
        return True

    def make_whole(self, offer: devices.Offer) -> None:
        """Take the GPU out of the MIG mode that this driver put it into.

        Raises:
            errors.Retryable: somebody is in the way; the text says who.
        """
        gpu = offer.gpu
        ledger = self._books.get(gpu.uuid)
        is_ours = ledger.made or ledger.mode_switched
        # Where the mode changes at run time, somebody may have changed it since the last look.
        if not (is_ours or gpu.mig_enabled or abilities.switches_at_run_time(gpu)):
            return
        state = self._state(gpu.uuid)
        if not state.enabled:
            return
        if state.instances or not ledger.mode_switched:
            listed = ", ".join(f"{one.gi} at {one.spot.placement}" for one in state.instances)
            raise errors.Retryable(
                f"device {offer.card!r}: {gpu.uuid} is in MIG mode"
                f"{f' with GPU instances {listed}' if listed else ''}, so it cannot be used as a "
                "whole. Switch MIG mode off (nvidia-smi -mig 0) once nothing uses it"
            )
        self._set_mode(gpu.uuid, enabled=False)
        self._books.put(ledger.switched(on=False))

    def settle_mode(self, gpu: str) -> None:
        """Switch MIG mode off where this driver switched it on and nothing needs it any more.

        What is in the way of that is told, and hinders nobody: it is tried again.
        """
        ledger = self._books.get(gpu)
        if ledger.made or not ledger.mode_switched:
            return
        try:
            state = self._state(gpu)
            if state.instances:
                return
            if state.enabled:
                self._set_mode(gpu, enabled=False)
        except errors.DriverError as error:
            self._log.warning("MIG mode stays on for now", gpu=gpu, reason=str(error))
            return
        self._books.put(ledger.switched(on=False))

    def adopt(self, gpu: devices.Gpu, spots: Iterable[mig.Spot]) -> None:
        """Take the instances of others at these places for our own, and the MIG mode as well."""
        ledger = self._books.get(gpu.uuid)
        for spot in spots:
            ledger = ledger.adding(spot)
        if abilities.switches_at_run_time(gpu):
            ledger = ledger.switched(on=True)
        self._books.put(ledger)

    def disown(
        self, partitions: Iterable[prepared.Partition], others: Iterable[prepared.Record]
    ) -> None:
        """Let go of places where somebody made an instance after ours had been destroyed.

        One that was made for another share of the same partition is ours.
        """
        known = list(others)
        for one in partitions:
            if not one.made or one.uuid is None:
                continue
            ledger = self._books.get(one.gpu)
            found = _at(one.spot, self._state(one.gpu).instances)
            if found is None or _is_of(one, found, ledger):
                continue
            if _may_be_of(found, _shared(one, known)):
                continue
            self._books.put(ledger.without(one.spot))

    def _state(self, gpu: str) -> nvml_mig.MigState:
        state = self._nvml.state(gpu)
        self._minors[gpu] = state.minor
        return state

    def _existing(
        self, partition: prepared.Partition, found: mig.Instance | None
    ) -> prepared.Partition:
        if found is None or found.uuid is None:
            raise errors.Retryable(
                f"device {partition.device!r}: there is no MIG instance at "
                f"{partition.spot.placement} of {partition.gpu}, and it is not for this claim to "
                "make one: it is one that an administrator makes, or asked for with adminAccess"
            )
        return _with(partition, found)

    def _switch_on(self, partition: prepared.Partition) -> None:
        ledger = self._books.get(partition.gpu)
        self._books.put(ledger.switched(on=True))
        self._set_mode(partition.gpu, enabled=True)
        self._log.info("MIG mode switched on", gpu=partition.gpu)

    def _create(self, partition: prepared.Partition, there: Iterable[mig.Instance]) -> int:
        try:
            return self._nvml.create(partition.gpu, partition.spot)
        except nvml_mig.NoRoom as error:
            # Somebody else may have been faster at this very place.
            self._books.put(self._books.get(partition.gpu).without(partition.spot))
            listed = ", ".join(f"{one.gi} at {one.spot.placement}" for one in there) or "none"
            raise errors.Retryable(
                f"device {partition.device!r}: {error}. GPU instances that are there: {listed}. "
                "Destroy those that no claim has (nvidia-smi mig -dci, -dgi)"
            ) from error
        except nvml_mig.InUse as error:
            raise self._told(partition.gpu, error) from error

    def _create_compute(self, gpu: str, gi: int) -> mig.Instance:
        try:
            return self._nvml.create_compute(gpu, gi)
        except nvml_mig.InUse as error:
            raise self._told(gpu, error) from error

    def _destroy(self, gpu: str, found: mig.Instance) -> None:
        try:
            # One that was cut into several has none that spans it.
            whole = () if found.ci is None else (found.ci,)
            for ci in whole or self._nvml.compute_instances(gpu, found.gi):
                self._nvml.destroy_compute(gpu, found.gi, ci)
            self._nvml.destroy(gpu, found.gi)
        except nvml_mig.InUse as error:
            raise self._told(gpu, error, found.gi) from error

    def _set_mode(self, gpu: str, *, enabled: bool) -> None:
        try:
            self._minors[gpu] = self._nvml.set_mode(gpu, enabled)
        except nvml_mig.InUse as error:
            raise self._told(gpu, error) from error

    def _told(self, gpu: str, error: nvml_mig.InUse, gi: int | None = None) -> errors.Retryable:
        """The error with those who use the GPU, or the instance."""
        try:
            users = [user for user in self._nvml.users(gpu) if gi is None or user.gi == gi]
        except errors.DriverError:
            users = []
        named = ", ".join(str(self._describe(user.pid)) for user in users)
        return errors.Retryable(
            f"{error}. It is used by {named or 'a process that NVML does not tell'}: end it, or "
            "delete its pod"
        )


def _at(spot: mig.Spot, instances: Iterable[mig.Instance]) -> mig.Instance | None:
    return next((one for one in instances if one.spot == spot), None)


def _is_of(partition: prepared.Partition, found: mig.Instance, ledger: ledger_model.Ledger) -> bool:
    """Whether the instance is the one that was made for the partition, or what is left of it.

    While it is made, and once its compute instance is destroyed, only the ledger tells.
    """
    if None in (partition.uuid, found.uuid):
        return partition.spot in ledger.spots
    return partition.uuid == found.uuid


def _shared(
    partition: prepared.Partition, others: Iterable[prepared.Record]
) -> frozenset[str | None]:
    """The UUIDs that other claims have for their shares of the partition; None while it is made."""
    return frozenset(
        one.uuid for record in others for one in record.partitions if one.device == partition.device
    )


def _may_be_of(found: mig.Instance, shared: frozenset[str | None]) -> bool:
    """Whether the instance is that of another share, or may be what was begun for it."""
    return found.uuid in shared or None in shared


def _with(partition: prepared.Partition, found: mig.Instance) -> prepared.Partition:
    return partition.model_copy(update={"gi": found.gi, "ci": found.ci, "uuid": found.uuid})
