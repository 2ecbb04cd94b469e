"""From the text of an expression to its tree, by celpy's grammar.

The grammar lacks the optional syntax (`a.?b`, `a[?b]`, `[?a]`, `{?a: b}`) and trailing commas, so
those rules are replaced. Words like `true` are told from names, and macros from calls, here, as
cel-go's parser does it. Positions are offsets in characters.
"""

import dataclasses
import functools
import importlib.machinery
import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import lark

from dra_driver.logic.cel import declarations, literals

_RULES: Mapping[str, str] = {
    "member": """member : member_dot | member_dot_arg | member_index | member_object | primary
        | member_opt_dot | member_opt_index
        member_opt_dot : member "." "?" IDENT
        member_opt_index : member "[" "?" expr "]" """,
    "list_lit": """list_lit : "[" [item ("," item)* [","]] "]"
        item : expr | opt_item
        opt_item : "?" expr""",
    "map_lit": """map_lit : "{" [entry ("," entry)* [","]] "}"
        entry : expr ":" expr | opt_entry
        opt_entry : "?" expr ":" expr""",
    "literal": "literal : UINT_LIT | FLOAT_LIT | INT_LIT | MLSTRING_LIT | STRING_LIT | BYTES_LIT",
}
_WORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}
_RESERVED = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "in", "let"}
    | {"loop", "package", "namespace", "return", "var", "void", "while"}
)
_BINARY: Mapping[str, str] = {
    "lt": "_<_",
    "le": "_<=_",
    "gt": "_>_",
    "ge": "_>=_",
    "eq": "_==_",
    "ne": "_!=_",
    "in": "@in",
    "add": "_+_",
    "sub": "_-_",
    "mul": "_*_",
    "div": "_/_",
    "mod": "_%_",
}
_MACROS: Mapping[tuple[str, int], tuple[str, int]] = {
    ("all", 2): ("all", 1),
    ("exists", 2): ("exists", 1),
    ("exists_one", 2): ("exists_one", 1),
    ("existsOne", 2): ("exists_one", 1),
    ("filter", 2): ("filter", 1),
    ("map", 2): ("map", 1),
    ("map", 3): ("map", 1),
    ("all", 3): ("all", 2),
    ("exists", 3): ("exists", 2),
    ("exists_one", 3): ("exists_one", 2),
    ("existsOne", 3): ("exists_one", 2),
    ("transformList", 3): ("transformList", 2),
    ("transformList", 4): ("transformList", 2),
    ("transformMap", 3): ("transformMap", 2),
    ("transformMap", 4): ("transformMap", 2),
    ("transformMapEntry", 3): ("transformMapEntry", 2),
    ("transformMapEntry", 4): ("transformMapEntry", 2),
    ("optMap", 2): ("optMap", 1),
    ("optFlatMap", 2): ("optFlatMap", 1),
    ("sortBy", 2): ("sortBy", 1),
}
"""Name and number of arguments of a macro: its kind and how many variables it binds."""


