"""The type checker: what Kubernetes' compiler refuses before an expression ever runs.

Source: cel-go `checker/checker.go`, and its validators for literals that Kubernetes switches on.
"""

from collections.abc import Mapping, Sequence

from dra_driver.logic.cel import declarations, kinds, patterns, syntax, times, values

_LITERALS = {"duration": times.duration, "timestamp": times.timestamp}
_PATTERNS = {"matches", "find", "findAll"}
_TYPES = frozenset(
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"]
)
"""Names that stand for types."""

_BODIES: Mapping[str, tuple[str, str]] = {
    "transformMapEntry": ("map dyn", "a map"),
    "optFlatMap": ("optional dyn", "an optional"),
    "sortBy": (" ".join(map(str, (*kinds.ORDERED, kinds.DYN))), "keys with an order"),
}
"""Macros whose body must be of some type, and how that is called."""


def check(node: syntax.Node) -> None:
    """Check an expression about `device` that must be true or false.

    Raises:
        syntax.Problem: with the position.
    """
    found = _Checker({"device": kinds.Type("Device")}).kind(node)
    if found not in {kinds.BOOL, kinds.DYN}:
        raise syntax.Problem(f"must evaluate to bool, not {found}", node.start)


class _Checker:
    """Types of nodes, given those of variables; with `mixed`, literals may mix types."""

    def __init__(self, scope: Mapping[str, kinds.Type], *, mixed: bool = False) -> None:
        self._scope = scope
        self._mixed = mixed

    def kind(self, node: syntax.Node) -> kinds.Type:
        match node:
            case syntax.Constant(value=value):
                found = kinds.Type(values.type_name(value))
            case syntax.Name():
                found = self._name(node)
            case syntax.Select():
                found = self._select(node)
            case syntax.Call():
                found = self._call(node)
            case syntax.Choice():
                found = self._choice(node)
            case syntax.ListOf(items=items, optional=optional):
                found = kinds.list_of(self._alike(items, optional))
            case syntax.MapOf():
                found = self._map(node)
            case syntax.Macro():
                found = self._macro(node)
            case syntax.Logic(operator=operator, operands=operands):
                for operand in operands:
                    self._expect(operand, kinds.BOOL, f"_{operator}_")
                found = kinds.BOOL
        return found

    def _name(self, node: syntax.Name) -> kinds.Type:
        if node.name in _TYPES and node.name not in self._scope:
            return kinds.TYPE
        if node.name not in self._scope:
            raise syntax.Problem(f"undeclared reference to {node.name!r}", node.start)
        return self._scope[node.name]

    def _select(self, node: syntax.Select) -> kinds.Type:
        owner = self.kind(node.owner)
        wrapped = owner.name == "optional"
        found = self._field(node, owner.arguments[0] if wrapped else owner)
        if node.test:
            return kinds.BOOL
        return kinds.optional_of(found) if wrapped or node.optional else found

    def _field(self, node: syntax.Select, owner: kinds.Type) -> kinds.Type:
        if owner.name == "map":
            return owner.arguments[1]
        if owner.name == "Device":
            if node.field not in declarations.DEVICE:
                known = ", ".join(sorted(declarations.DEVICE))
                text = f"undefined field {node.field!r}: device has {known}"
                raise syntax.Problem(text, node.place)
            return declarations.DEVICE[node.field]
        if owner != kinds.DYN:
            text = f"type '{owner}' does not support field selection"
            raise syntax.Problem(text, node.place)
        return kinds.DYN

    def _call(self, node: syntax.Call) -> kinds.Type:
        # What is formatted may be mixed, as the validator of cel-go for literals has it.
        mixed = node.function == "format"
        inner = _Checker(self._scope, mixed=mixed)
        arguments = [inner.kind(argument) for argument in node.arguments]
        results = []
        for overload in _overloads(node):
            bound: dict[str, kinds.Type] = {}
            if len(overload.parameters) == len(arguments) and all(
                kinds.fits(actual, expected, bound)
                for actual, expected in zip(arguments, overload.parameters, strict=True)
            ):
                results.append(kinds.substitute(overload.result, bound))
        if not results:
            raise _no_overload(node, arguments)
        _check_literals(node)
        return kinds.common(results)

    def _expect(self, node: syntax.Node, kind: kinds.Type, name: str) -> None:
        found = self.kind(node)
        if not kinds.fits(found, kind, {}):
            text = f"found no matching overload for {name!r}: expected {kind}, found {found}"
            raise syntax.Problem(text, node.start)

    def _choice(self, node: syntax.Choice) -> kinds.Type:
        self._expect(node.condition, kinds.BOOL, "_?_:_")
        yes, no = self.kind(node.yes), self.kind(node.no)
        if kinds.fits(no, yes, {}):
            return yes if no != kinds.DYN else kinds.DYN
        text = f"found no matching overload for '_?_:_' applied to '(bool, {yes}, {no})'"
        raise syntax.Problem(text, node.start)

    def _alike(self, items: Sequence[syntax.Node], optional: frozenset[int]) -> kinds.Type:
        """The type of all items of a literal, which must be one."""
        known = kinds.DYN
        for number, item in enumerate(items):
            found = self.kind(item)
            if number in optional and found != kinds.DYN:
                if found.name != "optional":
                    text = f"expected type 'optional(dyn)' but found '{found}'"
                    raise syntax.Problem(text, item.start)
                (found,) = found.arguments
            if not kinds.fits(found, known, {}):
                if self._mixed:
                    return kinds.DYN
                text = f"expected type '{known}' but found '{found}': all items must be alike"
                raise syntax.Problem(text, item.start)
            known = found if known == kinds.DYN and not number else known
        return known

    def _map(self, node: syntax.MapOf) -> kinds.Type:
        keys, items = [key for key, _ in node.entries], [item for _, item in node.entries]
        key = self._alike(keys, frozenset())
        if key not in {kinds.DYN, kinds.BOOL, kinds.INT, kinds.UINT, kinds.STRING}:
            raise syntax.Problem(f"unsupported key type '{key}'", keys[0].start)
        return kinds.map_of(key, self._alike(items, node.optional))

    def _macro(self, node: syntax.Macro) -> kinds.Type:
        operand = self.kind(node.operand)
        scope = dict(self._scope)
        scope.update(zip(node.variables, _bound(node, operand), strict=True))
        inner = _Checker(scope)
        *conditions, last = node.bodies
        if node.kind in {"all", "exists", "exists_one", "filter"}:
            conditions.append(last)
        for condition in conditions:
            inner._expect(condition, kinds.BOOL, node.kind)
        return _result(node, operand, inner.kind(last))


