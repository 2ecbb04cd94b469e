"""What the webhook looks at in a ResourceClaim, a ResourceClaimTemplate or a DeviceClass.

One reader for `resource.k8s.io` v1, v1beta2 (the same shape) and v1beta1 (requests without
`exactly`). It takes what it is given: a part of another shape than the API's is passed over, since
the API server refuses such an object itself.
"""

import dataclasses
from collections.abc import Iterator, Mapping
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
    """An object: the driver's own configs, and what a claim asks for or a class selects."""

    resource: str
    name: str
    configs: tuple[Config, ...] = ()
    asked: tuple[Asked, ...] = ()
    selectors: tuple[Selector, ...] = ()
    miscased: tuple[Miscased, ...] = ()
    constraints: tuple[Constraint, ...] = ()


def read(resource: str, body: Json, driver: str) -> Admitted:
    """The object of one of the resources in `DEVICES`, in any of `VERSIONS`."""
    path = DEVICES[resource]
    devices: Json = body
    for step in path:
        devices = record(devices.get(step))
    root = ".".join(path)
    is_class = resource == CLASSES
    return Admitted(
        resource=resource,
        name=text(record(body.get("metadata")).get("name")),
        configs=tuple(_configs(root, devices, driver)),
        asked=() if is_class else tuple(_requests(root, devices)),
        selectors=_selectors(root, devices) if is_class else (),
        miscased=tuple(_miscased(root, devices, driver)),
        constraints=() if is_class else tuple(_constraints(root, devices)),
    )


def record(value: object) -> Json:
    """The object that a value is; an empty one for any other value."""
    return value if isinstance(value, Mapping) else {}


def text(value: object) -> str:
    """The text that a value is; empty for any other value."""
    return value if isinstance(value, str) else ""


def _items(body: Json, name: str) -> Iterator[tuple[str, Json]]:
    """The objects in a list, each with `name[index]`."""
    found = body.get(name)
    for index, item in enumerate(found if isinstance(found, list) else ()):
        yield f"{name}[{index}]", record(item)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _configs(root: str, devices: Json, driver: str) -> Iterator[Config]:
    for position, (name, entry) in enumerate(_items(devices, "config")):
        opaque = record(entry.get("opaque"))
        if opaque.get("driver") == driver:
            yield Config(
                path=f"{root}.{name}",
                position=position,
                requests=_texts(entry.get("requests")),
                parameters=opaque.get("parameters"),
            )


def _miscased(root: str, devices: Json, driver: str) -> Iterator[Miscased]:
    for name, entry in _items(devices, "config"):
        named = text(record(entry.get("opaque")).get("driver"))
        if named != driver and named.lower() == driver:
            yield Miscased(f"{root}.{name}", named)


def _constraints(root: str, devices: Json) -> Iterator[Constraint]:
    for name, constraint in _items(devices, "constraints"):
        for field in ("matchAttribute", "distinctAttribute"):
            if attribute := text(constraint.get(field)):
                yield Constraint(f"{root}.{name}.{field}", attribute)


def _requests(root: str, devices: Json) -> Iterator[Asked]:
    for place, request in _items(devices, "requests"):
        name, path = text(request.get("name")), f"{root}.{place}"
        alternatives = tuple(_items(request, "firstAvailable"))
        for inner, alternative in alternatives:
            yield _asked(f"{path}.{inner}", f"{name}/{text(alternative.get('name'))}", alternative)
        if isinstance(request.get("exactly"), Mapping):
            yield _asked(f"{path}.exactly", name, record(request["exactly"]))
        elif not alternatives:
            yield _asked(path, name, request)


def _asked(path: str, name: str, body: Json) -> Asked:
    return Asked(
        path=path,
        name=name,
        device_class=text(body.get("deviceClassName")),
        selectors=_selectors(path, body),
        tolerations=tuple(
            Toleration(f"{path}.{place}", item) for place, item in _items(body, "tolerations")
        ),
        capacity=record(record(body.get("capacity")).get("requests")),
    )


def _selectors(root: str, body: Json) -> tuple[Selector, ...]:
    return tuple(
        Selector(f"{root}.{place}.cel.expression", text(record(item.get("cel")).get("expression")))
        for place, item in _items(body, "selectors")
    )
