"""The text of a small file that is kept: a version, a checksum over the content, the content.

    {"version": 1, "checksum": "sha256:…", "ledger": {…}}

A version rises when an older driver could not do with the file what it has to; a file of a higher
one is refused, not guessed at.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from dra_driver import errors


def encode(noun: str, version: int, content: Mapping[str, Any]) -> str:
    """The text of a file with this content, which is JSON; `noun` is the field that it stands in.

    Equal content gives equal bytes.
    """
    document = {"version": version, "checksum": checksum(content), noun: content}
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def decode(
    text: str, noun: str, versions: Collection[int], *, needs_checksum: bool = True
) -> dict[str, Any]:
    """The content of a file.

    Without `needs_checksum` a file that has none is taken as it is: those of an older driver.

    Raises:
        errors.Rejected: the text is damaged, or of a version that is not among these.
    """
    try:
        document: dict[str, Any] = json.loads(text)
        version, content = document["version"], document[noun]
        said = document["checksum"] if needs_checksum else document.get("checksum")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise errors.Rejected(f"not a {noun} ({type(error).__name__}: {error})") from error
    if not isinstance(version, int) or version not in versions:
        raise errors.Rejected(
            f"version {version!r} is not one that this driver reads ({max(versions)} or less): "
            "was it written by a newer driver?"
        )
    if said is not None and said != checksum(content):
        raise errors.Rejected(f"checksum {said!r} does not match the content")
    if not isinstance(content, dict):
        raise errors.Rejected(f"content is not a {noun}: it is a {type(content).__name__}")
    return content


def checksum(content: Any) -> str:
    """What a file says of its content, however that is laid out."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
