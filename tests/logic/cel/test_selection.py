"""The language and the device; every outcome here is that of Kubernetes 1.36."""

import subprocess
import sys

import pytest

from dra_driver.logic.cel import selection
from dra_driver.model import quantities, slices

DRIVER = "dra.example.com"
A, C = f'device.attributes["{DRIVER}"]', f'device.capacity["{DRIVER}"]'
DEVICE = slices.Device(
    "device-0",
    attributes={
        "type": "gpu",
        "healthy": True,
        "index": 3,
        "version": slices.Version("9.0.0"),
        "text": "9.0.0",
        "other.example.com/name": "fish",
        f"{DRIVER}/qualified": "yes",
    },
    capacity={"memory": quantities.parse("80Gi"), "other.example.com/links": quantities.parse("2")},
)


def evaluate(expression, device=DEVICE, driver=DRIVER):
    return selection.compile(expression).matches(device, driver)


TRUE = [
    "true",
    f'device.driver == "{DRIVER}"',
    # Attributes and capacities
    f'{A}.type == "gpu"',
    f'{A}["type"] == "gpu"',
    f"{A}.healthy",
    f"{A}.index > 0",
    f'{A}.qualified == "yes"',
    'device.attributes["other.example.com"].name == "fish"',
    f'{A}.version.isGreaterThan(semver("0.0.1"))',
    f'{C}.memory.isGreaterThan(quantity("1Ki"))',
    f'{C}.memory == quantity("81920Mi")',
    f'{C}.memory.compareTo(quantity("16Gi")) > 0',
    'device.capacity["other.example.com"].links.asInteger() == 2',
    "!device.allowMultipleAllocations",
    # Domains and ids that the device lacks
    '!("nowhere.example.com" in device.attributes)',
    '"other.example.com" in device.attributes',
    f'"{DRIVER}" in device.capacity',
    f'!("nope" in {A}) || {A}.nope == 1',
    f'"type" in {A} && {A}.type == "gpu"',
    f"!has({A}.nope) && has({A}.type)",
    '!has(device.attributes["nowhere.example.com"].nope)',
    # A presence test goes through the look-up that makes an empty map of an unknown domain.
    "has(device.attributes.nowhere)",
    'size(device.attributes["nowhere.example.com"]) == 0',
    f'device.attributes.exists_one(x, x == "{DRIVER}") && size(device.attributes) == 2',
    f'{A}.exists_one(x, x == "type") && size({A}) == 6',
    f'device.capacity.exists_one(x, x == "{DRIVER}") && {C}.exists_one(x, x == "memory")',
    f'{A}.all(name, name != "nope")',
    "![1, 1].exists_one(x, x == 1) && ![2].exists_one(x, x == 1)",
    # Errors are absorbed in both orders
    f"{A}.nope == 1 || true",
    f"true || {A}.nope == 1",
    f"!(false && {A}.nope == 1)",
    f"!({A}.nope == 1 && false)",
    f"[1, 2].exists(x, x == 1 || {A}.nope == 1)",
    "[0, 1].exists(x, 1 / x > 0)",
    "![0, 1].all(x, 1 / x > 1)",
    f'{A}.index.exists(x, x > 0) || {A}.type == "gpu"',
    # Numbers of different types
    "1 < 1.5 && dyn(1) == 1.0 && dyn(1u) == 1 && 2u > 1.5",
    "dyn(1) in [1.0] && !(dyn(1) in ['1'])",
    "7 / 2 == 3 && -7 / 2 == -3 && -7 % 2 == -1 && 5-1 == 4 && 0x10 == 16",
    "1.0 / 0.0 > 1e300 && -1.0 / 0.0 < -1e300",
    # Equality of different types is false, not an error
    f"!({A}.type == 1) && {A}.text != {A}.version && {A}.healthy != 1",
    '[dyn(1), dyn("a")] == [dyn(1.0), dyn("a")]',
    'dyn({"a": 1}) == {"a": 1.0} && {"a": 1} != {"a": 2}',
    # The rest of the language
    '"asymetric".matches("[^a]?sym")',
    '"gpu-0".contains("-") && "gpu".startsWith("g") && "gpu".endsWith("u") && "é".size() == 1',
    "(1 > 2 ? 'a' : 'b') == 'b'",
    "[1, 2, 3].filter(x, x > 1).size() == 2",
    "[1, 2].map(x, x * 2) == [2, 4] && [1, 2].map(x, x > 1, x * 2) == [4]",
    "{'a': 1}.a == 1 && {'a': 1}['a'] == 1 && [5][0] == 5",
    'duration("1h") < duration("2h") && timestamp("2020-01-01T00:00:00Z").getFullYear() == 2020',
    'string(true) == "true" && string(1) == "1" && int("-3") == -3 && double("1.5") == 1.5',
    "[1, 2].all(x, [3, 4].all(y, x < y)) && [1].all(x, [2].all(x, x == 2) && x == 1)",
    "/* no */ true".replace("/* no */", "// a comment\n"),
    # Quantities, versions, strings, lists
    'quantity("1Gi").add(quantity("1Gi")) == quantity("2Gi")',
    'quantity("3").sub(1).asInteger() == 2',
    'quantity("1").add(2) == quantity("3") && quantity("1.5").asApproximateFloat() == 1.5',
    'sign(quantity("-1")) == -1 && quantity("500m").isLessThan(quantity("1"))',
    'isQuantity("1Gi") && !isQuantity("x")',
    'quantity("1k").isInteger() && !quantity("1m").isInteger()',
    'semver("1.0.0+a") == semver("1.0.0+b") && semver("1.2.3").minor() == 2',
    'semver("v1", true) == semver("1.0.0") && isSemver("v1.0.0", true) && !isSemver("v1.0.0")',
    'semver("1.0.0-rc.1").isLessThan(semver("1.0.0"))',
    'semver("1.0.0").compareTo(semver("1.0.0")) == 0',
    '"a.b".split(".").size() == 2 && "a.b".split(".").join("-") == "a-b"',
    '"AbÉ".lowerAscii() == "abÉ" && "AbÉ".upperAscii() == "ABÉ"',
    '" a ".trim() == "a" && "abc".substring(1) == "bc" && "aXa".replace("a", "b", 1) == "bXa"',
    "[1, 2].isSorted() && [1, 2].sum() == 3 && [3, 1].min() == 1 && [3, 1].max() == 3",
]  # fmt: skip


