"""MutatingWebhookConfigurations: what is wrong with one, and what its webhooks are called for.

Source: Kubernetes 1.36, `pkg/apis/admissionregistration/validation/validation.go`, and
`staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook`.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any
from urllib import parse

from dra_driver.sim.api.kinds import fields, label_selectors, strategies, syntax

Json = dict[str, Any]

MUTATING = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
_POLICIES = ("Fail", "Ignore")
_REINVOCATIONS = ("IfNeeded", "Never")
_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_OPERATIONS = ("*", "CREATE", "UPDATE", "DELETE", "CONNECT")
_REVIEW = "v1"
_SECONDS = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """What is to be done with an object, as rules of webhooks see it. `labels` are the object's."""

    operation: str
    group: str
    version: str
    resource: str
    namespace_labels: Mapping[str, str]
    labels: Mapping[str, str]


def called(configurations: Iterable[Json], asked: Asked) -> list[Json]:
    """The webhooks that are called for it, in the order in which they are called."""
    by_name = sorted(configurations, key=lambda body: str(body["metadata"]["name"]))
    return [hook for body in by_name for hook in body.get("webhooks") or () if _is_for(hook, asked)]


def _is_for(hook: Json, asked: Asked) -> bool:
    return (
        any(_matches(rule, asked) for rule in hook.get("rules") or ())
        and label_selectors.matches(hook.get("namespaceSelector") or {}, asked.namespace_labels)
        and label_selectors.matches(hook.get("objectSelector") or {}, asked.labels)
    )


def _matches(rule: Json, asked: Asked) -> bool:
    wanted = (
        ("operations", asked.operation),
        ("apiGroups", asked.group),
        ("apiVersions", asked.version),
        ("resources", asked.resource),
    )
    return all({"*", value} & set(rule.get(name) or ()) for name, value in wanted)


def _prepare(write: strategies.Write) -> None:
    for hook in write.new.get("webhooks") or ():
        for name, value in (
            ("failurePolicy", "Fail"),
            ("matchPolicy", "Equivalent"),
            ("reinvocationPolicy", "Never"),
            ("timeoutSeconds", _SECONDS),
            ("namespaceSelector", {}),
            ("objectSelector", {}),
        ):
            hook.setdefault(name, value)
        for rule in hook.get("rules") or ():
            rule.setdefault("scope", "*")


def _validate(write: strategies.Write) -> fields.Errors:
    hooks = write.new.get("webhooks") or []
    found = fields.each(hooks, "webhooks", _hook)
    return found + fields.duplicates(hooks, "webhooks", lambda hook: hook.get("name", ""))


def _hook(hook: Json, path: str) -> fields.Errors:
    name = hook.get("name") or ""
    found = syntax.subdomain(name, f"{path}.name") if name else [fields.required(f"{path}.name")]
    if name and name.count(".") < 2:
        detail = "should be a domain with at least three segments separated by dots"
        found.append(fields.invalid(f"{path}.name", name, detail))
    for field, allowed in (
        ("failurePolicy", _POLICIES),
        ("reinvocationPolicy", _REINVOCATIONS),
        ("sideEffects", _SIDE_EFFECTS),
    ):
        if hook.get(field) not in allowed:
            found.append(fields.not_supported(f"{path}.{field}", hook.get(field), allowed))
    seconds = hook["timeoutSeconds"]
    if not isinstance(seconds, int) or not 1 <= seconds <= 30:
        detail = "the timeout value must be between 1 and 30 seconds"
        found.append(fields.invalid(f"{path}.timeoutSeconds", seconds, detail))
    versions = hook.get("admissionReviewVersions") or []
    if _REVIEW not in versions:
        detail = f"must include at least one of {_REVIEW}"
        found.append(fields.invalid(f"{path}.admissionReviewVersions", versions, detail))
    if hook.get("matchConditions"):
        detail = "are not evaluated by the embedded API server: leave them out"
        found.append(fields.forbidden(f"{path}.matchConditions", detail))
    for field in ("namespaceSelector", "objectSelector"):
        found += label_selectors.errors(hook.get(field) or {}, f"{path}.{field}")
    found += fields.each(hook.get("rules"), f"{path}.rules", _rule)
    return found + _client(hook.get("clientConfig") or {}, f"{path}.clientConfig")


def _rule(rule: Json, path: str) -> fields.Errors:
    names = ("operations", "apiGroups", "apiVersions", "resources")
    found = [fields.required(f"{path}.{name}") for name in names if not rule.get(name)]
    return found + [
        fields.not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS)
        for index, operation in enumerate(rule.get("operations") or ())
        if operation not in _OPERATIONS
    ]


def _client(config: Json, path: str) -> fields.Errors:
    if bool(config.get("url")) == bool(config.get("service")):
        return [fields.required(path, "exactly one of url or service is required")]
    if config.get("service"):
        return []
    address = parse.urlsplit(config["url"])
    if address.scheme != "https":
        detail = "'https' is the only allowed URL scheme"
        return [fields.invalid(f"{path}.url", address.scheme, detail)]
    return [] if address.hostname else [fields.invalid(f"{path}.url", "", "host must be specified")]


STRATEGY = strategies.Strategy(_prepare, _validate)
