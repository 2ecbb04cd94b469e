"""The policy that keeps each plugin to what became of its own devices of a claim."""

import copy

import admission_policies
import chart
import pytest

NODE, OTHER = "node-1", "node-2"
DRIVER = "gpu.nvidia.com"


@pytest.fixture(scope="module")
def policy():
    return admission_policies.Policy("-claims")


def entry(pool=NODE, driver=DRIVER, device="gpu-0", **fields):
    return {"driver": driver, "pool": pool, "device": device, **fields}


def claim(*devices, pool=NODE, **status):
    results = [{"request": "gpu", "driver": DRIVER, "pool": pool, "device": "gpu-0"}]
    body = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": "pod", "uid": "uid-1"}],
        **status,
    }
    if devices:
        body["devices"] = list(devices)
    return {"metadata": {"name": "claim"}, "spec": {}, "status": body}


def refusal(policy, old, new, **asked):
    return policy.verdict("UPDATE", new=new, old=old, **({"node": NODE} | asked))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (claim(), claim(entry(data={"uuid": "GPU-1"}))),
        (claim(entry(conditions=[])), claim(entry(data={"uuid": "GPU-1"}))),
        (claim(entry()), claim()),
        (
            claim(entry(OTHER), entry(driver="nic")),
            claim(entry(driver="nic"), entry(OTHER), entry()),
        ),
    ],
    ids=["first", "changed", "gone", "beside-others"],
)
def test_what_became_of_its_own_devices_is_the_plugin_s_to_tell(policy, old, new):
    assert refusal(policy, old, new) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (claim(), claim(entry(OTHER))),
        (claim(entry(OTHER)), claim()),
        (claim(entry(OTHER)), claim(entry(OTHER, data={"uuid": "GPU-1"}))),
        (claim(), claim(entry(driver="nic.example.com"))),
        (claim(entry(driver="nic.example.com")), claim(entry())),
    ],
    ids=["made", "gone", "changed", "other-driver-made", "other-driver-gone"],
)
def test_devices_of_other_nodes_and_drivers_are_not(policy, old, new):
    assert refusal(policy, old, new) == (
        f"the kubelet plugin of node {NODE} may report of devices of driver {DRIVER} "
        "in the pool of that node only"
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda status: status.pop("allocation"),
        lambda status: status["allocation"]["devices"]["results"].append({"device": "gpu-1"}),
        lambda status: status["allocation"]["devices"]["results"][0].update(device="gpu-1"),
        lambda status: status.pop("reservedFor"),
        lambda status: status["reservedFor"].append({"resource": "pods", "uid": "uid-2"}),
    ],
)
def test_neither_allocation_nor_reservations_may_change(policy, change):
    old, new = claim(entry()), claim(entry())
    change(new["status"])
    text = "the kubelet plugin may not change for whom a claim is reserved, nor its allocation"
    assert refusal(policy, old, new) == text
    # And the other way round: none of it may be added.
    assert refusal(policy, new, copy.deepcopy(old)) == text


def test_a_token_that_names_no_node_may_tell_nothing(policy):
    assert refusal(policy, claim(), claim(entry("")), node=None).startswith(
        "the token names no node"
    )


def test_the_scheduler_and_others_are_not_asked(policy):
    assert refusal(policy, claim(), {"metadata": {}}, user="system:kube-scheduler") is None


def test_it_is_asked_about_the_status_alone_is_bound_and_refuses_when_it_fails(policy):
    assert policy.spec["failurePolicy"] == "Fail"
    assert policy.spec["matchConstraints"] == {
        "resourceRules": [
            {
                "apiGroups": ["resource.k8s.io"],
                "apiVersions": ["*"],
                "resources": ["resourceclaims/status"],
                "operations": ["UPDATE"],
            }
        ]
    }
    bodies = chart.objects()
    binding = chart.the(bodies, "ValidatingAdmissionPolicyBinding", "-claims")["spec"]
    name = chart.the(bodies, "ValidatingAdmissionPolicy", "-claims")["metadata"]["name"]
    assert binding == {"policyName": name, "validationActions": ["Deny"]}


def test_another_driver_name_is_the_name_of_what_may_be_told():
    policy = admission_policies.Policy("-claims", {"settings": {"driverName": "gpu.example.com"}})
    assert refusal(policy, claim(), claim(entry(driver="gpu.example.com"))) is None
    assert refusal(policy, claim(), claim(entry())) is not None