@pytest.mark.parametrize("expression", TRUE)
def test_this_holds(expression):
    assert evaluate(expression) is True


@pytest.mark.parametrize(
    "expression",
    ["false", f'{A}.type == "mig"', f'"nope" in {A}', '"gpu" == "GPU"', "!(1 < 1.5)"],
)
def test_this_does_not_hold(expression):
    assert evaluate(expression) is False


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (f"{A}.nope == 1", "no such key: nope"),
        (f'{A}["nope"] == 1', "no such key: nope"),
        ('device.attributes["nowhere"].nope.isGreaterThan(quantity("0"))', "no such key: nope"),
        (f"{C}.nope == quantity('1')", "no such key: nope"),
        (f"true && {A}.nope == 1", "no such key: nope"),
        (f"{A}.nope == 1 || {A}.type == 'mig'", "no such key: nope"),
        (f"[1].map(x, {A}.nope) == [1]", "no such key: nope"),
        (f"[1].filter(x, {A}.nope == 1) == [1]", "no such key: nope"),
        (f"{A}.nope == 1 ? true : true", "no such key: nope"),
        ("dyn(1)", "must be bool, not int"),
        (f"{A}.type", "must be bool, not string"),
        (f"{A}.index.exists(x, x > 0)", "expected iterable type"),
        (f"{A}.type.exists(x, true)", "expected iterable type"),
        (f"{A}.version > 5", "no such overload"),
        (f"{A}.index + 1.0 == 4.0", "no such overload"),
        (f"{A}.type.isGreaterThan(semver('1.0.0'))", "no such overload of isGreaterThan"),
        ("dyn(1) && true", "no such overload of _&&_ for (int)"),
        ("dyn(1) ? true : false", "no such overload of _?_:_ for (int)"),
        ("[1].all(x, dyn(x))", "no such overload of all for (int)"),
        ("!dyn(1)", "no such overload of !_ for (int)"),
        (f"has({A}.type.x)", "string has no field 'x'"),
        (f"[1].contains({A}.index)".replace("[1]", "dyn([1])"), "no such overload of contains"),
        ("dyn(1).optMap(x, x).hasValue()", "no such overload of optMap for (int)"),
        ("'%s'.format([[?dyn(1)]]) == ''", "no such overload of optional entry for (int)"),
        ("[1][-1] == 1", "index out of bounds: -1"),
        ("[1][1] == 1", "index out of bounds: 1"),
        ("9223372036854775807 + 1 > 0", "overflow"),
        ("1 / 0 == 1", "division by zero"),
        ('quantity("x") == quantity("1")', "quantity 'x'"),
        ('semver("v1.0.0") == semver("1.0.0")', "version 'v1.0.0'"),
        ('quantity("1.5").asInteger() == 1', "cannot convert"),
        ('int(device.driver + "1_0") == 10', "cannot convert"),
        ('int(device.driver + "0x10") == 16', "cannot convert"),
        ("'a'.substring(3) == ''", "index out of range: 3"),
    ],
)
def test_this_is_a_run_time_error_that_says_why(expression, problem):
    with pytest.raises(selection.EvaluationError) as caught:
        evaluate(expression)
    assert problem in caught.value.problem
    assert caught.value.expression == expression


