"""Upstream's table of selectors, with the outcome that each has in Kubernetes 1.36.

Source of the cases: `staging/src/k8s.io/dynamic-resource-allocation/cel/compile_test.go`, with the
gate for list attributes off, as it is by default.
"""

import pytest

from dra_driver import errors
from dra_driver.logic.cel import selection
from dra_driver.model import quantities, slices

D = "dra.example.com"
A, C = f'device.attributes["{D}"]', f'device.capacity["{D}"]'
V = slices.Version
ONE_MI = {"name": quantities.parse("1Mi")}
EVERYTHING = {
    "attributes": {"a": True, "b": 1, "c": "fish", "d": V("1.0.0"), f"{D}/e": True},
    "capacity": {"memory": quantities.parse("1Mi")},
}
LOOKUPS = [
    f'{A}.a && {A}["a"] && {A}.e && {A}["e"]',
    f'{A}.b > 0 && {A}["b"] > 0 && {A}.c == "fish" && {A}["c"] == "fish"',
    f'{A}.d.isGreaterThan(semver("0.0.1"))',
    f'{C}.memory.isGreaterThan(quantity("1Ki")) && {C}["memory"].isLessThan(quantity("1Gi"))',
]
TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"


def expensive():
    expression = '"abc".find("c") == "c"'
    for variable in "abcdefg":
        expression = f"{TEN}.all({variable}, {expression})"
    return expression


def device(attributes=None, capacity=None, **extra):
    return slices.Device("device-0", attributes or {}, capacity or {}, extra=extra)


# Sentence: expression, what the device has, outcome (a text is that of a run-time error).
OUTCOMES = {
    "true is true": ("true", {}, True),
    "false is false": ("false", {}, False),
    "an unknown id of an unknown domain, dotted, is an error": (
        'device.capacity.nowhere.x.isGreaterThan(quantity("0"))', {}, "no such key: x"),
    "an unknown id of an unknown domain, indexed, is an error": (
        'device.capacity["no.where"]["x"].isGreaterThan(quantity("0"))', {}, "no such key: x"),
    "a domain that the device lacks is not in its attributes": (
        '"no.where" in device.attributes', {"attributes": {"name": 1}}, False),
    "a domain that the device has is in its attributes": (
        f'"{D}" in device.attributes', {"attributes": {"name": 1}}, True),
    "an attribute without a domain is the driver's, dotted": (
        f"{A}.name", {"attributes": {"name": True}}, True),
    "an attribute without a domain is the driver's, indexed": (
        f'{A}["name"]', {"attributes": {"name": True}}, True),
    "a bound variable stands for a domain": (
        f"cel.bind(dra, {A}, dra.name)", {"attributes": {"name": True}}, True),
    "an attribute with another domain is found there": (
        'device.attributes["other.example.com"].name',
        {"attributes": {"other.example.com/name": True}}, True),
    "the driver's name is known": (f'device.driver == "{D}"', {}, True),
    "another driver's name is not": ('device.driver == ""', {}, False),
    "an integer attribute compares with an integer": (
        f"{A}.name > 0", {"attributes": {"name": 1}}, True),
    "a string attribute compares with a string": (
        f'{A}.name == "fish"', {"attributes": {"name": "fish"}}, True),
    "a macro over an integer is an error": (
        f"{A}.name.exists(x, x == 1)", {"attributes": {"name": 1}},
        "expected iterable type, got int"),
    "a macro over a bool is an error": (
        f"{A}.name.exists(x, x == true)", {"attributes": {"name": True}},
        "expected iterable type, got bool"),
    "a macro over a string is an error": (
        f'{A}.name.exists(x, x == "a")', {"attributes": {"name": "a"}},
        "expected iterable type, got string"),
    "a macro over a version is an error": (
        f'{A}.name.exists(x, x == semver("1.0.0"))', {"attributes": {"name": V("1.0.0")}},
        "expected iterable type, got semver"),
    "a version attribute is a semantic version": (
        f'{A}.name.isGreaterThan(semver("0.0.1"))', {"attributes": {"name": V("1.0.0")}}, True),
    "a version with a v is normalised on request": (
        f'{A}.name.isGreaterThan(semver("v0.0.1", true)) && isSemver("v1.0.0", true)',
        {"attributes": {"name": V("1.0.0")}}, True),
    "a capacity is a quantity": (
        f'{C}.name.isGreaterThan(quantity("1Ki"))', {"capacity": ONE_MI}, True),
    "what is asked for first is read": (
        f'"name" in {C} && {C}.name.isGreaterThan(quantity("1Ki"))', {"capacity": ONE_MI}, True),
    "what is asked for first and missing is not read": (
        f'!("name" in {C}) || {C}.name.isGreaterThan(quantity("1Ki"))', {}, True),
    "all types, dotted and indexed, in one expression": (" && ".join(LOOKUPS), EVERYTHING, True),
    "many attributes in one expression": (
        f"{A}.a && {A}.b && {A}.c", {"attributes": {"a": True, "b": True, "c": True}}, True),
    "a macro goes over the domains of attributes": (
        f'device.attributes.exists_one(x, x == "{D}")', {"attributes": {"name": 1}}, True),
    "a macro goes over the domains of capacities": (
        f'device.capacity.exists_one(x, x == "{D}")', {"capacity": ONE_MI}, True),
    "a macro goes over the ids of attributes": (
        f'{A}.exists_one(x, x == "name")', {"attributes": {"name": 1}}, True),
    "a macro goes over the ids of capacities": (
        f'{C}.exists_one(x, x == "name")', {"capacity": ONE_MI}, True),
    "a string attribute can be split": (
        f'{A}.name.split("example").size() >= 2', {"attributes": {"name": "an example!"}}, True),
    "a pattern matches anywhere": (
        f'{A}.name.matches("[^a]?sym")', {"attributes": {"name": "asymetric"}}, True),
    "what takes too long is stopped": (expensive(), {}, "actual cost limit exceeded"),
    "multiple allocations are allowed": (
        "device.allowMultipleAllocations == true", {"allowMultipleAllocations": True}, True),
    "multiple allocations are not allowed by default": (
        "device.allowMultipleAllocations == false", {}, True),
    "multiple allocations are not allowed": (
        "device.allowMultipleAllocations", {"allowMultipleAllocations": False}, False),
}  # fmt: skip

