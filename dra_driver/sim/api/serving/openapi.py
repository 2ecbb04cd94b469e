"""The OpenAPI documents that `kubectl` reads: to explain fields, and to see what it may send."""

from typing import Any

from dra_driver.sim.api.kinds import catalog, kinds, schemas, served_kinds

Json = dict[str, Any]
_INFO = {"title": "Kubernetes", "version": "v1"}
_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]
"""What kubectl looks for before it relies on the server to validate fields, or to run dry."""


def index(served: served_kinds.Table) -> Json:
    """`/openapi/v3`: where the document of each group and version is."""
    paths = {}
    for group, versions in served.versions.items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
    return {"paths": paths}


def document(group: str, version: str, served: served_kinds.Table) -> Json:
    """The document of one group and version."""
    paths: Json = {}
    components: Json = {}
    for kind in served.of(group, version):
        identity = {"group": group, "version": version, "kind": kind.kind}
        schema = _schema(kind, version, served.minor)
        components[_schema_name(kind, version)] = schema | {
            "x-kubernetes-group-version-kind": [identity]
        }
        paths |= _paths(kind, version, identity)
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": paths,
        "components": {"schemas": components},
    }


def _schema(kind: kinds.Kind, version: str, minor: int) -> Json:
    """Of a custom resource what its definition has, and what all objects have."""
    common = schemas.to_openapi(catalog.schema_of(kind, version), minor)
    written = None if kind.custom is None else kind.custom[version].schema
    if written is None:
        return common
    return {**written, "properties": {**(written.get("properties") or {}), **common["properties"]}}


def _schema_name(kind: kinds.Kind, version: str) -> str:
    group = kind.group.partition(".")[0] or "core"
    return f"io.k8s.api.{group}.{version}.{kind.kind}"


def _paths(kind: kinds.Kind, version: str, identity: Json) -> Json:
    prefix = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    reference = {"$ref": f"#/components/schemas/{_schema_name(kind, version)}"}
    content = {"application/json": {"schema": reference}}

    def operation(action: str) -> Json:
        return {
            "parameters": _PARAMETERS,
            "responses": {"200": {"description": "OK", "content": content}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": identity,
        }

    collection = f"{prefix}{scope}/{kind.plural}"
    return {
        collection: {"get": operation("list"), "post": operation("post")},
        f"{collection}/{{name}}": {
            "get": operation("get"),
            "put": operation("put"),
            "patch": operation("patch"),
            "delete": operation("delete"),
        },
    }
