"""How parameter objects are read."""

import effort
import hypothesis
import parameter_cases
import pytest
from hypothesis import strategies as st

from dra_driver.model import parameter_specs, parameters


@pytest.mark.parametrize("case", parameter_cases.LEGAL)
def test_what_is_legal_is_read(case):
    kind, spec = parameter_cases.LEGAL[case]
    read = parameter_specs.read(kind, spec)
    assert (read.kind, read.count) == (kind, spec.get("count", 1))


@pytest.mark.parametrize("case", parameter_cases.ILLEGAL)
def test_what_is_illegal_is_refused_with_field_value_and_what_is_allowed(case):
    illegal = parameter_cases.ILLEGAL[case]
    with pytest.raises(parameters.Refused) as refused:
        parameter_specs.read(illegal.kind, illegal.spec)
    assert str(refused.value).startswith(illegal.told)
    assert refused.value.faults[0].field in str(refused.value)


def test_selectors_are_read_as_they_are_nested():
    node = {
        "andExpression": [
            {"memory": {"value": "16G", "operator": "LessThanOrEqualTo"}},
            {
                "orExpression": [
                    {"index": 1},
                    {"driverVersion": parameter_cases.compared("580.65.06")},
                ]
            },
        ]
    }
    assert parameter_specs.read(parameters.Kind.GPU, {"selector": node}).selector == (
        parameters.Joined(
            any=False,
            parts=(
                parameters.Property("memory", "16G", parameters.Operator.LESS_THAN_OR_EQUAL_TO),
                parameters.Joined(
                    any=True,
                    parts=(
                        parameters.Property("index", 1),
                        parameters.Property(
                            "driverVersion", "580.65.6", parameters.Operator.EQUALS
                        ),
                    ),
                ),
            ),
        )
    )


def test_null_is_the_same_as_absent():
    spec = {"count": None, "selector": None, "sharing": None}
    assert parameter_specs.read(parameters.Kind.GPU, spec) == parameter_specs.read(
        parameters.Kind.GPU, None
    )
    spec = {"selector": {"index": 0, "uuid": None}}
    assert parameter_specs.read(parameters.Kind.GPU, spec).selector.name == "index"


def test_of_many_faults_the_first_are_told_and_the_others_counted():
    spec = {f"field{number}": 0 for number in range(100)}
    with pytest.raises(parameters.Refused) as refused:
        parameter_specs.read(parameters.Kind.GPU, spec)
    assert (len(refused.value.faults), refused.value.left_out) == (10, 90)
    assert str(refused.value).endswith("and 90 more problems")


@hypothesis.settings(max_examples=effort.examples(300))
@hypothesis.given(st.sampled_from(parameters.Kind), parameter_cases.anything)
def test_whatever_is_written_is_read_or_refused(kind, spec):
    told = "read"
    try:
        parameter_specs.read(kind, spec)
    except parameters.Refused as refused:
        told = str(refused)
    assert 0 < len(told.encode("utf-8", "backslashreplace")) <= 4096


def test_what_is_very_large_is_refused_soon():
    text = "x" * 1_000_000
    for spec in (
        {"selector": {"productName": text}},
        {text: text},
        {"selector": {"memory": {"value": 10**5000, "operator": text}}},
        {"selector": [text] * 1000},
        {"count": -(10**5000)},
        {"sharing": {"mpsConfig": {"maxConnections": 10**5000}}},
    ):
        with pytest.raises(parameters.Refused) as refused:
            parameter_specs.read(parameters.Kind.GPU, spec)
        assert len(str(refused.value)) < 4096
