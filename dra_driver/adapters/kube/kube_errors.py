"""What the API server refuses: one error for each answer that a caller may want to tell apart."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from dra_driver import errors


class ApiError(errors.DriverError):
    """The API server refused: HTTP status, 0 without an answer, and the reason of its Status.

    `fields` are the paths of the fields that it names as wrong: `spec.devices[3].name`.
    `retry_after` are the seconds after which it wants to be asked again, if it says so.
    """

    def __init__(
        self,
        request: str,
        status: int,
        reason: str,
        message: str,
        *,
        fields: Iterable[str] = (),
        retry_after: float | None = None,
    ) -> None:
        outcome = f"{status} {reason}" if status else reason
        super().__init__(f"{request}: {outcome}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.fields = tuple(fields)
        self.retry_after = retry_after


class NotFound(ApiError):  # noqa: N818 - the API's own reason
    """404: no such object, or no such kind."""


class Conflict(ApiError):  # noqa: N818 - the API's own reason
    """409: it exists already, or was changed since it was read."""


class Gone(ApiError):  # noqa: N818 - the API's own reason
    """410: the resource version is too old; list again."""


class Forbidden(ApiError):  # noqa: N818 - the API's own reason
    """403: the role lacks a right; the message names it."""


class Refused(ApiError):  # noqa: N818 - the outcome
    """400, 413 or 422: the object is wrong, or an admission webhook or a policy says so."""


class Unavailable(ApiError, errors.Retryable):  # noqa: N818 - what it is
    """429, 5xx or no connection: may work in a moment."""


_BY_STATUS: Mapping[int, type[ApiError]] = MappingProxyType(
    {
        400: Refused,
        403: Forbidden,
        404: NotFound,
        409: Conflict,
        410: Gone,
        413: Refused,
        422: Refused,
    }
)
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})


def refusal(
    request: str, status: int, document: Mapping[str, Any], *, retry_after: str | None = None
) -> ApiError:
    """The error for an answer: HTTP status, its body, a `Status`, and its header `Retry-After`."""
    kind = Unavailable if status in _TRANSIENT else _BY_STATUS.get(status, ApiError)
    reason, message = document.get("reason") or "Unknown", document.get("message") or "no message"
    return kind(
        request,
        status,
        reason,
        message,
        fields=_fields(document),
        retry_after=_seconds(retry_after),
    )


def _seconds(header: str | None) -> float | None:
    """An API server gives whole seconds (apiserver, `RetryAfter`); a date is left to proxies."""
    return float(header) if header is not None and header.isascii() and header.isdigit() else None


def _fields(document: Mapping[str, Any]) -> Iterable[str]:
    """Of the causes (apimachinery, `StatusCause`); a proxy may answer anything."""
    details = document.get("details")
    causes = details.get("causes") if isinstance(details, Mapping) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, Mapping) and isinstance(cause.get("field"), str):
            yield cause["field"]