# Sentence: expression, problem.
COMPILE_ERRORS = {
    "a syntax error": ("?!", "syntax error at '?!'"),
    "a result that is not bool": ("1", "must evaluate to bool, not int"),
    "includes() while the gate for lists is off": (
        f"{A}.name.includes(1)", "undeclared reference to 'includes'"),
}  # fmt: skip


@pytest.mark.parametrize("sentence", OUTCOMES)
def test_the_outcome_is_that_of_kubernetes(sentence):
    expression, has, expected = OUTCOMES[sentence]
    selector = selection.compile(expression)
    if isinstance(expected, bool):
        assert selector.matches(device(**has), D) is expected
        return
    with pytest.raises(selection.EvaluationError) as caught:
        selector.matches(device(**has), D)
    assert caught.value.problem == expected


@pytest.mark.parametrize("sentence", COMPILE_ERRORS)
def test_this_does_not_compile_in_kubernetes(sentence):
    expression, problem = COMPILE_ERRORS[sentence]
    assert (
        selection.check(expression, lists=False)
        == f"line 1, column {_column(expression)}: {problem}"
    )


def _column(expression):
    return max(expression.find("includes") + 1, 1)


@pytest.mark.parametrize(
    ("value", "expression"),
    [
        ({"ints": [1, 2]}, f"{A}.name == [1, 2] && {A}.name.includes(2) && !{A}.name.includes(3)"),
        ({"strings": ["a", "b"]}, f"{A}.name.exists(x, x == 'b') && {A}.name[0] == 'a'"),
        ({"bools": [True]}, f"{A}.name.all(x, x)"),
        ({"versions": ["1.0.0"]}, f"{A}.name.includes(semver('1.0.0')) && size({A}.name) == 1"),
        ({"int": 2}, f"{A}.name.includes(2) && !{A}.name.includes('2')"),
    ],
)
def test_an_attribute_may_be_a_list(value, expression):
    listed = slices.parse_device({"name": "device-0", "attributes": {"name": value}})
    assert selection.compile(expression).matches(listed, D) is True


@pytest.mark.parametrize("value", [{"ints": []}, {"ints": ["a"]}, {"strings": [1]}, {"ints": 1}])
def test_a_list_of_nothing_or_of_another_type_is_no_attribute(value):
    with pytest.raises(errors.Rejected, match="allowed is exactly one of int, bool, string"):
        slices.parse_device({"name": "device-0", "attributes": {"name": value}})


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (f"{A}.name.exists(x, true)", "exists() goes over a value of type list or map, not any"),
        (f"'%s'.format([{A}.name]) == ''", "not any"),
        (f"[{A}.name, dyn(1)].size() == 2", "expected type 'any' but found 'dyn'"),
        ("dyn(true)", "must evaluate to bool, not dyn"),
    ],
)
def test_this_compiles_only_where_attributes_may_be_lists(expression, problem):
    assert problem in selection.check(expression, lists=False)


def test_the_value_of_an_attribute_may_be_the_outcome_with_and_without_lists():
    assert selection.check(f"{A}.name", lists=False) is None
    assert selection.check(f"{A}.name") is None
