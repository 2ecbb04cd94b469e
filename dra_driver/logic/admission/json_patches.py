"""What differs between two JSON values, as a JSON patch (RFC 6902)."""

from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]


def difference(old: object, new: object, path: str = "") -> Iterator[Json]:
    """The operations that make `new` of `old`, in an order of their own; none for equal values.

    Parts that are the same object are not looked into. A list that only has grown is added to; one
    that has shrunk is replaced.
    """
    if old is new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _of_objects(old, new, path)
    elif isinstance(old, list) and isinstance(new, list) and len(old) <= len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=False)):
            yield from difference(before, after, f"{path}/{index}")
        for added in new[len(old) :]:
            yield {"op": "add", "path": f"{path}/-", "value": added}
    elif type(old) is not type(new) or old != new:
        yield {"op": "replace", "path": path, "value": new}


def _of_objects(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Json]:
    for key in sorted({*old, *new}):
        place = f"{path}/{_token(key)}"
        if key not in new:
            yield {"op": "remove", "path": place}
        elif key not in old:
            yield {"op": "add", "path": place, "value": new[key]}
        else:
            yield from difference(old[key], new[key], place)


def _token(key: str) -> str:
    """A key in a JSON pointer (RFC 6901, section 3)."""
    return key.replace("~", "~0").replace("/", "~1")