def _overloads(node: syntax.Call) -> Sequence[declarations.Overload]:
    if node.function in declarations.OPERATORS:
        return declarations.OPERATORS[node.function]
    table, other = declarations.GLOBALS, declarations.METHODS
    if node.method:
        table, other = other, table
    if node.function in table:
        return table[node.function]
    hint = ""
    if node.function in other:
        right = f"{node.function}(x)" if node.method else f"x.{node.function}()"
        hint = f": write {right}"
    raise syntax.Problem(f"undeclared reference to {node.function!r}{hint}", node.place)


def _no_overload(node: syntax.Call, arguments: Sequence[kinds.Type]) -> syntax.Problem:
    shown = [str(argument) for argument in arguments]
    applied = f"{shown[0]}.({', '.join(shown[1:])})" if node.method else f"({', '.join(shown)})"
    text = f"found no matching overload for {node.function!r} applied to '{applied}'"
    if kinds.Type("Quantity") in arguments and node.function in declarations.OPERATORS:
        text += ": compare a quantity with .compareTo(quantity('1Gi')) >= 0"
    elif kinds.Type("Semver") in arguments and node.function in declarations.OPERATORS:
        text += ": compare a version with .compareTo(semver('1.0.0')) >= 0"
    return syntax.Problem(text, node.place)


def _check_literals(node: syntax.Call) -> None:
    """Times and patterns that are written out must be valid."""
    constants = [a.value for a in node.arguments if isinstance(a, syntax.Constant)]
    last = node.arguments[1:2] if node.function in _PATTERNS else node.arguments[:1]
    if not last or not isinstance(last[0], syntax.Constant) or not isinstance(last[0].value, str):
        return
    try:
        if node.function in _PATTERNS:
            patterns.compile(last[0].value)
        elif node.function in _LITERALS and constants:
            _LITERALS[node.function](last[0].value)
    except values.CallError as error:
        raise syntax.Problem(str(error), last[0].start) from error


def _bound(node: syntax.Macro, operand: kinds.Type) -> tuple[kinds.Type, ...]:
    """The types of a macro's variables."""
    if node.kind == "bind":
        return (operand,)
    wanted = "optional" if node.kind.startswith("opt") else "list or map"
    if operand == kinds.DYN:
        return (kinds.DYN,) * len(node.variables)
    if operand.name == "optional" and wanted == "optional":
        return operand.arguments
    if operand.name == "map" and wanted != "optional" and node.kind != "sortBy":
        return operand.arguments[: len(node.variables)]
    if operand.name == "list" and wanted != "optional":
        return (kinds.INT, *operand.arguments)[-len(node.variables) :]
    text = f"{node.kind}() goes over a value of type {wanted}, not {operand}"
    raise syntax.Problem(text, node.place)


def _result(node: syntax.Macro, operand: kinds.Type, body: kinds.Type) -> kinds.Type:
    """The type of a macro, given that of its last body."""
    key = operand.arguments[0] if operand.name == "map" else kinds.INT
    required, what = _BODIES.get(node.kind, ("", ""))
    if required and body.name not in required.split():
        raise syntax.Problem(f"{node.kind}() wants {what}, not {body}", node.place)
    results = {
        **dict.fromkeys(("all", "exists", "exists_one"), kinds.BOOL),
        **dict.fromkeys(("map", "transformList"), kinds.list_of(body)),
        "filter": kinds.list_of(key) if operand.name == "map" else operand,
        "sortBy": operand,
        "transformMap": kinds.map_of(kinds.DYN if operand == kinds.DYN else key, body),
        "optMap": kinds.optional_of(body),
    }
    return results.get(node.kind, body)
