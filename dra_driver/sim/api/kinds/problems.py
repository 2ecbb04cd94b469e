"""What the API server answers when it does not do what was asked: `Status` objects.

Codes, reasons and texts are those of `k8s.io/apimachinery/pkg/api/errors`.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from dra_driver import errors
from dra_driver.model import texts
from dra_driver.sim.api.kinds import fields, kinds

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """The facts of a failure `Status`."""

    code: int
    reason: str
    message: str
    details: Json = dataclasses.field(default_factory=dict)

    def status(self) -> Json:
        """The `Status` object as it is sent."""
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            body["details"] = self.details
        return body


class ApiError(errors.Rejected):
    """A request that is answered with a failure `Status`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.warnings: tuple[str, ...] = ()
        """What is worth a warning about the request, besides."""


@contextlib.contextmanager
def warned(warnings: Sequence[str]) -> Iterator[None]:
    """Failures inside the block are answered with these warnings, as they are at its end."""
    try:
        yield
    except ApiError as error:
        error.warnings = tuple(warnings)
        raise


def _details(kind: kinds.Kind, name: str) -> Json:
    details: Json = {"name": name}
    if kind.group:
        details["group"] = kind.group
    return details | {"kind": kind.plural}


def not_found(kind: kinds.Kind, name: str) -> ApiError:
    """404: there is no such object."""
    message = f'{kind.resource} "{name}" not found'
    return ApiError(Problem(404, "NotFound", message, _details(kind, name)))


def already_exists(kind: kinds.Kind, name: str) -> ApiError:
    """409: the name is taken."""
    message = f'{kind.resource} "{name}" already exists'
    return ApiError(Problem(409, "AlreadyExists", message, _details(kind, name)))


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def conflict(kind: kinds.Kind, name: str, why: str = MODIFIED) -> ApiError:
    """409: the object is not in the state that the request was made for."""
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiError(Problem(409, "Conflict", message, _details(kind, name)))


def forbidden(kind: kinds.Kind, name: str, why: str) -> ApiError:
    """403: a rule other than the object's own syntax is against it."""
    named = f' "{name}"' if name else ""
    message = f"{kind.resource}{named} is forbidden: {why}"
    return ApiError(Problem(403, "Forbidden", message, _details(kind, name)))


def invalid(kind: kinds.Kind, name: str, found: Sequence[fields.FieldError]) -> ApiError:
    """422: fields of the object are wrong; each is a cause."""
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    texts = list(dict.fromkeys(str(error) for error in found))
    listed = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = _details(kind, name) | {
        "kind": kind.kind,
        "causes": [
            {"reason": error.reason, "message": error.text, "field": error.field} for error in found
        ],
    }
    message = f'{qualified} "{name}" is invalid: {listed}'
    return ApiError(Problem(422, "Invalid", message, details))


@dataclasses.dataclass(frozen=True, slots=True)
class Denial:
    """What a validating webhook has against an object, and against which of its fields."""

    why: str
    fields: tuple[str, ...] = ()


def denied(denial: Denial) -> ApiError:
    """403, as most validating webhooks have it."""
    message = f'admission webhook "policy.example.com" denied the request: {denial.why}'
    causes = [{"message": denial.why, "field": field} for field in denial.fields]
    details = {"causes": causes} if causes else {}
    return ApiError(Problem(403, "Forbidden", message, details))


def bad_request(message: str) -> ApiError:
    """400: the request cannot be understood."""
    return ApiError(Problem(400, "BadRequest", message))


def expired(message: str) -> ApiError:
    """410: the version asked for is no longer known; the client has to list again."""
    return ApiError(Problem(410, "Expired", message))


def too_large_version(asked: int, current: int) -> ApiError:
    """504: the version asked for has not been reached yet."""
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return ApiError(Problem(504, "Timeout", message, details))


def method_not_allowed(kind: kinds.Kind, verb: str) -> ApiError:
    """405: the resource does not have that verb."""
    message = f"{verb} is not supported on resources of kind {kind.resource!r}"
    details = _details(kind, "")
    details.pop("name")
    return ApiError(Problem(405, "MethodNotAllowed", message, details))


def internal(why: str) -> ApiError:
    """500: something that the server needs for the answer does not work."""
    message = f"Internal error occurred: {why}"
    return ApiError(Problem(500, "InternalError", message, {"causes": [{"message": why}]}))


def unsupported_media_type(content_type: str, accepted: Sequence[str]) -> ApiError:
    """415: the body is in a form that is not read here."""
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
        + f" (got {content_type!r})"
    )
    return ApiError(Problem(415, "UnsupportedMediaType", message))


def unprocessable(why: str) -> ApiError:
    """422: the request is understood, but cannot be carried out on this object."""
    message = "the server rejected our request due to an error in our request"
    details = {"causes": [{"message": why}]}
    return ApiError(Problem(422, "Invalid", f"{message}: {why}", details))


def too_large(limit: int) -> ApiError:
    """413: the body is larger than the server reads."""
    message = f"Request entity too large: limit is {limit}"
    return ApiError(Problem(413, "RequestEntityTooLarge", message))


def only_as_json(kind: str, others: Sequence[str]) -> ApiError:
    """415: objects of this kind are not read as protobuf."""
    message = (
        f"{kind} is only accepted as JSON; as protobuf, which `kubectl create` sends by itself, "
        f"only {', '.join(others)}. Use `kubectl create ... --dry-run=client -o yaml | "
        "kubectl apply -f -`"
    )
    return ApiError(Problem(415, "UnsupportedMediaType", message))


def unauthorized() -> ApiError:
    """401: the token of the kubeconfig is missing, or is another one."""
    return ApiError(Problem(401, "Unauthorized", "Unauthorized"))


def wrong_host(host: str) -> ApiError:
    """403: the server was called by a name that is none of its own, as pages in a browser do."""
    message = (
        f"Host {texts.quoted(host)} is not allowed: call the server by 127.0.0.1, [::1] or "
        "localhost, as the kubeconfig does"
    )
    return ApiError(Problem(403, "Forbidden", message))


def no_such_path() -> ApiError:
    """404: neither a resource nor another endpoint is there."""
    return ApiError(Problem(404, "NotFound", "the server could not find the requested resource"))


def injected(code: int, reason: str, message: str, retry_after: int | None) -> ApiError:
    """A failure that a test asked for."""
    details = {"retryAfterSeconds": retry_after} if retry_after is not None else {}
    return ApiError(Problem(code, reason, message, details))
