"""The engine against two others, on what they have in common with Kubernetes' dialect.

cel-expr-python is CEL's own C++ runtime, with optional types, bindings, strings, lists, sets and
two-variable macros. celpy has the language alone. Neither knows quantities, versions, addresses,
or domains that are empty maps.
"""

import sys

import celpy
import effort
import pytest
import selector_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver.logic.cel import selection
from dra_driver.model import slices

cel = pytest.importorskip("cel_expr_python.cel", reason="no wheel of CEL's own runtime")

A = 'device.attributes["d"]'
ATTRIBUTES = {"name": "fish", "count": 3, "index": 3, "healthy": True, "big": 2**62}
DEVICE = slices.Device("device-0", ATTRIBUTES, {})
FIELDS = {
    "driver": "d",
    "attributes": {"d": ATTRIBUTES},
    "capacity": {"d": {}},
    "allowMultipleAllocations": False,
}
EXTENSIONS = ["bindings", "lists", "optional", "sets", "strings", "two-var-comprehensions"]
CONFIG = "name: device\nextensions:\n" + "".join(f"- name: {name}\n" for name in EXTENSIONS)
ERROR = "an error"
ELSEWHERE = {
    "an unknown domain is an empty map, even optionally": "device has a map of its own",
    "a duration's lengths": "cel-go gives all milliseconds, CEL's definition those of the second",
}
"""Where Kubernetes differs from CEL's own runtime, and why; numbers as text are Go's as well."""


@pytest.fixture(scope="module")
def official():
    text, dyn = cel.Type.STRING, cel.Type.DYN
    return cel.NewEnv(
        config=cel.NewEnvConfigFromYaml(CONFIG), variables={"device": cel.Type.Map(text, dyn)}
    )


def ours(expression):
    try:
        return selection.compile(expression).matches(DEVICE, "d")
    except selection.EvaluationError:
        return ERROR


def of_official(official, expression):
    result = official.compile(expression).eval(data={"device": FIELDS})
    return ERROR if result.type() == cel.Type.ERROR else result.value()


@pytest.fixture(scope="module")
def environment():
    limit = sys.getrecursionlimit()
    yield celpy.Environment()
    # celpy changes it for the whole process.
    sys.setrecursionlimit(limit)


def of_celpy(environment, expression):
    program = environment.program(environment.compile(expression))
    try:
        return bool(program.evaluate({"device": celpy.json_to_cel(FIELDS)}))
    except celpy.CELEvalError:
        return ERROR


def test_the_official_runtime_agrees_on_every_expression_that_it_compiles(official):
    compared = 0
    for sentence, expression in selector_cases.HOLDS.items():
        if sentence in ELSEWHERE or "format" in sentence or "as text" in sentence:
            continue
        try:
            found = of_official(official, expression)
        except RuntimeError:
            continue
        assert (expression, found) == (expression, True)
        compared += 1
    assert compared >= 60


def typed(names):
    """Expressions by their type, three levels deep."""
    leaves = {
        "int": st.sampled_from(["0", "1", "-1", "7", "9223372036854775807", f"{A}.index", *names]),
        "string": st.sampled_from(['""', '"a"', '"é,b"', '"fish"', f"{A}.name"]),
        "bool": st.sampled_from(["true", "false", f"{A}.healthy", f"{A}.nope"]),
        "list": st.sampled_from(["[1, 2, 3]", "[0]", "[3, -1, 3]"]),
    }
    for _ in range(3):
        leaves = grown(leaves)
    return leaves["bool"]


def grown(of):
    def shape(template, *kinds):
        return st.tuples(*(of[kind] for kind in kinds)).map(lambda parts: template.format(*parts))

    integers, texts, lists = ("int", "int"), ("string", "string"), ("list", "list")
    return {
        "int": st.one_of(
            of["int"],
            *(shape(f"({{}} {operator} {{}})", *integers) for operator in "+-*/%"),
            shape("size({})", "string"),
            shape("{}[{}]", "list", "int"),
            shape("({} ? {} : {})", "bool", "int", "int"),
        ),
        "string": st.one_of(of["string"], shape("({} + {})", *texts), shape("string({})", "int")),
        "list": st.one_of(
            of["list"],
            shape("({} + {})", *lists),
            shape("{}.map(x, x + {})", "list", "int"),
            shape("{}.filter(x, x > {})", "list", "int"),
        ),
        "bool": st.one_of(
            *(shape(f"({{}} {o} {{}})", *integers) for o in ("<", "<=", "==", "!=", ">", ">=")),
            *(shape(f"({{}} {o} {{}})", "bool", "bool") for o in ("&&", "||", "==")),
            *(shape(f"({{}} {o} {{}})", *texts) for o in ("<", "==", "!=")),
            shape("!{}", "bool"),
            shape("({} in {})", "int", "list"),
            shape("({} == {})", *lists),
            shape("{}.contains({})", *texts),
            shape("{}.startsWith({})", *texts),
            *(shape(f"{{}}.{m}(x, x < {{}})", "list", "int") for m in ("all", "exists")),
            shape("{}.exists_one(x, x == {})", "list", "int"),
        ),
    }


@settings(max_examples=effort.examples(400), deadline=None)
@given(typed([f"{A}.big"]))
def test_the_official_runtime_agrees_on_any_expression(official, expression):
    assert ours(expression) == of_official(official, expression)


# celpy reads a negative index from the end, orders bools and divides by its own rules.
CELPY_KNOWS = ["0", "1", "7", f"{A}.index"]
BOOLS = st.sampled_from(["true", "false", f"{A}.healthy", f"{A}.nope == 1"])
COMPARED = st.tuples(
    st.sampled_from(CELPY_KNOWS), st.sampled_from(["<", "<=", "==", "!=", ">", ">="]),
    st.sampled_from(CELPY_KNOWS),
).map(" ".join)  # fmt: skip
TEXTS = st.sampled_from(
    [f'{A}.name == "fish"', f'{A}.name.startsWith("f")', f'"name" in {A}', f"has({A}.nope)",
     f'{A}.name.matches("^f.*h$")', "[1, 2].all(x, x > 1)", "[1, 2].exists(x, x > 1)",
     "[1, 2].exists_one(x, x > 1)", "[1, 2].map(x, x * 2) == [2, 4]", "size([1, 2]) == 2"]
)  # fmt: skip


@settings(max_examples=effort.examples(60), deadline=None)
@given(
    st.recursive(
        st.one_of(BOOLS, COMPARED, TEXTS),
        lambda inner: st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        max_leaves=4,
    )
)
def test_celpy_agrees_on_the_language_alone(environment, expression):
    assert ours(expression) == of_celpy(environment, expression)
