"""Where in Kubernetes' objects pods are described, and which objects a document has.

Kinds and paths: the API references of Kubernetes 1.36, of JobSet (`jobset.x-k8s.io/v1alpha2`) and
of Volcano (`batch.volcano.sh/v1alpha1`).
"""

import collections
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from dra_driver.logic.converting import reading
from dra_driver.model import texts

Json = dict[str, Any]
Path = tuple[str | int, ...]
"""Keys and indexes, from the outside in."""

_TEMPLATE = ("spec", "template")
_PATHS: dict[str, tuple[str, ...]] = {
    "Pod": (),
    "PodTemplate": ("template",),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "JobSet": ("spec", "replicatedJobs", "template", "spec", "template"),
} | dict.fromkeys(
    ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job"),
    _TEMPLATE,
)
_VOLCANO = ("spec", "tasks", "template")
_LONGEST = 400
"""Bytes of what an object is called: a kind, a namespace and a name are shorter."""
_DEEPEST = 20
"""Objects inside each other in which a pod template is looked for where no path is known."""


def flat(document: object, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    """The objects of a document, lists taken apart, each with its path in it."""
    if not isinstance(document, dict):
        return
    items = document.get("items")
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(items, list):
        yield path, document
        return
    # Items of a typed list, as the API answers it, have no kind of their own.
    own = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
    for index, item in enumerate(items):
        inner = (*path, "items", index)
        if isinstance(item, dict) and "kind" not in item and own["kind"]:
            yield inner, {**own, **item}
        elif len(path) < _DEEPEST:
            yield from flat(item, inner)


def at(body: Any, path: Path) -> Any:
    """What is there."""
    for step in path:
        body = body[step]
    return body


def put(body: Any, path: Path, value: Any) -> Any:
    """The same with another value there; what was given is not changed."""
    if not path:
        return value
    inner = put(body[path[0]], path[1:], value)
    if isinstance(body, list):
        changed = list(body)
        changed[int(path[0])] = inner
        return changed
    return {**body, path[0]: inner}


def templates(body: Json, more: Sequence[tuple[str, ...]] = ()) -> list[Path]:
    """Where pods are described in an object: what is there has `spec`, and may have `metadata`.

    `more` are paths besides those of the kind. Lists on the way are gone through.
    """
    kind, version = body.get("kind"), str(body.get("apiVersion"))
    known: list[tuple[str, ...]] = []
    if kind == "Job" and version.startswith("batch.volcano.sh/"):
        known.append(_VOLCANO)
    elif isinstance(kind, str) and kind in _PATHS:
        known.append(_PATHS[kind])
    found: dict[Path, None] = {}
    for path in (*known, *more):
        found |= dict.fromkeys(_places(body, path))
    return [path for path in found if reading.mapping(reading.mapping(at(body, path)).get("spec"))]


def _places(body: Any, path: Sequence[str], behind: Path = ()) -> Iterator[Path]:
    if isinstance(body, list):
        for index, item in enumerate(body):
            yield from _places(item, path, (*behind, index))
    elif not path:
        yield behind
    elif isinstance(body, dict) and path[0] in body:
        yield from _places(body[path[0]], path[1:], (*behind, path[0]))


def unnamed(body: Json, known: Collection[Path]) -> list[Path]:
    """Where else something is that looks like a pod template."""
    waiting: collections.deque[tuple[Path, Any]] = collections.deque([((), body)])
    passed = set(known)
    found: list[Path] = []
    while waiting:
        path, value = waiting.popleft()
        if path in passed or len(path) > _DEEPEST:
            continue
        if isinstance(value, dict):
            if path and isinstance(reading.mapping(value.get("spec")).get("containers"), list):
                found.append(path)
                continue
            waiting += [((*path, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [((*path, index), inner) for index, inner in enumerate(value)]
    return found


def dotted(path: Path) -> str:
    """The path as `--template-path` takes it: without the indexes of lists."""
    return ".".join(step for step in path if isinstance(step, str))


def shown(body: Any, path: Path) -> str:
    """The path for people: items of lists by their names, as `spec.tasks[leader].template`."""
    text = ""
    for step in path:
        body = body[step]
        if isinstance(step, int):
            called = reading.mapping(body).get("name")
            text += f"[{texts.told(called, 63) if isinstance(called, str) else step}]"
        else:
            text += f".{step}" if text else step
    return text


def name(body: Json) -> str:
    """What an object is called in messages: `Deployment ns/web`."""
    metadata = reading.mapping(body.get("metadata"))
    called = metadata.get("name") or metadata.get("generateName") or "without a name"
    space = namespace(body)
    return texts.told(f"{body.get('kind')} {f'{space}/' if space else ''}{called}", _LONGEST)


def namespace(body: Json) -> str:
    """The namespace that is written; empty if there is none."""
    found = reading.mapping(body.get("metadata")).get("namespace")
    return found if isinstance(found, str) else ""
