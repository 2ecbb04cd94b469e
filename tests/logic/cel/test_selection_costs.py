"""Expressions that would take minutes, or that Python itself stumbles over, end in an error."""

import pytest

from dra_driver.logic.cel import selection
from dra_driver.model import slices

pytestmark = pytest.mark.sampled(9)

GPU = slices.Device("gpu-0", {"productName": "NVIDIA H100"}, {})
DIGITS = "9" * 5000


def outcome(expression):
    return selection.compile(expression).matches(GPU, "gpu.nvidia.com")


def within(levels, body):
    """`body` with `v`: a list of nine lists that are one list of nine, and so on."""
    for level in range(levels, 0, -1):
        inner = f"v{level - 1 or ''}" if level > 1 else "[1]"
        name = "v" if level == levels else f"v{level}"
        body = f"cel.bind({name}, [{', '.join([inner] * 9)}], {body})"
    return body


@pytest.mark.parametrize(
    "expression",
    [
        within(7, "v == v"),
        within(7, "v != v"),
        within(7, "v.flatten(9).size() > 0"),
        within(7, "'%s'.format([v]) == ''"),
        within(7, "{'a': v} == {'a': v}"),
        within(7, "optional.of(v) == optional.of(v)"),
        "lists.range(1500).distinct().size() > 0",
        "cel.bind(l, lists.range(1500), sets.contains(l, l))",
        "cel.bind(l, lists.range(1500), sets.equivalent(l, l))",
        "!cel.bind(l, lists.range(1500), sets.intersects(l, l.map(x, x + 1500)))",
        "cel.bind(l, lists.range(1500), l.all(x, x in l))",
        "cel.bind(l, lists.range(1500), l.all(x, l.indexOf(x) == x))",
        "cel.bind(l, lists.range(1500), l.all(x, l.lastIndexOf(x) == x))",
        r"lists.range(60).all(x, !'a'.matches('(\\pL{1,100})b' + string(x)))",
        r"lists.range(60).all(x, 'a'.find('(\\pL{1,100})c' + string(x)) == '')",
    ],
)
def test_what_takes_too_long_is_stopped_by_the_cost_limit(expression):
    with pytest.raises(selection.EvaluationError) as caught:
        outcome(expression)
    assert caught.value.problem == "actual cost limit exceeded"


@pytest.mark.parametrize(
    "expression",
    [
        within(3, "v == v && v.flatten(9).size() == 729"),
        "lists.range(500).distinct().size() == 500",
        "cel.bind(l, lists.range(500), l.all(x, x in l))",
        "cel.bind(l, lists.range(500), sets.equivalent(l, l))",
        "device.attributes.all(d, lists.range(100).all(x, !d.matches('^amd[0-9]{1,3}$')))",
        "'NVIDIA H100 80GB HBM3'.find('H[0-9]{3}') == 'H100'",
        "'%d of %s'.format([1, [1, 2]]) == '1 of [1, 2]'",
        "'gpu' in ['gpu', 'mig'] && 'a' in {'a': 1} && {'a': 1} == {'a': 1}",
        "'aXbXc'.lastIndexOf('X') == 3",
    ],
)
def test_what_selectors_do_stays_far_from_the_limit(expression):
    assert outcome(expression)


@pytest.mark.parametrize(
    "expression",
    [
        f"{DIGITS} == 1",
        f"{DIGITS}u == 1u",
        f"int('{DIGITS}') == 1",
        f"uint('{DIGITS}') == 1u",
        f"int('-{DIGITS}') == 1",
        f"semver('{DIGITS}.0.0').major() == 1",
        f"semver('1.0.0-{DIGITS}').major() == 1",
        "semver('18446744073709551616.0.0').major() == 1",
        f"duration('{DIGITS}s') > duration('1s')",
        f"duration('{DIGITS[:200]}' + '.{DIGITS}s') > duration('1s')",
        "[1][dyn(0.0 / 0.0)] == 1",
        "[1][dyn(1.0 / 0.0)] == 1",
    ],
)
def test_numbers_beyond_all_bounds_are_errors_of_the_expression(expression):
    with pytest.raises(selection.SelectorError):
        outcome(expression)


@pytest.mark.parametrize(
    "expression",
    [
        f"int('{'0' * 4000}7') == 7",
        f"duration('{'0' * 5000}7s') == duration('7s')",
        f"duration('1.{'0' * 5000}7s') == duration('1s')",
        "duration('1.5h') == duration('90m') && duration('.5s') == duration('500ms')",
        f"!isSemver('{DIGITS}.0.0') && isSemver('18446744073709551615.0.0')",
    ],
)
def test_long_texts_that_are_numbers_within_bounds_are_read(expression):
    assert outcome(expression)