def test_a_check_tells_what_is_wrong_or_nothing():
    assert selection.check("device.driver == 'x'") is None
    assert selection.check("nope") == "line 1, column 1: undeclared reference to 'nope'"


def test_an_expression_longer_than_10_kib_is_refused():
    assert evaluate("true" + " " * (selection.MAX_LENGTH - 4))
    with pytest.raises(selection.CompileError, match="10240 bytes"):
        selection.compile("true" + " " * (selection.MAX_LENGTH - 3))


def test_an_expression_that_would_run_for_ever_is_stopped():
    ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
    expression = "true"
    for variable in "abcdefg":
        expression = f"{ten}.all({variable}, {expression})"
    with pytest.raises(selection.EvaluationError, match="actual cost limit exceeded"):
        evaluate(f"{expression} || true")


@pytest.mark.parametrize(
    "text", ["!" * 4000 + "true", "(" * 3000 + "true" + ")" * 3000, "1+" * 4000 + "1 > 0"]
)
def test_nesting_that_no_stack_holds_is_an_error_of_the_expression(text):
    with pytest.raises(selection.SelectorError, match="nested too deeply"):
        evaluate(text)


@pytest.mark.parametrize("operator", ["&&", "||"])
def test_a_chain_of_any_length_is_no_nesting(operator):
    assert evaluate(f" {operator} ".join(["true"] * 1000))


def test_a_version_attribute_that_is_no_version_is_a_run_time_error():
    device = slices.Device("d", {"version": slices.Version("9.0")}, {})
    with pytest.raises(selection.EvaluationError, match=r"version '9\.0'"):
        evaluate(f'{A}.version == semver("9.0.0")', device)


def test_the_qualified_name_of_an_attribute_wins_over_the_bare_one():
    device = slices.Device("d", {"name": "bare", f"{DRIVER}/name": "qualified"}, {})
    assert evaluate(f'{A}.name == "qualified"', device)


def test_allow_multiple_allocations_is_read_from_the_device():
    device = slices.Device("d", {}, {}, extra={"allowMultipleAllocations": True})
    assert evaluate("device.allowMultipleAllocations", device)


def test_an_expression_is_compiled_once():
    expression = 'device.driver == "compiled.once"'
    assert selection.compile(expression) is selection.compile(expression)


def test_a_long_expression_is_cut_in_the_message_only():
    expression = "true && " * 60 + "nope"
    with pytest.raises(selection.CompileError) as caught:
        selection.compile(expression)
    assert len(str(caught.value)) < 300
    assert caught.value.expression == expression


def test_nothing_is_written_to_the_log(caplog, capfd):
    with caplog.at_level("INFO"):
        assert evaluate(f'{A}.nope == 1 || [1].exists(x, dyn(x).startsWith("a")) || {A}.index == 3')
    assert (caplog.text, *capfd.readouterr()) == ("", "", "")


def test_a_node_loads_nothing_of_cel():
    script = (
        "import sys\n"
        "from dra_driver.apps.plugin import kubelet_plugin, node_agent\n"
        "cel = {'celpy', 'lark', 're2', 'dra_driver.logic.cel.selection'}\n"
        "assert not cel & set(sys.modules), cel & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=60)
