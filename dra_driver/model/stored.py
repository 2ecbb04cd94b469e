"""The text of a small file that is kept: a version, a checksum over the content, the content.

    {"version": 1, "checksum": "sha256:…", "ledger": {…}}

A version rises when an older driver could not do with the file what it has to; a file of a higher
one is refused, not guessed at. What came later and an older driver does without stands beside the
content, in `more`, where that driver does not look, with a checksum of its own.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from dra_driver import errors

_BESIDE = "more"
_encoded = json.JSONEncoder(sort_keys=True).encode


def encode(
    noun: str,
    version: int,
    content: Mapping[str, Any],
    more: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """The text of a file with this content, which is JSON; `noun` is the field that it stands in.

    `more` is for those who know it. Equal content gives equal bytes.
    """
    document = {"version": version, "checksum": checksum(content), noun: content}
    if more:
        document[_BESIDE] = {**more, "checksum": checksum(dict(more))}
    return _lines(document, levels=2) + "\n"


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


def beside(text: str) -> dict[str, Any]:
    """What stands beside the content in a file's text, which `decode` takes; maybe nothing.

    Raises:
        errors.Rejected: it is damaged.
    """
    more = json.loads(text).get(_BESIDE, {})
    if not isinstance(more, dict):
        raise errors.Rejected(f"{_BESIDE!r} is no object but {more!r}")
    said = {key: value for key, value in more.items() if key != "checksum"}
    if more and more.get("checksum") != checksum(said):
        raise errors.Rejected(
            f"checksum {more.get('checksum')!r} does not match what stands beside the content"
        )
    return said


def checksum(content: Any) -> str:
    """What a file says of its content, however that is laid out."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def _lines(content: Any, levels: int, indent: str = " ") -> str:
    """A line for each field of so many levels.

    To indent all of it takes several times as long, and somebody waits for it.
    """
    if not levels or not isinstance(content, dict) or not content:
        return _encoded(content)
    lines = (
        f"{indent}{_encoded(key)}: {_lines(value, levels - 1, indent + ' ')}"
        for key, value in sorted(content.items())
    )
    return "{\n" + ",\n".join(lines) + f"\n{indent[1:]}}}"
