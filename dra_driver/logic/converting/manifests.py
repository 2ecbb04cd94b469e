"""The door for files: their documents -> what becomes of each, with the templates that are needed.

Pods are read first: what they say of claims decides which templates of DRA's older APIs are needed.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dra_driver.logic.converting import (
    conversion,
    converting,
    notes,
    objects,
    old_claims,
    old_library,
    old_pods,
    reading,
)

Json = dict[str, Any]

_TEMPLATE = "ResourceClaimTemplate"
_CLAIMS = ("ResourceClaim", _TEMPLATE)
_CLASSES = ("ResourceClass", "DeviceClass")


@dataclasses.dataclass(frozen=True, slots=True)
class Choices:
    """What is decided before. `template_paths`: where else pod templates are, key by key."""

    policy: conversion.Policy
    template_paths: tuple[tuple[str, ...], ...] = ()
    keep_parameters: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """A document, and where it stands. `number`, from 1: which one of several in the file."""

    file: str
    body: Any
    number: int | None = None

    @property
    def place(self) -> str:
        """As in messages."""
        return self.file if self.number is None else f"{self.file}, document {self.number}"


@dataclasses.dataclass(frozen=True, slots=True)
class Became:
    """What a document has become; `body` is None if it goes. `before`: documents that are new."""

    body: Any
    before: tuple[Json, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """What is said of an object: a line, or a problem.

    `template`: of which pod template in it, where it has several; empty otherwise.
    """

    document: Given
    object: str
    template: str
    said: conversion.Line | conversion.Problem

    def __str__(self) -> str:
        """As in messages."""
        place = f"{self.document.place}: {self.object}"
        if self.template:
            place += f": {self.template}"
        if isinstance(self.said, conversion.Problem):
            return f"{place}: {self.said}"
        return f"{place}: {self.said.where}: {self.said.asked}: {self.said.becomes}"


@dataclasses.dataclass(frozen=True, slots=True)
class Converted:
    """What became of all documents: None of those that stay as they are.

    `left_out` are those of the lines that are of objects which go.
    """

    documents: tuple[Became | None, ...]
    lines: tuple[Told, ...]
    left_out: tuple[Told, ...]
    warnings: tuple[Told, ...]
    problems: tuple[Told, ...]


@dataclasses.dataclass(slots=True)
class _Object:
    """An object of a document, and what becomes of it."""

    document: Given
    path: objects.Path
    body: Json
    becomes: Json | None
    templates: list[conversion.Template] = dataclasses.field(default_factory=list)
    told: dict[str, notes.Notes] = dataclasses.field(default_factory=dict)
    """What is said, by the pod template that it is said of; empty: of the object."""

    def said(self, template: str = "") -> notes.Notes:
        """Where it is said of a pod template in it, or of the object."""
        return self.told.setdefault(template, notes.Notes())

    @property
    def key(self) -> tuple[str, str]:
        """Its namespace and its name."""
        metadata = reading.mapping(self.body.get("metadata"))
        return objects.namespace(self.body), str(metadata.get("name"))


def convert(given: Sequence[Given], choices: Choices) -> Converted:
    """Convert documents that belong together. With a problem nothing is to be used."""
    found = [
        [_Object(each, path, body, body) for path, body in objects.flat(each.body)]
        for each in given
    ]
    all_objects = [each for several in found for each in several]
    library = old_library.Library((each.body for each in all_objects), choices.policy.driver)
    for each in all_objects:
        _convert_pods(each, choices, library)
    for each in all_objects:
        _convert_claims(each, library)
    for each in all_objects:
        _convert_parameters(each, choices, library)
    there = {each.key: each for each in all_objects if _kind(each.becomes) == _TEMPLATE}
    for each in all_objects:
        _check_templates(each, there)
    problems = tuple(_told(all_objects, "problems"))
    known = set(there)
    documents = tuple(
        _became(document.body, several, known)
        for document, several in zip(given, found, strict=True)
    )
    return Converted(
        (None,) * len(given) if problems else documents,
        tuple(_told(all_objects, "lines")),
        tuple(_told([each for each in all_objects if each.becomes is None], "lines")),
        tuple(_told(all_objects, "warnings")),
        problems,
    )


def _kind(body: Json | None) -> object:
    return None if body is None else body.get("kind")


def _told(all_objects: Iterable[_Object], which: str) -> Iterable[Told]:
    for each in all_objects:
        for template, said in each.told.items():
            for one in getattr(said, which):
                yield Told(each.document, objects.name(each.body), template, one)


def _check_templates(each: _Object, there: Mapping[tuple[str, str], _Object]) -> None:
    """Refuse a name under which something else stands in the files."""
    for template in each.templates:
        other = there.get((objects.namespace(each.body), template.name))
        if other is None or other.becomes is None:
            continue
        spec = reading.mapping(reading.mapping(other.becomes.get("spec")).get("spec"))
        if spec != template.spec:
            rule = (
                f"{other.document.place} has a template of that name that asks for something else: "
                "give it another name there, and where it is used"
            )
            each.said().refuse("template", "metadata.name", template.name, rule)


def _convert_pods(each: _Object, choices: Choices, library: old_library.Library) -> None:
    paths = objects.templates(each.body, choices.template_paths)
    namespace = objects.namespace(each.body)
    for path in paths:
        said = each.said(objects.shown(each.body, path) if len(paths) > 1 else "")
        pod = objects.at(each.body, path)
        changed, templates = old_pods.convert(pod, namespace, library, said)
        made = converting.convert(changed, choices.policy)
        said.add(made.lines, made.warnings, made.problems)
        each.templates += (*templates, *made.templates)
        if changed is not pod or made.is_converted:
            each.becomes = objects.put(each.becomes, path, made.pod)
    for path in objects.unnamed(each.body, paths):
        pod = objects.at(each.body, path)
        # What it asks for is looked at, to know whether it is worth a word.
        made = converting.convert(pod, choices.policy)
        if made.is_converted or made.problems or old_pods.has_sources(pod):
            dotted = objects.dotted(path)
            each.said().warn(
                dotted,
                "a pod template",
                f"left as it is: give --template-path {dotted} if it is one",
            )


def _convert_claims(each: _Object, library: old_library.Library) -> None:
    body, kind, said = each.body, each.body.get("kind"), each.said()
    version = old_library.version_of(body)
    if not version:
        return
    if kind == _TEMPLATE and each.key in library.joined - library.needed:
        said.tell("template", "spec", "left out: its claim is a part of another one")
        each.becomes = None
    elif kind in _CLAIMS:
        each.becomes = old_claims.convert_claim(body, each.key[0], library, said)
    elif kind in _CLASSES:
        each.becomes = old_claims.convert_class(body, library, said)
    elif kind in old_library.GONE:
        said.warn("object", f"{kind} of {version}", f"left as it is: {old_library.GONE[kind]}")


def _convert_parameters(each: _Object, choices: Choices, library: old_library.Library) -> None:
    if not old_library.is_parameters(each.body):
        return
    said = each.said()
    is_needed = each.key in library.needed and library.is_template(each.body)
    if not is_needed and not library.is_used(each.body):
        text = "left as it is: no claim in these files refers to it"
        said.warn("parameters", "spec", text)
    elif choices.keep_parameters:
        said.tell("parameters", "spec", "left as it is (--keep-parameters)")
    elif is_needed:
        each.becomes = old_claims.convert_parameters(each.body, each.key[0], library, said)
    else:
        said.tell("parameters", "spec", "left out: the claims say it now")
        each.becomes = None


def _became(
    document: Any, several: Sequence[_Object], there: set[tuple[str, str]]
) -> Became | None:
    """What becomes of a document with these objects; `there`: templates that exist, grows."""
    changed = document
    # From the last one on: places of those before it stay what they are.
    new = {id(each): _new(each, there) for each in several}
    if not any(new.values()) and all(each.becomes is each.body for each in several):
        return None
    for each in reversed(several):
        if not each.path:
            return Became(each.becomes, tuple(new[id(each)]))
        if each.becomes is not each.body or new[id(each)]:
            changed = _with_items(changed, each, new[id(each)])
    return Became(changed)


def _with_items(document: Any, each: _Object, new: list[Json]) -> Any:
    """The list with an item changed, or without it, and with new items before it."""
    *outer, index = each.path
    items = objects.at(document, tuple(outer))
    given = items[index]
    kept: list[Json] = []
    if each.becomes is not None:
        # What a typed list says of its items is not said again.
        said = each.body.keys() - given.keys()
        kept = [{key: value for key, value in each.becomes.items() if key not in said}]
    changed = [*items[:index], *new, *kept, *items[int(index) + 1 :]]
    return objects.put(document, tuple(outer), changed)


def _new(each: _Object, there: set[tuple[str, str]]) -> list[Json]:
    """Templates that an object needs and that do not exist yet."""
    namespace = objects.namespace(each.body)
    found = []
    for template in each.templates:
        if (namespace, template.name) in there:
            continue
        there.add((namespace, template.name))
        metadata: Json = {"name": template.name}
        if namespace:
            metadata["namespace"] = namespace
        metadata["labels"] = {conversion.CONVERTED: conversion.Door.COMMAND.value}
        found.append(
            {
                "apiVersion": old_claims.VERSION,
                "kind": _TEMPLATE,
                "metadata": metadata,
                "spec": {"spec": template.spec},
            }
        )
    return found
