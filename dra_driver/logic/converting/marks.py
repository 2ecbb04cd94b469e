"""What is written on a template that pods were converted to."""

from typing import Any

Json = dict[str, Any]

UNUSED_SINCE = "dra-driver.dev/unused-since"
"""Annotation of a template: when the controller found no pod that names it (RFC 3339)."""


def unused_since(template: Json) -> str | None:
    """What is written of when it was found unused; None if it was not."""
    annotations = template["metadata"].get("annotations") or {}
    found = annotations.get(UNUSED_SINCE)
    return None if found is None else str(found)


def is_going(template: Json) -> bool:
    """Whether it is being deleted, and only waits for its finalizers."""
    return bool(template["metadata"].get("deletionTimestamp"))
