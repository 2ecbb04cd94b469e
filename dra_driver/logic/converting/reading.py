"""Pods as they come, of which anything may be wrong: what is asked for in them.

What is not shaped like a pod asks for nothing. It is the API server that says what is wrong there.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dra_driver import errors
from dra_driver.logic.converting import notes
from dra_driver.model import quantities

Json = dict[str, Any]

LISTS = ("initContainers", "containers")
"""In the order in which their containers start."""
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
"""A DNS label, as the API server has the names of containers."""
MOST = 2**31
"""More than there is of anything."""
_DOMAINS = ("nvidia.com/", "volcano.sh/", "tencent.com/", "aliyun.com/")


@dataclasses.dataclass(frozen=True, slots=True)
class Container:
    """A container and what it asks for. `lasts` is false for one that ends before the others start.

    `amounts` has the resources of domains that are known here, with their values as written.
    """

    name: str
    listed: str
    index: int
    lasts: bool
    amounts: Mapping[str, object]
    differing: tuple[str, ...] = ()
    """Resources whose request is another than their limit."""

    @property
    def where(self) -> str:
        """As in messages."""
        return f"container {self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Pod:
    """What of a pod is read: containers in the order in which they start."""

    containers: tuple[Container, ...]
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    scheduler: str


def read(pod: object) -> Pod:
    """The pod in anything that was decoded from JSON."""
    body = mapping(pod)
    metadata, spec = mapping(body.get("metadata")), mapping(body.get("spec"))
    scheduler = spec.get("schedulerName")
    return Pod(
        tuple(_containers(spec)),
        _texts(metadata.get("annotations")),
        _texts(metadata.get("labels")),
        scheduler if isinstance(scheduler, str) else "",
    )


def mapping(value: object) -> Mapping[str, Any]:
    """The object that this is; an empty one if it is something else."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """The list that this is; an empty one if it is something else."""
    return value if isinstance(value, list) else []


def replaced(body: Mapping[str, Any], key: str, value: Any) -> Json:
    """The object with another value, in its place; without it where that is empty."""
    changed = {**body, key: value}
    return changed if value else {name: item for name, item in changed.items() if name != key}


def whole(
    container: Container, resource: str, said: notes.Notes, *, least: int, most: int = MOST
) -> int | None:
    """The whole number that a container asks for of a resource; None if that was refused."""
    return number(container.where, resource, container.amounts[resource], said, least, most)


def number(
    where: str, field: str, value: object, said: notes.Notes, least: int, most: int = MOST
) -> int | None:
    """The whole number that was written; None if that was refused."""
    rule = f"a whole number from {least} to {most} is allowed"
    found = quantity(value)
    if found is None or not isinstance(found.exact, int) or not least <= found.exact <= most:
        said.refuse(where, field, value, rule)
        return None
    return found.exact


def written(name: str, value: object) -> str:
    """What was written of a resource, for people; what it was if that is no single value."""
    plain = isinstance(value, str | int | float)
    return f"{name}: {value if plain else type(value).__name__}"


def quantity(value: object) -> quantities.Quantity | None:
    """The quantity that was written, as a number or as a text; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int) and abs(value) >= 2**63:
        return None
    try:
        return quantities.parse(str(value))
    except errors.Rejected:
        return None


def _containers(spec: Mapping[str, Any]) -> Iterator[Container]:
    for key in LISTS:
        for index, body in enumerate(listed(spec.get(key))):
            found = mapping(body)
            resources = mapping(found.get("resources"))
            limits, requests = mapping(resources.get("limits")), mapping(resources.get("requests"))
            amounts = {
                name: value
                for name, value in {**requests, **limits}.items()
                if isinstance(name, str) and name.startswith(_DOMAINS)
            }
            yield Container(
                name=found["name"] if isinstance(found.get("name"), str) else "",
                listed=key,
                index=index,
                lasts=key == "containers" or found.get("restartPolicy") == "Always",
                amounts=amounts,
                differing=tuple(
                    name
                    for name in amounts
                    if name in limits and name in requests and not _same(limits, requests, name)
                ),
            )


def _same(limits: Mapping[str, Any], requests: Mapping[str, Any], name: str) -> bool:
    # What is no quantity is refused as such.
    return quantity(limits[name]) == quantity(requests[name])


def _texts(value: object) -> dict[str, str]:
    return {
        key: text
        for key, text in mapping(value).items()
        if isinstance(key, str) and isinstance(text, str)
    }