class Problem(Exception):  # noqa: N818 - selection makes the error of it
    """An expression that does not compile; `position` is None where there is no one place."""

    def __init__(self, text: str, position: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.position = position


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression: characters `start` to `end` of its text."""

    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Constant(Node):
    """A literal."""

    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Name(Node):
    """A variable."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Select(Node):
    """`owner.field`, `owner.?field` (optional), `has(owner.field)` (test)."""

    owner: Node
    field: str
    place: int
    optional: bool = False
    test: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Call(Node):
    """A function, method (the receiver is the first argument) or operator; `place` is its name."""

    function: str
    arguments: tuple[Node, ...]
    place: int
    method: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Logic(Node):
    """All operands of a chain of `&&` or of `||`."""

    operator: str
    operands: tuple[Node, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Choice(Node):
    """`condition ? yes : no`."""

    condition: Node
    yes: Node
    no: Node


@dataclasses.dataclass(frozen=True, slots=True)
class ListOf(Node):
    """A list literal; `optional` has the positions that are written `?item`."""

    items: tuple[Node, ...]
    optional: frozenset[int]


@dataclasses.dataclass(frozen=True, slots=True)
class MapOf(Node):
    """A map literal; `optional` has the positions that are written `?key: value`."""

    entries: tuple[tuple[Node, Node], ...]
    optional: frozenset[int]


@dataclasses.dataclass(frozen=True, slots=True)
class Macro(Node):
    """A macro over `operand`: `bodies` see `variables`. `cel.bind` is the macro `bind`."""

    kind: str
    operand: Node
    variables: tuple[str, ...]
    bodies: tuple[Node, ...]
    place: int


def parse(expression: str) -> Node:
    """The tree of an expression.

    Raises:
        Problem: a syntax error, a literal that is none, a macro without a variable.
    """
    try:
        return _node(_parser().parse(expression))
    except lark.exceptions.UnexpectedInput as error:
        raise _syntax_problem(expression, error) from error
    except literals.LiteralError as error:
        raise Problem(str(error), error.position) from error
    except RecursionError as error:
        raise Problem("nested too deeply") from error


def children(node: Node) -> Iterator[Node]:
    """The parts of a node, from left to right."""
    match node:
        case Select(owner=owner):
            yield owner
        case Call(arguments=parts) | Logic(operands=parts) | ListOf(items=parts):
            yield from parts
        case Choice(condition=condition, yes=yes, no=no):
            yield from (condition, yes, no)
        case MapOf(entries=entries):
            for entry in entries:
                yield from entry
        case Macro(operand=operand, bodies=bodies):
            yield from (operand, *bodies)


@functools.cache
def _parser() -> lark.Lark:
    grammar = _celpy_grammar()
    for name, rule in _RULES.items():
        pattern = rf"(?m)^{re.escape(name)}\s*:.*(?:\n\s+\|.*)*"
        grammar, count = re.subn(pattern, lambda _, rule=rule: rule, grammar)  # type: ignore[misc] # mypy infers no lambda with a default
        if count != 1:
            raise Problem(f"celpy's grammar has no rule {name!r}: use cel-python 0.5")
    return lark.Lark(
        grammar, parser="lalr", start="expr", propagate_positions=True, maybe_placeholders=False
    )


def _celpy_grammar() -> str:
    # The package itself is not imported: that would load its evaluator and a calendar, 16 MB.
    spec = importlib.util.find_spec("celpy")
    if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
        raise Problem("the grammar of CEL is not installed: install cel-python 0.5")
    grammar = spec.loader.path.removesuffix("__init__.py") + "cel.lark"
    return spec.loader.get_data(grammar).decode()


def _syntax_problem(expression: str, error: lark.exceptions.UnexpectedInput) -> Problem:
    token = getattr(error, "token", None)
    position = error.pos_in_stream or 0
    if token is not None and token.type == "$END":
        return Problem("syntax error: the expression is incomplete", len(expression))
    rest = " ".join(expression[position:].split())
    return Problem(f"syntax error at {rest[:20]!r}", position)


def _node(tree: Any) -> Node:
    # Most rules only pass on their one child.
    while tree.data not in _BUILDERS:
        (tree,) = tree.children
    if tree.data in {"conditionalor", "conditionaland", "expr"} and len(tree.children) == 1:
        return _node(tree.children[0])
    if tree.data in {"relation", "addition", "multiplication", "unary"} and len(tree.children) == 1:
        return _node(tree.children[0])
    return _BUILDERS[tree.data](tree, (tree.meta.start_pos, tree.meta.end_pos))


def _choice(tree: Any, span: tuple[int, int]) -> Node:
    return Choice(*span, *map(_node, tree.children))


def _logic(tree: Any, span: tuple[int, int]) -> Node:
    rule, operands = tree.data, []
    while tree.data == rule and len(tree.children) == 2:
        operands.append(_node(tree.children[1]))
        tree = tree.children[0]
    operands.append(_node(tree))
    return Logic(*span, "&&" if rule == "conditionaland" else "||", tuple(operands[::-1]))


def _binary(tree: Any, span: tuple[int, int]) -> Node:
    left, right = tree.children
    name = _BINARY[left.data.rpartition("_")[2]]
    place = left.meta.end_pos - len(name.strip("_@"))
    return Call(*span, name, (_node(left.children[0]), _node(right)), place)


def _unary(tree: Any, span: tuple[int, int]) -> Node:
    operator, operand = tree.children
    name = "!_" if operator.data == "unary_not" else "-_"
    return Call(*span, name, (_node(operand),), span[0])


def _paren(tree: Any, _: tuple[int, int]) -> Node:
    return _node(tree.children[0])


def _select(tree: Any, span: tuple[int, int]) -> Node:
    owner, field = tree.children
    optional = tree.data == "member_opt_dot"
    return Select(*span, _node(owner), str(field), field.start_pos, optional=optional)


def _index(tree: Any, span: tuple[int, int]) -> Node:
    owner, key = map(_node, tree.children)
    name = "_[?_]" if tree.data == "member_opt_index" else "_[_]"
    return Call(*span, name, (owner, key), tree.children[0].meta.end_pos)


def _method(tree: Any, span: tuple[int, int]) -> Node:
    name = tree.children[1]
    target, arguments = _node(tree.children[0]), _arguments(tree.children[2:])
    qualified = f"{target.name}.{name}" if isinstance(target, Name) else ""
    if qualified == "cel.bind" and len(arguments) == 3:
        variable = _variable(arguments[0], qualified)
        return Macro(*span, "bind", arguments[1], (variable,), arguments[2:], name.start_pos)
    if qualified in declarations.GLOBALS:
        return Call(*span, qualified, arguments, target.start)
    kind, count = _MACROS.get((str(name), len(arguments)), ("", 0))
    if kind:
        variables = tuple(_variable(argument, str(name)) for argument in arguments[:count])
        return Macro(*span, kind, target, variables, arguments[count:], name.start_pos)
    return Call(*span, str(name), (target, *arguments), name.start_pos, method=True)


def _variable(node: Node, macro: str) -> str:
    if not isinstance(node, Name):
        raise Problem(f"the first argument of {macro}() must be a variable name", node.start)
    return node.name


def _call(tree: Any, span: tuple[int, int]) -> Node:
    name, arguments = tree.children[0], _arguments(tree.children[1:])
    if name == "has":
        if len(arguments) != 1 or not isinstance(arguments[0], Select):
            raise Problem("has() takes one field selection, for example has(a.b)", name.start_pos)
        return dataclasses.replace(arguments[0], start=span[0], end=span[1], test=True)
    _refuse_reserved(name)
    return Call(*span, str(name), arguments, name.start_pos)


def _arguments(trees: list[Any]) -> tuple[Node, ...]:
    return tuple(map(_node, trees[0].children)) if trees else ()


def _name(tree: Any, span: tuple[int, int]) -> Node:
    (name,) = tree.children
    if name in _WORDS:
        return Constant(*span, _WORDS[name])
    _refuse_reserved(name)
    return Name(*span, str(name))


def _refuse_reserved(name: Any) -> None:
    if name in _RESERVED:
        raise Problem(f"{str(name)!r} is a reserved word", name.start_pos)


def _literal(tree: Any, span: tuple[int, int]) -> Node:
    (token,) = tree.children
    return Constant(*span, literals.value(token.type, str(token), span[0]))


def _list(tree: Any, span: tuple[int, int]) -> Node:
    items = [item.children[0] for item in tree.children]
    optional = frozenset(n for n, item in enumerate(items) if item.data == "opt_item")
    return ListOf(*span, tuple(map(_node, items)), optional)


def _map(tree: Any, span: tuple[int, int]) -> Node:
    entries = [e.children[0] if len(e.children) == 1 else e for e in tree.children]
    optional = frozenset(n for n, entry in enumerate(entries) if entry.data == "opt_entry")
    pairs = tuple((_node(entry.children[0]), _node(entry.children[1])) for entry in entries)
    return MapOf(*span, pairs, optional)


def _message(_: Any, span: tuple[int, int]) -> Node:
    raise Problem("message literals are of no use here: there are no message types", span[0])


_BUILDERS: Mapping[str, Callable[[Any, tuple[int, int]], Node]] = {
    "expr": _choice,
    "conditionalor": _logic,
    "conditionaland": _logic,
    "relation": _binary,
    "addition": _binary,
    "multiplication": _binary,
    "unary": _unary,
    "paren_expr": _paren,
    "member_dot": _select,
    "member_opt_dot": _select,
    "member_index": _index,
    "member_opt_index": _index,
    "member_dot_arg": _method,
    "member_object": _message,
    "dot_ident_arg": _call,
    "ident_arg": _call,
    "dot_ident": _name,
    "ident": _name,
    "literal": _literal,
    "list_lit": _list,
    "map_lit": _map,
}
