"""CEL by celpy: its parser and evaluator, with what differs from the definition of CEL replaced.

celpy evaluates an error to a value that operators pass on; `&&` and `||` absorb it. Here that holds
for macros as well, the first error is the one that is told, equality and order work across numeric
types, and indexing and conversion are as strict as in cel-go.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from celpy import celparser, celtypes, evaluation

from dra_driver import errors
from dra_driver.logic.cel import checking, device, library

_MAX_ITERATIONS = 50_000
"""Of all macros in one evaluation together; cel-go counts a cost instead."""

_PASSING = {"expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication"}
_PASSING |= {"unary", "member", "paren_expr", "primary"}
_OPERANDS = {"literal", "ident_arg", "dot_ident_arg", "ident", "dot_ident", "list_lit", "map_lit"}
_NUMBERS = (celtypes.IntType, celtypes.UintType, celtypes.DoubleType)
_TIMES = (celtypes.TimestampType, celtypes.DurationType)
_ORDERED = (celtypes.StringType, celtypes.BytesType, celtypes.BoolType, *_TIMES)
_TRUE, _FALSE = celtypes.BoolType(1), celtypes.BoolType(0)
_ENGINE_TYPES: Mapping[type, Callable[[Any], Any]] = {
    bool: celtypes.BoolType,
    int: celtypes.IntType,
    float: celtypes.DoubleType,
    str: celtypes.StringType,
}
_PLAIN_TYPES: Mapping[type, Callable[[Any], Any]] = {
    celtypes.BoolType: bool,
    celtypes.IntType: int,
    celtypes.DoubleType: float,
    celtypes.StringType: str,
}


class Program:
    """A parsed and checked expression."""

    def __init__(self, expression: str) -> None:
        """Parse and check.

        Raises:
            checking.Problem: a syntax error, an unknown name, something that this engine lacks.
        """
        try:
            self._tree = _collapse(_parser().parse(expression))
            checking.check(self._tree)
        except celparser.CELParseError as error:
            raise _syntax_problem(expression, error.line, error.column) from error
        except RecursionError as error:
            raise checking.Problem("nested too deeply") from error

    def evaluate(self, facts: device.Facts) -> tuple[bool | str, Mapping[device.Question, Any]]:
        """The result, or the text of a run-time error, and what was read to get there."""
        recorder = device.Recorder(facts, _to_cel)
        variables: dict[str, Any] = {"device": recorder}
        activation = evaluation.Activation(vars=variables, functions=_FUNCTIONS)
        try:
            value = _Evaluator(self._tree, activation, itertools.count()).visit(self._tree)
        except RecursionError:
            value = evaluation.CELEvalError("nested too deeply")
        if isinstance(value, celtypes.BoolType):
            return bool(value), recorder.answers
        if isinstance(value, evaluation.CELEvalError):
            return str(value.args[0]), recorder.answers
        return f"the result must be bool, not {_type_name(value)}", recorder.answers


@functools.cache
def _parser() -> Any:
    return celparser.CELParser()


def _syntax_problem(expression: str, line: int | None, column: int | None) -> checking.Problem:
    lines = expression.splitlines()
    if line is None or column is None or not 0 < line <= len(lines):
        return checking.Problem("syntax error: the expression is incomplete")
    rest = lines[line - 1][column - 1 :]
    if rest.startswith("?") and lines[line - 1][: column - 1].rstrip()[-1:] in {".", "[", "{", ","}:
        text = "optional syntax (`.?`, `[?`, `{?`) is not supported by this engine"
        return checking.Problem(text, line, column)
    return checking.Problem(f"syntax error at {rest[:20]!r}", line, column)


def _collapse(tree: Any) -> Any:
    """The tree without the rules that only pass on their one operand: less depth, less work."""

    def operand(node: Any) -> Any:
        passes = getattr(node, "data", None) in _PASSING and len(node.children) == 1
        if passes and getattr(node.children[0], "data", None) not in {None, *_OPERANDS}:
            return node.children[0]
        return node

    for node in tree.iter_subtrees():
        node.children = [operand(child) for child in node.children]
    return operand(tree)


class _Evaluator(evaluation.Evaluator):
    """celpy's evaluator, with the logical operators, macros and selection of the CEL definition."""

    def __init__(self, ast: Any, activation: Any, iterations: Iterator[int]) -> None:
        super().__init__(ast, activation)
        self._iterations = iterations

    def conditionalor(self, tree: Any) -> Any:
        return _absorb(map(self.visit, tree.children), decisive=_TRUE)

    def conditionaland(self, tree: Any) -> Any:
        return _absorb(map(self.visit, tree.children), decisive=_FALSE)

    def expr(self, tree: Any) -> Any:
        condition = self.visit(tree.children[0])
        if not isinstance(condition, celtypes.BoolType):
            return _as_error(condition)
        return self.visit(tree.children[1 if condition else 2])

    def macro_has_eval(self, exprlist: Any) -> Any:
        owner, field = exprlist.children[0].children
        member = self.visit(owner)
        if not isinstance(member, Mapping):
            return _as_error(member)
        try:
            member[celtypes.StringType(field)]
        except KeyError:
            return _FALSE
        return _TRUE

    def member_dot(self, tree: Any) -> Any:
        owner, field = tree.children
        member = self.visit(owner)
        if isinstance(member, Mapping | evaluation.CELEvalError):
            return _index(member, celtypes.StringType(field))
        return evaluation.CELEvalError(f"{_type_name(member)} has no field {str(field)!r}")

    def member_dot_arg(self, tree: Any) -> Any:
        owner, name, *arguments = tree.children
        receiver = self.visit(owner)
        if isinstance(receiver, evaluation.CELEvalError):
            return receiver
        if str(name) not in checking.MACROS:
            return self.method_eval(receiver, name, *map(self.visit, arguments))
        if not isinstance(receiver, list | Mapping):
            return evaluation.CELEvalError(f"expected iterable type, got {_type_name(receiver)}")
        variable, *bodies = arguments[0].children
        return self._macro(str(name), str(checking.identifier(variable)), receiver, bodies)

    def _macro(self, name: str, variable: str, receiver: Any, bodies: list[Any]) -> Any:
        items = [_to_cel(item) for item in receiver]
        results = ((item, self._bound(variable, item, bodies[0])) for item in items)
        if name in {"all", "exists"}:
            decisive = _TRUE if name == "exists" else _FALSE
            return _absorb((value for _, value in results), decisive=decisive)
        if name == "map" and len(bodies) == 1:
            return _list(value for _, value in results)
        chosen = _chosen(results)
        if isinstance(chosen, evaluation.CELEvalError) or name == "filter":
            return chosen
        if name == "exists_one":
            return celtypes.BoolType(len(chosen) == 1)
        return _list(self._bound(variable, item, bodies[1]) for item in chosen)

    def _bound(self, variable: str, item: Any, body: Any) -> Any:
        if next(self._iterations) >= _MAX_ITERATIONS:
            return evaluation.CELEvalError("actual cost limit exceeded")
        variables: dict[str, Any] = {variable: item}
        inner = self.activation.nested_activation(vars=variables)
        return _Evaluator(body, inner, self._iterations).visit(body)


