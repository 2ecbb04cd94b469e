"""The type checker: what Kubernetes' compiler refuses before an expression ever runs.

A macro is checked as the loop that cel-go makes of it. Source: cel-go 0.26 `checker/checker.go`,
`parser/macro.go`, `ext/comprehensions.go`, `ext/lists.go`, `cel/library.go`.
"""

from collections.abc import Mapping, Sequence

from dra_driver.logic.cel import declarations, kinds, literal_checks, syntax, unification, values

_TYPES: Mapping[str, kinds.Type] = {
    **{kind.name: kind for kind in (kinds.BOOL, kinds.BYTES, kinds.DOUBLE, kinds.INT)},
    **{kind.name: kind for kind in (kinds.STRING, kinds.UINT)},
    "list": kinds.list_of(kinds.DYN),
    "map": kinds.map_of(kinds.DYN, kinds.DYN),
    "null_type": kinds.NULL,
    "type": kinds.type_of(kinds.DYN),
}
"""Names that stand for types."""

_Scope = Mapping[str, kinds.Type]
Records = Mapping[str, Mapping[str, kinds.Type]]
"""The fields of types that have fields, by the name of the type."""
_DEVICE: Records = {"Device": declarations.DEVICE}


_SCALARS = frozenset({kinds.BOOL, kinds.INT, kinds.STRING, kinds.Type("Semver")})
_LISTS = frozenset(kinds.list_of(kind) for kind in (*_SCALARS, kinds.DYN))


def check(node: syntax.Node, *, lists: bool = True, selects: bool = True) -> None:
    """Check an expression about `device`.

    Args:
        node: the expression.
        lists: whether attributes may be lists (feature gate DRAListTypeAttributes).
        selects: whether it must be true or false; else it has the value of an attribute.

    Raises:
        syntax.Problem: with the position.
    """
    checker = _Checker(lists=lists)
    try:
        found = checker.final(checker.kind(node, {"device": kinds.Type("Device")}))
        checker.finish()
    except unification.TooLargeError as error:
        raise syntax.Problem("a list or a map of lists and maps is nested too deeply") from error
    open_kind = kinds.DYN if lists else kinds.ANY
    if selects and found not in {kinds.BOOL, open_kind}:
        raise syntax.Problem(f"must evaluate to bool, not {found}", node.start)
    allowed = _SCALARS | _LISTS if lists else _SCALARS
    if not selects and found not in allowed | {open_kind}:
        more = ", or a list of these" if lists else ""
        text = f"must evaluate to int, bool, string or Semver{more}, not {found}"
        raise syntax.Problem(text, node.start)


def kind_of(node: syntax.Node, scope: _Scope, records: Records) -> kinds.Type:
    """The type of an expression about variables of these types.

    Raises:
        syntax.Problem: with the position.
    """
    checker = _Checker(lists=True, records=records)
    try:
        found = checker.final(checker.kind(node, scope))
        checker.finish()
    except unification.TooLargeError as error:
        raise syntax.Problem("a list or a map of lists and maps is nested too deeply") from error
    return found


