"""Which attribute or capacity was meant by a name that devices do not have, and where it is."""

import json
import re
from collections.abc import Collection, Iterable, Mapping

from dra_driver.logic.scheduling import candidacy

MOST = 3
"""Names that are alike; what is like more of them is like none."""
LONGEST = 64
"""Characters without the domain. A name has at most 32, and a label 63: a longer one, which
somebody may have sent to keep others busy, is like none.
"""

ALIASES: Mapping[str, tuple[str, ...]] = {
    "arch": ("architecture",),
    "bdf": ("pciBusID",),
    "busid": ("pciBusID",),
    "cc": ("cudaComputeCapability",),
    "computecap": ("cudaComputeCapability",),
    "computecapability": ("cudaComputeCapability",),
    "cudaversion": ("cudaDriverVersion",),
    "cudaruntimeversion": ("cudaDriverVersion",),
    "family": ("architecture",),
    "fbmemory": ("memory",),
    "framebuffer": ("memory",),
    "generation": ("architecture",),
    "gpucores": ("cores",),
    "gpumem": ("memory",),
    "gpumemory": ("memory",),
    "gpumodel": ("productName", "model"),
    "gpuname": ("productName", "model"),
    "gpuproduct": ("productName", "model"),
    "gputype": ("productName", "model"),
    "gpuuuid": ("uuid",),
    "id": ("uuid",),
    "mem": ("memory",),
    "memorybytes": ("memory",),
    "memorymb": ("memory",),
    "memorymib": ("memory",),
    "memorysize": ("memory",),
    "memorytotal": ("memory",),
    "migprofile": ("profile",),
    "model": ("productName",),
    "name": ("productName", "model"),
    "numa": ("numaNode",),
    "numaid": ("numaNode",),
    "numanodeid": ("numaNode",),
    "parent": ("parentUUID",),
    "partitionprofile": ("profile",),
    "pciaddr": ("pciBusID",),
    "pciaddress": ("pciBusID",),
    "pciebusid": ("pciBusID",),
    "pciroot": ("pcieRoot",),
    "product": ("productName", "model"),
    "productname": ("model",),
    "sm": ("multiprocessors",),
    "smcount": ("multiprocessors",),
    "sms": ("multiprocessors",),
    "totalmemory": ("memory",),
    "vmemory": ("memory",),
    "vram": ("memory",),
}
"""What other drivers and sharing systems call what is published here: folded name to names.

Of AMD's, Intel's and the example driver, HAMi, Volcano, and the labels of GPU feature discovery.
"""

Places = Mapping[str, Collection[str]]
"""Paths by name, as `places` finds them."""


def nearest(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Those of the `known` names that may be meant by one that is not known, sorted.

    Names are compared without their domain. Meant is the same name but for upper and lower case,
    `-`, `_` and domain; else what other drivers' name stands for; else a name that few slips of
    the keyboard are apart: one in a name of 3 to 5 characters, two up to 9, else three. Rather
    none than a wrong one.
    """
    if len(name.rpartition("/")[2]) > LONGEST:
        return ()
    by_name: dict[str, set[str]] = {}
    for each in known:
        by_name.setdefault(_folded(each), set()).add(each)
    wanted = _folded(name)
    candidates = [wanted, *map(_folded, ALIASES.get(wanted, ()))]
    found = next((by_name[each] for each in candidates if each in by_name), None)
    if found is None:
        most = _allowed(wanted)
        # Of names whose lengths differ by more, more slips are between them.
        apart = {
            each: _slips(wanted, each) for each in by_name if abs(len(each) - len(wanted)) <= most
        }
        least = min(apart.values(), default=most + 1)
        close = [each for each, slips in apart.items() if slips == least <= most]
        found = {one for each in close for one in by_name[each]} if len(close) <= MOST else set()
    return tuple(sorted(found))


def nearest_class(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Those of the `known` classes that may be meant by one that does not exist, sorted.

    Classes share their domain: they are alike if all labels but one are the same, and that is near.
    """
    labels = name.split(".")
    found = set()
    for each in known:
        others = each.split(".")
        if len(others) == len(labels):
            unlike = [pair for pair in zip(labels, others, strict=True) if pair[0] != pair[1]]
            if len(unlike) == 1 and nearest(unlike[0][0], [unlike[0][1]]):
                found.add(each)
    return tuple(sorted(found))


def places(candidates: Iterable[candidacy.Candidate]) -> Places:
    """Where devices have each name, without its domain, as an expression reads it."""
    found: dict[str, set[str]] = {}
    for candidate in candidates:
        for table, names in (
            ("attributes", candidate.device.attributes),
            ("capacity", candidate.device.capacity),
        ):
            for qualified in names:
                domain, _, own = qualified.rpartition("/")
                path = f"device.{table}[{json.dumps(domain or candidate.id.driver)}].{own}"
                found.setdefault(own, set()).add(path)
    return found


def paths(name: str, known: Places) -> tuple[str, ...]:
    """Those of the places where devices have what may be meant by a name."""
    return tuple(path for each in nearest(name, known) for path in sorted(known[each]))


def _folded(name: str) -> str:
    """What two spellings of a name have in common."""
    return re.sub(r"[-_.]", "", name.rpartition("/")[2]).lower()


def _allowed(name: str) -> int:
    """How many slips may be between a name and what it was to be."""
    return sum(len(name) >= least for least in (3, 6, 10))


def _slips(one: str, other: str) -> int:
    """How many characters are to be put in, left out, replaced or swapped with the next.

    The optimal string alignment distance.
    """
    before: list[int] = []
    row = list(range(len(other) + 1))
    for index, left in enumerate(one):
        earlier, before, row = before, row, [index + 1]
        for at, right in enumerate(other):
            best = min(before[at + 1] + 1, row[at] + 1, before[at] + (left != right))
            if at and index and left == other[at - 1] and right == one[index - 1]:
                best = min(best, earlier[at - 1] + 1)
            row.append(best)
    return row[-1]
