"""What a request asks for beside its object: options in its query, or in the body of a deletion."""

from collections.abc import Mapping

from dra_driver.sim.api.kinds import problems
from dra_driver.sim.api.serving import routing
from dra_driver.sim.api.storing import codecs, deleting


def integer(query: Mapping[str, str], name: str) -> int | None:
    """The number that a parameter is; None if it is not there.

    Raises:
        problems.ApiError: 400, it is no number.
    """
    text = query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise problems.bad_request(f"{name}: Invalid value: {text!r}: must be a number") from None


def field_validation(request: routing.Request) -> str:
    """What becomes of unknown fields."""
    return request.query.get("fieldValidation") or "Warn"


def dry_run(request: routing.Request) -> bool:
    """Whether nothing is to be kept."""
    return request.query.get("dryRun") == "All"


def deletion(request: routing.Request) -> deleting.Options:
    """How something is to be deleted.

    Raises:
        problems.ApiError: 400, the body is none of options.
    """
    body = codecs.loads(request.body) if request.body else {}
    if not isinstance(body, dict):
        raise problems.bad_request("DeleteOptions: the body is not a JSON object")
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds")
    policy = body.get("propagationPolicy") or request.query.get("propagationPolicy")
    return deleting.Options(
        uid=preconditions.get("uid"),
        version=preconditions.get("resourceVersion"),
        grace_seconds=integer(request.query, "gracePeriodSeconds") if grace is None else grace,
        orphan=policy == "Orphan" or body.get("orphanDependents") is True,
        dry_run=dry_run(request) or "All" in (body.get("dryRun") or ()),
    )
