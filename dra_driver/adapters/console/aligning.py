"""Which item of a list has become which of another one."""

import difflib
import json
from collections.abc import Iterator, Sequence
from typing import Any

Pair = tuple[int | None, int | None]
"""Places in the old list and the new one; None: it is gone, or is new."""


def same(one: Any, other: Any) -> bool:
    """Whether two values of JSON are alike: true is not 1. The order of keys means nothing."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def aligned(old: Sequence[Any], new: Sequence[Any]) -> Iterator[Pair]:
    """Pairs, in the order of the new list; what is gone stands where it was."""
    matcher = difflib.SequenceMatcher(
        None, [_identity(item) for item in old], [_identity(item) for item in new], autojunk=False
    )
    for _, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        olds, news = range(old_start, old_end), range(new_start, new_end)
        # One in place of another: it is changed as far as it differs.
        if len(olds) == len(news):
            yield from zip(olds, news, strict=True)
            continue
        yield from ((place, None) for place in olds)
        yield from ((None, place) for place in news)


def _identity(item: Any) -> str:
    """What tells an item from its neighbours though its fields may change."""
    match item:
        case {"kind": str(kind), "metadata": {"name": str(name), **more}}:
            return json.dumps([kind, name, str(more.get("namespace"))])
        case {"name": str(name), **more}:
            return json.dumps([name, str(more.get("request"))])
    return json.dumps(item, sort_keys=True)
