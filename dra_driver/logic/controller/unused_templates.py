"""Which templates of converted pods nobody uses: they are marked, and after a while removed.

A mark is in the template itself, so that it outlives the controller, and so that the webhook can
take it away before it lets a pod in that names the template.
"""

import dataclasses
import datetime as dt
import enum
from collections.abc import Collection, Iterable
from typing import Any

from dra_driver.logic.converting import conversion, marks

Json = dict[str, Any]

LABELS = f"{conversion.CONVERTED}={conversion.Door.WEBHOOK}"
"""Selects the templates that the webhook has made; those of people are theirs."""


class Step(enum.StrEnum):
    """What is done with a template."""

    MARK = "mark"
    UNMARK = "unmark"
    REMOVE = "remove"


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Template:
    """A template, as it was read. `since` is its mark as written; None where there is none."""

    namespace: str
    name: str
    uid: str
    version: str
    since: str | None = None

    def __str__(self) -> str:
        """As in messages."""
        return f"ResourceClaimTemplate {self.namespace}/{self.name} ({self.uid})"


def of_template(body: Json) -> Template | None:
    """The template, of which `metadata` is enough; None for one that is being deleted."""
    metadata = body["metadata"]
    if marks.is_going(body):
        return None
    return Template(
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        metadata["resourceVersion"],
        marks.unused_since(body),
    )


def named(pod: Json) -> frozenset[str]:
    """The names of templates that a pod has claims of."""
    claims = (pod.get("spec") or {}).get("resourceClaims") or ()
    return frozenset(
        each["resourceClaimTemplateName"]
        for each in claims
        if each.get("resourceClaimTemplateName")
    )


def steps(
    found: Iterable[Template],
    used: Collection[tuple[str, str]],
    *,
    now: dt.datetime,
    seconds: float,
) -> list[tuple[Template, Step]]:
    """What is to be done, in order. `used` are namespaces and names that pods have.

    A mark that cannot be read, or is of a time that is still to come, is made anew.
    """
    decided = ((each, _step(each, used, now, seconds)) for each in sorted(found))
    return [(each, step) for each, step in decided if step is not None]


def patch(template: Template, step: Step, now: dt.datetime) -> Json:
    """The merge patch that marks a template, or takes its mark away; for this version of it."""
    mark = written(now) if step is Step.MARK else None
    return {
        "metadata": {
            "uid": template.uid,
            "resourceVersion": template.version,
            "annotations": {marks.UNUSED_SINCE: mark},
        }
    }


def written(moment: dt.datetime) -> str:
    """A time as it is in a mark (RFC 3339)."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _step(
    template: Template, used: Collection[tuple[str, str]], now: dt.datetime, seconds: float
) -> Step | None:
    if (template.namespace, template.name) in used:
        return None if template.since is None else Step.UNMARK
    since = _read(template.since)
    if since is None or since > now:
        return Step.MARK
    return Step.REMOVE if (now - since).total_seconds() >= seconds else None


def _read(mark: str | None) -> dt.datetime | None:
    try:
        found = dt.datetime.fromisoformat(mark or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
