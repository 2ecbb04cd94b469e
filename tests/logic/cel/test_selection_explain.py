"""Which part of a selector fails on a device, on what values, and how to guard it."""

import pytest

from dra_driver.logic.cel import selection
from dra_driver.model import quantities, slices

D = "gpu.nvidia.com"
A, C = f'device.attributes["{D}"]', f'device.capacity["{D}"]'
GPU = slices.Device(
    "gpu-0",
    {
        "architecture": "Ampere",
        "index": 3,
        "healthy": True,
        "driverVersion": slices.Version("580.65.6"),
    },
    {"memory": quantities.parse("15Gi")},
)


def conjunct(source, *reads, outcome):
    return selection.Conjunct(source, outcome, reads)


def explain(expression):
    return selection.compile(expression).explain(GPU, D)


def test_each_conjunct_has_its_outcome_and_what_it_read():
    assert explain(
        f"{A}.architecture == 'Hopper' && "
        f"{C}.memory.compareTo(quantity('16Gi')) >= 0 &&\n  ({A}.index == 3)"
    ) == (
        conjunct(f"{A}.architecture == 'Hopper'", (f"{A}.architecture", '"Ampere"'), outcome=False),
        conjunct(
            f"{C}.memory.compareTo(quantity('16Gi')) >= 0", (f"{C}.memory", "15Gi"), outcome=False
        ),
        conjunct(f"{A}.index == 3", (f"{A}.index", "3"), outcome=True),
    )


def test_an_error_is_an_outcome():
    assert explain(f"device.driver == '{D}' && {A}.nope == 1") == (
        conjunct(f"device.driver == '{D}'", ("device.driver", f'"{D}"'), outcome=True),
        conjunct(f"{A}.nope == 1", (f"{A}.nope", "(none)"), outcome="no such key: nope"),
    )


def test_an_expression_without_and_is_one_conjunct():
    assert explain(f"{A}.healthy || {A}.index == 1") == (
        conjunct(f"{A}.healthy || {A}.index == 1", (f"{A}.healthy", "true"), outcome=True),
    )


def test_a_conjunct_is_found_within_brackets_and_bindings():
    bound = f"cel.bind(gpu, {A}, gpu.index == 3 && (gpu.healthy && gpu.index > 5))"
    assert explain(bound) == (
        conjunct("gpu.index == 3", (f"{A}.index", "3"), outcome=True),
        conjunct("gpu.healthy", (f"{A}.healthy", "true"), outcome=True),
        conjunct("gpu.index > 5", (f"{A}.index", "3"), outcome=False),
    )


def test_everything_that_can_be_read_is_shown():
    (found,) = explain(
        f"{A}.driverVersion.major() > 1 || device.allowMultipleAllocations || "
        "device.attributes.size() == 0"
    )
    assert found.reads == ((f"{A}.driverVersion", "580.65.6"),)
    (found,) = explain(
        f"device.allowMultipleAllocations || device.capacity.size() > 1 || {C}.all(id, id == 'x')"
    )
    assert found.reads == (
        ("device.allowMultipleAllocations", "false"),
        ("device.capacity", f"{{{D}}}"),
        (C, "{memory}"),
    )


def test_explaining_leaves_what_is_remembered_alone():
    selector = selection.compile(f"{A}.index == 3 // explained")
    selector.explain(GPU, D)
    assert selector.evaluations == 0


GUARDED = {
    "a comparison": (f"{A}.x == 1", f'"x" in {A} && {A}.x == 1'),
    "an index": (f'{A}["x"] == 1', f'"x" in {A} && {A}["x"] == 1'),
    "a capacity": (
        f"{C}.x.isGreaterThan(quantity('1'))",
        f'"x" in {C} && {C}.x.isGreaterThan(quantity(\'1\'))'),
    "a dotted domain": (
        "device.attributes.d.x", '"x" in device.attributes["d"] && device.attributes.d.x'),
    "the second conjunct": (
        f"{A}.index == 1 && {A}.x == 1", f'{A}.index == 1 && "x" in {A} && {A}.x == 1'),
    "two conjuncts with one guard": (
        f"{A}.x > 1 && {A}.x < 5", f'"x" in {A} && {A}.x > 1 && {A}.x < 5'),
    "two readings with one guard": (
        f"{A}.x + {A}.x == 2", f'"x" in {A} && {A}.x + {A}.x == 2'),
    "a negation": (f"!({A}.x == 1)", f'"x" in {A} && !({A}.x == 1)'),
    "a condition": (
        f"{A}.x == 1 ? true : false", f'"x" in {A} && ({A}.x == 1 ? true : false)'),
    "an alternative": (
        f"{A}.x == 1 || {A}.index == 3", f'("x" in {A} && {A}.x == 1) || {A}.index == 3'),
    "a bound domain": (
        f"cel.bind(gpu, {A}, gpu.x == 1)", f'cel.bind(gpu, {A}, "x" in gpu && gpu.x == 1)'),
    "the body of a macro": (
        f"[1].exists(n, n == {A}.x)", f'"x" in {A} && [1].exists(n, n == {A}.x)'),
    "two domains": (
        f"{A}.x == {C}.x.asInteger()",
        f'"x" in {A} && "x" in {C} && {A}.x == {C}.x.asInteger()'),
    "what is asked for in another domain": (
        f'"x" in {C} && {A}.x == 1', f'"x" in {C} && "x" in {A} && {A}.x == 1'),
}  # fmt: skip


@pytest.mark.parametrize("sentence", GUARDED)
def test_the_guarded_expression_compiles_and_is_false_where_the_attribute_is_missing(sentence):
    expression, expected = GUARDED[sentence]
    assert selection.guarded(expression, "x") == expected
    bare = slices.Device("bare", {"index": 1}, {})
    assert selection.compile(expected).matches(bare, D) is False
    assert selection.guarded(expected, "x") is None


@pytest.mark.parametrize(
    "expression",
    [f"has({A}.x) && {A}.x == 1", f'"x" in {A} && {A}.x == 1', f'!("x" in {A}) || {A}.x == 1',
     f"!has({A}.x) || {A}.x == 1", f"{A}.?x.orValue(1) == 1", f"{A}.index == 1",
     "device.attributes.exists(d, device.attributes[d].x)"],
)  # fmt: skip
def test_what_is_guarded_or_not_read_by_name_stays(expression):
    assert selection.guarded(expression, "x") is None


def test_an_error_offers_the_guarded_expression_and_has_the_place():
    with pytest.raises(selection.EvaluationError) as caught:
        selection.compile(f"true &&\n {A}.nope == 1").matches(GPU, D)
    error = caught.value
    assert (error.problem, error.line, error.column) == ("no such key: nope", 2, 38)
    assert error.guarded == f'true &&\n "nope" in {A} && {A}.nope == 1'


def test_an_error_of_another_kind_offers_nothing():
    with pytest.raises(selection.EvaluationError) as caught:
        selection.compile(f"{A}.index > 'a'").matches(GPU, D)
    assert caught.value.guarded is None
    assert (caught.value.line, caught.value.column) == (1, 43)
