"""Which processes use the devices of a claim: asked before a claim is taken back that nobody gives
back, since its containers may run on.

NVML may hang on a sick card, and that is just when a pod is deleted by force: nobody waits for it
longer than for a while. Where it does not tell, a device counts as used.
"""

import threading
from collections.abc import Callable, Iterable, Sequence

from dra_driver import errors
from dra_driver.adapters.nvml import nvml_errors, nvml_mig
from dra_driver.adapters.system import processes
from dra_driver.apps.offering import inventory
from dra_driver.model import bindings, devices, prepared

SECONDS = 10.0
"""How long NVML may take to tell."""
_MPS = "nvidia-cuda-mps"
"""What the programs of MPS are called, in the 15 letters that the kernel keeps of a name: a server
holds its GPU for as long as its daemon runs."""


class DeviceUsers:
    """Asks NVML, for one caller at a time."""

    def __init__(
        self,
        nvml: nvml_mig.MigNvml,
        gpus: inventory.Inventory,
        describe: Callable[[int], processes.Process],
        of_vfio: Callable[[devices.PciAddress], Sequence[int]] = lambda _: (),
    ) -> None:
        """`describe` tells who a process is, by its pid.

        `of_vfio` tells who has a GPU that a VFIO driver has, by its address: NVML does not know.
        """
        self._nvml = nvml
        self._gpus = gpus
        self._describe = describe
        self._of_vfio = of_vfio
        self._turn = threading.Lock()
        self._asking: threading.Thread | None = None

    def of_claim(self, record: prepared.Record, others: Iterable[prepared.Record]) -> str | None:
        """Who uses devices of the claim, in words; None where nobody does.

        A share of a device counts only with the last claim that has one: processes on a device do
        not tell whose they are, and the others' go on.

        Raises:
            errors.DriverError: it is not to be known.
        """
        shared = {one.device for other in others for one in other.devices}
        seen = self._gpus.snapshot
        partitions = {one.device: one for one in record.partitions}
        bound = {one.gpu: devices.PciAddress(one.address) for one in bindings.of(record)}
        places: set[tuple[str, int | None]] = set()
        for one in record.devices:
            if one.admin_access or (one.share_id is not None and one.device in shared):
                continue
            if devices.is_vfio(one.device):
                continue
            partition = partitions.get(one.device)
            if partition is not None:
                # One that was never made has no users.
                places |= {(partition.gpu, partition.gi)} if partition.gi is not None else set()
                continue
            offer = seen.offered.get(one.device) or seen.lost.get(one.device)
            if offer is None:
                raise errors.Retryable(
                    f"device {one.device!r}: it was not seen since the driver started"
                    + (f": {seen.problem}" if seen.problem else "")
                )
            places.add((offer.gpu.uuid, offer.instance.gi if offer.instance else None))
        return self._on(sorted(places, key=lambda place: (place[0], place[1] or 0)), bound.values())

    def of_devices(self, uuids: Sequence[str]) -> str | None:
        """As `of_claim`, for GPUs and instances by UUID; an instance that is gone has no users."""
        snapshot = self._gpus.snapshot
        gpus = [card.gpu for card in snapshot.served]
        return self._on(
            [(uuid, None) for uuid in uuids if uuid in {gpu.uuid for gpu in gpus}]
            + [
                (gpu.uuid, instance.gi)
                for gpu in gpus
                for instance in gpu.instances
                if instance.uuid in uuids
            ],
            [
                card.gpu.pci_address
                for card in snapshot.cards
                if card.is_bound and card.gpu.uuid in uuids
            ],
        )

    def _on(
        self,
        places: Sequence[tuple[str, int | None]],
        bound: Iterable[devices.PciAddress],
    ) -> str | None:
        """Who is on these GPUs and instances, or has one at these addresses by VFIO."""
        with self._turn:
            found = self._asked(places) if places else frozenset()
        found |= {pid for address in bound for pid in self._of_vfio(address)}
        named = [self._describe(pid) for pid in sorted(found)]
        return ", ".join(str(one) for one in named if not _is_mps(one)) or None

    def _asked(self, places: Sequence[tuple[str, int | None]]) -> frozenset[int]:
        """The pids of the users of these GPUs, or instances of them."""
        answers: list[frozenset[int] | errors.DriverError] = []

        def ask() -> None:
            try:
                answers.append(frozenset(pid for place in places for pid in self._users(*place)))
            except errors.DriverError as error:
                answers.append(error)

        # Who hangs in NVML does not come back: another one would hang beside it.
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=ask, name="device-users", daemon=True)
            self._asking.start()
            self._asking.join(SECONDS)
        if not answers:
            raise errors.Retryable(inventory.SLOW)
        if isinstance(answers[0], errors.DriverError):
            raise answers[0]
        return answers[0]

    def _users(self, gpu: str, gi: int | None) -> list[int]:
        try:
            return [
                one.pid for one in self._nvml.users(gpu, surely=True) if gi is None or one.gi == gi
            ]
        except nvml_errors.GpuGone:
            # Nobody computes on it, and nobody gets it.
            return []


def _is_mps(process: processes.Process) -> bool:
    return (process.command or "").startswith(_MPS)
