"""Faults that are put into simulated GPUs from outside, as `dra-driver fault` names them.

What a real driver would want done after an XID is wanted too, so that a fault stays until it is
cleared, or the card is reset. Not after one of an instance: that would withdraw its neighbours.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping

from dra_driver import errors
from dra_driver.logic.health import xids
from dra_driver.model import devices, health, texts
from dra_driver.sim.gpus import (
    gpu_event_log,
    gpu_faults,
    gpu_health_state,
    gpu_models,
    gpu_session,
    gpu_state,
)

MOST_XID = 2**31 - 1
MOST_RECOVERY = 255
_ACTIONS = {action.name.lower().replace("_", "-"): action.value for action in health.Recovery}


@dataclasses.dataclass(frozen=True, slots=True)
class Card:
    """One card of a directory of simulated GPUs, and the device name that it has on its node."""

    directory: pathlib.Path
    uuid: str
    name: str

    @property
    def gpu(self) -> gpu_state.Gpu:
        """What it is now."""
        return gpu_session.find(gpu_state.open_file(self.directory).read(), self.uuid)

    @property
    def model(self) -> gpu_models.Model:
        """What it is for ever."""
        return gpu_models.load(self.gpu.model)

    def change(self, **facts: object) -> None:
        """From now on these facts of `gpu_health_state.Health` are its."""
        with gpu_health_state.open_file(self.directory).edit() as cards:
            for name, value in facts.items():
                setattr(cards.of(self.uuid), name, value)

    def tell(self, kind: health.EventKind, data: int = 0, gi: int | None = None) -> None:
        """Have it tell an event, to whoever listens."""
        told = gpu_event_log.Told(self.uuid, kind, data, gi)
        gpu_event_log.tell(self.directory, told)


@dataclasses.dataclass(frozen=True, slots=True)
class Verb:
    """One kind of fault: its name, what its value is (empty: it has none), and what it does.

    `do` gives a line that says what was done.
    """

    name: str
    value: str
    do: Callable[[Card, str, int | None], str]


def inject(card: Card, verb: str, value: str | None, instance: str | None) -> str:
    """Put a fault into a card, or take all out of it; a line that says what was done.

    `instance` is the name of a partition or the id of a GPU instance that it is about.

    Raises:
        errors.Rejected: there is no such verb, value or instance, or this card has no such fault.
    """
    known = VERBS.get(verb)
    if known is None:
        raise errors.Rejected(f"fault {verb!r}: it is one of {', '.join(VERBS)}")
    if bool(known.value) != (value is not None):
        wanted = f"it needs {known.value}" if known.value else "it has no value"
        raise errors.Rejected(f"fault {verb}: {wanted}; write NODE/gpu-0 {_use(known)}")
    if instance is not None and verb != "xid":
        raise errors.Rejected(f"fault {verb}: --instance is for xid alone; leave it out")
    return known.do(card, value or "", None if instance is None else _instance(card, instance))


def _use(verb: Verb) -> str:
    example = {"xid": "xid 79", "recovery": "recovery reset"}
    return example.get(verb.name, verb.name)


def _instance(card: Card, text: str) -> int:
    there = card.gpu.gpu_instances
    parsed = devices.parse_mig_device_name(text)
    for one in there:
        if text == str(one.id) or (
            parsed is not None
            and (parsed.card, parsed.profile_id, parsed.start)
            == (card.name, one.profile_id, one.start)
        ):
            return one.id
    known = ", ".join(f"{one.id} (profile {one.profile_id} at {one.start})" for one in there)
    raise errors.Rejected(
        f"instance {text!r}: the GPU has {known or 'no instance'}; write the name of a partition "
        "that a pod has (dra-driver status), or such a number"
    )


def _xid(card: Card, value: str, gi: int | None) -> str:
    number = _number(value, 1, MOST_XID)
    if number is None:
        wanted = f"a number from 1 to {MOST_XID}, as 79 is"
        raise errors.Rejected(f"fault xid: {texts.quoted(value)} is not {wanted}")
    xid = xids.of(number)
    if xid.withdraws and gi is None and gpu_health_state.tells_recovery(card.model):
        action = health.Recovery.REBOOT if "reboot" in xid.done else health.Recovery.RESET
        card.change(recovery=max(action.value, _health(card).recovery))
    card.tell(health.EventKind.XID, xid.number, gi)
    return f"told {xid.message}" + ("" if gi is None else f" (GPU instance {gi})")


def _number(text: str, least: int, most: int) -> int | None:
    """None where it is no number, or another one. Python reads no text of more digits than that."""
    is_one = text.isascii() and text.isdecimal() and len(text) <= len(str(most))
    return int(text) if is_one and least <= int(text) <= most else None


def _recovery(card: Card, value: str, _gi: int | None) -> str:
    number = _ACTIONS.get(value, _number(value, 0, MOST_RECOVERY))
    if number is None:
        known = f"{', '.join(_ACTIONS)}, or a number up to {MOST_RECOVERY}"
        raise errors.Rejected(f"fault recovery: {texts.quoted(value)} is not one of {known}")
    if not gpu_health_state.tells_recovery(card.model):
        raise errors.Rejected(
            f"fault recovery: cards of the model {card.model.name} do not tell what they want; "
            "those since Ampere do"
        )
    card.change(recovery=number)
    card.tell(health.EventKind.RECOVERY_ACTION, number)
    return f"the driver wants recovery action {value}"


def _lost(card: Card, _value: str, _gi: int | None) -> str:
    gpu_faults.lose(card.directory, card.uuid)
    return "it has fallen off the bus"


def _remap_pending(card: Card, _value: str, _gi: int | None) -> str:
    if gpu_health_state.remaps_rows(card.model):
        card.change(remap_pending=True)
        card.tell(health.EventKind.DRAM_RETIREMENT)
    else:
        card.change(retired_pages=_health(card).retired_pages + 1, retirement_pending=True)
    return "bad memory is to be replaced with the next reset"


def _remap_failed(card: Card, _value: str, _gi: int | None) -> str:
    if gpu_health_state.remaps_rows(card.model):
        card.change(remap_failed=True)
        card.tell(health.EventKind.DRAM_RETIREMENT_FAILURE)
    else:
        card.change(retired_pages=64)
    return "bad memory could not be replaced"


def _ecc(card: Card, _value: str, _gi: int | None) -> str:
    now = _health(card)
    card.change(uncorrectable=now.uncorrectable + 1, uncorrectable_ever=now.uncorrectable_ever + 1)
    card.tell(health.EventKind.DOUBLE_BIT_ECC)
    return "a memory error that could not be corrected"


def _fact(name: str, told: str) -> Callable[[Card, str, int | None], str]:
    def do(card: Card, _value: str, _gi: int | None) -> str:
        card.change(**{name: True})
        return told

    return do


def _fabric(card: Card, _value: str, _gi: int | None) -> str:
    if not gpu_health_state.has_fabric(card.model):
        raise errors.Rejected(f"fault fabric: the model {card.model.name} is in no NVLink fabric")
    card.change(bad_fabric=True)
    return "a route of its NVLink fabric is unhealthy"


def _link_down(card: Card, _value: str, _gi: int | None) -> str:
    if not card.model.nvlinks:
        raise errors.Rejected(f"fault link-down: the model {card.model.name} has no NVLink")
    down = _health(card).links_down
    left = [number for number in range(card.model.nvlinks) if number not in down]
    card.change(links_down=sorted([*down, *left[:1]]))
    return f"NVLinks are down: {', '.join(map(str, sorted([*down, *left[:1]])))}"


def _clear(card: Card, _value: str, _gi: int | None) -> str:
    gpu_faults.bring_back(card.directory, card.uuid)
    with gpu_health_state.open_file(card.directory).edit() as cards:
        cards.cards.pop(card.uuid, None)
    return "nothing is wrong with it any more"


def _health(card: Card) -> gpu_health_state.Health:
    known = gpu_health_state.open_file(card.directory).read().cards
    return known.get(card.uuid, gpu_health_state.Health())


VERBS: Mapping[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb("xid", "a number", _xid),
        Verb("recovery", f"one of {', '.join(_ACTIONS)}, or a number", _recovery),
        Verb("lost", "", _lost),
        Verb("remap-pending", "", _remap_pending),
        Verb("remap-failed", "", _remap_failed),
        Verb("ecc", "", _ecc),
        Verb("thermal", "", _fact("thermal", "it is too hot, and runs slowly")),
        Verb("power-brake", "", _fact("power_brake", "it is short of power, and runs slowly")),
        Verb("fabric", "", _fabric),
        Verb("link-down", "", _link_down),
        Verb("clear", "", _clear),
    )
}
