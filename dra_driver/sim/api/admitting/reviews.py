"""AdmissionReviews: what a webhook is asked, and what is read from its answer.

Sources: `k8s.io/api/admission/v1`, `k8s.io/apiserver/pkg/admission/plugin/webhook/request`
(VerifyAdmissionResponse) and `.../webhook/errors/statuserror.go`.
"""

import base64
import binascii
import dataclasses
from typing import Any

from dra_driver.sim.api.admitting import calling, matching
from dra_driver.sim.api.kinds import problems
from dra_driver.sim.api.storing import codecs

Json = dict[str, Any]

_VERSION = "admission.k8s.io/v1"
_KIND = "AdmissionReview"
_LEAST_CODE = 400
_USER = {"username": "embedded-cluster", "groups": ["system:masters", "system:authenticated"]}
"""Who has the token of an embedded API server, which may do all."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a webhook has said. `patch` is a list of operations, as it came; None: no change."""

    allowed: bool
    patch: Any = None
    status: Json | None = None
    warnings: tuple[str, ...] = ()


def question(created: matching.Created, version: str, *, uid: str, dry_run: bool) -> Json:
    """The review that shows the object in `version`."""
    kind = created.kind

    def named(shown: str, key: str, word: str) -> Json:
        return {"group": kind.group, "version": shown, key: word}

    request: Json = {
        "uid": uid,
        "kind": named(version, "kind", kind.kind),
        "resource": named(version, "resource", kind.plural),
        "requestKind": named(created.version, "kind", kind.kind),
        "requestResource": named(created.version, "resource", kind.plural),
        "operation": "CREATE",
        "userInfo": _USER,
        "object": codecs.encode(kind, version, created.body),
        "oldObject": None,
        "dryRun": dry_run,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    if created.name:
        request["name"] = created.name
    if created.namespace:
        request["namespace"] = created.namespace
    return {"kind": _KIND, "apiVersion": _VERSION, "request": request}


def read(review: Any, uid: str) -> Answer:
    """What a decoded answer says.

    Raises:
        calling.CallError: it is none to the question with that `uid`.
    """
    body = review if isinstance(review, dict) else {}
    if (body.get("apiVersion"), body.get("kind")) != (_VERSION, _KIND):
        raise calling.CallError(
            f"expected webhook response of {_VERSION}, Kind={_KIND}, got "
            f"{body.get('apiVersion', '')}, Kind={body.get('kind', '')}"
        )
    response = body.get("response")
    if not isinstance(response, dict):
        raise calling.CallError("webhook response was absent")
    if response.get("uid") != uid:
        raise calling.CallError(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    return Answer(
        allowed=response.get("allowed") is True,
        patch=_patch(response),
        status=response.get("status") if isinstance(response.get("status"), dict) else None,
        warnings=tuple(map(str, response.get("warnings") or ())),
    )


def _patch(response: Json) -> Any:
    patch, patch_type = response.get("patch"), response.get("patchType")
    if not patch:
        if patch_type:
            raise calling.CallError("webhook returned response.patchType but not response.patch")
        return None
    if patch_type != "JSONPatch":
        if patch_type is None:
            raise calling.CallError("webhook returned response.patch but not response.patchType")
        raise calling.CallError(
            f'invalid webhook response.patchType, expected "JSONPatch", got "{patch_type}"'
        )
    try:
        return codecs.loads(base64.b64decode(patch, validate=True)) or None
    except (binascii.Error, ValueError, TypeError, problems.ApiError) as error:
        raise problems.internal(str(error)) from error


def denied(name: str, status: Json | None) -> problems.ApiError:
    """The failure that a webhook's answer makes of a request."""
    status = status or {}
    said = status.get("message") or status.get("reason")
    head = f'admission webhook "{name}" denied the request'
    code, details = status.get("code"), status.get("details")
    return problems.ApiError(
        problems.Problem(
            code=max(code, _LEAST_CODE) if isinstance(code, int) else _LEAST_CODE,
            reason=str(status.get("reason") or ""),
            message=f"{head}: {said}" if said else f"{head} without explanation",
            details=details if isinstance(details, dict) else {},
        )
    )
