"""The edges of the string functions, as cel-go's ext.Strings documents them."""

import pytest

from dra_driver.logic.cel import library, values


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("charAt", ("hello", 4), "o"),
        ("charAt", ("hello", 5), ""),
        ("indexOf", ("hello mellow", ""), 0),
        ("indexOf", ("hello mellow", "ello"), 1),
        ("indexOf", ("hello mellow", "jello"), -1),
        ("indexOf", ("hello mellow", "", 2), 2),
        ("indexOf", ("hello mellow", "ello", 2), 7),
        ("lastIndexOf", ("hello mellow", ""), 12),
        ("lastIndexOf", ("hello mellow", "ello"), 7),
        ("lastIndexOf", ("hello mellow", "ello", 6), 1),
        ("indexOf", ([1, 2, 1], 1), 0),
        ("lastIndexOf", ([1, 2, 1], 1), 2),
        ("indexOf", ([1, True], True), 1),
        ("lastIndexOf", ([1], 3), -1),
        ("replace", ("hello hello", "he", "we"), "wello wello"),
        ("replace", ("hello hello", "he", "we", 1), "wello hello"),
        ("replace", ("hello hello", "he", "we", 0), "hello hello"),
        ("replace", ("hello", "", "_"), "_h_e_l_l_o_"),
        ("split", ("hello hello hello", " "), ["hello", "hello", "hello"]),
        ("split", ("hello hello hello", " ", 0), []),
        ("split", ("hello hello hello", " ", 1), ["hello hello hello"]),
        ("split", ("hello hello hello", " ", 2), ["hello", "hello hello"]),
        ("split", ("hello hello hello", " ", -1), ["hello", "hello", "hello"]),
        ("split", ("abc", ""), ["a", "b", "c"]),
        ("split", ("abc", "", 2), ["a", "bc"]),
        ("substring", ("tacocat", 4), "cat"),
        ("substring", ("tacocat", 0, 4), "taco"),
        ("trim", ("  \ttrim\n\u2003",), "trim"),
        ("join", (["x", "y"],), "xy"),
        ("join", (["x", "y"], "-"), "x-y"),
        ("upperAscii", ("TacoCÆt Xii",), "TACOCÆT XII"),
        ("sum", ([],), 0),
        ("isSorted", ([2, 1],), False),
    ],
)
def test_a_method_gives(name, arguments, expected):
    assert library.METHODS[name](*arguments) == expected


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("charAt", ("hello", 6)),
        ("charAt", ("hello", -1)),
        ("indexOf", ("hello", "", 20)),
        ("lastIndexOf", ("hello", "", -1)),
        ("substring", ("tacocat", 40)),
        ("substring", ("tacocat", 3, 2)),
        ("min", ([],)),
        ("max", ([],)),
    ],
)
def test_a_method_refuses_a_value_out_of_range(name, arguments):
    with pytest.raises(values.CallError):
        library.METHODS[name](*arguments)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("charAt", (1, 1)), ("join", ([1],)), ("join", ("ab",)), ("sum", ([1, "a"],)),
     ("add", (1, 1)), ("compareTo", (1, 2)), ("charAt", ("a", True))],
)  # fmt: skip
def test_a_method_has_no_overload_for_other_types(name, arguments):
    with pytest.raises(TypeError):
        library.METHODS[name](*arguments)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("int", "-7", -7), ("int", 1.9, 1), ("double", "1e3", 1000.0), ("double", 2, 2.0),
     ("bool", "t", True), ("bool", False, False), ("string", True, "true"), ("string", 7, "7")],
)  # fmt: skip
def test_a_conversion_gives(name, value, expected):
    assert library.GLOBALS[name](value) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [("int", "1.5"), ("int", " 1"), ("int", 1e30), ("int", "9223372036854775808"),
     ("int", float("nan")), ("double", "one"), ("bool", "yes")],
)  # fmt: skip
def test_a_conversion_refuses(name, value):
    with pytest.raises(values.CallError):
        library.GLOBALS[name](value)
