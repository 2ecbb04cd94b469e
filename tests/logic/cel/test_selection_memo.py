"""Outcomes are reused exactly where a device looks the same to the expression."""

import effort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver.logic.cel import device, engine, frames, memo, selection
from dra_driver.model import slices

A = 'device.attributes["d"]'


def gpu(number, **attributes):
    return slices.Device(f"gpu-{number}", {"uuid": f"GPU-{number}", **attributes}, {})


def test_a_thousand_equal_gpus_cost_one_evaluation():
    selector = selection.compile(f'{A}.model == "h100" && device.driver == "d" // equal')
    assert all(selector.matches(gpu(n, model="h100"), "d") for n in range(1000))
    assert selector.evaluations == 1


def test_a_device_that_differs_in_what_is_read_is_evaluated_anew():
    selector = selection.compile(f'{A}.model == "h100" && {A}.index < 2 // anew')
    found = [
        selector.matches(gpu(n, model=model, index=n), "d")
        for n, model in enumerate(["h100", "t4", "h100", "t4"])
    ]
    assert found == [True, False, False, False]
    assert selector.evaluations == 3  # index 0, index 2, and a t4 whatever its index


def test_values_of_different_types_are_told_apart():
    selector = selection.compile(f"{A}.x == 1 // types")
    assert [selector.matches(gpu(0, x=value), "d") for value in (True, 1, "1")] == [
        False,
        True,
        False,
    ]
    with pytest.raises(selection.EvaluationError, match="no such overload of _==_"):
        selector.matches(gpu(0, x=slices.Version("1.0.0")), "d")


def test_lists_of_values_of_different_types_are_told_apart():
    selector = selection.compile(f"{A}.x[0] == 1 // lists")
    values = [(True,), (1,), (1, True)]
    assert [selector.matches(gpu(0, x=value), "d") for value in values] == [False, True, True]


def test_the_driver_that_a_bare_name_belongs_to_matters():
    selector = selection.compile(f'"x" in {A} // driver')
    assert [selector.matches(gpu(0, x=1), driver) for driver in ("d", "e")] == [True, False]


def test_a_memo_that_is_full_starts_afresh_and_stays_right():
    kept: memo.Memo[int] = memo.Memo(limit=2)
    everyone = [device.Facts(gpu(n), "d") for n in range(5)]
    for n, facts in enumerate(everyone):
        question = ("value", "attributes", "d", "uuid")
        kept.learn({question: facts.answer(question)}, n)
        assert kept.find(facts) == (n,)
    assert len(kept) <= 2


EXPRESSIONS = [
    f'{A}.a == 1 || {A}.b == "x"',
    f'has({A}.a) ? {A}.a == 1 : "b" in {A}',
    f"{A}.exists(name, name == 'b') && size({A}) > 1",
    'device.attributes.all(domain, device.attributes[domain].all(name, name != "b"))',
    f'{A}.a == {A}.b || device.driver == "e"',
]
VALUES = st.sampled_from([1, 2, True, "x", "1.0.0", slices.Version("1.0.0")])
DEVICES = st.builds(
    lambda attributes: slices.Device("d", attributes, {}),
    st.dictionaries(st.sampled_from(["a", "b", "d/a", "z/b"]), VALUES),
)


@settings(max_examples=effort.examples(200))
@given(st.sampled_from(EXPRESSIONS), st.lists(st.tuples(DEVICES, st.sampled_from("de"))))
def test_the_memo_never_changes_an_outcome(expression, candidates):
    selector = selection.Selector(expression, engine.Program(expression))
    for candidate, driver in candidates:
        fresh, _ = engine.Program(expression).evaluate(device.Facts(candidate, driver))
        try:
            found: bool | str = selector.matches(candidate, driver)
        except selection.EvaluationError as error:
            found = error.problem
        assert found == (fresh.text if isinstance(fresh, frames.Failure) else fresh)
