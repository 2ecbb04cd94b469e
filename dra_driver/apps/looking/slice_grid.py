"""A GPU drawn as a row of memory slices: |a 3g.40gb train  |b 1g|····:····:····|."""

from collections.abc import Mapping, Sequence

from dra_driver.adapters.console import terminal
from dra_driver.logic.picturing import fitting, occupancy

Keys = Mapping[tuple[str, str], str]
"""What stands for a claim, by its namespace and name."""

_STYLES = {occupancy.TAKEN: "cyan", occupancy.FREE: "green", occupancy.NOT_OFFERED: "dim"}
_FILL = {occupancy.TAKEN: " ", occupancy.FREE: "·", occupancy.NOT_OFFERED: "-"}

_SHORTEST_NAME = 4
"""Characters of a name below which it tells nothing."""


def head(size: int, unit: int) -> str:
    """The numbers of memory slices, each above its place; what a single block is called."""
    if size == 1:
        return "whole GPU"
    return "".join(f" {index}".ljust(unit) for index in range(size)).rstrip()


def cell(gpu: occupancy.Gpu, keys: Keys, unit: int) -> terminal.Spans:
    """The GPU with `unit` columns a memory slice; a second line where parts overlap."""
    spans: list[tuple[str, str]] = []
    for number, lane in enumerate(lanes(gpu.parts)):
        if number:
            spans.append(("\n", ""))
        end = 0
        for part in lane:
            gap = (part.start - end) * unit
            if gap:
                spans.append((("|" if end else " ").ljust(gap), ""))
            inside = _inside(part, keys, part.size * unit - 1, unit)
            spans += [("|", ""), (inside, _STYLES[part.state])]
            end = part.start + part.size
        spans.append(("|", ""))
    return terminal.Spans(tuple(spans))


def lanes(parts: Sequence[occupancy.Part]) -> list[list[occupancy.Part]]:
    """Parts by place, those that overlap apart from each other."""
    found: list[list[occupancy.Part]] = []
    for part in sorted(parts, key=lambda part: part.start):
        for lane in found:
            if lane[-1].start + lane[-1].size <= part.start:
                lane.append(part)
                break
        else:
            found.append([part])
    return found


def _inside(part: occupancy.Part, keys: Keys, width: int, unit: int) -> str:
    fill = _FILL[part.state]
    if part.state == occupancy.TAKEN:
        return _label(part, keys, width).ljust(width, fill)
    if part.device and part.profile != fitting.WHOLE:
        shown = part.profile if len(part.profile) <= width else _short(part.profile)
        return shown[:width].ljust(width, fill)
    return ":".join([fill * (unit - 1)] * part.size)


def _label(part: occupancy.Part, keys: Keys, width: int) -> str:
    """As much of key, profile and pods as there is room for."""
    letters = list(dict.fromkeys(keys[who.namespace, who.claim] for who in part.held_by))
    key = _listed(letters, width)
    profile = "" if part.profile == fitting.WHOLE else part.profile
    names = dict.fromkeys(
        name for who in part.held_by for name in [pod.name for pod in who.pods] or [who.claim]
    )
    told = " ".join(text for text in (key, profile) if text)
    room = width - len(told) - 1
    if room >= min(len(", ".join(names)), _SHORTEST_NAME):
        return f"{told} {_cut(', '.join(names), room)}"
    if len(told) <= width:
        return told
    short = f"{key} {_short(profile)}"
    return short if len(short) <= width else key


def _listed(letters: Sequence[str], width: int) -> str:
    """All letters, or as many as there is room for."""
    for count in range(len(letters), 0, -1):
        text = ",".join(letters[:count]) + ("…" if count < len(letters) else "")
        if len(text) <= width:
            return text
    return "…"


def _short(profile: str) -> str:
    return profile.partition(".")[0]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
