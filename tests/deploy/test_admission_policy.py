"""The policy that keeps each plugin to slices of its own node, evaluated by CEL's own runtime."""

import admission_policies
import chart
import pytest


@pytest.fixture(scope="module")
def policy():
    return admission_policies.Policy("-slices")


def a_slice(node="node-1", driver="gpu.nvidia.com", pool="node-1"):
    place = {"allNodes": True} if node is None else {"nodeName": node}
    spec = {"driver": driver, "pool": {"name": pool, "generation": 1}, **place}
    return {"metadata": {"name": "s"}, "spec": spec}


WRITES = {
    "CREATE": lambda body: {"new": body},
    "UPDATE": lambda body: {"new": body, "old": body},
    "DELETE": lambda body: {"old": body},
}


@pytest.mark.parametrize("operation", WRITES)
def test_slices_of_the_own_node_may_be_written(policy, operation):
    assert policy.verdict(operation, **WRITES[operation](a_slice()), node="node-1") is None


@pytest.mark.parametrize("operation", WRITES)
def test_slices_of_another_node_may_not(policy, operation):
    refusal = policy.verdict(operation, **WRITES[operation](a_slice("node-2")), node="node-1")
    assert refusal == ('the kubelet plugin of node node-1 may not write slices of node "node-2"')


@pytest.mark.parametrize("operation", WRITES)
def test_slices_of_all_nodes_may_not(policy, operation):
    refusal = policy.verdict(operation, **WRITES[operation](a_slice(None)), node="node-1")
    assert refusal == 'the kubelet plugin of node node-1 may not write slices of node ""'


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_slices_of_the_pool_of_another_node_may_not(policy, operation):
    """The scheduler takes shared counters of any node for a pool's, and the highest generation."""
    refusal = policy.verdict(operation, **WRITES[operation](a_slice(pool="node-2")), node="node-1")
    assert refusal == (
        "the kubelet plugin of node node-1 may write slices of the pool of that node, "
        'not of "node-2"'
    )


def test_slices_of_another_pool_that_are_on_the_own_node_may_go(policy):
    assert policy.verdict("DELETE", old=a_slice(pool="old-name"), node="node-1") is None


@pytest.mark.parametrize("operation", WRITES)
def test_slices_of_another_driver_may_not(policy, operation):
    body = a_slice(driver="compute-domain.nvidia.com")
    refusal = policy.verdict(operation, **WRITES[operation](body), node="node-1")
    assert refusal == (
        "this kubelet plugin may write slices of driver gpu.nvidia.com only, "
        "not of compute-domain.nvidia.com"
    )


@pytest.mark.parametrize("extra", [None, {}, {"other": ["node-1"]}], ids=str)
def test_a_token_that_names_no_node_may_write_none(policy, extra):
    for node in ("node-1", None):
        refusal = policy.verdict("CREATE", new=a_slice(node), extra=extra)
        assert refusal.startswith("the token names no node")


@pytest.mark.parametrize(
    "user", ["system:node:node-2", "admin", "system:serviceaccount:other:dra-driver-kubelet-plugin"]
)
def test_others_are_none_of_its_business(policy, user):
    assert policy.verdict("DELETE", old=a_slice("node-2"), user=user, node="node-1") is None


def test_it_is_asked_about_every_write_of_slices_and_refuses_when_it_fails(policy):
    assert policy.spec["failurePolicy"] == "Fail"
    assert policy.spec["matchConstraints"] == {
        "resourceRules": [
            {
                "apiGroups": ["resource.k8s.io"],
                "apiVersions": ["*"],
                "resources": ["resourceslices"],
                "operations": ["CREATE", "UPDATE", "DELETE"],
            }
        ]
    }


def test_it_is_in_force_for_the_account_of_the_daemon_set():
    bodies = chart.objects({"serviceAccount": {"name": "own"}})
    binding = chart.the(bodies, "ValidatingAdmissionPolicyBinding", "-slices")["spec"]
    found = chart.the(bodies, "ValidatingAdmissionPolicy", "-slices")
    pod = chart.the(bodies, "DaemonSet")["spec"]["template"]["spec"]
    account = f"system:serviceaccount:{chart.NAMESPACE}:{pod['serviceAccountName']}"
    assert pod["serviceAccountName"] == "own"
    [condition] = found["spec"]["matchConditions"]
    assert condition["expression"] == f"request.userInfo.username == '{account}'"
    assert binding == {"policyName": found["metadata"]["name"], "validationActions": ["Deny"]}
