"""What the type checker refuses, with the words and the place, and what it lets pass."""

import pytest

from dra_driver.logic.cel import selection

A, C = 'device.attributes["d"]', 'device.capacity["d"]'
OVERLOAD = "found no matching overload for"

# Expression: problem, line, column.
REFUSED = {
    # Syntax
    "?!": ("syntax error at '?!'", 1, 1),
    "true &&\n  ^": ("syntax error at '^'", 2, 3),
    "true &&": ("syntax error: the expression is incomplete", 1, 8),
    "": ("syntax error: the expression is incomplete", 1, 1),
    r"'a'.matches('a\.b')": (r"unknown escape '\\.': write r'...' or double the backslash", 1, 13),
    r"'\ud800' == ''": (r"\ud800 is no character", 1, 1),
    "'a' == 'b\\'": ("the string is not closed: its last ' is escaped", 1, 8),
    "9223372036854775808 > 0": ("invalid literal 9223372036854775808: integer overflow", 1, 1),
    "18446744073709551616u > 0u": (
        "invalid literal 18446744073709551616u: unsigned integer overflow", 1, 1),
    "[1].all(package, true)": ("'package' is a reserved word", 1, 9),
    "quantity{value: 1} == 1": (
        "message literals are of no use here: there are no message types", 1, 1),
    "has(device)": ("has() takes one field selection, for example has(a.b)", 1, 1),
    "[1].all(1, true)": ("the first argument of all() must be a variable name", 1, 9),
    "cel.bind(1, 2, true)": ("the first argument of cel.bind() must be a variable name", 1, 10),
    # Names
    "bar == 1": ("undeclared reference to 'bar'", 1, 1),
    "[1].all(x, y)": ("undeclared reference to 'y'", 1, 12),
    "[1].all(x, true) && x == 1": ("undeclared reference to 'x'", 1, 21),
    "cel.bind(x, x, true)": ("undeclared reference to 'x'", 1, 13),
    "true || foo(1)": ("undeclared reference to 'foo'", 1, 9),
    "true || 'a'.foo()": ("undeclared reference to 'foo'", 1, 13),
    "quantity('1').sign() == 1": ("undeclared reference to 'sign': write sign(x)", 1, 15),
    "lowerAscii('A') == 'a'": ("undeclared reference to 'lowerAscii': write x.lowerAscii()", 1, 1),
    "authorizer.path('/').check('get').allowed()": ("undeclared reference to 'authorizer'", 1, 1),
    "device.name == 'x'": (
        "undefined field 'name': device has allowMultipleAllocations, attributes, capacity, driver",
        1, 8),
    # Types of the device
    "device.driver == 1": (f"{OVERLOAD} '_==_' applied to '(string, int)'", 1, 15),
    "device.driver.x == 1": ("type 'string' does not support field selection", 1, 15),
    "has(device.driver.x)": ("type 'string' does not support field selection", 1, 19),
    "device.attributes": ("must evaluate to bool, not map(string, map(string, dyn))", 1, 1),
    "device.attributes[1].x == 1": (
        f"{OVERLOAD} '_[_]' applied to '(map(string, map(string, dyn)), int)'", 1, 18),
    f"{C}.memory > 5": (
        (f"{OVERLOAD} '_>_' applied to '(Quantity, int)': "
        "compare a quantity with .compareTo(quantity('1Gi')) >= 0"), 1, 29),
    f"{C}.memory > quantity('5')": (
        (f"{OVERLOAD} '_>_' applied to '(Quantity, Quantity)': "
        "compare a quantity with .compareTo(quantity('1Gi')) >= 0"), 1, 29),
    f"{C}.memory == '5'": (
        (f"{OVERLOAD} '_==_' applied to '(Quantity, string)': "
        "compare a quantity with .compareTo(quantity('1Gi')) >= 0"), 1, 29),
    f"{C}.memory.isGreaterThan(semver('1.0.0'))": (
        f"{OVERLOAD} 'isGreaterThan' applied to 'Quantity.(Semver)'", 1, 29),
    f"{C}.memory.isGreaterThan('1Gi')": (
        f"{OVERLOAD} 'isGreaterThan' applied to 'Quantity.(string)'", 1, 29),
    "semver('1.0.0') < semver('2.0.0')": (
        (f"{OVERLOAD} '_<_' applied to '(Semver, Semver)': "
        "compare a version with .compareTo(semver('1.0.0')) >= 0"), 1, 17),
    "device.allowMultipleAllocations > 0": (f"{OVERLOAD} '_>_' applied to '(bool, int)'", 1, 33),
    # Operators
    "1 && true": (f"{OVERLOAD} '_&&_': expected bool, found int", 1, 1),
    "true || 'a'": (f"{OVERLOAD} '_||_': expected bool, found string", 1, 9),
    "!1": (f"{OVERLOAD} '!_' applied to '(int)'", 1, 1),
    "1 ? true : false": (f"{OVERLOAD} '_?_:_' applied to '(int, bool, bool)'", 1, 1),
    "true ? 1 : 'a'": (f"{OVERLOAD} '_?_:_' applied to '(bool, int, string)'", 1, 1),
    "1 + 1.0 == 2.0": (f"{OVERLOAD} '_+_' applied to '(int, double)'", 1, 3),
    "'a' < 1": (f"{OVERLOAD} '_<_' applied to '(string, int)'", 1, 5),
    "1.5 % 2.0 == 0.0": (f"{OVERLOAD} '_%_' applied to '(double, double)'", 1, 5),
    "1 in ['1']": (f"{OVERLOAD} '@in' applied to '(int, list(string))'", 1, 3),
    "1 in 'a'": (f"{OVERLOAD} '@in' applied to '(int, string)'", 1, 3),
    # Literals
    '[1, "a"] == []': ("expected type 'int' but found 'string': all items must be alike", 1, 5),
    "[1, 1.0] == []": ("expected type 'int' but found 'double': all items must be alike", 1, 5),
    "{'a': 1, 'b': 'c'} == {}": (
        "expected type 'int' but found 'string': all items must be alike", 1, 15),
    "{'a': 1, 2: 1} == {}": ("expected type 'string' but found 'int': all items must be alike",
        1, 10),
    "[dyn(1), 'a'].size() == 2": (
        "expected type 'dyn' but found 'string': all items must be alike", 1, 10),
    "[?1] == [1]": ("expected type 'optional(dyn)' but found 'int'", 1, 3),
    # Functions and macros
    "true || 'a'.split()": (f"{OVERLOAD} 'split' applied to 'string.()'", 1, 13),
    "[1].contains(1)": (f"{OVERLOAD} 'contains' applied to 'list(int).(int)'", 1, 5),
    "['a'].sum() == 'a'": (f"{OVERLOAD} 'sum' applied to 'list(string).()'", 1, 7),
    "[[1]].sort() == []": (f"{OVERLOAD} 'sort' applied to 'list(list(int)).()'", 1, 7),
    "[1].all(x, x)": (f"{OVERLOAD} 'all': expected bool, found int", 1, 12),
    "'abc'.all(x, true)": ("all() goes over a value of type list or map, not string", 1, 7),
    "(1).optMap(x, x).hasValue()": ("optMap() goes over a value of type optional, not int", 1, 5),
    "optional.of(1).optFlatMap(x, x) == 1": ("optFlatMap() wants an optional, not int", 1, 16),
    "{'a': 1}.transformMapEntry(k, v, v) == {}": ("transformMapEntry() wants a map, not int", 1,
        10),
    "[[1]].sortBy(x, x) == []": ("sortBy() wants keys with an order, not list(int)", 1, 7),
    "optional.of(1) == 1": (f"{OVERLOAD} '_==_' applied to '(optional(int), int)'", 1, 16),
    "optional.of(1).orValue('a') == 1": (
        f"{OVERLOAD} 'orValue' applied to 'optional(int).(string)'", 1, 16),
    f"{A}.?name == 'fish'": (f"{OVERLOAD} '_==_' applied to '(optional(dyn), string)'", 1, 30),
    # Literals that are arguments
    "duration('1 hour') > duration('1s')": (
        "invalid duration '1 hour': write for example 1h30m or 1.5s", 1, 10),
    "timestamp('2023') == timestamp('2023')": (
        "invalid timestamp '2023': write 2025-01-31T12:00:00Z", 1, 11),
    "'a'.matches('(?=a)')": (
        "error parsing regexp '(?=a)': invalid perl operator: (?=", 1, 13),
    r"matches('aa', r'(a)\1')": (
        r"error parsing regexp '(a)\\1': invalid escape sequence: \1", 1, 15),
    "'a'.find('[') == ''": ("error parsing regexp '[': missing ]: [", 1, 10),
}  # fmt: skip

