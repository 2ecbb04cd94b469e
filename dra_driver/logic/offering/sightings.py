"""What one look at the GPUs may change of what is known, and what a second one has to confirm.

What is offered follows from dozens of answers of NVML, each of which may fail for a moment. So a
GPU that is seen otherwise counts as before until that is seen twice, unless nothing failed that did
not fail before, or the driver says for certain that the GPU is gone.
"""

import dataclasses
from collections.abc import Callable, Mapping

from dra_driver.logic.offering import catalog
from dra_driver.model import devices

_NOTHING: devices.Answers = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """What was seen: the GPUs that answered, and what they answered.

    `places` says where, also of those that are no cards here: the UUID by PCI address. `problem`
    says why nothing was seen at all.
    """

    cards: tuple[catalog.Card, ...] = ()
    failures: tuple[devices.GpuFailure, ...] = ()
    answers: Mapping[devices.GpuUuid, devices.Answers] = dataclasses.field(default_factory=dict)
    places: Mapping[devices.PciAddress, devices.GpuUuid] = dataclasses.field(default_factory=dict)
    problem: str | None = None

    @property
    def is_odd(self) -> bool:
        """Whether something failed that may not fail at the next look."""
        return (
            self.problem is not None
            or any(not one.is_lost for one in self.failures)
            or any(_why_odd(asked) is not None for asked in self.answers.values())
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """What counts after a look, and what is to be remembered for the next one.

    `doubts` are the reasons why something counts as it was seen earlier. `since` is when each GPU,
    by UUID, was first seen otherwise; `answers` are those that it gave when it was seen as it
    counts.
    """

    cards: tuple[catalog.Card, ...] = ()
    doubts: tuple[str, ...] = ()
    since: Mapping[devices.GpuUuid, float] = dataclasses.field(default_factory=dict)
    answers: Mapping[devices.GpuUuid, devices.Answers] = dataclasses.field(default_factory=dict)


def weighed(
    before: Known,
    look: Look,
    *,
    now: float,
    patience: float,
    is_busy: Callable[[str], bool] = lambda _: False,
) -> Known:
    """What counts after this look.

    Seconds are monotonic. A second look confirms the first after `patience` seconds. `is_busy`
    tells of a card, by its name, whether somebody may be changing its MIG state at this moment.
    """
    seen = {card.gpu.uuid: card for card in look.cards}
    known = {card.gpu.uuid: card for card in before.cards}
    cards: dict[devices.GpuUuid, catalog.Card] = {}
    answers = dict(look.answers)
    doubts: list[str] = []
    since: dict[devices.GpuUuid, float] = {}
    for uuid, card in seen.items():
        if uuid in known:
            continue
        odd = _why_odd(look.answers.get(uuid, _NOTHING))
        first = before.since.get(uuid, now)
        if odd is None or now - first >= patience:
            cards[uuid] = card
        else:
            since[uuid] = first
            doubts.append(f"{card.name}: {odd}")
    for uuid, card in known.items():
        after = seen.get(uuid)
        # Of one that is bound it is not NVML that tells.
        is_bound = after is not None and after.is_bound
        doubt = None if is_bound else _doubt(card, after, before, look)
        if doubt is not None and look.problem is None and is_busy(card.name):
            doubt = f"{card.name}: a claim is at work on it"
        elif doubt is not None:
            since[uuid] = before.since.get(uuid, now)
        if doubt is not None and now - since.get(uuid, now) < patience:
            cards[uuid] = card
            answers[uuid] = before.answers.get(uuid, _NOTHING)
            doubts.append(doubt)
        elif after is not None:
            cards[uuid] = after
            if is_bound:
                answers[uuid] = before.answers.get(uuid, _NOTHING)
    ordered = tuple(sorted(cards.values(), key=lambda card: devices.by_number(card.name)))
    return Known(ordered, tuple(dict.fromkeys(doubts)), since, answers)


def _doubt(card: catalog.Card, after: catalog.Card | None, before: Known, look: Look) -> str | None:
    """Why what was seen of a known GPU is not to be taken at once; None where it is."""
    if look.problem is not None:
        return look.problem
    if after is None:
        return _why_absent(card, look)
    if catalog.outline(after) == catalog.outline(card):
        return None
    if after.is_half_way and not card.is_half_way:
        return f"{card.name}: {after.note}"
    uuid = card.gpu.uuid
    missing = _missing(before.answers.get(uuid, _NOTHING), look.answers.get(uuid, _NOTHING))
    if missing is not None:
        return f"{card.name}: {missing}"
    lost = _lost_facts(card.gpu, after.gpu)
    return f"{card.name}: {', '.join(lost)} cannot be read any more" if lost else None


def _why_odd(asked: devices.Answers) -> str | None:
    """A question without an answer that may have one at the next look."""
    for question, answer in asked.items():
        if answer is not None and answer.is_odd:
            return f"{question}: {answer.reason}"
    return None


def _missing(before: devices.Answers, now: devices.Answers) -> str | None:
    """A question that is not answered as it was before, or that it is odd not to answer.

    What was not asked before and has no answer is no news: as what a GPU is cut into whose MIG mode
    was off.
    """
    for question, answer in now.items():
        news = question in before or (answer is not None and answer.is_odd)
        if answer is not None and news and before.get(question) != answer:
            return f"{question}: {answer.reason}"
    return None


def _lost_facts(before: devices.Gpu, after: devices.Gpu) -> list[str]:
    return [
        field.name
        for field in dataclasses.fields(devices.Gpu)
        if getattr(before, field.name) is not None and getattr(after, field.name) is None
    ]


def _why_absent(card: catalog.Card, look: Look) -> str | None:
    """Why a known GPU may be there though it was not seen; None where it is gone for certain.

    One that the driver does not list any more is gone, and so is one in whose place there is
    another. A failure that does not tell which GPU it is about may be about any that was not seen.
    """
    gpu = card.gpu
    if look.places.get(gpu.pci_address, gpu.uuid) != gpu.uuid:
        return None
    own = (
        [one for one in look.failures if one.uuid == gpu.uuid]
        or [one for one in look.failures if one.pci_address == gpu.pci_address]
        or [one for one in look.failures if one.uuid is None and one.pci_address is None]
    )
    return next((str(one) for one in own if not one.is_lost), None)
