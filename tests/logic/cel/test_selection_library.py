"""Every library of Kubernetes' environment, by what its documentation says of each function."""

import pytest
import selector_cases

from dra_driver.logic.cel import declarations, library, operators, selection
from dra_driver.model import slices

DEVICE = slices.Device("device-0", {"name": "fish", "count": 3}, {})


def evaluate(expression):
    return selection.compile(expression).matches(DEVICE, "d")


FAILS = {
    "the value of none": ("optional.none().value() == 1", "optional.none() dereference"),
    "a list of lists of other types is sorted": ("[dyn(1), dyn('a')].sort() == []",
        "the same type"),
    "a slice out of range": ("[1].slice(0, 2) == []", "cannot slice(0, 2)"),
    "the smallest of none": ("[].min() == 1", "min called on empty list"),
    "flatten to a negative depth": ("[[1]].flatten(-1) == []", "must be non-negative"),
    "a pattern made at run time": ("'a'.matches('(' + '?=a)')", "invalid perl operator: (?="),
    "a back-reference made at run time": (r"'aa'.matches('(a)' + '\\1')", "error parsing regexp"),
    "an address that is none": ("ip('x').family() == 4", "IP Address 'x' parse error"),
    "an address with a zone": ("ip('fe80::1%eth0').family() == 6", "zone value is not allowed"),
    "a canonical form of no address": ("ip.isCanonical('x')", "parse error"),
    "a network that is none": ("cidr('10.0.0.0/08').prefixLength() == 8", "parse error"),
    "a URL that is none": ("url('x').getHost() == ''", "URL parse error"),
    "too few values to format": ("'%s %s'.format([1] + []) == ''", "index 1 out of range"),
    "an unknown clause": ("'%q'.format([1] + []) == ''", "unrecognized formatting clause '%q'"),
    "a value that %d does not take": (
        "'%d'.format(['x'] + []) == ''",
        "decimal clause can only be used on integers, was given string"),
    "a value that %f does not take": ("'%f'.format([1] + []) == ''", "can only be used on doubles"),
    "a value that %x does not take": ("'%x'.format([1.5] + []) == ''", "can be formatted as hex"),
    "a value that %b does not take": (
        "'%b'.format(['x'] + []) == ''", "can be formatted as binary"),
    "a value that %s does not take": (
        "'%s'.format([quantity('1')] + []) == ''", "no formatting function"),
    "a version with a blank": ("semver(' 1.0.0', true) == semver('1.0.0')", "' 1.0.0'"),
    "an order of quantities": (
        "dyn(quantity('1')) < dyn(quantity('2'))", "no such overload of _<_ for (quantity"),
    "an order of a bool and an integer": ("dyn(false) < dyn(1)", "no such overload of _<_"),
    "a sum of bools": ("dyn(true) + dyn(true) == 2", "no such overload of _+_ for (bool, bool)"),
    "an index that is a bool": ("[1][dyn(false)] == 1", "no such overload of _[_]"),
    "an integer that is too large": ("9223372036854775807 + 1 > 0", "integer overflow"),
    "a product that is too large": ("9223372036854775807 * 2 > 0", "integer overflow"),
    "a quotient that is too large": ("-9223372036854775808 / -1 > 0", "integer overflow"),
    "the negative of the smallest integer": ("-(-9223372036854775808) > 0", "integer overflow"),
    "an unsigned integer below zero": ("1u - 2u == 0u", "unsigned integer overflow"),
    "a conversion to unsigned below zero": ("uint(0 - 1) == 0u", "unsigned integer overflow"),
    "division by zero": ("1 / 0 == 1", "division by zero"),
    "modulus by zero": ("1 % 0 == 1", "modulus by zero"),
    "a key twice": ("{'a': 1, 'b': 2}.transformMapEntry(k, v, {'x': v}) == {}", "already exists"),
    "a time zone that is none": (
        "timestamp('2023-01-01T00:00:00Z').getHours('x') == 0", "time zone"),
    "a time after the last": (
        "timestamp('9999-12-31T23:59:59Z') + duration('1h') == timestamp(0)", "overflow"),
    "bytes that are no text": (r"string(b'\377' + b'') == ''", "invalid UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("sentence", selector_cases.HOLDS)
def test_this_holds(sentence):
    assert evaluate(selector_cases.HOLDS[sentence]) is True


@pytest.mark.parametrize("sentence", FAILS)
def test_this_is_a_run_time_error(sentence):
    expression, problem = FAILS[sentence]
    with pytest.raises(selection.EvaluationError) as caught:
        evaluate(expression)
    assert problem in caught.value.problem
    assert caught.value.line == 1


def test_a_range_without_end_is_refused_before_it_is_made():
    assert_costs_too_much("lists.range(1000000000000).size() > 0")


def test_a_text_that_doubles_and_doubles_is_refused_before_it_fills_the_memory():
    expression = "x.size() > 0"
    for _ in range(60):
        expression = f"cel.bind(x, x + x, {expression})"
    assert_costs_too_much(f"cel.bind(x, 'x', {expression})")


def test_a_replacement_that_makes_a_text_too_long_is_refused():
    assert_costs_too_much(
        "cel.bind(x, lists.range(1000).map(i, 'a').join(), x.replace('a', x + x).size() > 0)"
    )


def test_a_cost_that_is_too_high_is_not_absorbed():
    assert_costs_too_much("true && (lists.range(1000000000000).size() > 0 || true)")


def assert_costs_too_much(expression):
    with pytest.raises(selection.EvaluationError) as caught:
        evaluate(expression)
    assert caught.value.problem == "actual cost limit exceeded"


def test_every_function_that_is_declared_is_there_and_none_besides():
    assert declarations.GLOBALS.keys() == library.GLOBALS.keys()
    assert declarations.METHODS.keys() == library.METHODS.keys() | {"or", "orValue"}
    of_macros = {"_?_:_", "@sortByAssociatedKeys", "@mapInsert"}
    assert declarations.OPERATORS.keys() == operators.OPERATORS.keys() | of_macros
