"""The policy that keeps each plugin to one condition of its own node."""

import copy

import admission_policies
import chart
import pytest

NODE, OTHER = "node-1", "node-2"
CONDITION = "GPUNeedsReboot"
VALUES = {"settings": {"rebootCondition": CONDITION}}


@pytest.fixture(scope="module")
def policy():
    return admission_policies.Policy("-nodes", VALUES)


def node(*conditions, name=NODE, **status):
    return {
        "metadata": {"name": name, "labels": {"zone": "a"}},
        "spec": {},
        "status": {"conditions": list(conditions), "capacity": {"cpu": "8"}, **status},
    }


def condition(kind=CONDITION, status="False"):
    return {"type": kind, "status": status}


READY = condition("Ready", "True")


def refusal(policy, old, new, **asked):
    return policy.verdict("UPDATE", new=new, old=old, **({"node": NODE} | asked))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (node(READY), node(READY, condition())),
        (node(READY, condition()), node(READY, condition(status="True"))),
        (node(condition(), READY), node(READY)),
        ({"metadata": {"name": NODE}}, {"metadata": {"name": NODE}}),
    ],
    ids=["first", "changed", "gone", "without-status"],
)
def test_its_condition_of_its_own_node_is_the_plugin_s_to_write(policy, old, new):
    assert refusal(policy, old, new) is None


def test_the_status_of_another_node_is_not(policy):
    old, new = node(READY, name=OTHER), node(READY, condition(), name=OTHER)
    assert refusal(policy, old, new) == (
        f'the kubelet plugin of node {NODE} may not write the status of node "{OTHER}"'
    )


ELSE = {
    "another condition": lambda body: body["status"]["conditions"].append(condition("Hot")),
    "a condition of the kubelet": lambda body: body["status"]["conditions"].pop(0),
    "readiness": lambda body: body["status"]["conditions"][0].update(status="False"),
    "capacity": lambda body: body["status"]["capacity"].update(cpu="9"),
    "allocatable": lambda body: body["status"].update(allocatable={"cpu": "9"}),
    "addresses": lambda body: body["status"].update(addresses=[{"type": "a", "address": "b"}]),
    "images": lambda body: body["status"].update(images=[{"names": ["i"]}]),
    "features": lambda body: body["status"].update(declaredFeatures=["f"]),
    "handlers": lambda body: body["status"].update(runtimeHandlers=[{"name": "r"}]),
    "labels": lambda body: body["metadata"]["labels"].update(zone="b"),
    "annotations": lambda body: body["metadata"].update(annotations={"a": "b"}),
    "finalizers": lambda body: body["metadata"].update(finalizers=["a/b"]),
}


@pytest.mark.parametrize("change", ELSE.values(), ids=ELSE)
def test_nothing_else_may_change(policy, change):
    old = node(READY)
    new = copy.deepcopy(old)
    change(new)
    assert refusal(policy, old, new) == (
        f"the kubelet plugin may write the condition {CONDITION} of its node, and nothing else "
        "of it"
    )


def test_a_token_that_names_no_node_may_write_nothing(policy):
    told = refusal(policy, node(READY), node(READY, condition()), node=None)
    assert told.startswith("the token names no node")


def test_the_kubelet_and_others_are_not_asked(policy):
    changed = node(condition("Ready", "False"))
    assert refusal(policy, node(READY), changed, user=f"system:node:{NODE}") is None


def test_it_is_asked_about_the_status_alone_is_bound_and_refuses_when_it_fails(policy):
    assert policy.spec["failurePolicy"] == "Fail"
    [rule] = policy.spec["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["nodes/status"], ["UPDATE"])
    bodies = chart.objects(VALUES)
    [binding] = [
        body
        for body in bodies
        if body["kind"] == "ValidatingAdmissionPolicyBinding"
        and body["spec"]["policyName"].endswith("-nodes")
    ]
    assert binding["spec"]["validationActions"] == ["Deny"]


def test_without_a_condition_there_is_no_such_policy():
    names = [body["metadata"]["name"] for body in chart.objects()]
    assert not [name for name in names if name.endswith("-nodes")]
