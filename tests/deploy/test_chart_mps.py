"""What the chart has for the pods of MPS daemons, and the pods that the plugin then makes."""

import pathlib

import chart
import pytest
from chart_mps import pod

pytestmark = pytest.mark.sampled(7)

OPENSHIFT = {"openshift": {"scc": True}}
ACCOUNT = "dra-driver-mps-daemon"


def accounts(values=None):
    return {
        b["metadata"]["name"]: b for b in chart.objects(values) if b["kind"] == "ServiceAccount"
    }


def constraints(values=None):
    """The SecurityContextConstraints for the pods of MPS daemons."""
    return chart.the(
        chart.objects(values or OPENSHIFT), "SecurityContextConstraints", "-mps-daemon"
    )


def test_the_pods_look_for_the_driver_where_the_plugin_does():
    [container] = pod({"settings": {"libraryDirs": ["/opt/a", "/opt/b"]}})["spec"]["containers"]
    assert container["command"][-2:] == ["--library-dirs", "/opt/a,/opt/b"]
    [container] = pod()["spec"]["containers"]
    assert "--library-dirs" not in container["command"]


def test_a_quota_bounds_how_many_pods_a_node_can_make():
    """It counts the pods of their priority class, and no others of the chart."""
    quota = chart.the(chart.objects(), "ResourceQuota", "-pods")
    assert quota["spec"]["hard"] == {"pods": "10000"}
    [scope] = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert (scope["scopeName"], scope["operator"]) == ("PriorityClass", "In")
    assert pod()["spec"]["priorityClassName"] in scope["values"]
    classes = {
        body["kind"]: body["spec"]["template"]["spec"].get("priorityClassName")
        for body in chart.objects()
        if body["kind"] in ("DaemonSet", "Deployment")
    }
    assert [kind for kind, name in classes.items() if name in scope["values"]] == []


@pytest.mark.parametrize("values", [{"podQuota": 0}, {"settings": {"mpsLauncher": "process"}}])
def test_without_a_bound_or_without_a_right_to_pods_there_is_no_quota(values):
    assert "ResourceQuota" not in {body["kind"] for body in chart.objects(values)}


# Account and secrets


def test_the_pods_have_a_service_account_that_is_made_and_may_do_nothing():
    bodies = chart.objects()
    assert pod()["spec"]["serviceAccountName"] == ACCOUNT
    assert accounts()[ACCOUNT]["automountServiceAccountToken"] is False
    subjects = {one["name"] for body in bodies for one in body.get("subjects", ())}
    assert subjects
    assert ACCOUNT not in subjects


def test_an_account_of_one_s_own_is_used_and_not_made():
    values = {"settings": {"mpsServiceAccount": "own"}} | OPENSHIFT
    assert pod(values)["spec"]["serviceAccountName"] == "own"
    assert not {"own", ACCOUNT} & accounts(values).keys()
    assert constraints(values)["users"] == [f"system:serviceaccount:{chart.NAMESPACE}:own"]


def priorities(values=None):
    return {b["metadata"]["name"]: b for b in chart.objects(values) if b["kind"] == "PriorityClass"}


def test_they_evict_no_pod_of_a_full_node_and_are_evicted_last():
    made = priorities()[pod()["spec"]["priorityClassName"]]
    # From this value on the kubelet ends other pods to admit one; what a user may make is below.
    assert made["value"] < 2_000_000_000
    assert made["value"] == 1_000_000_000
    assert made["preemptionPolicy"] == "Never"
    assert made["globalDefault"] is False


def test_a_priority_class_of_one_s_own_is_used_and_not_made():
    values = {"settings": {"mpsPriorityClass": "own"}}
    assert pod(values)["spec"]["priorityClassName"] == "own"
    assert priorities(values) == {}


