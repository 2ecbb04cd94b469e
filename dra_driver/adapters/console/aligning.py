"""Which item of a list has become which of another one."""

import bisect
import collections
import json
from collections.abc import Iterator, Sequence
from typing import Any

Pair = tuple[int | None, int | None]
"""Places in the old list and the new one; None: it is gone, or is new."""


def same(one: Any, other: Any) -> bool:
    """Whether two values of JSON are alike: true is not 1. The order of keys means nothing."""
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def aligned(old: Sequence[Any], new: Sequence[Any]) -> Iterator[Pair]:
    """Pairs, in the order of the new list; what is gone stands where it was.

    Takes a time that grows with the lists' length, whatever is in them.
    """
    done_old = done_new = 0
    for was, becomes in (*_anchors(old, new), (len(old), len(new))):
        yield from _between(range(done_old, was), range(done_new, becomes))
        if was < len(old):
            yield was, becomes
        done_old, done_new = was + 1, becomes + 1


def _anchors(old: Sequence[Any], new: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Items that are the same ones, in order: each the next one that there is."""
    places: dict[str, list[int]] = collections.defaultdict(list)
    for place, item in enumerate(old):
        places[_identity(item)].append(place)
    done = 0
    for becomes, item in enumerate(new):
        known = places.get(_identity(item), ())
        following = bisect.bisect_left(known, done)
        if following < len(known):
            yield known[following], becomes
            done = known[following] + 1


def _between(olds: range, news: range) -> Iterator[Pair]:
    # One in place of another: it is changed as far as it differs.
    if len(olds) == len(news):
        yield from zip(olds, news, strict=True)
        return
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
