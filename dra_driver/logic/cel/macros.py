"""Macros: loops over lists and maps, `cel.bind`, `optMap` and `optFlatMap`.

Source: cel-go `parser/macro.go`, `ext/bindings.go`, `ext/comprehensions.go`, `ext/lists.go`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dra_driver.logic.cel import frames, lists, maps, syntax, values


class Lazy:
    """The value of a variable that is worked out when it is first read."""

    def __init__(self, run: frames.Run) -> None:
        self._run = run
        self._outcome: tuple[Any, frames.Error | None] | None = None

    def value(self, frame: frames.Frame) -> Any:
        """The value; an error as often as it is asked for."""
        if self._outcome is None:
            try:
                self._outcome = self._run(frame), None
            except frames.Error as error:
                self._outcome = None, error
        value, failure = self._outcome
        if failure is not None:
            raise failure
        return value


def bind(operand: frames.Run, place: int, body: frames.Run) -> frames.Run:
    """`cel.bind`, whose variable is not worked out if nobody reads it."""

    def bound(frame: frames.Frame) -> Any:
        frame[place] = Lazy(operand)
        return body(frame)

    return bound


def mapped(node: syntax.Macro, operand: frames.Run, place: int, body: frames.Run) -> frames.Run:
    """`optMap` and `optFlatMap`: the value of an optional, if it has one, made into another."""
    kind = node.kind

    def of_optional(frame: frames.Frame) -> Any:
        value = operand(frame)
        if not isinstance(value, values.Optional):
            raise frames.no_overload(kind, value, node.place)
        if not value.items:
            return value
        (frame[place],) = value.items
        result = body(frame)
        return values.Optional((result,)) if kind == "optMap" else result

    return of_optional


def _inserted(entries: Iterable[tuple[Any, Any]], place: int) -> maps.Map:
    """A map of entries; an error if a key comes twice."""
    made = maps.Map()
    try:
        for key, value in entries:
            made.insert(key, value)
    except values.CallError as error:
        raise frames.Error(str(error), place) from error
    return made


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
    """A macro over a list or a map."""

    node: syntax.Macro
    operand: frames.Run
    places: range
    bodies: Sequence[frames.Run]
    step: int

    def rounds(self, frame: frames.Frame) -> Iterator[tuple[Any, ...]]:
        """Set the variables to one item after the other; what they are set to."""
        container = self.operand(frame)
        if not isinstance(container, list | Mapping):
            text = f"expected iterable type, got {values.type_name(container)}"
            raise frames.Error(text, self.node.place)
        two, place = len(self.places) == 2, self.places[0]
        keys = enumerate(container) if isinstance(container, list) else ((k, k) for k in container)
        for number, item in keys:
            frames.spend(frame, self.step)
            frame[place] = number if two else item
            if two:
                frame[place + 1] = (
                    item if isinstance(container, list) else self._at(container, item)
                )
            yield number, item

    def _at(self, container: Mapping[Any, Any], key: Any) -> Any:
        try:
            return container[key]
        except values.CallError as error:
            raise frames.Error(str(error), self.node.place) from error

    def verdict(self, frame: frames.Frame, body: frames.Run) -> bool:
        """The body's value, which must be bool."""
        value = body(frame)
        if not isinstance(value, bool):
            raise frames.no_overload(self.node.kind, value, self.node.place)
        return value

    def chosen(self, frame: frames.Frame) -> Iterator[tuple[Any, ...]]:
        """The rounds for which the condition, if there is one, holds."""
        for item in self.rounds(frame):
            if len(self.bodies) == 1 or self.verdict(frame, self.bodies[0]):
                yield item


def _quantifier(*, decisive: bool) -> Callable[[Loop], frames.Run]:
    def fold(loop: Loop) -> frames.Run:
        (body,) = loop.bodies

        def quantify(frame: frames.Frame) -> bool:
            failure = None
            for _ in loop.rounds(frame):
                try:
                    if loop.verdict(frame, body) is decisive:
                        return decisive
                except frames.Error as error:
                    failure = failure or error
            if failure is not None:
                raise failure
            return not decisive

        return quantify

    return fold


def _exists_one(loop: Loop) -> frames.Run:
    return lambda frame: sum(loop.verdict(frame, loop.bodies[0]) for _ in loop.rounds(frame)) == 1


def _filter(loop: Loop) -> frames.Run:
    return lambda frame: [
        item for _, item in loop.rounds(frame) if loop.verdict(frame, loop.bodies[0])
    ]


def _transform(loop: Loop) -> frames.Run:
    return lambda frame: [loop.bodies[-1](frame) for _ in loop.chosen(frame)]


def _transform_map(loop: Loop) -> frames.Run:
    place = loop.node.place
    return lambda frame: _inserted(
        ((key, loop.bodies[-1](frame)) for key, _ in loop.chosen(frame)), place
    )


def _transform_entry(loop: Loop) -> frames.Run:
    def entries(frame: frames.Frame) -> Iterator[tuple[Any, Any]]:
        for _ in loop.chosen(frame):
            made = loop.bodies[-1](frame)
            if not isinstance(made, Mapping):
                raise frames.no_overload(loop.node.kind, made, loop.node.place)
            yield from ((key, made[key]) for key in made)

    return lambda frame: _inserted(entries(frame), loop.node.place)


def _sort_by(loop: Loop) -> frames.Run:
    def sort(frame: frames.Frame) -> list[Any]:
        pairs = [(item, loop.bodies[0](frame)) for _, item in loop.rounds(frame)]
        try:
            return lists.sorted_by([item for item, _ in pairs], [key for _, key in pairs])
        except values.CallError as error:
            raise frames.Error(str(error), loop.node.place) from error
        except TypeError as error:
            raise frames.no_overload("sortBy", pairs[0][1], loop.node.place) from error

    return sort


FOLDS: Mapping[str, Callable[[Loop], frames.Run]] = {
    "all": _quantifier(decisive=False),
    "exists": _quantifier(decisive=True),
    "exists_one": _exists_one,
    "filter": _filter,
    "map": _transform,
    "transformList": _transform,
    "transformMap": _transform_map,
    "transformMapEntry": _transform_entry,
    "sortBy": _sort_by,
}
"""Macros that loop, by kind."""
