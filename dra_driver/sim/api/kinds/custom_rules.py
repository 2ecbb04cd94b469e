"""Rules in the schemas of custom resources, `x-kubernetes-validations`: compiled once, and held to.

Source of what is checked, and of the words: Kubernetes 1.36,
`apiextensions-apiserver/pkg/apiserver/schema/cel/validation.go`, and of what is refused
`pkg/apis/apiextensions/validation/validation.go`. What rules may cost is not estimated when they
are defined; each has the limit that one expression has when it runs.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dra_driver.logic.cel import kinds, predicates, values
from dra_driver.sim.api.kinds import (
    custom_checks,
    custom_fitting,
    custom_lists,
    custom_values,
    fields,
)

Json = dict[str, Any]

RULES = "x-kubernetes-validations"
_SELF, _OLD = "self", "oldSelf"
_REASONS = (
    "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired",
)  # fmt: skip
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\['((?:[^'\\]|\\.)*)'\]", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `steps` lead from its value to the field that an error is told of."""

    predicate: predicates.Predicate
    told: predicates.Predicate | None
    message: str
    reason: str
    steps: str
    optional_old: bool

    @property
    def is_about_change(self) -> bool:
        """Whether it compares with what was."""
        return _OLD in self.predicate.names


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """The rules of a schema, and those below it. Where there are none there is no node."""

    schema: Json
    rules: tuple[Rule, ...]
    fields: Mapping[str, "Node"]
    entries: "Node | None"
    items: "Node | None"


@dataclasses.dataclass(frozen=True, slots=True)
class _Change:
    """A value, and what it was. `anchor` are the nearest two around it that are known as such."""

    new: Any
    old: Any
    anchor: tuple[Any, Any]

    def below(self, new: Any, old: Any) -> "_Change":
        pair = (new, old) if old is not custom_checks.NOTHING else self.anchor
        return _Change(new, old, pair)

    @property
    def is_none(self) -> bool:
        """Whether nothing has changed."""
        new, old = self.anchor
        return old is not custom_checks.NOTHING and custom_checks.same(new, old)


def compile(schema: Json, path: str) -> tuple[Node | None, fields.Errors]:  # noqa: A001 - as `re`
    """The rules of the schema of an object, and what is wrong with them; `path` is the schema's.

    A definition is compiled when it is checked, when it is kept, and when its status changes.
    """
    node, found = _of_text(json.dumps(schema), path)
    return node, list(found)


@functools.lru_cache(maxsize=64)
def _of_text(text: str, path: str) -> tuple[Node | None, tuple[fields.FieldError, ...]]:
    found: fields.Errors = []
    root = custom_values.with_metadata(json.loads(text))
    return _node(root, path, "", found), tuple(found)


def check(node: Node | None, new: Any, old: Any = custom_checks.NOTHING) -> fields.Errors:
    """Which rules an object does not meet."""
    return [] if node is None else [*_held(node, _Change(new, old, (new, old)), "")]


def _node(schema: Json, path: str, fixed: str, found: fields.Errors) -> Node | None:
    """`fixed`: the path of what is around it whose parts are not followed over time, if any is."""
    rules = _compiled(schema, path, fixed, found)
    inner = {}
    for name, below in (schema.get("properties") or {}).items():
        around = fixed or _fixed_map(schema, path)
        made = _node(below, f"{path}.properties[{name}]", around, found)
        if made is not None:
            inner[name] = made
    entries = items = None
    if isinstance(below := schema.get("additionalProperties"), dict):
        around = fixed or _fixed_map(schema, path)
        entries = _node(below, f"{path}.additionalProperties", around, found)
    if isinstance(below := schema.get("items"), dict):
        around = fixed or (path if schema.get(custom_lists.TYPE) != "map" else "")
        items = _node(below, f"{path}.items", around, found)
    empty = not rules and not inner and entries is None and items is None
    return None if empty else Node(schema, rules, inner, entries, items)


def _fixed_map(schema: Json, path: str) -> str:
    return path if schema.get("x-kubernetes-map-type") == "atomic" else ""


def _compiled(schema: Json, path: str, fixed: str, found: fields.Errors) -> tuple[Rule, ...]:
    written = schema.get(RULES) or ()
    if not written:
        return ()
    records: custom_values.Records = {}
    kind = custom_values.type_of(schema, _SELF, records)
    made = []
    for index, rule in enumerate(written):
        place = f"{path}.{RULES}[{index}]"
        try:
            one = _rule(schema, rule, kind, records)
        except _RuleError as error:
            found.append(_refused(place, error, rule))
            continue
        if one.is_about_change and fixed:
            detail = (
                f"oldSelf cannot be used on the uncorrelatable portion of the schema within {fixed}"
            )
            found.append(fields.invalid(f"{place}.rule", rule["rule"], detail))
        elif one.optional_old and not one.is_about_change:
            detail = "may not be set if oldSelf is not used in rule"
            found.append(fields.invalid(f"{place}.optionalOldSelf", value=True, detail=detail))
        made.append(one)
    return tuple(made)


class _RuleError(ValueError):
    """What is wrong with a field of a rule. Without a text the field is missing."""

    def __init__(self, field: str, text: str = "") -> None:
        super().__init__(text)
        self.field = field


