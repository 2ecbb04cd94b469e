"""Manifests: the objects in YAML files, and how they get into an API server."""

import pathlib
import re
from collections.abc import Iterable
from typing import Any

from dra_driver import errors
from dra_driver.adapters.console import documents
from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster import mapping
from dra_driver.sim.cluster.workloads import controllers

Json = dict[str, Any]

STEP_ANNOTATION = "demo.dra-driver/step"
_SUFFIXES = (".yaml", ".yml", ".json")


def load(paths: Iterable[pathlib.Path]) -> list[Json]:
    """All objects in files, and in the files of folders by name; lists are taken apart.

    Raises:
        errors.Fatal: a path does not exist, holds no manifest, or is no Kubernetes object.
    """
    found: list[Json] = []
    for path in paths:
        here: list[Json] = []
        for file in _files(path):
            for number, document in enumerate(documents.load_all(file), start=1):
                here += _objects(document, f"{file}, document {number}")
        if not here:
            raise errors.Fatal(f"{path}: it has no object; write a manifest, or leave it out")
        found += here
    return found


def steps(objects: Iterable[Json]) -> tuple[tuple[Json, ...], ...]:
    """The objects by the number in their annotation `STEP_ANNOTATION`, 1 where they have none.

    Raises:
        errors.Rejected: a step is no whole number from 1 on.
    """
    found: dict[int, list[Json]] = {}
    for body in objects:
        text = (body["metadata"].get("annotations") or {}).get(STEP_ANNOTATION, "1")
        if not re.fullmatch("[1-9][0-9]*", str(text)):
            raise errors.Rejected(
                f"{full_name(body)}: annotation {STEP_ANNOTATION}: {text!r}; write a whole number "
                'from "1" on'
            )
        found.setdefault(int(text), []).append(body)
    return tuple(tuple(found[number]) for number in sorted(found))


def apply(client: kube.Client, objects: Iterable[Json]) -> None:
    """Create the objects; what is there already is changed to be as it says here.

    What others need comes first, else they come in order: see `_FIRST`.

    Raises:
        errors.DriverError: the server refuses one; the text names it.
    """
    mapper = mapping.Mapper(client)
    for body in sorted(objects, key=_place):
        resource = mapper.resource(body, full_name(body))
        namespace = body["metadata"].get("namespace", "default") if resource.namespaced else None
        try:
            client.create(resource, body, namespace)
        except kube.Conflict:
            client.patch(resource, body["metadata"]["name"], body, namespace)
        except kube.NotFound as error:
            raise errors.Fatal(
                f'{full_name(body)}: namespaces "{namespace}" not found; add to the manifests: '
                f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}"
            ) from error
        if resource == controllers.DEFINITIONS:
            mapper.forget()


_FIRST = ("Namespace", "CustomResourceDefinition", "PriorityClass")
"""Without these an object that comes before them is refused."""


def _place(body: Json) -> int:
    return _FIRST.index(body["kind"]) if body["kind"] in _FIRST else len(_FIRST)


def full_name(body: Json) -> str:
    """As in messages: `Pod default/train`."""
    metadata = body["metadata"]
    name = metadata.get("name") or f"{metadata.get('generateName')}*"
    namespace = metadata.get("namespace")
    return f"{body['kind']} {namespace}/{name}" if namespace else f"{body['kind']} {name}"


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise errors.Fatal(f"{path}: no such file or folder")
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if not files:
        raise errors.Fatal(f"{path}: the folder has no {', '.join(_SUFFIXES)} file")
    return files


def _objects(document: Any, place: str) -> list[Json]:
    match document:
        case {"kind": "List", "items": list(items)}:
            return [found for item in items for found in _objects(item, place)]
        case {"apiVersion": str(), "kind": str(), "metadata": {"name": str()} as metadata}:
            _check_metadata(metadata, place)
            return [document]
        case {"apiVersion": str(), "kind": str(), "metadata": {"generateName": str()} as metadata}:
            _check_metadata(metadata, place)
            return [document]
    raise errors.Fatal(
        f"{place}: this is no Kubernetes object: apiVersion, kind and metadata.name are needed"
    )


def _check_metadata(metadata: Json, place: str) -> None:
    """What is looked at before the server sees it."""
    for field, kind, wanted in (
        ("namespace", str, "a text"),
        ("annotations", dict, "a mapping of texts"),
        ("labels", dict, "a mapping of texts"),
    ):
        if not isinstance(metadata.get(field, kind()), kind | None):
            raise errors.Fatal(
                f"{place}: metadata.{field}: {metadata[field]!r}; write {wanted}, or leave it out"
            )
