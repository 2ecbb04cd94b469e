"""Defaults and rules of MutatingWebhookConfigurations.

Sources: Kubernetes 1.36, `pkg/apis/admissionregistration/v1/defaults.go` and
`pkg/apis/admissionregistration/validation/validation.go`.
"""

import base64
import binascii
import functools
from typing import Any
from urllib import parse

from dra_driver.sim.api.kinds import fields, label_selectors, strategies, syntax

Json = dict[str, Any]

MUTATING = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
VERSION = "v1"
"""Of AdmissionReviews, the only one that is spoken here."""

_DEFAULTS = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "reinvocationPolicy": "Never",
    "timeoutSeconds": 10,
}
_WORDS = {
    "failurePolicy": ("Fail", "Ignore"),
    "matchPolicy": ("Equivalent", "Exact"),
    "reinvocationPolicy": ("IfNeeded", "Never"),
    "sideEffects": ("None", "NoneOnDryRun"),
}
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_LONGEST_TIMEOUT = 30
_FEWEST_LABELS = 3


def _prepare(write: strategies.Write) -> None:
    for hook in write.new.get("webhooks") or ():
        for name, value in _DEFAULTS.items():
            hook.setdefault(name, value)
        hook.setdefault("namespaceSelector", {})
        hook.setdefault("objectSelector", {})
        for rule in hook.get("rules") or ():
            rule.setdefault("scope", "*")


def _validate(write: strategies.Write) -> fields.Errors:
    hooks = write.new.get("webhooks")
    found = fields.each(hooks, "webhooks", _hook_errors)
    names = [hook.get("name") for hook in hooks or ()]
    return found + [
        fields.duplicate(f"webhooks[{index}].name", name)
        for index, name in enumerate(names)
        if name and name in names[:index]
    ]


def _hook_errors(hook: Json, path: str) -> fields.Errors:
    found = _name_errors(hook.get("name") or "", f"{path}.name")
    for name, words in _WORDS.items():
        if hook.get(name) not in words:
            found += (
                [fields.not_supported(f"{path}.{name}", hook[name], words)]
                if hook.get(name)
                else [fields.required(f"{path}.{name}", f"must specify one of {', '.join(words)}")]
            )
    if not 1 <= hook["timeoutSeconds"] <= _LONGEST_TIMEOUT:
        detail = f"the timeout value must be between 1 and {_LONGEST_TIMEOUT} seconds"
        found.append(fields.invalid(f"{path}.timeoutSeconds", hook["timeoutSeconds"], detail))
    if VERSION not in (hook.get("admissionReviewVersions") or ()):
        place, given = f"{path}.admissionReviewVersions", hook.get("admissionReviewVersions")
        detail = "must include at least one of v1"
        found.append(fields.invalid(place, given, detail) if given else fields.required(place))
    if hook.get("matchConditions"):
        detail = "match conditions are not evaluated by this API server"
        found.append(fields.forbidden(f"{path}.matchConditions", detail))
    for name in ("namespaceSelector", "objectSelector"):
        found += label_selectors.errors(hook[name], f"{path}.{name}")
    found += _client_errors(hook.get("clientConfig") or {}, f"{path}.clientConfig")
    return found + fields.each(hook.get("rules"), f"{path}.rules", _rule_errors)


def _name_errors(name: str, path: str) -> fields.Errors:
    if not name:
        return [fields.required(path)]
    found = syntax.subdomain(name, path)
    if not found and len(name.split(".")) < _FEWEST_LABELS:
        detail = "should be a domain with at least three segments separated by dots"
        found.append(fields.invalid(path, name, detail))
    return found


def _client_errors(client: Json, path: str) -> fields.Errors:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [fields.required(path, "exactly one of url or service is required")]
    found = []
    if client.get("caBundle"):
        try:
            base64.b64decode(client["caBundle"], validate=True)
        except (binascii.Error, ValueError) as error:
            found.append(fields.invalid(f"{path}.caBundle", client["caBundle"], str(error)))
    if service is not None:
        return found + [
            fields.required(f"{path}.service.{name}", f"service {name} is required")
            for name in ("name", "namespace")
            if not service.get(name)
        ]
    return found + [fields.invalid(f"{path}.url", url, why) for why in _url_faults(str(url))]


def _url_faults(url: str) -> list[str]:
    form = "desired format: https://host[/path]"
    try:
        parts = parse.urlsplit(url)
        port = parts.port
    except ValueError as error:
        return [f"url must be a valid URL: {error}; {form}"]
    found = []
    if parts.scheme != "https":
        found.append(f"'https' is the only allowed URL scheme; {form}")
    if not parts.hostname or port == 0:
        found.append(f"host must be specified; {form}")
    if parts.username or parts.password:
        found.append("user information is not permitted in the URL")
    if parts.fragment:
        found.append("fragments are not permitted in the URL")
    if parts.query:
        found.append("query parameters are not permitted in the URL")
    return found


def _rule_errors(rule: Json, path: str) -> fields.Errors:
    found = [
        fields.required(f"{path}.{name}")
        for name in ("operations", "apiGroups", "apiVersions", "resources")
        if not rule.get(name)
    ]
    check = functools.partial(_word, words=_OPERATIONS)
    found += fields.each(rule.get("operations"), f"{path}.operations", check)
    return found + _word(rule["scope"], f"{path}.scope", words=_SCOPES)


def _word(value: Any, path: str, *, words: tuple[str, ...]) -> fields.Errors:
    return [] if value in words else [fields.not_supported(path, value, words)]


STRATEGY = strategies.Strategy(_prepare, _validate)
