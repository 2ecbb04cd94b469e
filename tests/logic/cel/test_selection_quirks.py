"""Answers of Kubernetes' CEL 1.36.2 that nobody would guess: each was seen on the real one."""

import pytest

from dra_driver.logic.cel import selection
from dra_driver.model import quantities, slices

A, C = 'device.attributes["d"]', 'device.capacity["d"]'
DEVICE = slices.Device(
    "gpu-0",
    {"version": slices.Version("580.159.4"), "text": "580.159.4", "count": 2**53 + 1, "index": 1},
    {"memory": quantities.parse("8Gi")},
)
NO_ANSWER = "no such overload of _==_"

HOLDS = [
    # A version, a quantity, an address is not equal to what is of another type, and is no error:
    f"'580.159.4' != {A}.version && !('580.159.4' == {A}.version)",
    f"{A}.version != '580.159.4'",
    f"null != {A}.version && {A}.version != null && !({A}.version == null)",
    f"{C}.memory != dyn('8Gi') && dyn(ip('10.0.0.1')) != '10.0.0.1'",
    # within lists and maps it counts as equal,
    f"[{A}.version] == dyn(['x']) && {{'a': {A}.version}} == dyn({{'a': 1}})",
    f"dyn(['x']) != [{A}.version]",
    # but is not found among others.
    f"!({A}.version in [dyn('580.159.4' + '')]) && {A}.version in [semver('580.159.4')]",
    f"[{A}.version].indexOf('580.159.4') == -1 && ['x', 'x'].distinct().size() == 1",
    # What is computed of quantities is a quantity on the left alone.
    f"{C}.memory.add(0) == {C}.memory && {C}.memory != {C}.memory.add(0)",
    f"{C}.memory.compareTo({C}.memory.add(0)) == 0",
    # Whole numbers are compared with doubles as doubles, and are of 64 bits among themselves.
    f"{A}.count == 9007199254740992.0 && {A}.count != 9007199254740992",
    f"{A}.count <= 9007199254740992.0 && !({A}.count <= 9007199254740992)",
    "dyn(18446744073709551615u) != 1e300 && dyn(-1) < 18446744073709551615u",
    # Nothing is in a list without items, and nothing of it is worked out.
    f"!({A}.nope in []) && !(1 / 0 in [])",
    # Lists are ordered as far as their items are.
    "[dyn(1), dyn('a')].isSorted() && [dyn(1), dyn('a')].max() == 1",
    "[dyn('a'), dyn(1)].min() == 'a' && ![dyn(2), dyn(1), dyn('a')].isSorted()",
    f"![dyn(1), dyn(0), dyn({A}.version)].isSorted()",
    # The variable of a binding is only worked out if it is read.
    f"cel.bind(x, {A}.nope, true)",
    # A map may have one key in two types; each finds its own, or else the other.
    "{dyn(1): 'a', dyn(1u): 'b'}[1u] == 'b' && {dyn(1): 'a', dyn(1u): 'b'}.size() == 2",
    f"dyn(9007199254740992.0) in [9007199254740993] && !({A}.count in [9007199254740992.0])",
    "{1: 'a'}[dyn(1.0)] == 'a' && !(dyn(1.5) in {1: 'a'})",
    "{'a': 1, 'a': 2}.a == 2 && {1.5: 'x'}[1.5] == 'x' && {null: 1}.size() == 1",
    # What is no optional is passed on.
    "dyn(1).orValue(2) == 1 && null.orValue(quantity('1')) == null",
    "[optional.of(1), optional.none()].unwrapOpt() == [1] && optional.unwrap([]) == []",
    f"{A}.index.includes(1) && [1, 2].includes(2) && !'a'.includes(1)",
]

FAILS = [
    (
        f"{A}.version == '580.159.4'",
        f"{NO_ANSWER} for (semver, string): write semver('580.159.4')",
    ),
    (f"{A}.version == {A}.text", NO_ANSWER),
    (f"dyn({C}.memory) == '8Gi'", NO_ANSWER),
    ("dyn(cidr('10.0.0.0/8')) == 1", NO_ANSWER),
    ("dyn(url('http://a/b')) == 'http://a/b'", NO_ANSWER),
    ("dyn(format.uuid()) == 'uuid'", NO_ANSWER),
    (f"optional.of({A}.version) == optional.of(dyn(null))", NO_ANSWER),
    (f"{C}.memory == {C}.memory.add(0)", NO_ANSWER),
    (f"{{'a': 1}}[{A}.version] == 1", "a value of type semver is no key"),
    ("cel.bind(x, 1 / 0, x == 1)", "division by zero"),
    ("cel.bind(n, double('NaN'), {n: 1}[n] == 1)", "no such key"),
    (f"duration({A}.index) == duration('1s')", "no such overload of duration for (int)"),
    ("double('NaN') < 1", "NaN values cannot be ordered"),
    ("[dyn(1), dyn({})].isSorted()", "no such overload of isSorted"),
    ("[dyn(true)].sum() == 1", "no such overload of sum"),
    ("lists.range(49).includes(99)", "cannot be applied to lists longer than 48 values"),
]

