"""The door for files: their documents -> what becomes of each, with the templates that are needed.

Pods are read first: what they say of claims decides which templates of DRA's older APIs are needed.
"""

import dataclasses
from collections.abc import Iterable, Sequence
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
    """What is said of an object: a line, or a problem."""

    document: Given
    object: str
    said: conversion.Line | conversion.Problem

    def __str__(self) -> str:
        """As in messages."""
        if isinstance(self.said, conversion.Problem):
            return f"{self.document.place}: {self.object}: {self.said}"
        said = f"{self.said.where}: {self.said.asked}: {self.said.becomes}"
        return f"{self.document.place}: {self.object}: {said}"


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
    said: notes.Notes = dataclasses.field(default_factory=notes.Notes)


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
    problems = tuple(_told(all_objects, "problems"))
    there = {
        (objects.namespace(each.body), str(reading.mapping(each.body.get("metadata")).get("name")))
        for each in all_objects
        if each.body.get("kind") == _TEMPLATE
    }
    documents = tuple(
        _became(document.body, several, there)
        for document, several in zip(given, found, strict=True)
    )
    return Converted(
        (None,) * len(given) if problems else documents,
        tuple(_told(all_objects, "lines")),
        tuple(_told([each for each in all_objects if each.becomes is None], "lines")),
        tuple(_told(all_objects, "warnings")),
        problems,
    )


def _told(all_objects: Iterable[_Object], which: str) -> Iterable[Told]:
    for each in all_objects:
        for said in getattr(each.said, which):
            yield Told(each.document, objects.name(each.body), said)


def _convert_pods(each: _Object, choices: Choices, library: old_library.Library) -> None:
    paths = objects.templates(each.body, choices.template_paths)
    namespace = objects.namespace(each.body)
    for path in paths:
        pod = objects.at(each.body, path)
        changed, templates = old_pods.convert(pod, namespace, library, each.said)
        made = converting.convert(changed, choices.policy)
        each.said.add(made.lines, made.warnings, made.problems)
        each.templates += (*templates, *made.templates)
        if changed is not pod or made.is_converted:
            each.becomes = objects.put(each.becomes, path, made.pod)
    for path in objects.unnamed(each.body, paths):
        # What it asks for is looked at, to know whether it is worth a word.
        made = converting.convert(objects.at(each.body, path), choices.policy)
        if made.is_converted or made.problems:
            dotted = objects.dotted(path)
            each.said.warn(
                dotted,
                "a pod template",
                f"left as it is: give --template-path {dotted} if it is one",
            )


def _convert_claims(each: _Object, library: old_library.Library) -> None:
    body, kind = each.body, each.body.get("kind")
    if not old_library.version_of(body):
        return
    namespace = objects.namespace(body)
    key = (namespace, str(reading.mapping(body.get("metadata")).get("name")))
    if kind == _TEMPLATE and key in library.joined - library.needed:
        each.said.tell("template", "spec", "left out: its claim is a part of another one")
        each.becomes = None
    elif kind in _CLAIMS:
        each.becomes = old_claims.convert_claim(body, namespace, library, each.said)
    elif kind in _CLASSES:
        each.becomes = old_claims.convert_class(body, library, each.said)


def _convert_parameters(each: _Object, choices: Choices, library: old_library.Library) -> None:
    if not old_library.is_parameters(each.body):
        return
    if not library.is_used(each.body):
        text = "left as it is: no claim in these files refers to it"
        each.said.warn("parameters", "spec", text)
    elif choices.keep_parameters:
        each.said.tell("parameters", "spec", "left as it is (--keep-parameters)")
    else:
        each.said.tell("parameters", "spec", "left out: the claims say it now")
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
