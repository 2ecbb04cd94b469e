"""The policy for the pods that each plugin makes, evaluated by CEL's own runtime."""

import admission_policies
import chart
import pytest
from chart_mps import pod

pytestmark = pytest.mark.sampled(9)

NODE = "node-1"
"""Where the pods of `chart_mps` are."""


@pytest.fixture(scope="module")
def policy():
    return admission_policies.Policy("-mps-daemon")


@pytest.fixture(scope="module")
def verdict(policy):
    """What the API server answers: the reason why it is refused, or None."""

    def ask(operation, body, *, user=admission_policies.ACCOUNT, node=NODE):
        old, new = (body, None) if operation == "DELETE" else (None, body)
        return policy.verdict(operation, new=new, old=old, user=user, node=node)

    return ask


def changed(container=None, **spec):
    """The pod of a daemon with other fields."""
    body = pod()
    [own] = body["spec"]["containers"]
    containers = {"containers": [own | (container or {})]}
    return body | {"spec": body["spec"] | containers | spec}


def relabelled(changes):
    """The pod of a daemon with other labels."""
    body = pod()
    labels = body["metadata"]["labels"] | changes
    body["metadata"]["labels"] = {name: text for name, text in labels.items() if text}
    return body


BOTH = pytest.mark.parametrize("operation", ["CREATE", "DELETE"])


@BOTH
def test_pods_of_daemons_on_the_own_node_may_be_made_and_deleted(verdict, operation):
    assert verdict(operation, pod()) is None


@BOTH
def test_pods_of_another_node_may_not(verdict, operation):
    text = 'the kubelet plugin of node node-2 may not make or delete pods of node "node-1"'
    assert verdict(operation, pod(), node="node-2") == text


@pytest.mark.parametrize("name", [None, "", "high"])
def test_pods_that_no_quota_counts_may_not(verdict, name):
    body = changed(priorityClassName=name)
    if name is None:
        del body["spec"]["priorityClassName"]
    text = "the kubelet plugin may make pods of the priority class dra-driver-mps-daemon only"
    assert verdict("CREATE", body) == text
    assert verdict("DELETE", body) is None


@BOTH
def test_pods_that_the_scheduler_is_to_place_may_not(verdict, operation):
    body = pod()
    del body["spec"]["nodeName"]
    assert verdict(operation, body) == (
        'the kubelet plugin of node node-1 may not make or delete pods of node ""'
    )


@BOTH
@pytest.mark.parametrize("labels", [None, {}, {"app.kubernetes.io/managed-by": "Helm"}], ids=str)
def test_the_pods_of_others_may_not(verdict, operation, labels):
    body = pod()
    del body["metadata"]["labels"]
    if labels is not None:
        body["metadata"]["labels"] = labels
    assert "with its own label" in verdict(operation, body)


@BOTH
def test_a_token_that_names_no_node_may_do_nothing(verdict, operation):
    assert verdict(operation, pod(), node=None).startswith("the token names no node")


REFUSED = {
    "the controller's account": (
        changed(serviceAccountName="dra-driver-controller"),
        "with the service account dra-driver-mps-daemon only",
    ),
    "a Secret as a volume": (
        changed(volumes=[{"name": "s", "secret": {"secretName": "dra-driver-webhook"}}]),
        "volumes that Secrets can come by",
    ),
    "a Secret among others": (
        changed(volumes=[{"name": "s", "projected": {"sources": [{"secret": {"name": "s"}}]}}]),
        "volumes that Secrets can come by",
    ),
    "a volume that is read with a Secret": (
        changed(volumes=[{"name": "s", "csi": {"driver": "d"}}]),
        "volumes that Secrets can come by",
    ),
    "a Secret as a variable": (
        changed({"env": [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}),
        "variables out of Secrets",
    ),
    "a Secret as variables": (
        changed({"envFrom": [{"secretRef": {"name": "s"}}]}),
        "variables out of Secrets",
    ),
    "a Secret to pull images with, which lets the node read it": (
        changed(imagePullSecrets=[{"name": "dra-driver-webhook-certificate"}]),
        "with the pull Secrets [] only",
    ),
    "a label by which another Service or Deployment finds it": (
        relabelled({"app.kubernetes.io/component": "webhook"}),
        "of the component mps-daemon only",
    ),
    "no label of a component": (
        relabelled({"app.kubernetes.io/component": None}),
        "of the component mps-daemon only",
    ),
    "a Secret for a container before": (
        changed(initContainers=[{"name": "i", "envFrom": [{"secretRef": {"name": "s"}}]}]),
        "variables out of Secrets",
    ),
}


@pytest.mark.parametrize(("body", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_a_daemon_does_not_need_a_pod_may_not_have(verdict, body, reason):
    assert reason in verdict("CREATE", body)
    # One that is there may always go.
    assert verdict("DELETE", body) is None


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"imagePullSecrets": [{"name": "one"}, {"name": "two"}]}, "two"),
        ({"settings": {"mpsImagePullSecrets": ["own"]}}, "own"),
        # OpenShift makes it for the account, and adds it to the pods.
        ({}, "dra-driver-mps-daemon-dockercfg-x7k2p"),
        ({"settings": {"mpsServiceAccount": "ours"}}, "ours-dockercfg-x7k2p"),
    ],
    ids=str,
)
def test_the_secrets_that_its_image_is_pulled_with_are_not_in_the_way(values, name):
    policy = admission_policies.Policy("-mps-daemon", values)
    account = values.get("settings", {}).get("mpsServiceAccount", "dra-driver-mps-daemon")
    for secret, allowed in ((name, True), ("other", False)):
        body = changed(imagePullSecrets=[{"name": secret}], serviceAccountName=account)
        assert (policy.verdict("CREATE", new=body, node=NODE) is None) is allowed


ADDED = {
    "a token of its own account": [
        {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
    ],
    "what is known of the pod": [{"name": "d", "downwardAPI": {"items": []}}],
    "a configuration": [{"name": "c", "configMap": {"name": "c"}}],
}


@pytest.mark.parametrize("volumes", ADDED.values(), ids=ADDED)
def test_what_clusters_add_to_each_pod_is_in_nobody_s_way(verdict, volumes):
    env = [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    body = changed({"env": env}, volumes=[*pod()["spec"]["volumes"], *volumes])
    assert verdict("CREATE", body) is None


@pytest.mark.parametrize(
    "user", ["admin", "system:serviceaccount:dra-driver:dra-driver-controller"]
)
def test_others_are_none_of_its_business(verdict, user):
    assert verdict("DELETE", pod(), user=user, node=None) is None


def test_it_is_asked_about_every_pod_that_is_made_or_deleted_and_refuses_when_it_fails(policy):
    assert policy.spec["failurePolicy"] == "Fail"
    [rule] = policy.spec["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE", "DELETE"])


def test_it_is_in_force():
    binding = chart.the(chart.objects(), "ValidatingAdmissionPolicyBinding", "-mps-daemon")["spec"]
    assert binding == {"policyName": "dra-driver-mps-daemon", "validationActions": ["Deny"]}
    switched_off = chart.objects({"admissionPolicy": {"create": False}})
    assert "ValidatingAdmissionPolicy" not in {body["kind"] for body in switched_off}