class _Checker:
    """Types of nodes, given those of variables."""

    def __init__(self, *, lists: bool, records: Records = _DEVICE) -> None:
        self._lists = lists
        self._records = records
        self._open = unification.Substitutions()
        self._kinds: dict[int, kinds.Type] = {}
        self._literals: list[list[tuple[syntax.Node, kinds.Type]]] = []
        self._formats: list[syntax.Call] = []
        self._variables: list[tuple[syntax.Node, str, kinds.Type]] = []
        self._formatted = 0

    def finish(self) -> None:
        """Check what is only known once all types are."""
        for literal in self._literals:
            literal_checks.check_alike([(item, self.final(kind)) for item, kind in literal])
        for call in self._formats:
            literal_checks.check_format(call, lambda node: self.final(self._kinds[id(node)]))
        for node, name, kind in self._variables:
            if self.final(kind).name == "type":
                # The planner takes it for the name of one.
                raise syntax.Problem(f"reference to undefined type {name!r}", node.start)

    def final(self, kind: kinds.Type) -> kinds.Type:
        return self._open.resolved(kind, open_is_dyn=True)

    def kind(self, node: syntax.Node, scope: _Scope) -> kinds.Type:
        match node:
            case syntax.Constant(value=value):
                found = kinds.Type(values.type_name(value))
            case syntax.Name():
                found = _name(node, scope)
                if node.name in scope:
                    self._variables.append((node, node.name, found))
            case syntax.Select():
                found = self._select(node, scope)
            case syntax.Call():
                found = self._call(node, scope)
            case syntax.Choice(condition=condition, yes=yes, no=no):
                arguments = [self.kind(part, scope) for part in (condition, yes, no)]
                found = self._result("_?_:_", arguments, node.start)
            case syntax.ListOf(items=items, optional=optional):
                found = kinds.list_of(self._alike(items, optional, scope))
            case syntax.MapOf(entries=entries, optional=optional):
                key = self._alike([key for key, _ in entries], frozenset(), scope)
                value = self._alike([item for _, item in entries], optional, scope)
                found = kinds.map_of(key, value)
            case syntax.Macro():
                found = self._macro(node, scope)
            case syntax.Logic(operator=operator, operands=operands):
                for operand in operands:
                    self._expect(self.kind(operand, scope), operand.start, f"_{operator}_")
                found = kinds.BOOL
        self._kinds[id(node)] = unification.bounded(found)
        return found

    def _select(self, node: syntax.Select, scope: _Scope) -> kinds.Type:
        owner = self._open.resolved(self.kind(node.owner, scope))
        wrapped = owner.name == "optional"
        found = self._field(node, owner.arguments[0] if wrapped else owner)
        if node.test:
            return kinds.BOOL
        return kinds.optional_of(found) if wrapped or node.optional else found

    def _field(self, node: syntax.Select, owner: kinds.Type) -> kinds.Type:
        if owner.name == "map":
            return owner.arguments[1]
        if owner.name in self._records:
            fields = self._records[owner.name]
            if node.field not in fields:
                known = ", ".join(sorted(fields)) or "no fields"
                what = "device" if owner.name == "Device" else "it"
                text = f"undefined field {node.field!r}: {what} has {known}"
                raise syntax.Problem(text, node.place)
            found = fields[node.field]
            # Without lists nobody goes over the value of an attribute.
            return found if self._lists else found.replaced({"dyn": kinds.ANY})
        if owner.is_variable:
            self._open.fits(kinds.DYN, owner)
        elif owner not in kinds.DYNAMIC:
            text = f"type '{owner}' does not support field selection"
            raise syntax.Problem(text, node.place)
        return kinds.DYN

    def _call(self, node: syntax.Call, scope: _Scope) -> kinds.Type:
        # What is formatted may be mixed, at any depth.
        self._formatted += node.function == "format"
        arguments = [self.kind(argument, scope) for argument in node.arguments]
        self._formatted -= node.function == "format"
        if node.function == "includes" and not self._lists:
            raise syntax.Problem("undeclared reference to 'includes'", node.place)
        found = self._matching(_overloads(node), arguments)
        if found is None:
            resolved = [self.final(kind) for kind in arguments]
            raise _no_overload(node, resolved)
        literal_checks.check(node)
        if node.function == "format":
            self._formats.append(node)
        return found

    def _matching(
        self, overloads: Sequence[declarations.Overload], arguments: Sequence[kinds.Type]
    ) -> kinds.Type | None:
        """The result of those overloads that take the arguments; `dyn` if they differ in it."""
        found: kinds.Type | None = None
        for overload in overloads:
            *parameters, result = self._open.instance(*overload.parameters, overload.result)
            if not self._open.all_fit(arguments, parameters):
                continue
            result = self._open.resolved(result)
            if found is None:
                found = result
            elif found not in kinds.DYNAMIC | {result}:
                found = kinds.DYN
        return found

    def _result(self, operator: str, arguments: Sequence[kinds.Type], place: int) -> kinds.Type:
        found = self._matching(declarations.OPERATORS[operator], arguments)
        if found is None:
            shown = ", ".join(str(self.final(kind)) for kind in arguments)
            text = f"found no matching overload for {operator!r} applied to '({shown})'"
            raise syntax.Problem(text, place)
        return found

    def _expect(self, found: kinds.Type, place: int, name: str) -> None:
        if not self._open.fits(found, kinds.BOOL):
            shown = self.final(found)
            text = f"found no matching overload for {name!r}: expected bool, found {shown}"
            raise syntax.Problem(text, place)

    def _alike(
        self, items: Sequence[syntax.Node], optional: frozenset[int], scope: _Scope
    ) -> kinds.Type:
        """The type of all items of a literal."""
        listed, common = [], None
        for number, item in enumerate(items):
            found = self.kind(item, scope)
            if number in optional:
                found = self._unwrapped(found, item)
            listed.append((item, found))
            common = found if common is None else self._open.joined(common, found)
        if len(listed) > 1 and not self._formatted:
            self._literals.append(listed)
        return self._open.variable() if common is None else common

    def _unwrapped(self, found: kinds.Type, item: syntax.Node) -> kinds.Type:
        if found in kinds.DYNAMIC and self._formatted:
            return kinds.DYN
        if found.name != "optional":
            text = f"expected type 'optional(dyn)' but found '{found}'"
            raise syntax.Problem(text, item.start)
        return found.arguments[0]

    def _macro(self, node: syntax.Macro, scope: _Scope) -> kinds.Type:
        operand = self.kind(node.operand, scope)
        if node.kind == "bind":
            self._variables.append((node, node.variables[0], operand))
            return self.kind(node.bodies[0], {**scope, node.variables[0]: operand})
        if node.kind.startswith("opt"):
            return self._of_optional(node, operand, scope)
        variables = self._of_loop(node, self._open.resolved(operand))
        inner = {**scope, **dict(zip(node.variables, variables, strict=True))}
        bodies = [self.kind(body, inner) for body in node.bodies]
        if node.kind in {"all", "exists"}:
            self._expect(bodies[0], node.bodies[0].start, node.kind)
            return kinds.BOOL
        if node.kind == "sortBy":
            keys = self._looped(kinds.list_of(self._open.variable()), "_+_", _listed(bodies), node)
            sort = declarations.OPERATORS["@sortByAssociatedKeys"]
            return self._wanted("keys with an order", sort, [operand, keys], bodies[0], node)
        if node.kind == "exists_one":
            self._result("_?_:_", [bodies[0], kinds.INT, kinds.INT], node.place)
            return kinds.BOOL
        if node.kind == "filter":
            bodies.append(variables[0])
        return self._made(node, variables, bodies)

    def _made(
        self, node: syntax.Macro, variables: Sequence[kinds.Type], bodies: Sequence[kinds.Type]
    ) -> kinds.Type:
        """What a macro makes of items: a list or a map that grows with each."""
        *conditions, last = bodies
        if "transformMap" not in node.kind:
            start, operator = kinds.list_of(self._open.variable()), "_+_"
            added = _listed([*conditions, last])
        else:
            start = kinds.map_of(self._open.variable(), self._open.variable())
            operator = "@mapInsert"
            item = [last] if node.kind == "transformMapEntry" else [variables[0], last]
            added = (conditions, item)
        return self._looped(start, operator, added, node)

    def _looped(
        self,
        start: kinds.Type,
        operator: str,
        added: tuple[Sequence[kinds.Type], Sequence[kinds.Type]],
        node: syntax.Macro,
    ) -> kinds.Type:
        conditions, item = added
        adding = declarations.OPERATORS[operator]
        step = self._wanted("a map", adding, [start, *item], item[-1], node)
        for condition in conditions:
            step = self._result("_?_:_", [condition, step, start], node.place)
        if not self._open.fits(start, step):
            text = f"{node.kind}(): expected type '{start}' but found '{step}'"
            raise syntax.Problem(text, node.place)
        return self._open.resolved(start)

    def _wanted(
        self,
        what: str,
        overloads: Sequence[declarations.Overload],
        arguments: Sequence[kinds.Type],
        body: kinds.Type,
        node: syntax.Macro,
    ) -> kinds.Type:
        """What a macro gives, of which only the body may be of a type that does not fit."""
        found = self._matching(overloads, arguments)
        if found is None:
            text = f"{node.kind}() wants {what}, not {self.final(body)}"
            raise syntax.Problem(text, node.place)
        return found

    def _of_optional(self, node: syntax.Macro, operand: kinds.Type, scope: _Scope) -> kinds.Type:
        has = self._matching(declarations.METHODS["hasValue"], [operand])
        value = self._matching(declarations.METHODS["value"], [operand])
        if has is None or value is None:
            text = f"{node.kind}() goes over a value of type optional, not {self.final(operand)}"
            raise syntax.Problem(text, node.place)
        self._variables.append((node, node.variables[0], value))
        found = self.kind(node.bodies[0], {**scope, node.variables[0]: value})
        if node.kind == "optMap":
            found = kinds.optional_of(found)
        none = kinds.optional_of(self._open.variable())
        choice = declarations.OPERATORS["_?_:_"]
        return self._wanted("an optional", choice, [kinds.BOOL, found, none], found, node)

    def _of_loop(self, node: syntax.Macro, operand: kinds.Type) -> tuple[kinds.Type, ...]:
        """The types of a macro's variables."""
        count = len(node.variables)
        if operand.name == "list":
            return (kinds.INT, *operand.arguments)[-count:]
        if operand.name == "map":
            return operand.arguments[:count]
        if operand != kinds.DYN and not operand.is_variable:
            text = f"{node.kind}() goes over a value of type list or map, not {operand}"
            raise syntax.Problem(text, node.place)
        self._open.fits(kinds.DYN, operand)
        return (kinds.DYN,) * count


def _listed(
    bodies: Sequence[kinds.Type],
) -> tuple[Sequence[kinds.Type], Sequence[kinds.Type]]:
    """Conditions, and the last body as a list that is added to another."""
    return bodies[:-1], [kinds.list_of(bodies[-1])]


def _name(node: syntax.Name, scope: _Scope) -> kinds.Type:
    if node.name in scope:
        return scope[node.name]
    if node.name in _TYPES:
        return kinds.type_of(_TYPES[node.name])
    raise syntax.Problem(f"undeclared reference to {node.name!r}", node.start)


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
