"""Which schema holds for which kind and version."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from dra_driver.sim.api.kinds import (
    core_schemas,
    kinds,
    resource_schemas,
    schemas,
    served_kinds,
    webhook_schemas,
    workload_schemas,
)

_GROUPS: Mapping[str, Mapping[str, schemas.Schema]] = MappingProxyType(
    {
        "": MappingProxyType({**core_schemas.CORE, **workload_schemas.CORE}),
        "events.k8s.io": core_schemas.EVENTS,
        "apps": workload_schemas.APPS,
        "batch": workload_schemas.BATCH,
        "scheduling.k8s.io": workload_schemas.SCHEDULING,
        "apiextensions.k8s.io": workload_schemas.DEFINITIONS,
        "coordination.k8s.io": core_schemas.COORDINATION,
        "discovery.k8s.io": core_schemas.DISCOVERY,
        "admissionregistration.k8s.io": webhook_schemas.ADMISSION,
    }
)
_DESCRIBED_STRING = {
    "apiVersion": "The group and version of this representation of the object.",
    "kind": "The kind of the object.",
}


def _complete(schema: schemas.Schema) -> schemas.Schema:
    common = {
        name: schemas.described(schemas.STRING, text) for name, text in _DESCRIBED_STRING.items()
    }
    common["metadata"] = core_schemas.METADATA
    return dataclasses.replace(schema, fields=MappingProxyType(common | dict(schema.fields or {})))


def _all() -> dict[tuple[str, str, str], schemas.Schema]:
    found = {}
    for kind in served_kinds.BUILT_IN:
        for version in kind.versions:
            if kind.group == kinds.RESOURCE_GROUP:
                schema = resource_schemas.BY_VERSION[version][kind.kind]
            else:
                group = _GROUPS.get(kind.group, {})
                schema = group.get(kind.kind, workload_schemas.ANYTHING)
            found[kind.group, version, kind.kind] = _complete(schema)
    return found


_ALL = _all()
_ANYTHING = _complete(workload_schemas.ANYTHING)
_CUSTOM = _complete(schemas.open_record("A custom resource."))


def schema_of(kind: kinds.Kind, version: str) -> schemas.Schema:
    """The schema of a whole object; of a custom one, where its definition says nothing of it.

    Of one whose definition has a schema only what all objects have is here.
    """
    if kind.custom is None:
        return _ALL[kind.group, version, kind.kind]
    return _ANYTHING if kind.custom[version].schema is None else _CUSTOM


def stored_schema(kind: kinds.Kind) -> schemas.Schema:
    """The schema of the form in which the objects of the kind are kept."""
    if kind.custom is not None:
        return _ANYTHING
    group = "" if kind.stored_as else kind.group
    return _ALL[group, kind.versions[0], kind.kind]
