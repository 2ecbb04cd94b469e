"""Which card goes by which name. A name that anybody may mean a card by is never another card's.

A claim that is allocated to `gpu-0` says no more than that: which card it is about is what the name
meant when it was published. Minor numbers change with a boot, a reload of the driver, a card that
is gone or a change of MIG mode; so names are given once, remembered, and taken back late.

A card that another driver has does not tell who it is: what is remembered of its place tells how it
is called, see `sites`.
"""

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

from dra_driver import errors
from dra_driver.logic.offering import sites
from dra_driver.model import card_names, claims, devices, pci, prepared, slices

Memory = sites.Memory


class WrongCard(errors.Rejected):
    """A device name that does not stand for the card that the claim has, or was allocated to.

    `results` are those of the claim's allocation that are about it.
    """

    def __init__(self, message: str, results: Iterable[claims.Result]) -> None:
        super().__init__(message)
        self.results = tuple(results)


def memory(
    found: Iterable[card_names.CardName],
) -> tuple[Memory, tuple[card_names.CardName, ...]]:
    """What is remembered by name, and what has the name or the card of another before it."""
    by_name: dict[str, card_names.CardName] = {}
    clashing = []
    for one in found:
        if one.device in by_name or one.gpu in cards(by_name):
            clashing.append(one)
        else:
            by_name[one.device] = one
    return by_name, tuple(clashing)


def published(offered: Iterable[slices.Device]) -> Memory:
    """What published devices tell of the names of cards; partitions tell it of their card.

    Those for virtual machines tell of its place too.
    """
    offered = list(offered)
    passed = {
        devices.card_of(device.name): site
        for device in offered
        if device.attributes.get("type") == _VFIO and (site := sites.published(device)) is not None
    }
    told = []
    for device in offered:
        card = devices.card_of(device.name)
        site = passed.get(card)
        uuid = device.attributes.get(_UUID.get(f"{device.attributes.get('type')}", "parentUUID"))
        if device.attributes.get("type") == _VFIO and uuid is None and site is not None:
            uuid, site = pci.unseen_gpu(site.address, site.vendor, site.model), None
        if isinstance(uuid, str) and devices.number_of(card) is not None:
            product = f"{device.attributes.get('productName', '')}"
            told.append(card_names.CardName(gpu=uuid, device=card, product=product, site=site))
    return memory(told)[0]


_VFIO = "vfio"
_UUID = {"gpu": "uuid", _VFIO: "gpuUUID"}
"""The attribute that tells whose a device is, by its type."""


def recorded(records: Iterable[prepared.Record]) -> Memory:
    """What the records of claims tell of the names of cards."""
    told = [
        card_names.CardName(gpu=uuid, device=card)
        for record in records
        for card, uuid in sorted(record.cards.items())
        if devices.number_of(card) is not None
    ]
    return memory(told)[0]


def in_use(records: Iterable[prepared.Record]) -> frozenset[str]:
    """The names of the cards that claims have devices of."""
    return frozenset(devices.card_of(one.device) for record in records for one in record.devices)


def recalled(known: Memory, *told: Memory) -> Memory:
    """With what others tell of names and cards that are not known; the earlier ones count more."""
    found = [one for each in (known, *told) for one in each.values()]
    return memory(found)[0]


def given(
    known: Memory,
    gpus: Iterable[devices.Gpu],
    taken: Collection[str],
    where: sites.Sites = sites.NOWHERE,
) -> Memory:
    """With a name for each of the GPUs, in an order that does not depend on theirs.

    A card that is new goes by its minor number, like all cards where nothing has ever moved. Where
    that name is another's it gets the lowest number that is free, and so does one that has no minor
    number, as another driver has it; those come last. `taken` are names that are in use, of cards
    that may not be known. `where` tells where GPUs sit.
    """
    gpus = list(gpus)
    has = sites.by_card(known, [gpu.uuid for gpu in gpus], where)
    new = sorted(
        (gpu for gpu in gpus if gpu.uuid not in has), key=lambda g: (g.minor < 0, g.minor, g.uuid)
    )
    after = dict(known)
    for gpu in new:
        if gpu.minor >= 0 and (name := devices.gpu_device_name(gpu.minor)) not in after:
            after[name] = _named(name, gpu)
    free = (
        name
        for number in itertools.count()
        if (name := devices.gpu_device_name(number)) not in after and name not in taken
    )
    for gpu in new:
        if gpu.uuid not in cards(after):
            name = next(free)
            after[name] = _named(name, gpu)
    return after


