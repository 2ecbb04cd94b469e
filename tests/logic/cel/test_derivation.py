"""What an expression makes of a device, as the value of an attribute."""

import pytest
from dra_objects import DRIVER, device

from dra_driver.logic.cel import derivation, selection
from dra_driver.model import slices

A = f'device.attributes["{DRIVER}"]'
C = f'device.capacity["{DRIVER}"]'
V1, V12 = slices.Version("1.0.0"), slices.Version("12.9.0")
OFFERED = device(
    "gpu-0", capacity={"memory": "80Gi"}, numa=1, place="numa0-pcie1", fast=True,
    runtime=slices.Version("12.9.0"), roots=("a", "b"),
)  # fmt: skip


def value(expression, candidate=OFFERED):
    return derivation.compile(expression).value(candidate, DRIVER)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"{A}.numa", 1),
        (f"{A}.numa + 1", 2),
        (f"{A}.fast", True),
        (f'{A}.place.split("-")[0]', "numa0"),
        (f"{A}.runtime", slices.Version("12.9.0")),
        (f'{C}.memory.compareTo(quantity("40Gi")) >= 0 ? "big" : "small"', "big"),
        (f"{A}.?absent.orValue(7)", 7),
        (f"{A}.roots", ("a", "b")),
        (f"[{A}.numa, dyn(5)]", (1, 5)),
        (f'[{A}.runtime, dyn(semver("1.0.0"))]', (V12, V1)),
    ],
)  # fmt: skip
def test_it_is_a_scalar_or_a_list_of_one_type(expression, expected):
    found = value(expression)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (f'device.capacity["{DRIVER}"].memory', "must evaluate to int, bool, string or Semver"),
        ('{"a": 1}', "must evaluate to int, bool, string or Semver"),
        ("1.5", "not double"),
        ("[1.5]", "not list(double)"),
        ("1u", "not uint"),
        ("[[1]]", "not list(list(int))"),
        (f"{A}.numa +", "syntax error"),
        ("devize.driver", "undeclared reference"),
        (f'"{"x" * 10241}"', "longer than the 10240 bytes"),
    ],
)
def test_what_cannot_be_a_value_is_refused_as_it_stands(expression, problem):
    assert problem in derivation.check(expression)
    with pytest.raises(selection.CompileError):
        derivation.compile(expression)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (f"{A}.absent", "no such key: absent"),
        (f"dyn({A}.numa) + dyn(0.5)", "no such overload"),
        ("dyn(1.5)", "the result must be int, bool, string or semver, not double"),
        (f"{A}.roots.filter(x, x == 'c')", "must be a list of int, bool, string or semver"),
        ("[dyn(1), dyn('a')]", "must be a list of int, bool, string or semver"),
    ],
)
def test_what_fails_for_a_device_is_told(expression, problem):
    with pytest.raises(derivation.DerivationError) as told:
        value(expression)
    assert problem in told.value.problem
    assert told.value.guarded is None


def test_lists_need_attributes_that_may_be_lists():
    assert derivation.check("[1, 2]") is None
    assert "not list(int)" in derivation.check("[1, 2]", lists=False)
    assert derivation.check(f"{A}.numa", lists=False) is None


def test_devices_that_look_the_same_to_it_are_worked_out_once():
    made = derivation.Derivation("x", derivation.compile(f"{A}.numa * 2")._program)
    values = [made.value(device(f"gpu-{n}", numa=n % 2), DRIVER) for n in range(6)]
    assert values == [0, 2] * 3
    assert len(made._memo) == 2
