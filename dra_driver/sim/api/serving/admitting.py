"""Mutating webhooks: who is asked about an object that is to be created, and what they make of it.

They are asked before the store is: a webhook may well ask this server for something meanwhile.
Source: Kubernetes 1.36, `staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook` (mutating
dispatcher, errors, request).
"""

import base64
import copy
import dataclasses
import http.client
import json
import ssl
import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from urllib import parse

from dra_driver.sim.api.kinds import problems, webhook_rules
from dra_driver.sim.api.serving import representing, routing
from dra_driver.sim.api.storing import codecs, patching, registry

Json = dict[str, Any]

_VERSION = "admission.k8s.io/v1"
_LARGEST_ANSWER = 8 * 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Admission:
    """A create that webhooks are asked about. `ask` takes as long as they take."""

    request: routing.Request
    target: routing.Target
    body: Json
    hooks: Sequence[Json]
    user: Mapping[str, Any] = dataclasses.field(
        default_factory=lambda: {"username": "embedded", "groups": ["system:masters"]}
    )

    def ask(self) -> routing.Request:
        """The request with what webhooks made of its object, and their warnings.

        Raises:
            problems.ApiError: one denies it, or does not answer and is not to be ignored.
        """
        body, warnings = self.body, []
        changed_last = -1
        for index, hook in enumerate(self.hooks):
            changed, said = self._asked(hook, body)
            warnings += said
            if changed != body:
                body, changed_last = changed, index
        for index, hook in enumerate(self.hooks):
            # What a later one changed is news for an earlier one that wants to hear of it.
            if index < changed_last and hook.get("reinvocationPolicy") == "IfNeeded":
                body, said = self._asked(hook, body)
                warnings += said
        headers = {**self.request.headers, "content-type": representing.JSON}
        if self.target.verb == "patch":
            headers["content-type"] = patching.APPLY_PATCH
        return dataclasses.replace(
            self.request, body=codecs.dumps(body), headers=headers, warnings=tuple(warnings)
        )

    def _asked(self, hook: Json, body: Json) -> tuple[Json, list[str]]:
        name, review = str(hook["name"]), self._review(body)
        try:
            answered = _call(hook, review)
            response = _response(answered, review["request"]["uid"])
        except (OSError, http.client.HTTPException, ValueError) as error:
            if hook.get("failurePolicy") == "Ignore":
                return body, []
            raise _failed(name, str(error)) from error
        if not response.get("allowed"):
            raise _denied(name, response.get("status") or {})
        warnings = [str(text) for text in response.get("warnings") or ()]
        if not response.get("patch"):
            return body, warnings
        try:
            patch = json.loads(base64.b64decode(response["patch"], validate=True))
            return patching.json_patch(copy.deepcopy(body), patch), warnings
        except (ValueError, TypeError, problems.ApiError) as error:
            raise _failed(name, f"its patch cannot be applied: {error}") from error

    def _review(self, body: Json) -> Json:
        kind, version = self.target.kind, self.target.version
        named = {"group": kind.group, "version": version, "kind": kind.kind}
        resource = {"group": kind.group, "version": version, "resource": kind.plural}
        dry_run = self.request.query.get("dryRun") == "All"
        name = self.target.name or (body.get("metadata") or {}).get("name")
        return {
            "apiVersion": _VERSION,
            "kind": "AdmissionReview",
            "request": {
                "uid": str(uuid.uuid4()),
                "kind": named,
                "resource": resource,
                "requestKind": named,
                "requestResource": resource,
                **({"name": name} if name else {}),
                **({"namespace": self.target.namespace} if self.target.namespace else {}),
                "operation": "CREATE",
                "userInfo": dict(self.user),
                "object": body,
                "oldObject": None,
                "dryRun": dry_run,
                "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
            },
        }


