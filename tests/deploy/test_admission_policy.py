"""The policy that keeps each plugin to slices of its own node, evaluated by CEL's own runtime."""

import chart
import pytest

cel = pytest.importorskip("cel_expr_python.cel", reason="no wheel of CEL's own runtime")

ACCOUNT = "system:serviceaccount:dra-driver:dra-driver-kubelet-plugin"
NODE_NAME = "authentication.kubernetes.io/node-name"


@pytest.fixture(scope="module")
def policy():
    return chart.the(chart.objects(), "ValidatingAdmissionPolicy")["spec"]


@pytest.fixture(scope="module")
def verdict(policy):
    """What the API server answers to a write: the reason why it is refused, or None."""
    names = ("object", "oldObject", "request", "variables")
    environment = cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN))

    def evaluate(expression, data):
        outcome = environment.compile(expression).eval(data=data)
        assert outcome.type() != cel.Type.ERROR, (expression, outcome.value())
        return outcome.value()

    def ask(operation, *, new=None, old=None, user=ACCOUNT, extra=None):
        info = {"username": user} | ({} if extra is None else {"extra": extra})
        data = {"object": new, "oldObject": old, "variables": {}}
        data["request"] = {"operation": operation, "userInfo": info}
        if not all(evaluate(c["expression"], data) for c in policy["matchConditions"]):
            return None
        for variable in policy["variables"]:
            value = evaluate(variable["expression"], data)
            data["variables"] = data["variables"] | {variable["name"]: value}
        for validation in policy["validations"]:
            if not evaluate(validation["expression"], data):
                message = validation.get("messageExpression")
                return evaluate(message, data) if message else validation["message"]
        return None

    return ask


def on(node):
    return {NODE_NAME: [node], "authentication.kubernetes.io/pod-name": ["plugin-x"]}


def a_slice(node="node-1", driver="gpu.nvidia.com"):
    place = {"allNodes": True} if node is None else {"nodeName": node}
    return {"metadata": {"name": "s"}, "spec": {"driver": driver, **place}}


WRITES = {
    "CREATE": lambda body: {"new": body},
    "UPDATE": lambda body: {"new": body, "old": body},
    "DELETE": lambda body: {"old": body},
}


@pytest.mark.parametrize("operation", WRITES)
def test_slices_of_the_own_node_may_be_written(verdict, operation):
    assert verdict(operation, **WRITES[operation](a_slice()), extra=on("node-1")) is None


@pytest.mark.parametrize("operation", WRITES)
def test_slices_of_another_node_may_not(verdict, operation):
    refusal = verdict(operation, **WRITES[operation](a_slice("node-2")), extra=on("node-1"))
    assert refusal == ('the kubelet plugin of node node-1 may not write slices of node "node-2"')


@pytest.mark.parametrize("operation", WRITES)
def test_slices_of_all_nodes_may_not(verdict, operation):
    refusal = verdict(operation, **WRITES[operation](a_slice(None)), extra=on("node-1"))
    assert refusal == 'the kubelet plugin of node node-1 may not write slices of node ""'


@pytest.mark.parametrize("operation", WRITES)
def test_slices_of_another_driver_may_not(verdict, operation):
    body = a_slice(driver="compute-domain.nvidia.com")
    refusal = verdict(operation, **WRITES[operation](body), extra=on("node-1"))
    assert refusal == (
        "this kubelet plugin may write slices of driver gpu.nvidia.com only, "
        "not of compute-domain.nvidia.com"
    )


@pytest.mark.parametrize("extra", [None, {}, {"other": ["node-1"]}], ids=str)
def test_a_token_that_names_no_node_may_write_none(verdict, extra):
    for node in ("node-1", None):
        refusal = verdict("CREATE", new=a_slice(node), extra=extra)
        assert refusal.startswith("the token names no node")


@pytest.mark.parametrize(
    "user", ["system:node:node-2", "admin", "system:serviceaccount:other:dra-driver-kubelet-plugin"]
)
def test_others_are_none_of_its_business(verdict, user):
    assert verdict("DELETE", old=a_slice("node-2"), user=user, extra=on("node-1")) is None


def test_it_is_asked_about_every_write_of_slices_and_refuses_when_it_fails(policy):
    assert policy["failurePolicy"] == "Fail"
    assert policy["matchConstraints"] == {
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
    binding = chart.the(bodies, "ValidatingAdmissionPolicyBinding")["spec"]
    found = chart.the(bodies, "ValidatingAdmissionPolicy")
    pod = chart.the(bodies, "DaemonSet")["spec"]["template"]["spec"]
    account = f"system:serviceaccount:{chart.NAMESPACE}:{pod['serviceAccountName']}"
    assert pod["serviceAccountName"] == "own"
    [condition] = found["spec"]["matchConditions"]
    assert condition["expression"] == f"request.userInfo.username == '{account}'"
    assert binding == {"policyName": found["metadata"]["name"], "validationActions": ["Deny"]}
