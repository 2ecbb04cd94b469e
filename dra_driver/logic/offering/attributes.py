"""What a GPU looks like in a ResourceSlice: names, types and absences as the peer's.

Names without a domain belong to the driver that publishes them. NUMA has such a name and, since
Kubernetes 1.37, a standard one (KEP-6072), by which devices of several drivers are aligned.
"""

import dataclasses
import re
from collections.abc import Mapping

from dra_driver import errors
from dra_driver.logic.offering import abilities
from dra_driver.model import devices, mig, pci, quantities, slices, versions

PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"

MAX_VALUE_LENGTH = 64
"""Bytes that the API server accepts in a string or version attribute; it refuses the whole slice
for one that is longer (`DeviceAttributeMaxValueLength`)."""

MOST = 32
"""Attributes and capacities of a device together; the API server refuses the whole slice for one
that has more (`ResourceSliceMaxAttributesAndCapacitiesPerDevice`)."""

_DRIVER_VERSION = re.compile(r"\d{1,19}(\.\d{1,19}){1,2}")
"""Numbers that fit into 64 bits, as those of a semantic version have to."""


def device(
    gpu: devices.Gpu,
    *,
    partitionable: bool = False,
    lists: bool = False,
    vfio_hurdle: str | None = None,
) -> slices.Device:
    """The whole GPU as a device. A fact that is not known is left out, and so is one too long.

    No memory is not known memory: some cards whose memory is the system's say 0. Of a GPU that NVML
    has not told of little is known.

    One that can be had in parts tells how much of each engine it has, as its partitions do. With
    `lists` attributes may be lists. `vfio_hurdle` is why virtual machines are not offered it, where
    they are to be (`passthrough.hurdles.Word`).
    """
    facts = {
        "type": "gpu",
        "uuid": None if pci.is_unseen(gpu.uuid) else gpu.uuid,
        "index": gpu.index if gpu.index >= 0 else None,
        "minor": gpu.minor if gpu.minor >= 0 else None,
        **_card_facts(gpu, lists=lists),
        "migCapable": abilities.cut(gpu),
        "mpsCapable": abilities.mps(gpu),
        "timeSliceCapable": abilities.time_slices(gpu),
        "vfioHurdle": vfio_hurdle,
        **_fabric(gpu),
    }
    capacity = {}
    if gpu.memory_bytes:
        capacity["memory"] = quantities.of_bytes(gpu.memory_bytes)
    if partitionable:
        capacity |= {
            name: _count(max(engines(profile)[name] for profile in gpu.profiles))
            for name in (engines(gpu.profiles[0]) if gpu.profiles else ())
        }
    return slices.Device(gpu.name, _known(facts), capacity)


def partition(offer: devices.Offer, *, lists: bool = False) -> slices.Device:
    """A partition as a device; one that exists tells its UUID and its memory slices too."""
    gpu, profile, spot = offer.gpu, offer.profile, offer.spot
    if profile is None or spot is None:
        raise errors.Rejected(f"{offer.card} is no partition")
    facts = {
        "type": "mig",
        "uuid": offer.instance.uuid if offer.instance else None,
        "parentUUID": gpu.uuid,
        "profile": profile.name,
        "memorySlices": spot.placement.size,
        "placementStart": spot.placement.start,
        **_card_facts(gpu, lists=lists),
    }
    capacity = {name: _count(number) for name, number in engines(profile).items()}
    if profile.memory_mib:
        capacity["memory"] = quantities.of_bytes(profile.memory_mib * 2**20)
    known = _known(facts)
    # `memorySlices` and `placementStart` say the same: an RTX PRO 6000 has twelve of them.
    if offer.instance is not None and len(known) + len(capacity) + spot.placement.size <= MOST:
        covered = range(spot.placement.start, spot.placement.start + spot.placement.size)
        capacity |= {f"memorySlice{number}": _count(1) for number in covered}
    name = devices.mig_device_name(gpu.name, profile.name, spot)
    return slices.Device(name, known, capacity)


