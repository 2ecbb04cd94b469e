"""CustomResourceDefinitions. A version without a schema is taken, and checks nothing.

Source: Kubernetes 1.36, `staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions`.
"""

from typing import Any

from dra_driver.sim.api.kinds import (
    custom_columns,
    custom_kinds,
    custom_rules,
    fields,
    served_kinds,
    strategies,
    structural,
    syntax,
)

Json = dict[str, Any]

_SCOPES = ("Cluster", "Namespaced")
_IMMUTABLE = "field is immutable"


def _prepare(write: strategies.Write) -> None:
    spec = write.new.setdefault("spec", {})
    names = spec.setdefault("names", {})
    if kind := names.get("kind"):
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})
    if write.old is None:
        told = {"status": "True", "lastTransitionTime": write.around.now}
        write.new["status"] = {
            "acceptedNames": dict(names),
            "storedVersions": [
                item.get("name", "") for item in spec.get("versions") or () if item.get("storage")
            ],
            "conditions": [
                {"type": "NamesAccepted", "reason": "NoConflicts"} | told,
                {"type": "Established", "reason": "InitialNamesAccepted"} | told,
            ],
        }


def _validate(write: strategies.Write) -> fields.Errors:
    spec, names = write.new["spec"], write.new["spec"]["names"]
    found = [
        fields.required(path)
        for path, value in (
            ("spec.group", spec.get("group")),
            ("spec.scope", spec.get("scope")),
            ("spec.names.plural", names.get("plural")),
            ("spec.names.kind", names.get("kind")),
        )
        if not value
    ]
    if found:
        return found
    name, wanted = write.new["metadata"].get("name", ""), f"{names['plural']}.{spec['group']}"
    if name != wanted:
        detail = 'must be spec.names.plural+"."+spec.group'
        found.append(fields.invalid("metadata.name", name, detail))
    found += syntax.subdomain(spec["group"], "spec.group")
    if spec["scope"] not in _SCOPES:
        found.append(fields.not_supported("spec.scope", spec["scope"], _SCOPES))
    return found + _version_errors(spec) + _clashes(spec) + _update_errors(write)


def _version_errors(spec: Json) -> fields.Errors:
    versions = spec.get("versions") or []
    path = "spec.versions"
    if not versions:
        return [fields.required(path)]
    found = [
        fields.required(f"{path}[{index}].name")
        for index, item in enumerate(versions)
        if not item.get("name")
    ]
    if sum(bool(item.get("storage")) for item in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        found.append(fields.invalid(path, versions, detail))
    if not any(item.get("served") for item in versions):
        detail = "must have at least one version marked as served version"
        found.append(fields.invalid(path, versions, detail))
    for index, item in enumerate(versions):
        found += _content_errors(item, index)
    return found + fields.duplicates(versions, path, lambda item: item.get("name", ""))


def _content_errors(version: Json, index: int) -> fields.Errors:
    """What is wrong with the schema and the columns of a version."""
    found: fields.Errors = []
    path = f"spec.versions[{index}]"
    if (columns := version.get("additionalPrinterColumns")) is not None:
        found += custom_columns.check(columns, f"{path}.additionalPrinterColumns")
    holder = version.get("schema", {})
    if not isinstance(holder, dict):
        return [*found, fields.invalid(f"{path}.schema", holder, "must be an object")]
    if (schema := holder.get("openAPIV3Schema")) is None:
        return found
    place = custom_kinds.place_of_schema(index)
    wrong = structural.check(schema, place)
    return found + (wrong or custom_rules.compile(schema, place)[1])


def _clashes(spec: Json) -> fields.Errors:
    """The names belong to kinds that are built in."""
    group, names = spec["group"], spec["names"]
    taken = [kind for kind in served_kinds.BUILT_IN if kind.group == group]
    found = []
    if any(kind.plural == names["plural"] for kind in taken):
        detail = "is the name of a resource of Kubernetes"
        found.append(fields.invalid("spec.names.plural", names["plural"], detail))
    if any(kind.kind == names["kind"] for kind in taken):
        detail = "is the name of a kind of Kubernetes"
        found.append(fields.invalid("spec.names.kind", names["kind"], detail))
    return found


def _update_errors(write: strategies.Write) -> fields.Errors:
    if write.old is None:
        return []
    new, old = write.new["spec"], write.old["spec"]
    return [
        fields.invalid(f"spec.{name}", new[name], _IMMUTABLE)
        for name in ("group", "scope")
        if new[name] != old[name]
    ]


STRATEGY = strategies.Strategy(_prepare, _validate)