def _absorb(values: Iterable[Any], *, decisive: Any) -> Any:
    """`||` (true decides) or `&&` (false decides): an error counts only if nothing decides."""
    failure = None
    for value in values:
        if not isinstance(value, celtypes.BoolType):
            failure = failure or _as_error(value)
        elif value == decisive:
            return decisive
    return failure or celtypes.BoolType(not decisive)


def _list(values: Iterable[Any]) -> Any:
    result = celtypes.ListType()
    for value in values:
        if isinstance(value, evaluation.CELEvalError):
            return value
        result.append(value)
    return result


def _chosen(results: Iterable[tuple[Any, Any]]) -> Any:
    chosen = celtypes.ListType()
    for item, verdict in results:
        if not isinstance(verdict, celtypes.BoolType):
            return _as_error(verdict)
        if verdict:
            chosen.append(item)
    return chosen


def _as_error(value: Any) -> evaluation.CELEvalError:
    if isinstance(value, evaluation.CELEvalError):
        return value
    return evaluation.CELEvalError(f"no such overload for {_type_name(value)}")


def _index(container: Any, key: Any) -> Any:
    try:
        if isinstance(container, Mapping):
            return _to_cel(container[key])
        if isinstance(container, list) and isinstance(key, celtypes.IntType):
            return container[key] if key >= 0 else evaluation.CELEvalError(_out_of_bounds(key))
    except KeyError:
        return evaluation.CELEvalError(f"no such key: {key}")
    except IndexError:
        return evaluation.CELEvalError(_out_of_bounds(key))
    except errors.Rejected as error:
        return evaluation.CELEvalError(str(error))
    return _as_error(container)


