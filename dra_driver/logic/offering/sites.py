"""Which card is in a place of the PCI bus, when another driver than NVIDIA's has it.

NVML tells the UUID of a card, and says nothing of one that is bound to a VFIO driver. Its place
tells then how it is called: where NVML told of a card last, and one of the same kind is now, that
is taken for the card, unless NVML tells of it elsewhere. It is certain in the same boot alone:
while a node is off a card may be exchanged for one of the same kind. Then the name stays, as that
of the place, and no UUID is told. Two cards of one kind that change places while the node is off,
and are both bound before NVML has told of them, go by the names of their places.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from dra_driver.model import card_names, devices, pci, slices

Memory = Mapping[str, card_names.CardName]
"""What is remembered, by device name; no card is in it twice."""
Sites = Mapping[devices.GpuUuid, devices.Site]
"""Where GPUs are, by their UUID or what stands for it."""
NOWHERE: Sites = MappingProxyType({})


def by_card(
    known: Memory, uuids: Iterable[devices.GpuUuid], where: Sites
) -> Mapping[devices.GpuUuid, card_names.CardName]:
    """What is remembered of the GPUs with these UUIDs, or what stands for them, by these."""
    uuids = list(uuids)
    told = {uuid for uuid in uuids if not pci.is_unseen(uuid)}
    by_uuid = {one.gpu: one for one in known.values()}
    found = {}
    for uuid in uuids:
        one = None
        if uuid not in told and (site := where.get(uuid)) is not None:
            one = _in_place(known, site, told)
        one = one or by_uuid.get(uuid)
        if one is not None:
            found[uuid] = one
    return found


def uuid(of: devices.GpuUuid, known: card_names.CardName, where: Sites) -> devices.GpuUuid:
    """Who a card is that is remembered so, if that is certain; else what stands for it."""
    if pci.is_unseen(of) and known.site is not None and known.site == where.get(of):
        return devices.GpuUuid(known.gpu)
    return of


def seated(known: Memory, discovery: devices.Discovery) -> Memory:
    """With the places of all cards that NVML tells of.

    One that it tells of for the first time, and that was known by its place, keeps that name.
    """
    told = {gpu.uuid: gpu for gpu in discovery.gpus if not pci.is_unseen(gpu.uuid)}
    sites = {uuid: site for uuid, site in discovery.sites.items() if uuid in told}
    in_place = {site.address: uuid for uuid, site in sites.items()}
    remembered = {one.gpu for one in known.values()}
    known_as = {
        key: uuid
        for uuid, site in sites.items()
        if uuid not in remembered
        and (key := pci.unseen_gpu(site.address, site.vendor, site.model)) in remembered
    }
    after = {}
    for name, one in known.items():
        uuid = devices.GpuUuid(known_as.get(devices.GpuUuid(one.gpu), devices.GpuUuid(one.gpu)))
        site = sites.get(uuid, one.site)
        if site is not None and in_place.get(site.address, uuid) != uuid:
            site = None
        product = told[uuid].product_name if uuid != one.gpu else one.product
        after[name] = one.model_copy(update={"gpu": uuid, "site": site, "product": product})
    return after


def is_there(offered: devices.Offer, there: Collection[str], names: Collection[str]) -> bool:
    """Whether the GPU of what was offered is among these; by name where NVML had not told of it."""
    return offered.card in names if pci.is_unseen(offered.gpu.uuid) else offered.gpu.uuid in there


def published(device: slices.Device) -> devices.Site | None:
    """Where a device for virtual machines is, by its attributes; in which boot they do not tell."""
    address = device.attributes.get("resource.kubernetes.io/pciBusID")
    vendor, model = (_number(device.attributes.get(name)) for name in ("vendorID", "deviceID"))
    if not isinstance(address, str) or vendor is None or model is None:
        return None
    return devices.Site(devices.PciAddress(address), vendor, model, "")


def _number(text: object) -> int | None:
    try:
        return int(text, 16) if isinstance(text, str) else None
    except ValueError:
        return None


def _in_place(
    known: Memory, site: devices.Site, told: Collection[str]
) -> card_names.CardName | None:
    found = [
        one
        for one in known.values()
        if one.site is not None and one.site.is_of_same(site) and one.gpu not in told
    ]
    return min(found, key=lambda one: (one.gone_since is not None, one.device), default=None)
