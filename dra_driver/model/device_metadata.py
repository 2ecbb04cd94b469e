"""What is remembered of how a claim's devices are described in its containers: `described` of its
record.

What the files say is made anew from facts; here stands what those do not tell, so that the files
stay where they are, and their generations only rise.
"""

from collections.abc import Mapping
from typing import Literal

import pydantic

from dra_driver import errors
from dra_driver.model import prepared

VERSION = 1


class _Frozen(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


class Described(_Frozen):
    """A request of the claim, by its full name (`req`, or `req/alternative`).

    `generation` rises with each change of what is said of its devices, of which `digest` tells;
    it is 0 until something was said.
    """

    name: str
    generation: int = 0
    digest: str = ""


class Content(_Frozen):
    """The content: the requests that have a file, by their base names.

    `pod_claim_name` is what the pod calls a claim that was made from a template.
    """

    kind: Literal["files"] = "files"
    requests: Mapping[str, Described]
    pod_claim_name: str | None = None


NOTHING = Content(requests={})


def of(record: prepared.Record) -> Content | None:
    """What a record tells of files; None where there are none, or of a newer driver.

    Raises:
        errors.Rejected: it is damaged.
    """
    part = record.described
    if part is None or part.version != VERSION:
        return None
    try:
        return Content.model_validate(part.content)
    except pydantic.ValidationError as error:
        raise errors.Rejected(
            f"claim {record.ref}: `described` of its record does not tell of files: {error}"
        ) from error


def into(record: prepared.Record, content: Content | None) -> prepared.Record:
    """The record with this content; None: without."""
    part = None
    if content is not None:
        part = prepared.Part(version=VERSION, content=content.model_dump(mode="json"))
    return record.model_copy(update={"described": part})
