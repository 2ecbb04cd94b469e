"""Labels of nodes that pods ask for, as GPU feature discovery writes them -> selectors of devices.

Requirements of one term are all to be met, and terms are alternatives: a term that asks for a GPU
and for something else of the node beside terms that ask for others cannot be taken apart, and is
left as it is.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from dra_driver.logic.cel import selection
from dra_driver.logic.converting import (
    conversion,
    gpu_products,
    label_expressions,
    label_facts,
    label_meanings,
    reading,
)
from dra_driver.model import texts

Json = dict[str, Any]

MOST_SELECTORS = 16
"""Of 32 that Kubernetes allows in a request; the rest is for what else is asked for."""
MOST_REQUIREMENTS = 256
"""Requirements that are read; no pod for people to read has as many."""

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_TERMS, _EXPRESSIONS, _FIELDS = "nodeSelectorTerms", "matchExpressions", "matchFields"
_SELECTOR = "nodeSelector"
_AFFINITY = f"affinity.nodeAffinity.{_REQUIRED}"
_PRODUCT = f"{label_meanings.DOMAIN}gpu.product"
_PARTITION, _SHARED = f"{label_meanings.DOMAIN}mig-", ".shared"
_ONE_KIND = "it names GPUs and partitions, and a request asks for one of the two"
_NO_ONE_TERM = (
    "stays a condition for nodes: each term asks for other GPUs and for other things of nodes, and"
    " no selector says that; write one pod template for each"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Labels:
    """What labels ask of devices, and the pod's spec without them.

    Each request for a device gets all `selectors`. With `partition` what is asked for as
    `nvidia.com/gpu` is a partition (the device plugin's strategy `single`), and `selectors` have
    its profile: such a request needs the class of partitions. With a problem the spec is as it was.
    """

    selectors: tuple[str, ...]
    spec: Json
    lines: tuple[conversion.Line, ...] = ()
    warnings: tuple[conversion.Line, ...] = ()
    problems: tuple[conversion.Problem, ...] = ()
    partition: bool = False


def read(spec: Json, driver: str, *, partitions: bool = False) -> Labels:
    """What the labels in a pod's spec ask of each device of `driver`. Nothing raises.

    `partitions`: partitions are asked for otherwise than by resources `nvidia.com/mig-…`.
    """
    reader = _Reader(_asked(spec, driver, partitions=partitions))
    changed = reader.without_affinity(reader.without_selector(spec))
    selectors = _few(dict.fromkeys(meaning.expression for meaning in reader.meanings))
    for selector in selectors:
        if (problem := selection.check(selector, lists=False)) is not None:
            shown = texts.told(problem, 256)
            reader.refuse(_SELECTOR, selection.shorten(selector), f"the selector is wrong: {shown}")
    is_partition = {m.partition for m in reader.meanings} - {None}
    if len(is_partition) > 1:
        reader.refuse(_PRODUCT, "", _ONE_KIND)
    warnings = (*reader.warnings, *_preferred(spec))
    if reader.problems:
        return Labels((), spec, (), warnings, tuple(reader.problems))
    return Labels(selectors, changed, tuple(reader.lines), warnings, (), True in is_partition)


@dataclasses.dataclass(frozen=True, slots=True)
class _Term:
    """A term, taken apart: what it asks of devices, and what is left of it."""

    meanings: tuple[label_meanings.Meaning, ...]
    asked: tuple[str, ...]
    rest: Json
    conditions: tuple[label_meanings.Requirement | None, ...]

    @property
    def expression(self) -> str:
        said = dict.fromkeys(meaning.expression for meaning in self.meanings if meaning.expression)
        return label_expressions.all_of(tuple(said)) if said else ""

    @property
    def partition(self) -> bool | None:
        return next((m.partition for m in self.meanings if m.partition is not None), None)


class _Reader:
    def __init__(self, asked: label_facts.Asked) -> None:
        self._asked = asked
        self._room = MOST_REQUIREMENTS
        self.meanings: list[label_meanings.Meaning] = []
        self.lines: list[conversion.Line] = []
        self.warnings: list[conversion.Line] = []
        self.problems: list[conversion.Problem] = []

    def refuse(self, field: str, value: str, rule: str) -> None:
        self.problems.append(conversion.Problem("pod", field, value, rule))

    def without_selector(self, spec: Json) -> Json:
        """The spec without entries of `nodeSelector` that are said; all of them are to be met."""
        labels = spec.get(_SELECTOR)
        if not isinstance(labels, dict):
            return spec
        kept = {}
        for key, value in labels.items():
            requirement = _requirement({"key": key, "operator": "In", "values": [value]})
            meaning = self._meaning(requirement, _SELECTOR)
            if requirement is None or meaning is None:
                kept[key] = value
            else:
                self._say(f"{_SELECTOR} {requirement}", meaning)
        return spec if kept == labels else reading.replaced(spec, _SELECTOR, kept)

    def without_affinity(self, spec: Json) -> Json:
        """The spec without what is said of required terms; a term that is empty is none."""
        terms = _terms(spec)
        read = [term for term in map(self._term, terms) if term.asked or term.rest]
        if not any(term.asked for term in read):
            return spec
        shown = " or ".join(" and ".join(term.asked) for term in read if term.asked)
        asked = f"{_AFFINITY} {texts.told(shown, 512)}"
        partition = {term.partition for term in read}
        if True in partition and len(partition) > 1:
            self.refuse(_AFFINITY, texts.told(shown, 512), _ONE_KIND)
            return spec
        if len({term.conditions for term in read}) == 1:
            notes = dict.fromkeys(m.note for term in read for m in term.meanings if m.note)
            either = _either([term.expression for term in read])
            note = "; ".join(notes) or ("" if either else "a term asks for no GPU")
            self._say(asked, label_meanings.Meaning(either, note, read[0].partition))
            return _with_terms(spec, [read[0].rest])
        if len({term.expression for term in read}) == 1:
            for text, meaning in zip(read[0].asked, read[0].meanings, strict=True):
                self._say(f"{_AFFINITY} {text}", meaning)
            return _with_terms(spec, [term.rest for term in read])
        self.warnings.append(conversion.Line("pod", asked, _NO_ONE_TERM))
        return spec

    def _term(self, term: Json) -> _Term:
        said: list[tuple[label_meanings.Meaning, str]] = []
        kept, conditions = [], [*map(_requirement, reading.listed(term.get(_FIELDS)))]
        for item in reading.listed(term.get(_EXPRESSIONS)):
            requirement = _requirement(item)
            meaning = self._meaning(requirement, _AFFINITY)
            if requirement is None or meaning is None:
                kept.append(item)
                conditions.append(requirement)
            else:
                said.append((meaning, str(requirement)))
        rest = reading.replaced(term, _EXPRESSIONS, kept) if said else term
        rest = {name: value for name, value in rest.items() if value}
        texts_ = tuple(text for _, text in said)
        return _Term(tuple(m for m, _ in said), texts_, rest, tuple(conditions))

    def _meaning(
        self, requirement: label_meanings.Requirement | None, field: str
    ) -> label_meanings.Meaning | None:
        """What it asks of devices; None for what stays, with a warning if it is NVIDIA's."""
        if requirement is None or not requirement.key.startswith(label_meanings.DOMAIN):
            return None
        self._room -= 1
        try:
            if self._room < 0:
                raise label_facts.UnsaidError(f"more than {MOST_REQUIREMENTS} are not read")  # noqa: TRY301 - one way out
            return label_meanings.of(requirement, self._asked)
        except label_facts.UnsaidError as reason:
            if reason.refused:
                self.refuse(f"{field} {requirement.key}", str(requirement), str(reason))
            elif self._room >= -1:
                text = f"stays a condition for nodes: {reason}"
                self.warnings.append(conversion.Line("pod", f"{field} {requirement}", text))
            return None

    def _say(self, asked: str, meaning: label_meanings.Meaning) -> None:
        becomes = f"selector {selection.shorten(meaning.expression)}" if meaning.expression else ""
        parts = [part for part in (becomes or "nothing", meaning.note) if part]
        self.meanings.append(meaning)
        self.lines.append(conversion.Line("pod", asked, ": ".join(parts)))


def _few(wanted: Iterable[str]) -> tuple[str, ...]:
    """As so many selectors as are allowed: what is too much is joined."""
    all_ = [expression for expression in wanted if expression]
    if len(all_) <= MOST_SELECTORS:
        return tuple(all_)
    last = MOST_SELECTORS - 1
    return (*all_[:last], label_expressions.all_of(all_[last:]))


def _either(terms: Sequence[str]) -> str:
    """Any of them; an empty one holds for all devices."""
    different = tuple(dict.fromkeys(terms))
    if len(different) == 1:
        return different[0]
    return "" if "" in different else " || ".join(f"({one})" for one in different)


def _asked(spec: Json, driver: str, *, partitions: bool) -> label_facts.Asked:
    profiles = frozenset(
        gpu_products.profile(name.removeprefix(_PARTITION).removesuffix(_SHARED))
        for kind in ("containers", "initContainers")
        for container in reading.listed(spec.get(kind))
        for amounts in ("limits", "requests")
        for name in reading.mapping(
            reading.mapping(reading.mapping(container).get("resources")).get(amounts)
        )
        if isinstance(name, str) and name.startswith(_PARTITION)
    )
    return label_facts.Asked(driver, partitions or bool(profiles), profiles)


def _preferred(spec: Json) -> Iterable[conversion.Line]:
    """Claims have no wishes, but for their order (`firstAvailable`)."""
    affinity = reading.mapping(
        reading.mapping(reading.mapping(spec.get("affinity")).get("nodeAffinity"))
    )
    for wish in reading.listed(affinity.get(_PREFERRED))[:MOST_REQUIREMENTS]:
        for item in reading.listed(
            reading.mapping(reading.mapping(wish).get("preference")).get(_EXPRESSIONS)
        ):
            requirement = _requirement(item)
            if requirement and requirement.key.startswith(label_meanings.DOMAIN):
                asked = f"affinity.nodeAffinity.{_PREFERRED} {requirement}"
                yield conversion.Line("pod", asked, "stays a wish for nodes: claims have none")
                return


def _requirement(item: Any) -> label_meanings.Requirement | None:
    """None for what the API server would refuse."""
    match item:
        case {"key": str(key), "operator": "Exists" | "DoesNotExist" as operator}:
            return label_meanings.Requirement(key, operator)
        case {"key": str(key), "operator": "In" | "NotIn" as operator, "values": [_, *_] as values}:
            pass
        case {"key": str(key), "operator": "Gt" | "Lt" as operator, "values": [_] as values}:
            pass
        case _:
            return None
    if not all(isinstance(value, str) for value in values):
        return None
    return label_meanings.Requirement(key, operator, tuple(values))


def _terms(spec: Json) -> list[Json]:
    """The required terms; none where something is not what it should be."""
    required = reading.mapping(
        reading.mapping(reading.mapping(spec.get("affinity")).get("nodeAffinity")).get(_REQUIRED)
    )
    terms = reading.listed(required.get(_TERMS))
    sound = all(
        isinstance(term, dict)
        and all(
            _requirement(item) is not None
            for field in (_EXPRESSIONS, _FIELDS)
            for item in reading.listed(term.get(field))
        )
        for term in terms
    )
    return terms if sound else []


def _with_terms(spec: Json, terms: Sequence[Json]) -> Json:
    """With these terms; where one is empty, nothing is left to ask of nodes."""
    affinity = reading.mapping(spec.get("affinity"))
    nodes = reading.mapping(affinity.get("nodeAffinity"))
    required = reading.replaced(
        reading.mapping(nodes.get(_REQUIRED)), _TERMS, list(terms) if all(terms) else []
    )
    nodes = reading.replaced(nodes, _REQUIRED, required)
    return reading.replaced(spec, "affinity", reading.replaced(affinity, "nodeAffinity", nodes))
