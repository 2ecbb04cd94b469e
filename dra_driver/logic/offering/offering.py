"""Which devices a node offers, and in which order: the scheduler takes the first that fits.

Slices are profile-major: all of the smallest profile first, of all GPUs, and whole GPUs last, so
that the order inside one profile can change in one write. GPUs for virtual machines are whole too,
and come after the others in the same order of cards.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

from dra_driver.logic.offering import (
    attributes,
    catalog,
    counting,
    hazards,
    packing,
    publishing,
    refusals,
    tainted,
)
from dra_driver.logic.passthrough import hurdles
from dra_driver.model import devices, mig, slices

_SPLIT = publishing.Form(publishing.Layout.SPLIT)


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """What is in use on the node.

    `lost` are devices that are not offered, as their GPU is not there now, or that no slice tells
    of though a claim has them; `held` are the devices of claims by name; `published` is what is
    published now, in order. `taints` are those of devices by name, and `hidden` are devices that
    are left out, because nothing else would keep claims away.
    """

    lost: Mapping[str, devices.Offer] = dataclasses.field(default_factory=dict)
    held: Collection[str] = frozenset()
    published: Sequence[slices.Device] = ()
    taints: Mapping[str, tainted.Taints] = dataclasses.field(default_factory=dict)
    hidden: Collection[str] = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """How devices are ordered and written.

    `may_reorder` is off while a new order would come too soon after the last one.
    """

    driver_name: str
    order: packing.Policy = "pack"
    may_reorder: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """What cards offer, whatever is in use: it is made once, and offered after each change.

    `devices` are the devices by name, `sets` the counter sets by the card's name, and `form` is how
    those are written. `refused` are marks (`refusals.mark`) of what the server refuses.
    """

    cards: tuple[catalog.Card, ...]
    devices: Mapping[str, slices.Device]
    sets: Mapping[str, publishing.CounterSet]
    form: publishing.Form
    refused: Collection[str] = frozenset()


def listing(
    cards: Sequence[catalog.Card],
    form: publishing.Form = _SPLIT,
    refused: Collection[str] = frozenset(),
) -> Listing:
    """The devices of cards, as an API server and its schedulers take them.

    A card whose counter set is refused offers no partitions, as if there were no counters.
    """
    cards = sorted(cards, key=lambda card: devices.by_number(card.name))
    cards = [
        _without_counters(card)
        if why_uncut(card, form) or _is_refused(counting.counter_set(card), refused)
        else card
        for card in cards
    ]
    found = {
        name: device
        for card in cards
        for name, offered in card.offers.items()
        if not _is_refused(device := counting.device(card, offered, form), refused)
    }
    if refused:
        cards = [
            dataclasses.replace(
                card, offers={name: one for name, one in card.offers.items() if name in found}
            )
            for card in cards
        ]
    sets = {card.name: counting.counter_set(card) for card in cards if card.counters}
    return Listing(tuple(cards), found, sets, form, refused)


def offer(listed: Listing, state: State, policy: Policy) -> tuple[publishing.Content, ...]:
    """The content of the node's slices, in publishing order.

    A device that a claim holds stays listed when it can no longer be offered, so that whoever
    looks for it finds it: as it was, and with a taint if its GPU is gone. Taints change no order.
    """
    groups = _Groups(listed, state, policy)
    if listed.form.layout is publishing.Layout.COMBINED:
        return tainted.contents(groups.combined(), groups.marks())
    contents = (*_counter_slices(list(listed.sets.values())), *groups.contents())
    return tainted.contents(contents, groups.marks())


def why_uncut(card: catalog.Card, form: publishing.Form) -> str:
    """Why a card that may be had in several ways is offered in one only; empty if it is not."""
    if form.layout is publishing.Layout.PLAIN:
        return form.reason
    if card.division is not None and not form.beside_shares:
        return f"the card has shares, and kube-scheduler {hazards.TWICE}"
    return ""


def taken(held: Collection[str], cards: Sequence[catalog.Card]) -> packing.Taken:
    """What claims, and instances of others, take of each card, by its name."""
    found: dict[str, set[mig.Spot | None]] = {
        card.name: {one.spot for one in card.foreign} for card in cards
    }
    for card in cards:
        if card.name in held or devices.vfio_device_name(card.name) in held:
            found[card.name].add(None)
        found[card.name] |= {
            offered.spot for name, offered in card.offers.items() if name in held and offered.spot
        }
    return found


class _Groups:
    """The node's devices by what they are, each group in its order."""

    def __init__(self, listed: Listing, state: State, policy: Policy) -> None:
        cards = listed.cards
        self._listed = listed
        self._cards = cards
        self._state = state
        self._policy = policy
        self._positions = {device.name: at for at, device in enumerate(state.published)}
        self._taken = taken(state.held, cards)
        self._kept = self._kept_devices()
        # An order of what nobody is offered is not worked out.
        cut = {devices.card_of(name) for name in self._kept}
        cut |= {
            card.name
            for card in cards
            if any(offered.spot is not None for offered in card.offers.values())
        }
        self._gpus = [
            (card.name, card.gpu.profiles)
            for card in cards
            if card.gpu.profiles and card.name in cut
        ]

    def marks(self) -> tainted.Marks:
        """What is wrong with the devices."""
        state, driver_name = self._state, self._policy.driver_name
        there = {card.name for card in self._cards}
        found = dict(state.taints)
        if self._listed.form.taints:
            for name in self._kept:
                if devices.card_of(name) not in there:
                    found[name] = tainted.away(found.get(name, ()), driver_name)
        return tainted.Marks(
            found,
            frozenset(state.hidden) - frozenset(state.held),
            state.held,
            self._kept.keys() if self._listed.refused else frozenset(),
            self._listed.refused,
        )

    def contents(self) -> tuple[publishing.Content, ...]:
        """Slices by profile, smallest first; then whole GPUs."""
        chunks = [*self._partitions(), *self._rest()]
        return tuple(publishing.Content(tuple(chunk)) for chunk in chunks if chunk)

    def combined(self) -> tuple[publishing.Content, ...]:
        """A slice for each GPU with counters, which holds them too; then the other devices."""
        sets = self._listed.sets
        by_card: dict[str, list[slices.Device]] = {name: [] for name in sets}
        others: list[slices.Device] = []
        for device in (one for chunk in (*self._partitions(), *self._rest()) for one in chunk):
            by_card.get(counting.card_of(device), others).append(device)
        return (
            *(publishing.Content(tuple(by_card[name]), (sets[name],)) for name in sets),
            *(publishing.Content(tuple(chunk)) for chunk in publishing.chunks(others)),
        )

    def _partitions(self) -> Iterator[list[slices.Device]]:
        fitting = self._fitting()
        kept = {name: device for name, device in self._kept.items() if _is_mig(device)}
        for group in packing.order(self._policy.order, self._gpus, self._taken):
            found = self._devices_of(group, kept)
            for chunk in self._cut(found):
                yield self._settled(chunk, fitting)
        # What is kept of GPUs that do not tell their profiles any more.
        yield from publishing.chunks([kept[name] for name in sorted(kept)])

    def _cut(self, found: Sequence[tuple[str, slices.Device]]) -> Iterator[list[slices.Device]]:
        """Chunks that fit a slice. The turns of GPUs go on from one to the next; nobody moves."""
        if self._listed.form.layout is publishing.Layout.COMBINED or self._policy.order != "spread":
            return _by_cards(found, self._listed.form.layout)
        return publishing.chunks([device for _, device in found])

    def _devices_of(
        self, group: packing.Group, kept: dict[str, slices.Device]
    ) -> list[tuple[str, slices.Device]]:
        """The group's devices with their cards; those of `kept` that belong to it are moved."""
        found = []
        for card_name, spot in group.members:
            if spot is None or group.profile is None:
                continue
            name = devices.mig_device_name(card_name, group.profile, spot)
            device = self._listed.devices.get(name)
            if device is not None:
                found.append((card_name, device))
            elif name in kept:
                found.append((card_name, kept[name]))
            kept.pop(name, None)
        return found

    def _rest(self) -> Iterator[list[slices.Device]]:
        whole = {
            name: self._listed.devices[name]
            for card in self._cards
            for name, offered in card.offers.items()
            if offered.spot is None
        }
        whole |= {name: device for name, device in self._kept.items() if not _is_mig(device)}
        # By their numbers, not by minors: these change with a boot, and nobody is to move then. The
        # other way round where partitions are taken from that end; virtual machines come last, and
        # have those first that nobody else can have.
        is_cut = any(catalog.is_cut(card) for card in self._cards)
        for_all = {card.name for card in self._cards if len(card.offers) > 1}
        names = sorted(
            sorted(
                whole.keys() - self._unguarded(),
                key=lambda name: devices.by_number(devices.card_of(name)),
                reverse=is_cut,
            ),
            key=lambda name: devices.is_vfio(name) and 1 + (devices.card_of(name) in for_all),
        )
        yield from publishing.chunks([whole[name] for name in names])

    def _unguarded(self) -> set[str]:
        """VFIO devices that no counter keeps apart from what a claim has of the same card: it was
        offered to containers, and is for virtual machines alone by now, once it is free.
        """
        return {
            devices.vfio_device_name(devices.card_of(name))
            for name, device in self._kept.items()
            if not devices.is_vfio(name) and not counting.card_of(device)
        } - set(self._state.held)

    def _settled(self, chunk: list[slices.Device], fitting: Collection[str]) -> list[slices.Device]:
        """The chunk in the published order, where that is as good or a new one has to wait."""
        names = [device.name for device in chunk]
        if not all(name in self._positions for name in names):
            return chunk
        before = sorted(names, key=lambda name: self._positions[name])
        if self._policy.may_reorder:
            before = list(packing.settle(before, names, fitting))
        by_name = {device.name: device for device in chunk}
        return [by_name[name] for name in before]

    def _fitting(self) -> frozenset[str]:
        """The partitions that could be made now."""
        by_name = {card.name: card.gpu for card in self._cards}
        return frozenset(
            devices.mig_device_name(card, profile.name, spot)
            for card, spot in packing.fitting(self._gpus, self._taken)
            for profile in by_name[card].profiles
            if spot is not None and profile.id == spot.profile_id
        )

    def _kept_devices(self) -> dict[str, slices.Device]:
        """What is held and not offered any more."""
        offered = {name for card in self._cards for name in card.offers}
        known = {device.name: device for device in self._state.published}
        kept = {}
        for name in sorted(set(self._state.held) - offered):
            device = known.get(name)
            if name in self._state.lost:
                device = _as_lost(self._state.lost[name], device)
            if device is None:
                continue
            if counting.card_of(device) not in self._listed.sets:
                # A set that is not there would make the whole pool invalid.
                device = _without(device, "consumesCounters")
            # Those that it has are told anew.
            kept[name] = _without(device, "taints")
        return kept