PASSES = [
    # Attributes are of any type until they are read.
    f"{A}.name",
    f"{A}.name > 5 && {A}.name == 'x' && {A}.name.isGreaterThan(semver('1.0.0'))",
    f"{A}.name.all(x, x == 1) && {A}.name.x.y",
    "dyn(1)",
    "device.attributes.d.x ? true : dyn(1)",
    "{1.5: 1} == {1.5: 1}",
    "'%s %s %d'.format([['a', 1], {'a': 1, 'b': 'c'}, 2u]) == ''",
    "optional.none().orValue(true)",
    "[].all(x, x) && {}.all(x, x)",
    f"'a' in {A}",
    ".device.driver == ''",
]  # fmt: skip


@pytest.mark.parametrize("expression", REFUSED)
def test_this_does_not_compile_and_says_why_and_where(expression):
    problem, line, column = REFUSED[expression]
    with pytest.raises(selection.CompileError) as caught:
        selection.compile(expression)
    error = caught.value
    where = f"line {line}, column {column}: " if line else ""
    assert (error.problem, error.line, error.column) == (where + problem, line, column)
    assert error.expression == expression
    assert error.problem in str(error)


@pytest.mark.parametrize("expression", PASSES)
def test_this_is_left_to_run_time(expression):
    assert selection.check(expression) is None
