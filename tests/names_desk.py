"""Names of cards on a disk, and what they are asked with."""

from dra_driver.adapters.disk import card_names, records
from dra_driver.adapters.system import locks
from dra_driver.apps.offering import names
from dra_driver.logic.offering import attributes
from dra_driver.model import devices, pci, prepared

HOUR = 3600.0


def gpu(uuid, minor):
    address = devices.PciAddress(f"0000:{minor:02x}:00.0")
    return devices.Gpu(minor, minor, devices.GpuUuid(f"GPU-{uuid}"), "T4", address)


def bound(minor, boot="boot-1"):
    """A GPU in the place of that with this minor number, of which NVML does not tell."""
    where = site(minor, boot)
    key = pci.unseen_gpu(where.address, where.vendor, where.model)
    return devices.Gpu(-1, -1, key, "", where.address)


def site(minor, boot="boot-1"):
    return devices.Site(devices.PciAddress(f"0000:{minor:02x}:00.0"), pci.NVIDIA, 0x1EB8, boot)


class Desk:
    """Names on a disk, with a clock and an API server that are set by hand."""

    def __init__(self, directory):
        self.directory = directory
        self.held = locks.Locks(directory / "locks")
        self.known = records.Records(directory / "claims")
        self.published, self.asked = [], 0
        self.time, self.now = 1000.0, "2026-11-28T10:00:00Z"
        self.names = self.make()

    def make(self):
        return names.Names(
            card_names.CardNames(self.directory / "names"),
            self.held,
            self.known,
            self.ask,
            now=lambda: self.now,
            clock=lambda: self.time,
        )

    def ask(self):
        self.asked += 1
        if isinstance(self.published, Exception):
            raise self.published
        return self.published

    def see(self, *gpus, failing=(), where=None):
        """A look that sees these, after which they are published; their numbers by UUID.

        `where` tells the sites of GPUs.
        """
        failures = tuple(devices.GpuFailure(9, one, None, "silent") for one in failing)
        seen = self.names.named(devices.Discovery(gpus, failures, sites=where or {}))
        if not isinstance(self.published, Exception) and not seen.nameless:
            self.published = [attributes.device(one) for one in seen.gpus]
        self.problems = list(seen.nameless.values())
        return {one.uuid.removeprefix("GPU-"): devices.number_of(one.name) for one in seen.gpus}

    def on_disk(self):
        found = card_names.CardNames(self.directory / "names").contents()
        return {one.gpu.removeprefix("GPU-"): one for one in found.records.values()}

    def holds(self, device, uid="uid-1"):
        """A claim has the device here."""
        self.known.write(
            prepared.Record(
                uid=uid, namespace="n", name="c", phase=prepared.Phase.COMPLETED, boot_id="b",
                devices=(
                    prepared.PreparedDevice(requests=(), pool="p", device=device, cdi_ids=()),
                ),
            )
        )  # fmt: skip

    def needs_view_after(self, seconds):
        self.time += seconds
        return self.names.needs_view()