def _as_lost(gone: devices.Offer, known: slices.Device | None) -> slices.Device:
    """A device that is not offered, as it is told of; `known` is what is published of it."""
    if gone.vfio is not None:
        return known or attributes.vfio(gone)
    if gone.spot is not None:
        return known or attributes.partition(gone)
    return attributes.device(gone.gpu)


def _is_refused(part: slices.Device | publishing.CounterSet, refused: Collection[str]) -> bool:
    """Whether the API server is known to refuse it as it is."""
    if not refused:
        return False
    if isinstance(part, slices.Device):
        return refusals.mark(slices.format_device(part)) in refused
    return refusals.mark(publishing.format_counter_set(part)) in refused


def _without_counters(card: catalog.Card) -> catalog.Card:
    """Without counters partitions, and what a virtual machine gets, would be given out twice."""
    left = {name: one for name, one in card.offers.items() if not counting.is_beside(one, card)}
    note = card.vfio_note
    if any(one.vfio is not None for name, one in card.offers.items() if name not in left):
        note = hurdles.Hurdle(hurdles.Word.NO_COUNTERS, hurdles.TEXTS[hurdles.Word.NO_COUNTERS])
    return dataclasses.replace(card, offers=left, counters={}, vfio_note=note)


def _counter_slices(sets: Sequence[publishing.CounterSet]) -> Iterator[publishing.Content]:
    for start in range(0, len(sets), publishing.MAX_COUNTER_SETS):
        most = start + publishing.MAX_COUNTER_SETS
        yield publishing.Content(counter_sets=tuple(sets[start:most]))


def _by_cards(
    found: Sequence[tuple[str, slices.Device]], layout: publishing.Layout
) -> Iterator[list[slices.Device]]:
    """Chunks that fit a slice, cut between GPUs, so that an order changes inside one slice only."""
    if layout is publishing.Layout.COMBINED:
        yield [device for _, device in found]
        return
    counts: dict[str, int] = {}
    for card, _ in found:
        counts[card] = counts.get(card, 0) + 1
    chunk_of: dict[str, int] = {}
    chunk, size = 0, 0
    for card in sorted(counts, key=devices.by_number):
        if size and size + counts[card] > publishing.MAX_DEVICES:
            chunk, size = chunk + 1, 0
        chunk_of[card], size = chunk, size + counts[card]
    for number in range(chunk + 1):
        yield [device for card, device in found if chunk_of[card] == number]


def _is_mig(device: slices.Device) -> bool:
    return devices.parse_mig_device_name(device.name) is not None


def _without(device: slices.Device, field: str) -> slices.Device:
    left = {key: value for key, value in device.extra.items() if key != field}
    return dataclasses.replace(device, extra=left)
