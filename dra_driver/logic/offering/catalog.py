"""What one GPU can be handed out as: whole, in partitions to be made, or in instances it has."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from dra_driver.logic.offering import abilities, placements
from dra_driver.logic.passthrough import hurdles
from dra_driver.model import devices, mig, pci, prepared, shares


@dataclasses.dataclass(frozen=True, slots=True)
class Ours:
    """What this driver did to a GPU: where instances are its own, and whether it set MIG mode."""

    spots: frozenset[mig.Spot] = frozenset()
    mode_switched: bool = False


NOTHING = Ours()


@dataclasses.dataclass(frozen=True, slots=True)
class Card:
    """One GPU, by what can be had of it.

    `offers` are by device name. `counters` are those that its partitions share, memory in MiB;
    empty where there are none to be made. `foreign` are instances that are neither ours nor
    offered. `note` says why less is offered than the card has.
    """

    gpu: devices.Gpu
    offers: Mapping[str, devices.Offer]
    counters: Mapping[str, int] = dataclasses.field(default_factory=dict)
    foreign: tuple[mig.Instance, ...] = ()
    note: str | None = None
    division: shares.Shares | None = None
    """How each of its devices is divided; None where a claim has a device for itself."""
    vfio_note: str | None = None
    """Why it is not handed to virtual machines though it may be; None where it is."""
    is_bound: bool = False
    """Whether a VFIO driver has it: NVML does not tell of it then."""

    @property
    def name(self) -> str:
        """The device name of the whole GPU, whether it is offered or not."""
        return self.gpu.name

    @property
    def is_half_way(self) -> bool:
        """Whether it is between two MIG modes, and offers nothing for that."""
        return _is_half_way(self.gpu)


def card(gpu: devices.Gpu, mode: mig.Mode, ours: Ours = NOTHING) -> Card:
    """What can be had of the GPU.

    A card that is half way between two MIG modes offers nothing: what it offers now would be
    destroyed by the reset that it waits for. A vGPU stays as the hypervisor has cut it.
    """
    if abilities.is_vgpu(gpu):
        return _vgpu(gpu, mode)
    if _is_half_way(gpu):
        pending = "on" if gpu.mig_pending else "off"
        note = (
            f"MIG mode goes {pending} with the next reset of the GPU: reset it "
            f"({abilities.how_to_reset(gpu)}), or take the change back (nvidia-smi -mig)"
        )
        return Card(gpu, {}, note=note)
    match mode:
        case mig.Mode.STATIC if gpu.mig_enabled:
            return _static(gpu)
        case mig.Mode.DYNAMIC if gpu.profiles and (
            gpu.mig_enabled or abilities.switches_at_run_time(gpu)
        ):
            return _dynamic(gpu, ours)
        case _ if gpu.mig_enabled:
            return Card(gpu, {}, note=_why_not_whole(gpu, mode))
        case _:
            return _whole(gpu)


def divided(card: Card, division: shares.Shares | None) -> Card:
    """The card with each of its devices divided; None where a claim has a device for itself.

    One whose processes MPS cannot hold to limits is not divided if it should: claims would take
    from each other, and nobody would know. Nor is one of which nobody knows the memory.
    """
    if division is None:
        return dataclasses.replace(card, division=None)
    note = _why_undivided(card, division)
    if note is None:
        return dataclasses.replace(card, division=division)
    note = f"each of its devices goes to one claim, though it is to be shared: {note}"
    return dataclasses.replace(card, note=f"{card.note}; {note}" if card.note else note)


def passed(
    card: Card,
    mode: devices.VfioMode,
    found: devices.Passthrough | str,
    *,
    is_bound: bool = False,
) -> Card:
    """The card with a VFIO device too, or as nothing else, or with a note why not.

    `found` is what the bus tells of it, or why it cannot be handed over. `is_bound`: a VFIO driver
    has it now. Whoever has the VFIO device has all counters, so that nobody has the card besides.
    """
    card = dataclasses.replace(card, is_bound=is_bound)
    if mode is devices.VfioMode.OFF:
        return card
    if isinstance(found, str):
        note: str | None = found
    elif found.is_found or card.name in card.offers:
        note = None
    else:
        note = hurdles.Hurdle(
            hurdles.Word.NOT_WHOLE,
            f"it is handed over as a whole only, and {card.note or _why_in_parts(card.gpu)}",
        )
    offers = {} if mode is devices.VfioMode.ONLY or is_found(found) else dict(card.offers)
    counters = dict(card.counters) if offers else {}
    if note is None and not isinstance(found, str):
        name = devices.vfio_device_name(card.name)
        if offers and not counters:
            counters = dict(_UNDIVIDED)
        offers[name] = devices.Offer(card.gpu, vfio=found)
    return dataclasses.replace(card, offers=offers, counters=counters, vfio_note=note)


_UNDIVIDED: Mapping[str, int] = {"cards": 1}
"""The counter of a GPU that is not cut, and that is handed out in several ways."""


def is_cut(card: Card) -> bool:
    """Whether it has counters of what partitions share."""
    return bool(card.counters) and card.counters.keys() != _UNDIVIDED.keys()


def why_without(card: Card, name: str) -> str | None:
    """Why a device of the card is not offered, if that is known."""
    if devices.is_vfio(name):
        return card.vfio_note
    if card.offers and all(offered.vfio is not None for offered in card.offers.values()):
        return f"it is handed to virtual machines only, as {next(iter(card.offers))}"
    return card.note


def is_found(found: devices.Passthrough | str) -> bool:
    """Whether somebody else has bound it to a VFIO driver."""
    return not isinstance(found, str) and found.is_found


def _why_in_parts(gpu: devices.Gpu) -> str:
    if gpu.mig_enabled:
        return (
            "it is in MIG mode, which this driver did not switch on: switch it off "
            f"(nvidia-smi -i {gpu.uuid} -mig 0), and reset the GPU if it asks for that"
        )
    return "it is not offered whole"


def _why_undivided(card: Card, division: shares.Shares) -> str | None:
    reason = abilities.why_no_limits(card.gpu)
    if division.enforcement is shares.Enforcement.MPS and reason is not None:
        return (
            f"{reason}. Set shares off for it, or share enforcement None (`gpus` in the settings "
            "file)"
        )
    if not all(_memory(offer) for offer in card.offers.values() if offer.vfio is None):
        return (
            "NVML does not tell how much memory it has, so no part of it can be counted. Set "
            "shares off for it (`gpus` in the settings file), and select it by `productName`"
        )
    return None


def _memory(offer: devices.Offer) -> int | None:
    """How much it has, in whatever unit."""
    return offer.profile.memory_mib if offer.profile else offer.gpu.memory_bytes


def of_claims(
    cards: Iterable[Card], known: Iterable[prepared.Record]
) -> Mapping[str, devices.Offer]:
    """What prepared claims have of cards that are there, by name, whether it is offered or not."""
    cards = list(cards)
    by_uuid = {one.gpu.uuid: one for one in cards}
    by_name = {one.name: one for one in cards}
    found: dict[str, devices.Offer] = {}
    for record in known:
        for name, uuid in record.cards.items():
            card = by_uuid.get(devices.GpuUuid(uuid))
            if card is None and (there := by_name.get(name)) is not None:
                # Whose place alone is known is the card that is called so.
                is_unseen = pci.is_unseen(uuid) or pci.is_unseen(there.gpu.uuid)
                card = there if is_unseen else None
            if card is not None and card.name == name:
                found |= _had(record, card)
    return found


def _had(record: prepared.Record, card: Card) -> dict[str, devices.Offer]:
    gpu = card.gpu
    profiles = {profile.id: profile for profile in gpu.profiles}
    parts = {
        one.device: devices.Offer(
            gpu, profiles[one.profile_id], one.spot, None if one.made else one.instance
        )
        for one in record.partitions
        if one.gpu == gpu.uuid and one.profile_id in profiles
    }
    has = {one.device for one in record.devices}
    whole = {gpu.name: devices.Offer(gpu)} if gpu.name in has else {}
    vfio = {
        name: offered
        for name, offered in card.offers.items()
        if offered.vfio is not None and name in has
    }
    return parts | whole | vfio


def outline(card: Card) -> Card:
    """The card without what claims change of it: two that are equal offer the same."""
    gpu = dataclasses.replace(card.gpu, mig_enabled=None, mig_pending=None, instances=())
    offers = {name: dataclasses.replace(offered, gpu=gpu) for name, offered in card.offers.items()}
    return dataclasses.replace(card, gpu=gpu, offers=offers, is_bound=False)


def _is_half_way(gpu: devices.Gpu) -> bool:
    return gpu.mig_pending is not None and gpu.mig_pending != gpu.mig_enabled


def _whole(gpu: devices.Gpu) -> Card:
    return Card(gpu, {gpu.name: devices.Offer(gpu)})


def _vgpu(gpu: devices.Gpu, mode: mig.Mode) -> Card:
    if abilities.is_prohibited(gpu):
        why = "and its compute mode is PROHIBITED: give the virtual machine a profile with CUDA"
        return Card(gpu, {}, note=f"{abilities.VGPU}, {why} (series C or Q)")
    if gpu.mig_enabled and mode is mig.Mode.OFF:
        return Card(gpu, {}, note=_why_not_whole(gpu, mode))
    if gpu.mig_enabled:
        found = _static(gpu)
        note = f"{abilities.VGPU}: instances are not made on it. {found.note or ''}".rstrip(" .")
        return found if found.offers else dataclasses.replace(found, note=note)
    note = f"{abilities.VGPU}: it is offered whole, and not cut further"
    is_to_be_cut = mode is mig.Mode.DYNAMIC and bool(gpu.mig_capable)
    return dataclasses.replace(_whole(gpu), note=note if is_to_be_cut else None)


def _why_not_whole(gpu: devices.Gpu, mode: mig.Mode) -> str:
    if mode is mig.Mode.DYNAMIC:
        return f"it is in MIG mode, and NVML does not tell what {gpu.product_name} can be cut into"
    return (
        "it is in MIG mode, so it cannot be used as a whole, and MIG is off for it in the settings"
    )


def _static(gpu: devices.Gpu) -> Card:
    profiles = {profile.id: profile for profile in gpu.profiles}
    offers, left_out = {}, []
    for instance in gpu.instances:
        profile = profiles.get(instance.spot.profile_id)
        if profile is None or instance.uuid is None:
            left_out.append(instance.gi)
            continue
        name = devices.mig_device_name(gpu.name, profile.name, instance.spot)
        offers[name] = devices.Offer(gpu, profile, instance.spot, instance)
    note = None
    if left_out:
        note = f"GPU instances {left_out} have no compute instance that spans them, or several"
    elif not offers:
        note = "it is in MIG mode without instances: make some, or let the driver make them"
    return Card(gpu, offers, note=note)


def _dynamic(gpu: devices.Gpu, ours: Ours) -> Card:
    foreign = tuple(one for one in gpu.instances if one.spot not in ours.spots)
    offers = _partitions(gpu, [one.spot for one in foreign])
    may_be_whole = abilities.switches_at_run_time(gpu) and (
        not gpu.mig_enabled or ours.mode_switched
    )
    if may_be_whole and not foreign:
        offers |= _whole(gpu).offers
    taken = [_consumption(gpu, one.spot) for one in foreign]
    counters = {
        name: max(amount - sum(used.get(name, 0) for used in taken), 0)
        for name, amount in placements.limits(gpu.profiles).items()
    }
    note = None
    if foreign:
        listed = ", ".join(f"{one.gi} at {one.spot.placement}" for one in foreign)
        note = (
            f"GPU instances that this driver did not make take part of it: {listed}. They are "
            "left alone; destroy them, or give the card the MIG mode static, or let the driver "
            "have them (--adopt-foreign-mig)"
        )
    return Card(gpu, offers, counters, foreign, note)


def _partitions(gpu: devices.Gpu, taken: Collection[mig.Spot]) -> dict[str, devices.Offer]:
    profiles = {profile.id: profile for profile in gpu.profiles}
    return {
        devices.mig_device_name(gpu.name, profiles[spot.profile_id].name, spot): devices.Offer(
            gpu, profiles[spot.profile_id], spot
        )
        for spot in placements.remaining(gpu.profiles, taken)
    }


def _consumption(gpu: devices.Gpu, spot: mig.Spot) -> Mapping[str, int]:
    for profile in gpu.profiles:
        if profile.id == spot.profile_id:
            return placements.consumption(gpu.profiles, profile, spot.placement)
    covered = range(spot.placement.start, spot.placement.start + spot.placement.size)
    return {f"memory-slice-{number}": 1 for number in covered}
