"""Expressions about values of declared types."""

import pytest

from dra_driver.logic.cel import kinds, predicates

RECORDS = {
    "self": {
        "count": kinds.INT,
        "parts": kinds.list_of(kinds.Type("self.part")),
        "labels": kinds.map_of(kinds.STRING, kinds.STRING),
        "any": kinds.DYN,
    },
    "self.part": {"name": kinds.STRING},
}
NAMES = {"self": kinds.Type("self"), "oldSelf": kinds.Type("self")}
VALUE = {"count": 3, "parts": [{"name": "x"}, {"name": "y"}], "labels": {"k": "v"}, "any": "7"}


def predicate(expression, **more):
    return predicates.Predicate(expression, NAMES, RECORDS, **more)


@pytest.mark.parametrize(
    "expression",
    [
        "self.count == oldSelf.count + 1",
        "has(self.count) && !has(oldSelf.labels)",
        "self.parts.all(part, part.name.size() == 1)",
        "self.parts.exists_one(part, part.name == 'x')",
        "'k' in self.labels && self.labels['k'] == 'v'",
        "self.any == '7' || self.any > 3",
        "self.parts[0] != self.parts[1]",
        "quantity('1Gi').isGreaterThan(quantity('1G'))",
        "cel.bind(one, self.count, one + one == 6)",
    ],
)
def test_it_holds(expression):
    assert predicate(expression).evaluate({"self": VALUE, "oldSelf": {"count": 2}}) is True


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("self.size", "line 1, column 6: undefined field 'size': it has any, count, labels, parts"),
        (
            "true &&\n self.parts[0].nme == ''",
            "line 2, column 16: undefined field 'nme': it has name",
        ),
        ("self.count", "line 1, column 1: must evaluate to bool, not int"),
        ("self.count == 'a'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("device.driver == ''", "undeclared reference to 'device'"),
        ("self.all(x, true)", "all() goes over a value of type list or map, not self"),
        ("(" * 300 + "true" + ")" * 300, "nested too deeply"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(expression, problem):
    with pytest.raises(predicates.CompileError) as error:
        predicate(expression)
    assert problem in str(error.value)


def test_it_may_give_a_text():
    told = predicate("'there are ' + string(self.count)", result=kinds.STRING)
    assert told.evaluate({"self": VALUE}) == "there are 3"


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("self.parts[7].name == ''", "index out of bounds: 7"),
        ("oldSelf.count == 1", "no such key: count"),
        ("self.count / (self.count - 3) == 1", "division by zero"),
        ("lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))", "actual cost limit"),
    ],
)
def test_what_fails_when_it_runs_is_told(expression, why):
    outcome = predicate(expression).evaluate({"self": VALUE, "oldSelf": {}})
    assert isinstance(outcome, predicates.Failure)
    assert why in outcome.text


def test_the_variables_that_it_has_are_known():
    assert predicate("self.count > oldSelf.count").names == {"self", "oldSelf"}
    assert predicate("self.count > 1").names == {"self"}