def vfio(offer: devices.Offer, *, lists: bool = False) -> slices.Device:
    """A GPU for virtual machines as a device: the peer's attributes, and which GPU it is.

    `uuid` is the peer's, of the PCI address. That of the GPU is `gpuUUID`, left out where NVML has
    never told of it.
    """
    found, gpu = offer.vfio, offer.gpu
    if found is None:
        raise errors.Rejected(f"{offer.card} is not for virtual machines")
    facts = {
        "type": "vfio",
        "uuid": pci.uuid_of(found.address),
        "gpuUUID": None if pci.is_unseen(gpu.uuid) else gpu.uuid,
        "vendorID": f"0x{found.vendor:04x}",
        "deviceID": f"0x{found.model:04x}",
        "productName": found.product or gpu.product_name or None,
        "iommuFDEnabled": found.iommufd,
        "iommuGroup": found.group,
        "numaNode": gpu.numa_node,
        PCI_BUS_ID: found.address,
        PCIE_ROOT: gpu.pcie_root,
        NUMA_NODE: _near(gpu) if lists and gpu.numa_near else gpu.numa_node,
        **_fabric(gpu),
    }
    capacity = {}
    if found.memory_bytes:
        capacity["addressableMemory"] = quantities.of_bytes(found.memory_bytes)
    return slices.Device(devices.vfio_device_name(gpu.name), _known(facts), capacity)


def engines(profile: mig.Profile) -> dict[str, int]:
    """What a partition has of the engines of its GPU, by the names of capacities."""
    return {
        "multiprocessors": profile.multiprocessors,
        "copyEngines": profile.copy_engines,
        "decoders": profile.decoders,
        "encoders": profile.encoders,
        "jpegEngines": profile.jpeg_engines,
        "ofaEngines": profile.ofa_engines,
    }


def driver_version(text: str | None) -> slices.Version | None:
    """The NVIDIA driver's version as a semantic one: `580.65.06` is `580.65.6`.

    Two numbers get a third. Anything else is no version that can be compared, hence None.
    """
    if text is None or not _DRIVER_VERSION.fullmatch(text):
        return None
    return slices.Version(versions.normalize(text))


def _card_facts(gpu: devices.Gpu, *, lists: bool) -> dict[str, slices.AttributeValue | None]:
    """What a partition has in common with its GPU."""
    return {
        "productName": gpu.product_name,
        "brand": gpu.brand,
        "architecture": gpu.architecture,
        "cudaComputeCapability": _version(gpu.compute_capability),
        "cudaDriverVersion": _version(gpu.cuda_driver_version),
        "driverVersion": driver_version(gpu.driver_version),
        "addressingMode": gpu.addressing_mode,
        "numaNode": gpu.numa_node,
        PCI_BUS_ID: gpu.pci_address,
        PCIE_ROOT: gpu.pcie_root,
        NUMA_NODE: _near(gpu) if lists and gpu.numa_near else gpu.numa_node,
    }


def _fabric(gpu: devices.Gpu) -> dict[str, slices.AttributeValue | None]:
    """Which GPUs belong together, by their partitions of the NVLink fabric: the peer's names.

    Only where Fabric Manager is asked, so that other nodes' slices are as they were.
    """
    if gpu.fabric is None:
        return {}
    return {
        "gpuModuleID": gpu.module_id,
        **{f"partition{size}": number for size, number in gpu.fabric},
    }


def fitting(device: slices.Device) -> slices.Device:
    """The device with no more than the API server takes: only with all that there may be, a GPU
    with shares among it, is it one too many. `partition1` says of no other GPU that it belongs
    there.
    """
    if len(device.attributes) + len(device.capacity) <= MOST:
        return device
    kept = {name: value for name, value in device.attributes.items() if name != "partition1"}
    return dataclasses.replace(device, attributes=kept)


def _near(gpu: devices.Gpu) -> tuple[int, ...] | None:
    """Its NUMA node, then those as near as can be: a CPU of any of them matches (KEP-6072)."""
    return None if gpu.numa_node is None else (gpu.numa_node, *gpu.numa_near)


def _known(
    facts: Mapping[str, slices.AttributeValue | None],
) -> dict[str, slices.AttributeValue]:
    return {
        name: value
        for name, value in facts.items()
        if value is not None and _length(value) <= MAX_VALUE_LENGTH
    }


def _count(number: int) -> quantities.Quantity:
    return quantities.of_amount(number, quantities.Format.DECIMAL_SI)


def _version(parts: tuple[int, int] | None) -> slices.Version | None:
    return None if parts is None else slices.Version(f"{parts[0]}.{parts[1]}.0")


def _length(value: slices.AttributeValue) -> int:
    match value:
        case slices.Version(text=text):
            return len(text.encode())
        case str():
            return len(value.encode())
        case _:
            return 0