def test_without_pods_of_daemons_there_is_no_class_for_them():
    assert priorities({"settings": {"mpsLauncher": "process"}}) == {}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, ["registry", "mirror"]), ({"mpsImagePullSecrets": ["other"]}, ["other"])],
    ids=["default", "own"],
)
def test_their_image_is_pulled_with_the_secrets_of_the_driver_s_or_their_own(settings, expected):
    secrets = [{"name": "registry"}, {"name": "mirror"}]
    values = {"imagePullSecrets": secrets, "settings": settings}
    assert pod(values)["spec"]["imagePullSecrets"] == [{"name": name} for name in expected]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, "Always"), ({"mpsImagePullPolicy": "Never"}, "Never")],
    ids=["default", "own"],
)
def test_their_image_is_pulled_when_the_driver_s_is_or_as_is_said(settings, expected):
    values = {"image": {"pullPolicy": "Always"}, "settings": settings}
    [container] = pod(values)["spec"]["containers"]
    assert container["imagePullPolicy"] == expected


def test_without_secrets_they_have_none():
    assert "imagePullSecrets" not in pod()["spec"]


def test_where_daemons_are_processes_there_is_nothing_for_pods():
    values = {
        "imagePullSecrets": [{"name": "registry"}],
        "networkPolicy": {"enabled": True},
        "settings": {"mpsLauncher": "process"},
    } | OPENSHIFT
    names = [body["metadata"]["name"] for body in chart.objects(values)]
    assert [name for name in names if "mps-daemon" in name] == []
    flags = chart.container(chart.objects(values))["args"]
    assert [flag for flag in flags if "account" in flag or "secret" in flag] == []


# What clusters want of pods

HOST = {
    "hostPID": "allowHostPID",
    "hostIPC": "allowHostIPC",
    "hostNetwork": "allowHostNetwork",
}


def test_openshift_admits_the_pods_and_nothing_that_asks_for_more():
    scc, spec = constraints(), pod()["spec"]
    [container] = spec["containers"]
    security = container["securityContext"]
    for field, rule in HOST.items():
        assert scc[rule] is spec.get(field, False), field
    assert scc["allowHostPorts"] is ("ports" in container)
    used = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
    assert set(scc["volumes"]) == used
    assert scc["allowHostDirVolumePlugin"] is ("hostPath" in used)
    assert scc["allowPrivilegedContainer"] is security["privileged"] is True
    # A privileged container has that by itself.
    assert scc["allowPrivilegeEscalation"] is True
    assert scc["readOnlyRootFilesystem"] is security["readOnlyRootFilesystem"] is True
    assert scc["runAsUser"] == {"type": "MustRunAs", "uid": security["runAsUser"]}
    assert scc["allowedCapabilities"] == security.get("capabilities", {}).get("add", [])
    assert "securityContext" not in spec


def test_the_constraints_are_for_the_pods_account_alone():
    assert constraints()["users"] == [f"system:serviceaccount:{chart.NAMESPACE}:{ACCOUNT}"]
    assert constraints()["groups"] == []
    other = [
        body
        for body in chart.objects(OPENSHIFT)
        if body["kind"] == "SecurityContextConstraints" and body != constraints()
    ]
    assert all(constraints()["users"][0] not in body["users"] for body in other)


def test_without_openshift_there_are_no_constraints():
    kinds = {body["kind"] for body in chart.objects()}
    assert "SecurityContextConstraints" not in kinds


def test_the_pods_need_no_network():
    values = {"networkPolicy": {"enabled": True}}
    policy = chart.the(chart.objects(values), "NetworkPolicy", "-mps-daemon")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= pod()["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & policy.keys()


def test_the_driver_s_directories_are_mounted_in_the_pods_as_in_the_driver_s_own():
    spec = pod()["spec"]
    paths = {one["name"]: one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one}
    mounts = {one["name"]: one["mountPath"] for one in spec["containers"][0]["volumeMounts"]}
    own = chart.the(chart.objects(), "DaemonSet")["spec"]["template"]["spec"]
    plugin = {one["name"]: one["mountPath"] for one in own["containers"][0]["volumeMounts"]}
    assert (paths["driver"], mounts["driver"]) == ("/", plugin["driver-root"])
    assert pathlib.Path(paths["daemon"]).is_relative_to(plugin["plugin-dir"])
    assert mounts["daemon"] == paths["daemon"]