def admission(
    request: routing.Request, target: routing.Target | None, objects: registry.Registry
) -> Admission | None:
    """What webhooks have to be asked before the request is done; None if there is nothing."""
    configurations = list(objects.store.items(webhook_rules.MUTATING))
    if target is None or not configurations or not _creates(request, target, objects):
        return None
    try:
        body = codecs.loads(request.body)
    except problems.ApiError:
        return None  # Whoever decodes it says what is wrong.
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        return None
    namespace = objects.store.get("namespaces", ("", target.namespace))
    asked = webhook_rules.Asked(
        "CREATE",
        target.kind.group,
        target.version,
        target.kind.plural,
        _labels(namespace or {}),
        _labels(body),
    )
    hooks = webhook_rules.called(configurations, asked)
    if not hooks:
        return None
    if target.namespace:
        body = body | {"metadata": {"namespace": target.namespace} | (body.get("metadata") or {})}
    return Admission(request, target, body, hooks)


def _creates(request: routing.Request, target: routing.Target, objects: registry.Registry) -> bool:
    if target.verb == "create":
        return not target.subresource and not target.name
    # A server-side apply of what is not there.
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    key = (target.namespace, target.name)
    return (
        target.verb == "patch"
        and content_type == patching.APPLY_PATCH
        and not target.subresource
        and objects.store.get(target.kind.storage, key) is None
    )


def _labels(body: Json) -> Mapping[str, str]:
    found = (body.get("metadata") or {}).get("labels")
    return found if isinstance(found, dict) else {}


def _call(hook: Json, review: Json) -> Any:
    """What the webhook answers, decoded.

    Raises:
        OSError, http.client.HTTPException, ValueError: it does not, or not as it should.
    """
    config = hook["clientConfig"]
    if config.get("service"):
        service = config["service"]
        raise ConnectionError(
            f'failed to call webhook: service "{service.get("name")}" in namespace '
            f'"{service.get("namespace")}" cannot be reached from the embedded API server: '
            "write clientConfig.url"
        )
    seconds = float(hook.get("timeoutSeconds") or 10)
    where = parse.urlsplit(config["url"])
    authority = base64.b64decode(config.get("caBundle") or "").decode()
    context = ssl.create_default_context(cadata=authority or None)
    connection = http.client.HTTPSConnection(
        str(where.hostname), where.port or 443, timeout=seconds, context=context
    )
    try:
        path = f"{where.path or '/'}?timeout={seconds:g}s"
        headers = {"Content-Type": representing.JSON, "Accept": representing.JSON}
        connection.request("POST", path, codecs.dumps(review), headers)
        answer = connection.getresponse()
        text = answer.read(_LARGEST_ANSWER)
        if answer.status != http.client.OK:
            raise ValueError(f"the server rejected our request: {answer.status} {text[:300]!r}")
        return json.loads(text)
    except (OSError, http.client.HTTPException) as error:
        posted = f'failed to call webhook: Post "{config["url"]}?timeout={seconds:g}s"'
        raise ConnectionError(f"{posted}: {error}") from error
    finally:
        connection.close()


def _response(answered: Any, uid: str) -> Json:
    answered = answered if isinstance(answered, dict) else {}
    response: Json = answered.get("response") or {}
    if answered.get("apiVersion") != _VERSION or answered.get("kind") != "AdmissionReview":
        raise ValueError(f"expected webhook response of {_VERSION}, Kind=AdmissionReview")
    if not isinstance(response, dict) or response.get("uid") != uid:
        raise ValueError(f'expected response.uid="{uid}", got {response!r:.200}')
    if response.get("patch") and response.get("patchType") != "JSONPatch":
        raise ValueError(f"unsupported patch type {response.get('patchType')!r}")
    return response


def _failed(name: str, why: str) -> problems.ApiError:
    message = f'Internal error occurred: failed calling webhook "{name}": {why}'
    details = {"causes": [{"message": f'failed calling webhook "{name}": {why}'}]}
    return problems.ApiError(problems.Problem(500, "InternalError", message, details))


def _denied(name: str, status: Json) -> problems.ApiError:
    denied = f'admission webhook "{name}" denied the request'
    reason, message = status.get("reason") or "", status.get("message") or ""
    if message or reason:
        told = f"{denied}: {message or reason}"
    else:
        told = f"{denied} without explanation"
    code = status.get("code")
    return problems.ApiError(
        problems.Problem(
            code if isinstance(code, int) and code >= 400 else 400,
            str(reason),
            told,
            status.get("details") or {},
        )
    )