def _refused(place: str, error: _RuleError, rule: Json) -> fields.FieldError:
    if error.field == "reason" and isinstance(rule["reason"], str):
        return fields.not_supported(f"{place}.reason", rule["reason"], _REASONS)
    if not rule.get(error.field):
        return fields.required(f"{place}.{error.field}", str(error))
    return fields.invalid(f"{place}.{error.field}", rule[error.field], str(error))


def _rule(schema: Json, rule: Json, kind: kinds.Type, records: custom_values.Records) -> Rule:
    for name in ("rule", "message", "messageExpression", "reason", "fieldPath"):
        if not isinstance(rule.get(name, ""), str):
            raise _RuleError(name, "must be a string")
    text, message = rule.get("rule", ""), rule.get("message", "")
    if not text.strip():
        raise _RuleError("rule", "rule is not specified")
    if message and not message.strip():
        raise _RuleError("message", "must be non-empty if specified")
    if "\n" in message.strip():
        raise _RuleError("message", "must not contain line breaks")
    if "\n" in text.strip() and not message:
        raise _RuleError("message", "message must be specified if rule contains line breaks")
    if rule.get("reason") and rule["reason"] not in _REASONS:
        raise _RuleError("reason", "it is none of the reasons")
    if rule.get("fieldPath") and not _leads_somewhere(schema, rule["fieldPath"]):
        raise _RuleError("fieldPath", "must be a valid path")
    optional = bool(rule.get("optionalOldSelf"))
    names = {_SELF: kind, _OLD: kinds.optional_of(kind) if optional else kind}
    try:
        predicate = predicates.Predicate(text, names, records)
    except predicates.CompileError as error:
        raise _RuleError("rule", f"compilation failed: {error}") from error
    told = None
    if expression := rule.get("messageExpression"):
        try:
            told = predicates.Predicate(expression, names, records, kinds.STRING)
        except predicates.CompileError as error:
            why = f"messageExpression compilation failed: {error}"
            raise _RuleError("messageExpression", why) from error
    said = message.strip() or f"failed rule: {text.strip()}"
    steps = rule.get("fieldPath") or ""
    return Rule(predicate, told, said, rule.get("reason", ""), steps, optional)


def _leads_somewhere(schema: Json, path: str) -> bool:
    """Whether a path of fields and keys is one in the schema."""
    place, known = 0, schema
    while place < len(path):
        step = _STEP.match(path, place)
        if step is None:
            return False
        below = custom_fitting.below(known, step[1] or step[2])
        if below is None:
            return False
        place, known = step.end(), below
    return bool(path)


def _held(node: Node, change: _Change, path: str) -> Iterator[fields.FieldError]:
    if change.new is None:
        return
    yield from _broken(node, change, path)
    match change.new:
        case list(items) if node.items is not None:
            before = custom_lists.correlated(node.schema, change.old)
            for index, item in enumerate(items):
                old = before.get(custom_lists.key_of(node.schema, item), custom_checks.NOTHING)
                yield from _held(node.items, change.below(item, old), f"{path}[{index}]")
        case dict(entries):
            was = change.old if isinstance(change.old, dict) else {}
            for key, item in entries.items():
                below, place = node.fields.get(key), f"{path}.{key}" if path else key
                if below is None and key not in (node.schema.get("properties") or {}):
                    below, place = node.entries, f"{path}[{key}]"
                if below is not None:
                    old = was.get(key, custom_checks.NOTHING)
                    yield from _held(below, change.below(item, old), place)


def _broken(node: Node, change: _Change, path: str) -> Iterator[fields.FieldError]:
    if not node.rules:
        return
    is_new = change.old is custom_checks.NOTHING or change.old is None
    now = custom_values.value_of(node.schema, change.new)
    old = None if is_new else custom_values.value_of(node.schema, change.old)
    for rule in node.rules:
        if rule.is_about_change and is_new and not rule.optional_old:
            continue
        was = values.Optional(() if is_new else (old,)) if rule.optional_old else old
        variables = {_SELF: now, _OLD: was}
        outcome = rule.predicate.evaluate(variables)
        if outcome is True or (change.is_none and not rule.is_about_change):
            continue
        yield _error(rule, outcome, variables, path, change.new)


def _error(
    rule: Rule, outcome: Any, variables: Mapping[str, Any], path: str, value: Any
) -> fields.FieldError:
    if isinstance(outcome, predicates.Failure):
        said = rule.message.removeprefix("failed rule: ")
        return fields.broken(path or "<nil>", f"{outcome.text} evaluating rule: {said}")
    place = f"{path}{rule.steps}" if path else rule.steps.removeprefix(".")
    told = rule.told.evaluate(variables) if rule.told is not None else None
    detail = told if isinstance(told, str) and told.strip() and "\n" not in told else rule.message
    match rule.reason:
        case "FieldValueForbidden":
            return fields.forbidden(place or "<nil>", detail)
        case "FieldValueRequired":
            return fields.required(place or "<nil>", detail)
        case "FieldValueDuplicate":
            return fields.duplicate(place or "<nil>", value)
    if isinstance(value, dict | list):
        return fields.broken(place or "<nil>", detail)
    return fields.invalid(place or "<nil>", value, detail)
