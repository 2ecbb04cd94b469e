"""What the webhook looks at in a ResourceClaim, a ResourceClaimTemplate or a DeviceClass.

One reader for `resource.k8s.io` v1, v1beta2 (the same shape) and v1beta1 (requests without
`exactly`). It takes what it is given: a part of another shape than the API's is passed over, since
the API server refuses such an object itself.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]

GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1beta2", "v1beta1")
CLASSES = "deviceclasses"
DEVICES: Mapping[str, tuple[str, ...]] = {
    "resourceclaims": ("spec", "devices"),
    "resourceclaimtemplates": ("spec", "spec", "devices"),
    CLASSES: ("spec",),
}
"""Where an object of each resource has its configs, and a claim its requests."""

MOST: Mapping[str, int] = {
    "config": 32,
    "constraints": 32,
    "firstAvailable": 8,
    "requests": 32,
    "selectors": 32,
    "tolerations": 16,
}
"""Entries of each list (Kubernetes 1.36 `resource/v1`, `DeviceRequestsMaxSize` and those after it);
a config names at most as many requests as there may be."""
MOST_PARAMETERS = 10 * 1024
"""Bytes of the parameters of a config (`OpaqueParametersMaxLength`)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    """An entry with parameters for the driver. `path` is that of the entry."""

    path: str
    position: int
    requests: tuple[str, ...]
    parameters: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Miscased:
    """An entry whose driver has the driver's name but for upper and lower case: another driver."""

    path: str
    driver: str


@dataclasses.dataclass(frozen=True, slots=True)
class Constraint:
    """The attribute that a constraint compares, and where it stands."""

    path: str
    attribute: str


@dataclasses.dataclass(frozen=True, slots=True)
class Selector:
    """A CEL expression and where it stands."""

    path: str
    expression: str


@dataclasses.dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration and where it stands."""

    path: str
    body: Json


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A request, or one of its alternatives. `name` is that of its results: `req`, `req/sub`.

    `capacity` is what it asks for of each capacity.
    """

    path: str
    name: str
    device_class: str
    selectors: tuple[Selector, ...]
    tolerations: tuple[Toleration, ...]
    capacity: Json


@dataclasses.dataclass(frozen=True, slots=True)
class Admitted:
    """An object: the driver's own configs, and what a claim asks for or a class selects.

    `beyond` tells, with their places, of parts that are not looked at.
    """

    resource: str
    name: str
    configs: tuple[Config, ...] = ()
    asked: tuple[Asked, ...] = ()
    selectors: tuple[Selector, ...] = ()
    miscased: tuple[Miscased, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    beyond: tuple[str, ...] = ()


def read(resource: str, body: Json, driver: str) -> Admitted:
    """The object of one of the resources in `DEVICES`, in any of `VERSIONS`.

    Of each list no more is read than Kubernetes allows, and no config that is larger: who sends
    reviews chooses how much there is to do.
    """
    path = DEVICES[resource]
    devices: Json = body
    for step in path:
        devices = record(devices.get(step))
    root = ".".join(path)
    is_class = resource == CLASSES
    reader = _Reader()
    entries = tuple(reader.items(root, devices, "config"))
    return Admitted(
        resource=resource,
        name=text(record(body.get("metadata")).get("name")),
        configs=tuple(reader.configs(entries, driver)),
        asked=() if is_class else tuple(reader.requests(root, devices)),
        selectors=reader.selectors(root, devices) if is_class else (),
        miscased=tuple(_miscased(entries, driver)),
        constraints=() if is_class else tuple(reader.constraints(root, devices)),
        beyond=tuple(reader.beyond),
    )


def record(value: object) -> Json:
    """The object that a value is; an empty one for any other value."""
    return value if isinstance(value, Mapping) else {}


def text(value: object) -> str:
    """The text that a value is; empty for any other value."""
    return value if isinstance(value, str) else ""


def _miscased(entries: Iterable[tuple[str, Json]], driver: str) -> Iterator[Miscased]:
    for path, entry in entries:
        named = text(record(entry.get("opaque")).get("driver"))
        if named != driver and named.lower() == driver:
            yield Miscased(path, named)


class _Reader:
    """Reads the parts of one object, and notes what it does not look at."""

    def __init__(self) -> None:
        self.beyond: list[str] = []

    def items(self, root: str, body: Json, name: str) -> Iterator[tuple[str, Json]]:
        """The objects in a list, each with its path."""
        path = f"{root}.{name}"
        for index, item in enumerate(self._few(path, body.get(name), MOST[name])):
            yield f"{path}[{index}]", record(item)

    def configs(self, entries: Iterable[tuple[str, Json]], driver: str) -> Iterator[Config]:
        for position, (path, entry) in enumerate(entries):
            opaque = record(entry.get("opaque"))
            if opaque.get("driver") != driver:
                continue
            parameters = opaque.get("parameters")
            if not _is_small(parameters):
                self.beyond.append(
                    f"{path}.opaque.parameters: not checked: longer than the {MOST_PARAMETERS} "
                    "bytes that Kubernetes allows"
                )
                continue
            requests = self._few(f"{path}.requests", entry.get("requests"), MOST["requests"])
            named = tuple(item for item in requests if isinstance(item, str))
            yield Config(path=path, position=position, requests=named, parameters=parameters)

    def constraints(self, root: str, devices: Json) -> Iterator[Constraint]:
        for path, constraint in self.items(root, devices, "constraints"):
            for field in ("matchAttribute", "distinctAttribute"):
                if attribute := text(constraint.get(field)):
                    yield Constraint(f"{path}.{field}", attribute)

    def requests(self, root: str, devices: Json) -> Iterator[Asked]:
        for path, request in self.items(root, devices, "requests"):
            name = text(request.get("name"))
            alternatives = tuple(self.items(path, request, "firstAvailable"))
            for inner, alternative in alternatives:
                yield self._asked(inner, f"{name}/{text(alternative.get('name'))}", alternative)
            if isinstance(request.get("exactly"), Mapping):
                yield self._asked(f"{path}.exactly", name, record(request["exactly"]))
            elif not alternatives:
                yield self._asked(path, name, request)

    def selectors(self, root: str, body: Json) -> tuple[Selector, ...]:
        return tuple(
            Selector(f"{path}.cel.expression", text(record(item.get("cel")).get("expression")))
            for path, item in self.items(root, body, "selectors")
        )

    def _asked(self, path: str, name: str, body: Json) -> Asked:
        return Asked(
            path=path,
            name=name,
            device_class=text(body.get("deviceClassName")),
            selectors=self.selectors(path, body),
            tolerations=tuple(
                Toleration(place, item) for place, item in self.items(path, body, "tolerations")
            ),
            capacity=record(record(body.get("capacity")).get("requests")),
        )

    def _few(self, path: str, found: object, most: int) -> list[Any]:
        """The first of a list; of anything else, none."""
        if not isinstance(found, list):
            return []
        if len(found) > most:
            self.beyond.append(
                f"{path}: only the first {most} of {len(found)} are checked: Kubernetes allows no "
                "more"
            )
        return found[:most]


def _is_small(parameters: object) -> bool:
    """Whether a value may be within `MOST_PARAMETERS`: each value and each character is a byte."""
    left = MOST_PARAMETERS
    rest = [parameters]
    while rest and left >= 0:
        value = rest.pop()
        left -= len(value) if isinstance(value, str | Mapping | list) else 1
        if left >= 0 and isinstance(value, Mapping):
            rest += (*value.keys(), *value.values())
        elif left >= 0 and isinstance(value, list):
            rest += value
    return left >= 0