def _out_of_bounds(key: int) -> str:
    return f"index out of bounds: {key}"


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        return bool(_number(left) == _number(right))
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(
            _equal(_to_cel(left[key]), _to_cel(right[key])) for key in left
        )
    return type(left) is type(right) and bool(left == right)


def _in(item: Any, container: Any) -> bool:
    if isinstance(container, list):
        return any(_equal(item, element) for element in container)
    if isinstance(container, Mapping):
        return item in container
    raise TypeError


def _ordering(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def ordered(left: Any, right: Any) -> bool:
        if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
            return compare(_number(left), _number(right))
        if type(left) is not type(right) or not isinstance(left, _ORDERED):
            raise TypeError
        return compare(left, right)

    return ordered


def _arithmetic(calculate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def calculated(left: Any, right: Any) -> Any:
        alike = type(left) is type(right) and not isinstance(left, celtypes.BoolType)
        if not alike and not (isinstance(left, _TIMES) and isinstance(right, _TIMES)):
            raise TypeError
        return calculate(left, right)

    return calculated


def _divide(left: Any, right: Any) -> Any:
    if not isinstance(left, celtypes.DoubleType) or float(right) != 0.0:
        return left / right
    if math.isnan(left) or float(left) == 0.0:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _number(value: Any) -> int | float:
    return float(value) if isinstance(value, float) else int(value)


def _to_cel(value: Any) -> Any:
    """The engine's value for a plain one; values of other types are passed as they are."""
    if type(value) is list:
        return celtypes.ListType(map(_to_cel, value))
    return _ENGINE_TYPES.get(type(value), _same)(value)


def _to_plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_plain(item) for item in value]
    return _PLAIN_TYPES.get(type(value), _same)(value)


def _same(value: Any) -> Any:
    return value


def _type_name(value: Any) -> str:
    if isinstance(value, Mapping):
        return "map"
    return "null" if value is None else type(value).__name__.removesuffix("Type").lower()


def _strict(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for operands that are not errors; its result as a value of the engine."""

    def call(*operands: Any) -> Any:
        failed = next((o for o in operands if isinstance(o, evaluation.CELEvalError)), None)
        try:
            return failed if failed is not None else _to_cel(function(*operands))
        except (TypeError, AttributeError):
            types = ", ".join(map(_type_name, operands))
            return evaluation.CELEvalError(f"no such overload of {name} for ({types})")

    return call


def _plain(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the library: plain values in and out, a refusal as an error value."""

    def call(*operands: Any) -> Any:
        try:
            return function(*map(_to_plain, operands))
        except library.CallError as error:
            return evaluation.CELEvalError(str(error))

    return _strict(name, call)


_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "_==_": _equal,
    "_!=_": lambda left, right: not _equal(left, right),
    "_<_": _ordering(operator.lt),
    "_<=_": _ordering(operator.le),
    "_>_": _ordering(operator.gt),
    "_>=_": _ordering(operator.ge),
    "_in_": _in,
    "_[_]": _index,
    "!_": celtypes.logical_not,
    "-_": operator.neg,
    "_+_": _arithmetic(operator.add),
    "_-_": _arithmetic(operator.sub),
    "_*_": _arithmetic(operator.mul),
    "_/_": _arithmetic(_divide),
    "_%_": _arithmetic(operator.mod),
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    name: _strict(name, function) for name, function in _OPERATORS.items()
} | {
    name: _plain(name, function)
    for name, function in {**library.GLOBALS, **library.METHODS}.items()
}