NOT_EVEN_ABSORBED = [
    f"true || {A}.version in ['580.159.4']",
    f"{A}.version in ['580.159.4'] || true",
    f"{A}.version in {{'580.159.4': 1}} || true",
    f"{{{A}.version: 1}} == {{}} || true",
]

COMPILES = [
    f"{C}.memory != null && ip('10.0.0.1') != null && duration('1s') != null",
    f"has({A}.x) ? {A}.x : true",
    "[1, 2].map(x, []) == [[], []] && [].size() == 0",
    "{1.5: 1} == {1.5: 1} && '%s %d'.format(['a', 1]) == 'a 1'",
    "semver('1.0.0') in [null] || optional.none().orValue(true)",
    "-dyn(duration('1s')) == duration('-1s')",
]

REFUSED = [
    ("1 == 1.0", "found no matching overload for '_==_' applied to '(int, double)'"),
    ("0 != 0u", "found no matching overload for '_!=_' applied to '(int, uint)'"),
    ("null == 1", "found no matching overload for '_==_' applied to '(null, int)'"),
    (f"[{A}.x, 'a'].size() == 2", "expected type 'dyn' but found 'string'"),
    (f"[{C}, {A}].size() == 2", "all items must be alike"),
    (f"{{'a': {A}.x, 'b': 1}}.size() == 2", "expected type 'dyn' but found 'int'"),
    ("'%d'.format(['a']) == ''", "%d is for int, uint, not string"),
    ("'%s'.format([quantity('1')]) == ''", "not Quantity"),
    ("'%s %s'.format([1]) == ''", "the format has 2 clauses, and there are 1 values"),
    ("'a'.format([1]) == 'a'", "the format has 0 clauses, and there are 1 values"),
    ("'%q'.format([1]) == ''", "unrecognized formatting clause"),
    ("'%.f'.format([1.0]) == ''", "precision"),
    ("bool('') || true", "cannot convert '' to bool"),
    ("true || uint(-1) == 0u", "unsigned integer overflow"),
    ("true || [1, int('x')].size() == 2", "cannot convert 'x' to int"),
    ("true || string([1]) == ''", "found no matching overload"),
    ("true || string(dyn([1])) == ''", "no such overload of string for (list)"),
    ("true || {b'a': 1}.size() == 1", "a key of type types.Bytes has no hash"),
    ("{}[[]] == 1", "a value of type list is no key and no position"),
    ("[?dyn(1)].size() == 1", "expected type 'optional(dyn)' but found 'dyn'"),
    ("cel.bind(t, int, true)", "reference to undefined type 't'"),
    ("[int].exists(t, t == int)", "reference to undefined type 't'"),
    ("matches('(', 'a')", "error parsing regexp"),
    ("-0u == 0u", "unsigned integer overflow"),
    ("[1]" + ".map(x, {x: x})" * 30 + ".size() == 1", "nested too deeply"),
]  # fmt: skip


@pytest.mark.parametrize("expression", HOLDS)
def test_this_holds(expression):
    assert selection.compile(expression).matches(DEVICE, "d") is True


@pytest.mark.parametrize(("expression", "problem"), FAILS)
def test_this_is_an_error(expression, problem):
    assert problem in failure(expression)


@pytest.mark.parametrize("expression", NOT_EVEN_ABSORBED[1:])
def test_what_has_no_hash_is_an_error_that_nothing_absorbs(expression):
    text = "internal error: runtime error: hash of unhashable type cel.Semver"
    assert failure(expression) == text


def test_what_has_no_hash_is_no_error_where_nobody_looks():
    assert selection.compile(NOT_EVEN_ABSORBED[0]).matches(DEVICE, "d") is True


@pytest.mark.parametrize("expression", COMPILES)
def test_this_compiles(expression):
    assert selection.check(expression) is None


@pytest.mark.parametrize(("expression", "problem"), REFUSED)
def test_this_does_not_compile(expression, problem):
    assert problem in selection.check(expression)


def failure(expression):
    with pytest.raises(selection.EvaluationError) as caught:
        selection.compile(expression).matches(DEVICE, "d")
    return caught.value.problem
