import pytest

from dra_driver.model import nodes, taints

NODE = nodes.Node("node-a", {"zone": "z1", "gpus": "8"})


def term(*expressions, fields=()):
    body = {"matchExpressions": [dict(zip(("key", "operator", "values"), e, strict=False))
                                 for e in expressions]}  # fmt: skip
    return body | ({"matchFields": list(fields)} if fields else {})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (("zone", "In", ["z1", "z2"]), True),
        (("zone", "In", ["z2"]), False),
        (("zone", "NotIn", ["z2"]), True),
        (("zone", "NotIn", ["z1"]), False),
        (("nope", "NotIn", ["z1"]), True),
        (("zone", "Exists"), True),
        (("nope", "Exists"), False),
        (("nope", "DoesNotExist"), True),
        (("zone", "DoesNotExist"), False),
        (("gpus", "Gt", ["7"]), True),
        (("gpus", "Gt", ["8"]), False),
        (("gpus", "Lt", ["9"]), True),
        (("gpus", "Lt", ["8"]), False),
        (("zone", "Gt", ["1"]), False),
        (("nope", "Lt", ["1"]), False),
        (("zone", "Unheard", ["z1"]), False),
    ],
)
def test_a_requirement_holds_as_core_v1_says(expression, expected):
    assert nodes.matches({"nodeSelectorTerms": [term(expression)]}, NODE) is expected


def test_requirements_are_anded_and_terms_are_ored():
    right, wrong = ("zone", "Exists"), ("nope", "Exists")
    assert not nodes.matches({"nodeSelectorTerms": [term(right, wrong)]}, NODE)
    assert nodes.matches({"nodeSelectorTerms": [term(wrong), term(right)]}, NODE)


@pytest.mark.parametrize("selector", [{}, {"nodeSelectorTerms": []}, {"nodeSelectorTerms": [{}]}])
def test_an_empty_selector_or_term_matches_nothing(selector):
    assert not nodes.matches(selector, NODE)


def test_the_selector_of_one_node_matches_it_alone():
    assert nodes.matches(nodes.only("node-a"), NODE)
    assert not nodes.matches(nodes.only("node-b"), NODE)


def test_a_node_is_read_from_the_wire():
    body = {
        "metadata": {"name": "n", "labels": {"a": "b"}},
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
    }
    assert nodes.parse(body) == nodes.Node(
        "n", {"a": "b"}, (taints.Taint("k"),), unschedulable=True
    )
    assert nodes.parse({"metadata": {"name": "n"}}) == nodes.Node("n")
