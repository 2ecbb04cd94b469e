"""Annotations of a pod that say more of its asks: HAMi's and Volcano's.

Source: `docs/` of Project-HAMi/HAMi (v2.9 and later) and volcano-sh/volcano, deviceshare plugin.
"""

import dataclasses
import enum
import re
from collections.abc import Mapping

from dra_driver.logic.converting import expressions, notes, reading

_MOST_LISTED = 64
"""Entries of a list. An expression may have 10 KiB."""
_ENTRY = re.compile(r"[ -~]{1,64}", re.ASCII)
"""Products and UUIDs are at most as long as an attribute, and plain."""
_TRUE = {"1", "t", "T", "true", "TRUE", "True"}
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}
"""As Go reads a truth value."""
_POLICIES = (
    "hami.io/node-scheduler-policy",
    "hami.io/gpu-scheduler-policy",
    "hami.io/device-scoring-weights",
    "volcano.sh/vgpu-podgroup-policy",
)


class Mode(enum.StrEnum):
    """How a card is shared."""

    HAMI_CORE = "hami-core"
    MIG = "mig"
    MPS = "mps"


@dataclasses.dataclass(frozen=True, slots=True)
class Names:
    """What the annotations of a system are called."""

    mode: str
    uuids: str
    not_uuids: str
    numa: str = ""
    types: str = "nvidia.com/use-gputype"
    not_types: str = "nvidia.com/nouse-gputype"

    @property
    def listed(self) -> tuple[str, ...]:
        """All that are used, those of scheduling included."""
        own = (self.mode, self.uuids, self.not_uuids, self.numa, self.types, self.not_types)
        return (*filter(None, own), *_POLICIES)


HAMI = Names(
    "nvidia.com/vgpu-mode",
    "nvidia.com/use-gpuuuid",
    "nvidia.com/nouse-gpuuuid",
    "nvidia.com/numa-bind",
)
VOLCANO = Names(
    "volcano.sh/vgpu-mode", "volcano.sh/vgpu-use-gpuuuid", "volcano.sh/vgpu-nouse-gpuuuid"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """What annotations want of each device. `found` are their names."""

    mode: Mode | None = None
    one_numa_node: bool = False
    uuids: tuple[str, ...] = ()
    not_uuids: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    not_types: tuple[str, ...] = ()
    found: tuple[str, ...] = ()

    def selectors(self, driver: str, *, partition: bool = False) -> tuple[str, ...]:
        """What devices have to meet. The UUIDs are those of cards, for partitions too."""
        uuid = "parentUUID" if partition else "uuid"
        found = []
        if self.uuids:
            found.append(expressions.one_of(driver, uuid, self.uuids))
        if self.not_uuids:
            found.append(expressions.none_of(driver, uuid, self.not_uuids))
        if self.types:
            found.append(expressions.contains(driver, "productName", self.types))
        if self.not_types:
            found.append(expressions.contains_none(driver, "productName", self.not_types))
        return tuple(found)


def read(pod: reading.Pod, names: Names, said: notes.Notes) -> Wanted:
    """What the annotations of a system say; what cannot be read is refused."""
    texts = {name: pod.annotations[name] for name in names.listed if name in pod.annotations}
    wanted = Wanted(
        mode=_mode(texts, names.mode, said),
        one_numa_node=_truth(texts, names.numa, said),
        uuids=_entries(texts, names.uuids, said),
        not_uuids=_entries(texts, names.not_uuids, said),
        types=_entries(texts, names.types, said),
        not_types=_entries(texts, names.not_types, said),
        found=tuple(texts),
    )
    for name, text in texts.items():
        said.tell("pod", f"annotation {name}: {text}", _becomes(name, names))
    return wanted


def _becomes(name: str, names: Names) -> str:
    if name in _POLICIES:
        return "nothing: set by the operator: packing"
    return {
        names.mode: "the class of the devices",
        names.numa: "a constraint: several GPUs are of one NUMA node",
        names.uuids: "a selector: one of these GPUs",
        names.not_uuids: "a selector: none of these GPUs",
        names.types: "a selector: productName has one of these texts in it",
        names.not_types: "a selector: productName has none of these texts in it",
    }[name]


def _mode(texts: Mapping[str, str], name: str, said: notes.Notes) -> Mode | None:
    text = texts.get(name)
    if text is None:
        return None
    if text.strip() in list(Mode):
        return Mode(text.strip())
    said.refuse("pod", f"annotation {name}", text, f"one of {', '.join(Mode)} is allowed")
    return None


def _truth(texts: Mapping[str, str], name: str, said: notes.Notes) -> bool:
    text = texts.get(name, "false").strip()
    if text not in _TRUE | _FALSE:
        said.refuse("pod", f"annotation {name}", text, "true or false is allowed")
    return text in _TRUE


def _entries(texts: Mapping[str, str], name: str, said: notes.Notes) -> tuple[str, ...]:
    text = texts.get(name)
    if text is None:
        return ()
    # One more than there may be: the rest need not be looked at.
    entries = [entry.strip() for entry in text.split(",", _MOST_LISTED + 1)]
    found = tuple(dict.fromkeys(filter(None, entries)))
    rule = (
        f"a list with commas of 1 to {_MOST_LISTED} texts is allowed, each of at most 64 plain "
        "characters; leave the annotation out if any GPU will do"
    )
    if not found or len(entries) > _MOST_LISTED or not all(map(_ENTRY.fullmatch, found)):
        said.refuse("pod", f"annotation {name}", text, rule)
        return ()
    return found
