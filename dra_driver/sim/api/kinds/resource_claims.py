"""Defaults and rules for what a ResourceClaim, or the claims of a template, ask for.

Source: Kubernetes 1.36, `pkg/apis/resource/validation/validation.go`.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dra_driver.sim.api.kinds import (
    fields,
    metadata,
    resource_derivations,
    resource_gates,
    resource_schemas,
    schemas,
    strategies,
    syntax,
)

Json = dict[str, Any]
RequestNames = Mapping[str, frozenset[str]]
"""The names of requests, each with those of its alternatives."""
ExpressionCheck = Callable[[str], str | None]

MAX_REQUESTS = 32
_MAX_ALTERNATIVES = 8
_MAX_CONSTRAINTS = 32
MAX_CONFIGS = 32
_MAX_SELECTORS = 32
_LONGEST_EXPRESSION = 10 * 1024
_LONGEST_PARAMETERS = 10 * 1024
_ADMIN_LABEL = "resource.kubernetes.io/admin-access"
_MODES = ("All", "ExactCount")
_EFFECTS = ("NoSchedule", "NoExecute", "None")
_NO_EXPRESSION = "compilation failed: ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>'"
_NO_SUCH_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)


def default(spec: Json) -> None:
    """Sets what the spec of a claim leaves open."""
    devices = spec.setdefault("devices", {})
    for request in _device_requests(devices):
        if not request.get("allocationMode"):
            request["allocationMode"] = "ExactCount"
        if request["allocationMode"] == "ExactCount" and not request.get("count"):
            request["count"] = 1
        default_tolerations(request)


def default_tolerations(body: Json) -> None:
    """Sets the operator of tolerations that have none."""
    for toleration in body.get("tolerations") or ():
        if not toleration.get("operator"):
            toleration["operator"] = "Equal"


def _device_requests(devices: Json) -> Iterator[Json]:
    for request in devices.get("requests") or ():
        if "exactly" in request:
            yield request["exactly"]
        yield from request.get("firstAvailable") or ()


def request_names(spec: Json) -> RequestNames:
    """The names that constraints, configs and results may refer to."""
    return {
        request.get("name", ""): frozenset(
            alternative.get("name", "") for alternative in request.get("firstAvailable") or ()
        )
        for request in spec["devices"].get("requests") or ()
    }


def validate(spec: Json, path: str, around: strategies.Surroundings) -> fields.Errors:
    """What is wrong with the spec of a claim."""
    devices, place = spec["devices"], f"{path}.devices"
    names = request_names(spec)
    check = functools.partial(_request_errors, expressions=around.expression_check)
    constraint = functools.partial(
        _constraint_errors,
        names=names,
        distinct=resource_gates.CONSUMABLE_CAPACITY not in around.disabled_gates,
        minor=around.minor,
    )
    config = functools.partial(_config_errors, names=names)
    return [
        *fields.distinct(
            devices.get("requests"),
            MAX_REQUESTS,
            f"{place}.requests",
            check,
            lambda request: request.get("name", ""),
        ),
        *resource_derivations.errors(devices, place, around),
        *fields.listed(
            devices.get("constraints"), _MAX_CONSTRAINTS, f"{place}.constraints", constraint
        ),
        *fields.listed(devices.get("config"), MAX_CONFIGS, f"{place}.config", config),
    ]


def admin_errors(
    requests: Any, path: str, namespace: str, around: strategies.Surroundings
) -> fields.Errors:
    """Admin access where the namespace does not allow it; of several the first is told."""
    for index, request in enumerate(requests or ()):
        if (request.get("exactly") or request).get("adminAccess"):
            if around.namespace_labels(namespace).get(_ADMIN_LABEL) == "true":
                return []
            detail = (
                f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the "
                "containing namespace"
            )
            return [fields.forbidden(f"{path}[{index}].adminAccess", detail)]
    return []


def _request_errors(request: Json, path: str, *, expressions: ExpressionCheck) -> fields.Errors:
    found = syntax.label(request.get("name", ""), f"{path}.name")
    alternatives, exactly = request.get("firstAvailable"), request.get("exactly")
    allowed = "exactly one of `exactly` or `firstAvailable` is required"
    if not alternatives and exactly is None:
        return [*found, fields.required(path, allowed)]
    if alternatives and exactly is not None:
        detail = f"{allowed}, but multiple fields are set"
        return [*found, fields.invalid(path, None, detail)]
    if exactly is not None:
        return found + _device_request_errors(exactly, f"{path}.exactly", expressions)

    def check(alternative: Json, place: str) -> fields.Errors:
        return [
            *syntax.label(alternative.get("name", ""), f"{place}.name"),
            *_device_request_errors(alternative, place, expressions),
        ]

    return found + fields.distinct(
        alternatives,
        _MAX_ALTERNATIVES,
        f"{path}.firstAvailable",
        check,
        lambda alternative: alternative.get("name", ""),
    )


def _device_request_errors(request: Json, path: str, expressions: ExpressionCheck) -> fields.Errors:
    name = request.get("deviceClassName")
    place = f"{path}.deviceClassName"
    return [
        *(syntax.subdomain(name, place) if name else [fields.required(place)]),
        *selector_errors(request.get("selectors"), f"{path}.selectors", expressions),
        *_mode_errors(request, path),
        # As many as anybody likes, and capacities of any name.
        *fields.each(request.get("tolerations"), f"{path}.tolerations", toleration_errors),
    ]


def selector_errors(selectors: Any, path: str, expressions: ExpressionCheck) -> fields.Errors:
    """What is wrong with the selectors of a request or a class."""

    def check(selector: Json, place: str) -> fields.Errors:
        cel = selector.get("cel")
        if cel is None:
            return [fields.required(f"{place}.cel")]
        expression, place = cel.get("expression") or "", f"{place}.cel.expression"
        if found := syntax.text(expression, place, _LONGEST_EXPRESSION):
            return found
        problem = expressions(expression) if expression else _NO_EXPRESSION
        return [] if problem is None else [fields.invalid(place, expression, problem)]

    return fields.listed(selectors, _MAX_SELECTORS, path, check)


def _mode_errors(request: Json, path: str) -> fields.Errors:
    mode, count = request.get("allocationMode"), request.get("count", 0)
    if mode not in _MODES:
        return [fields.not_supported(f"{path}.allocationMode", mode, _MODES)]
    if mode == "All" and count != 0:
        detail = "must not be specified when allocationMode is 'All'"
        return [fields.invalid(f"{path}.count", count, detail)]
    if mode == "ExactCount" and count <= 0:
        return [fields.invalid(f"{path}.count", count, "must be greater than zero")]
    return []


def toleration_errors(toleration: Json, path: str) -> fields.Errors:
    """What is wrong with a toleration of a request, or of an allocated device."""
    found: fields.Errors = []
    if toleration.get("key"):
        found += syntax.label_key(toleration["key"], f"{path}.key")
    operator, value = toleration.get("operator"), toleration.get("value")
    if operator == "Exists":
        if value:
            detail = "must be empty for operator `Exists`"
            found.append(fields.invalid(f"{path}.value", value, detail))
    elif operator == "Equal":
        found += syntax.label_value(value, f"{path}.value")
    else:
        found.append(fields.not_supported(f"{path}.operator", operator, ("Equal", "Exists")))
    effect = toleration.get("effect")
    if effect and effect not in _EFFECTS:
        found.append(fields.not_supported(f"{path}.effect", effect, _EFFECTS))
    return found


def _constraint_errors(
    constraint: Json, path: str, *, names: RequestNames, distinct: bool, minor: int
) -> fields.Errors:
    found = reference_list_errors(constraint.get("requests"), f"{path}.requests", names)
    match, differ = constraint.get("matchAttribute"), constraint.get("distinctAttribute")
    if match is not None:
        return found + syntax.fully_qualified_name(match, f"{path}.matchAttribute", minor=minor)
    if differ is not None:
        place = f"{path}.distinctAttribute"
        return found + syntax.fully_qualified_name(differ, place, minor=minor)
    if distinct:
        # The words of the real server, which looks at the first only where both are given.
        detail = (
            'exactly one of "matchAttribute" or "distinctAttribute" is required, '
            "but multiple fields are set"
        )
        return [*found, fields.required(path, detail)]
    return [*found, fields.required(f"{path}.matchAttribute")]


def _config_errors(config: Json, path: str, *, names: RequestNames) -> fields.Errors:
    found = reference_list_errors(config.get("requests"), f"{path}.requests", names)
    return found + opaque_errors(config, path)


def reference_list_errors(references: Any, path: str, names: RequestNames) -> fields.Errors:
    """What is wrong with a list of references to requests."""
    check = functools.partial(reference_errors, names=names)
    return fields.distinct(references, MAX_REQUESTS, path, check)


def reference_errors(reference: str, path: str, *, names: RequestNames) -> fields.Errors:
    """What is wrong with a reference to a request: `request`, `request/alternative`."""
    parts = reference.split("/")
    if len(parts) > 2:
        return [fields.invalid(path, reference, _NO_SUCH_REQUEST)]
    found = [error for part in parts for error in syntax.label(part, path)]
    known = parts[0] in names and (len(parts) == 1 or parts[1] in names[parts[0]])
    return found if known else [*found, fields.invalid(path, reference, _NO_SUCH_REQUEST)]


def opaque_errors(config: Json, path: str) -> fields.Errors:
    """What is wrong with the parameters of a config."""
    opaque, place = config.get("opaque"), f"{path}.opaque"
    if opaque is None:
        return [fields.required(place)]
    return [
        *syntax.driver(opaque.get("driver"), f"{place}.driver"),
        *syntax.json_object(opaque.get("parameters"), f"{place}.parameters", _LONGEST_PARAMETERS),
    ]


def _prepare_template(write: strategies.Write) -> None:
    spec = write.new.setdefault("spec", {}).setdefault("spec", {})
    resource_gates.drop_disabled(write, resource_gates.CLAIM)
    default(spec)


def _validate_template(write: strategies.Write) -> fields.Errors:
    spec = write.new["spec"]
    if write.old is not None:
        return immutable_errors(resource_schemas.TEMPLATE_SPEC, spec, write.old["spec"], "spec")
    requests = spec["spec"]["devices"].get("requests")
    namespace = write.new["metadata"]["namespace"]
    return [
        *admin_errors(requests, "spec.devices.requests", namespace, write.around),
        *metadata.validate_template(spec.get("metadata") or {}, "spec.metadata"),
        *validate(spec["spec"], "spec.spec", write.around),
    ]


TEMPLATE = strategies.Strategy(_prepare_template, _validate_template)


def immutable_errors(schema: schemas.Schema, new: Json, old: Json, path: str) -> fields.Errors:
    """A value that is not what it was; an empty list is as none."""
    if schemas.as_written(schema, new) == schemas.as_written(schema, old):
        return []
    return [fields.invalid(path, new, "field is immutable")]


def _prepare_class(write: strategies.Write) -> None:
    write.new.setdefault("spec", {})
    resource_gates.drop_disabled(write, resource_gates.CLASS)


def _validate_class(write: strategies.Write) -> fields.Errors:
    spec = write.new["spec"]
    old = write.old["spec"] if write.old is not None else {}
    selectors = spec.get("selectors")
    # An expression that has been accepted is not compiled again.
    stored = selectors == old.get("selectors")
    expressions = (lambda _expression: None) if stored else write.around.expression_check
    name = spec.get("extendedResourceName")
    return [
        *selector_errors(selectors, "spec.selectors", expressions),
        *fields.listed(spec.get("config"), MAX_CONFIGS, "spec.config", opaque_errors),
        *(syntax.extended_resource(name, "spec.extendedResourceName") if name is not None else ()),
    ]


CLASS = strategies.Strategy(_prepare_class, _validate_class)
