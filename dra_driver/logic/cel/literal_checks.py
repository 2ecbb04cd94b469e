"""What is wrong with what an expression writes out: times, patterns, formats, lists and maps.

Source: cel-go 0.26 `cel/validator.go`, `interpreter/decorators.go`, `ext/formatting.go`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from dra_driver.logic.cel import formatting, kinds, patterns, syntax, times, values

_TIMES = {"duration": times.duration, "timestamp": times.timestamp}
_PATTERNS = frozenset({"matches", "find", "findAll"})
_INTEGERS = frozenset({"int", "uint"})
_TEXTS = frozenset({"string", "bytes"})
_SHOWN = frozenset(
    [*_INTEGERS, *_TEXTS, *("bool", "double", "duration", "list", "map", "null", "timestamp")]
) | {"type"}
_FORMATTED: Mapping[str, frozenset[str]] = {
    "s": _SHOWN,
    "d": _INTEGERS,
    "f": frozenset({"double", "string"}),
    "e": frozenset({"double", "string"}),
    "b": _INTEGERS | {"bool"},
    "o": _INTEGERS,
    "x": _INTEGERS | _TEXTS,
    "X": _INTEGERS | _TEXTS,
}
"""Types of what a clause of a format takes. `NaN` and infinities are written as strings."""

Kinds = Callable[[syntax.Node], kinds.Type]
"""The type of a node that was checked."""


def check(node: syntax.Call) -> None:
    """Check the arguments of a call that are texts.

    Raises:
        syntax.Problem: with the position.
    """
    if node.function in _PATTERNS:
        # Of the function that is no method the text is taken for a pattern as well.
        first = 1 if node.method or node.function != "matches" else 0
        for argument in node.arguments[first:2]:
            _check(argument, patterns.compile)
    elif node.function in _TIMES:
        _check(node.arguments[0], _TIMES[node.function])


def _check(argument: syntax.Node, parse: "values.Parse") -> None:
    if not isinstance(argument, syntax.Constant) or not isinstance(argument.value, str):
        return
    try:
        parse(argument.value)
    except values.CallError as error:
        raise syntax.Problem(str(error), argument.start) from error


def check_alike(items: Sequence[tuple[syntax.Node, kinds.Type]]) -> None:
    """Check that all items of a literal are of one type.

    Raises:
        syntax.Problem: at the first that is not.
    """
    _, first = items[0]
    for item, kind in items:
        if kind != first:
            text = f"expected type '{first}' but found '{kind}': all items must be alike"
            raise syntax.Problem(text, item.start)


def check_format(call: syntax.Call, kind_of: Kinds) -> None:
    """Check a pattern that is written out against the list that is.

    Raises:
        syntax.Problem: a clause is none, or not for its item; more or fewer items than clauses.
    """
    pattern, arguments = call.arguments
    if not isinstance(pattern, syntax.Constant) or not isinstance(arguments, syntax.ListOf):
        return
    try:
        verbs = formatting.verbs(pattern.value)
    except values.CallError as error:
        raise syntax.Problem(str(error), pattern.start) from error
    if len(verbs) != len(arguments.items):
        text = f"the format has {len(verbs)} clauses, and there are {len(arguments.items)} values"
        raise syntax.Problem(text, arguments.start)
    for verb, item in zip(verbs, arguments.items, strict=True):
        for part in _parts(item) if verb == "s" else (item,):
            kind = kind_of(part)
            if kind != kinds.DYN and kind.name not in _FORMATTED[verb]:
                allowed = ", ".join(sorted(_FORMATTED[verb]))
                text = f"%{verb} is for {allowed}, not {kind}"
                raise syntax.Problem(text, part.start)


def _parts(node: syntax.Node) -> Iterator[syntax.Node]:
    """The node, and what is in it if it is a literal of a list or a map."""
    yield node
    if isinstance(node, syntax.ListOf | syntax.MapOf):
        for child in syntax.children(node):
            yield from _parts(child)