def applied(
    known: Memory, gpus: Sequence[devices.Gpu], where: sites.Sites = sites.NOWHERE
) -> tuple[devices.Gpu, ...]:
    """Those of the GPUs that have a name, with it; and with their UUID, where that is certain."""
    has = sites.by_card(known, [gpu.uuid for gpu in gpus], where)
    return tuple(
        dataclasses.replace(
            gpu,
            device=one.device,
            uuid=sites.uuid(gpu.uuid, one, where),
            product_name=gpu.product_name or one.product,
        )
        for gpu in gpus
        if (one := has.get(gpu.uuid)) is not None
    )


def missed(known: Memory, discovery: devices.Discovery, now: str) -> Memory:
    """With the time `now` at each card that is not there, and was not missed before.

    While there is a GPU that does not tell who it is, nobody is missed: it may be that one.
    """
    failing = {failure.uuid for failure in discovery.failures}
    there = {gpu.uuid for gpu in discovery.gpus} | failing
    has = sites.by_card(known, [uuid for uuid in there if uuid is not None], discovery.sites)
    nameless = any(uuid is None or (pci.is_unseen(uuid) and uuid not in has) for uuid in failing)
    there |= {devices.GpuUuid(one.gpu) for one in has.values()}
    after = {}
    for name, one in known.items():
        since = one.gone_since or (None if nameless else now)
        gone_since = None if one.gpu in there else since
        after[name] = one.model_copy(update={"gone_since": gone_since})
    return after


def unneeded(known: Memory, taken: Collection[str]) -> frozenset[str]:
    """The names of cards that are gone, and of which no claim has a device here."""
    return frozenset(
        name for name, one in known.items() if one.gone_since is not None and name not in taken
    )


def gone(
    ref: claims.ClaimRef, results: Sequence[claims.Result], card: card_names.CardName
) -> WrongCard:
    """The refusal of a device whose card is not there any more."""
    return WrongCard(
        f"claim {ref}: device {results[0].device.device!r} was published for {card}, and that card "
        f"is not on this node any more (missed since {card.gone_since}). No other card is given in "
        "its place. Delete the pod, so that the claim is allocated anew",
        results,
    )


def refuse_moved(
    ref: claims.ClaimRef,
    results: Iterable[claims.Result],
    offers: Mapping[str, devices.Offer],
    before: prepared.Record | None,
) -> None:
    """Refuse devices whose names stand for other cards than those that the claim has.

    `offers` are by device name; `before` is what is remembered of the claim.

    Raises:
        WrongCard: there is one.
    """
    has = before.cards if before is not None else {}
    for result in results:
        name = result.device.device
        gpu = offers[name].gpu
        known = has.get(gpu.name, gpu.uuid)
        if known == gpu.uuid or pci.is_unseen(known) or pci.is_unseen(gpu.uuid):
            # Whose place alone is known is the card that is called so.
            continue
        elsewhere = sorted({one.gpu.name for one in offers.values() if one.gpu.uuid == known})
        now = f"is {elsewhere[0]} now" if elsewhere else "is not offered on this node any more"
        raise WrongCard(
            f"claim {ref}: device {name!r} was prepared on {known}, which {now}; {gpu.name} is "
            f"{gpu.product_name} {gpu.uuid}. Delete the pod, so that the claim is allocated anew",
            [one for one in results if one.device.device == name],
        )


def cards(known: Memory) -> frozenset[str]:
    """The UUIDs of the cards that have a name."""
    return frozenset(one.gpu for one in known.values())


def _named(name: str, gpu: devices.Gpu) -> card_names.CardName:
    return card_names.CardName(gpu=gpu.uuid, device=name, product=gpu.product_name)
