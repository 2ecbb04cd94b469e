"""A checked expression as a function: closures over the tree, made once, run for each device.

An error is an exception; `&&`, `||`, `all` and `exists` absorb it if another operand decides.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from dra_driver.logic.cel import (
    checking,
    comparing,
    costs,
    device,
    folding,
    frames,
    library,
    macros,
    maps,
    operators,
    syntax,
    values,
)

COST_LIMIT = 1_000_000
"""Kubernetes 1.36 `resource/v1.CELSelectorExpressionMaxCost`, counted more coarsely than in cel-go:
one for a variable, a selection and a call, four for a round of a macro, ten for a literal of a list
or a map, one for ten characters or items of a result or of a receiver, and what `costs` tells."""

_COSTS = {syntax.Name: 1, syntax.Select: 1, syntax.Call: 1, syntax.ListOf: 10, syntax.MapOf: 10}
_ROUND_COST, _SIZE_PER_COST = 4, 10

Outcome = bool | frames.Failure
Answers = Mapping[device.Question, device.Answer]


class Program:
    """A parsed and checked expression."""

    def __init__(self, expression: str, *, selects: bool = True) -> None:
        """Parse and check an expression that is true or false, or else has an attribute's value.

        Raises:
            syntax.Problem: a syntax error, an unknown name, an operand of the wrong type.
        """
        self.tree = syntax.parse(expression)
        self._selects = selects
        try:
            checking.check(self.tree, selects=selects)
            folding.check(self.tree, {"device": None})
            self._run, self._cost, self._size = compile(self.tree)
        except RecursionError as error:
            raise syntax.Problem("nested too deeply") from error

    def check(self, *, lists: bool) -> None:
        """Check it as where attributes may be lists, or where not.

        Raises:
            syntax.Problem: as when it was made.
        """
        if not lists:
            checking.check(self.tree, lists=False, selects=self._selects)

    def evaluate(self, facts: device.Facts) -> tuple[Outcome, Answers]:
        """The outcome, and what was read to get there."""
        return run(self._run, facts, cost=self._cost, size=self._size)

    def evaluate_value(self, facts: device.Facts) -> tuple[Any | frames.Failure, Answers]:
        """The value, or why there is none, and what was read to get there."""
        return run_value(self._run, facts, cost=self._cost, size=self._size)


def compile(node: syntax.Node) -> tuple[frames.Run, int, int]:  # noqa: A001 - as `engine.compile`
    """How to evaluate a checked node, what that costs outside of macros, the size of a frame."""
    compiler = _Compiler()
    evaluate = compiler.compile(node, {"device": frames.DEVICE})
    return evaluate, compiler.cost, compiler.size


def compile_about(names: Sequence[str], node: syntax.Node) -> tuple[frames.Run, int, int]:
    """As `compile`, of a node about variables: their values stand in a frame in this order."""
    compiler = _Compiler(first=frames.DEVICE + len(names))
    scope = {name: frames.DEVICE + place for place, name in enumerate(names)}
    evaluate = compiler.compile(node, scope)
    return evaluate, compiler.cost, compiler.size


def run(
    evaluate: frames.Run, facts: device.Facts, *, cost: int, size: int
) -> tuple[Outcome, Answers]:
    """Whether an expression holds for a device, and what it read."""
    value, answers = run_value(evaluate, facts, cost=cost, size=size)
    if isinstance(value, bool | frames.Failure):
        return value, answers
    return frames.Failure(f"the result must be bool, not {values.type_name(value)}"), answers


def run_value(
    evaluate: frames.Run, facts: device.Facts, *, cost: int, size: int
) -> tuple[Any | frames.Failure, Answers]:
    """What an expression gives for a device, and what it read."""
    recorder = device.Recorder(facts)
    return run_about(evaluate, (recorder,), cost=cost, size=size), recorder.answers


def run_about(
    evaluate: frames.Run, variables: Sequence[Any], *, cost: int, size: int
) -> Any | frames.Failure:
    """What an expression gives for the values of its variables."""
    unset = [None] * (size - frames.DEVICE - len(variables))
    try:
        return evaluate([COST_LIMIT - cost, *variables, *unset])
    except frames.Error as error:
        return error.failure
    except values.HashError as error:
        return frames.Failure(f"internal error: runtime error: hash of unhashable type {error}")
    except values.CostError:
        return frames.Failure("actual cost limit exceeded")
    except RecursionError:
        return frames.Failure("nested too deeply")


class _Compiler:
    def __init__(self, *, first: int = frames.FIRST_VARIABLE) -> None:
        self.cost = 0
        self.size = first

    def compile(self, node: syntax.Node, scope: Mapping[str, int]) -> frames.Run:
        """The node as a function of a frame; `scope` has the places of variables."""
        self.cost += _COSTS.get(type(node), 0)
        match node:
            case syntax.Constant(value=value):
                made = _constant(value)
            case syntax.Name(name=name):
                made = _name(name, scope)
            case syntax.Select():
                made = _select(node, self.compile(node.owner, scope))
            case syntax.Call():
                made = self._call(node, scope)
            case syntax.Logic(operands=operands):
                runs = [self.compile(operand, scope) for operand in operands]
                made = _logic(runs, operands, decisive=node.operator == "||")
            case syntax.Choice(condition=condition, yes=yes, no=no):
                runs = [self.compile(part, scope) for part in (condition, yes, no)]
                made = _choice(runs, condition)
            case syntax.ListOf(items=items, optional=optional):
                made = _list([self.compile(item, scope) for item in items], optional, node.start)
            case syntax.MapOf(entries=entries, optional=optional):
                pairs = [(self.compile(k, scope), self.compile(v, scope)) for k, v in entries]
                made = _map(pairs, optional, node.start)
            case syntax.Macro():
                made = self._macro(node, scope)
        return made

    def _call(self, node: syntax.Call, scope: Mapping[str, int]) -> frames.Run:
        arguments = [self.compile(argument, scope) for argument in node.arguments]
        if node.method and node.function in {"or", "orValue"}:
            return _alternative(node, *arguments)
        if node.function == "@in":
            members = folding.members(node.arguments[1], scope)
            if members is not None:
                return _membership(arguments[0], members)
        function = operators.OPERATORS.get(node.function)
        if function is None:
            table = library.METHODS if node.method else library.GLOBALS
            function = table[node.function]
        return _call(node, function, arguments)

    def _macro(self, node: syntax.Macro, scope: Mapping[str, int]) -> frames.Run:
        operand = self.compile(node.operand, scope)
        places = range(self.size, self.size + len(node.variables))
        self.size += len(node.variables)
        inner = {**scope, **dict(zip(node.variables, places, strict=True))}
        outside, self.cost = self.cost, _ROUND_COST
        bodies = [self.compile(body, inner) for body in node.bodies]
        step, self.cost = self.cost, outside
        if node.kind == "bind":
            self.cost += step
            return macros.bind(operand, places[0], bodies[0])
        if node.kind in {"optMap", "optFlatMap"}:
            self.cost += step
            return macros.mapped(node, operand, places[0], bodies[0])
        return macros.FOLDS[node.kind](macros.Loop(node, operand, places, bodies, step))


def _constant(value: Any) -> frames.Run:
    return lambda _: value


def _name(name: str, scope: Mapping[str, int]) -> frames.Run:
    if name not in scope:
        kind = values.TypeOf(name)
        return lambda _: kind
    place = scope[name]

    def read(frame: frames.Frame) -> Any:
        value = frame[place]
        return value.value(frame) if isinstance(value, macros.Lazy) else value

    return read


def _select(node: syntax.Select, owner: frames.Run) -> frames.Run:
    field, place, test, optional = node.field, node.place, node.test, node.optional

    def select(frame: frames.Frame) -> Any:
        value = owner(frame)
        wrapped = isinstance(value, values.Optional)
        if wrapped:
            if not value.items:
                return False if test else value
            (value,) = value.items
        if not isinstance(value, Mapping):
            raise frames.Error(f"{values.type_name(value)} has no field {field!r}", place)
        try:
            found = maps.lookup(value, field)
        except values.CallError as error:
            raise frames.Error(str(error), place) from error
        if test:
            return bool(found.items)
        if wrapped or optional:
            return found
        if not found.items:
            raise frames.Error(f"no such key: {field}", place)
        return found.items[0]

    return select


def _call(
    node: syntax.Call, function: Callable[..., Any], arguments: Sequence[frames.Run]
) -> frames.Run:
    name, place = node.function, node.place

    def call(frame: frames.Frame) -> Any:
        operands = [argument(frame) for argument in arguments]
        try:
            frames.spend(frame, costs.of(name, operands, frame[frames.BUDGET]))
            result = function(*operands)
        except values.CallError as error:
            raise frames.Error(str(error), place) from error
        except (TypeError, AttributeError) as error:
            types = ", ".join(map(values.type_name, operands))
            text = f"no such overload of {name} for ({types})"
            if name == "_==_" and (instead := comparing.comparable(*operands)):
                text += f": write {instead}"
            raise frames.Error(text, place) from error
        if isinstance(result, str | bytes | list):
            frames.spend(frame, len(result) // _SIZE_PER_COST)
        if operands and isinstance(operands[0], str | bytes | list):
            frames.spend(frame, len(operands[0]) // _SIZE_PER_COST)
        return result

    return call


def _membership(item: frames.Run, members: frozenset[Hashable]) -> frames.Run:
    if not members:
        return lambda _: False
    return lambda frame: maps.hashed(item(frame)) in members


def _alternative(node: syntax.Call, optional: frames.Run, other: frames.Run) -> frames.Run:
    """`or` and `orValue`, which look at the alternative only if there is no value.

    As in cel-go, what is no optional (a dynamic value, null) is passed on.
    """
    whole = node.function == "or"

    def alternative(frame: frames.Frame) -> Any:
        found = optional(frame)
        if not isinstance(found, values.Optional):
            return found
        if found.items:
            return found if whole else found.items[0]
        return other(frame)

    return alternative


def _logic(
    runs: Sequence[frames.Run], operands: Sequence[syntax.Node], *, decisive: bool
) -> frames.Run:
    pairs = [(run, operand.start) for run, operand in zip(runs, operands, strict=True)]
    name = "_||_" if decisive else "_&&_"

    def logic(frame: frames.Frame) -> bool:
        failure = None
        for operand, place in pairs:
            try:
                value = operand(frame)
            except frames.Error as error:
                failure = failure or error
                continue
            if not isinstance(value, bool):
                failure = failure or frames.no_overload(name, value, place)
            elif value is decisive:
                return value
        if failure is not None:
            raise failure
        return not decisive

    return logic


def _choice(runs: Sequence[frames.Run], condition: syntax.Node) -> frames.Run:
    decide, yes, no = runs
    place = condition.start

    def choose(frame: frames.Frame) -> Any:
        value = decide(frame)
        if not isinstance(value, bool):
            raise frames.no_overload("_?_:_", value, place)
        return yes(frame) if value else no(frame)

    return choose


def _list(runs: Sequence[frames.Run], optional: frozenset[int], place: int) -> frames.Run:
    def build(frame: frames.Frame) -> list[Any]:
        items: list[Any] = []
        for number, item in enumerate(runs):
            value = item(frame)
            items.extend(_given(value, place) if number in optional else (value,))
        return items

    return build


def _map(
    pairs: Sequence[tuple[frames.Run, frames.Run]], optional: frozenset[int], place: int
) -> frames.Run:
    def build(frame: frames.Frame) -> maps.Map:
        made = maps.Map()
        for number, (key, item) in enumerate(pairs):
            name, value = key(frame), item(frame)
            if number not in optional:
                made.put(name, value)
            elif given := _given(value, place):
                made.put(name, given[0])
            else:
                made.remove(name)
        return made

    return build


def _given(value: Any, place: int) -> tuple[Any, ...]:
    if not isinstance(value, values.Optional):
        raise frames.no_overload("optional entry", value, place)
    return value.items
