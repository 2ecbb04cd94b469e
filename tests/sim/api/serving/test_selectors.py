import api_objects
import pytest
from api_objects import CLAIMS, CONFIG_MAPS, EVENTS, NAMESPACES, NODES, PODS, SLICES

LABELS = {
    "red": {"team": "red", "size": "3"},
    "blue": {"team": "blue", "size": "10", "example.com/on": ""},
    "none": {},
}


@pytest.fixture(scope="module")
def labelled(shared_api):
    for name, labels in LABELS.items():
        body = api_objects.config_map(name)
        body["metadata"]["labels"] = labels
        shared_api.create(CONFIG_MAPS, body)
    return shared_api


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("team=red", ["red"]),
        ("team==red", ["red"]),
        ("team!=red", ["blue", "none"]),
        ("team", ["blue", "red"]),
        ("!team", ["none"]),
        ("team in (red, blue)", ["blue", "red"]),
        ("team in (red)", ["red"]),
        ("team notin (red)", ["blue", "none"]),
        ("size>3", ["blue"]),
        ("size<10", ["red"]),
        ("example.com/on=", ["blue"]),
        ("team in (red,blue),size>5", ["blue"]),
        ("team,!example.com/on", ["red"]),
        ("team=green", []),
        ("", ["blue", "none", "red"]),
    ],
)
def test_labels_select(labelled, selector, names):
    assert labelled.names(CONFIG_MAPS, labelSelector=selector) == names


@pytest.mark.parametrize("selector", ["a in b", "a=b=c", "=b", "a,,b", "size>x", "a in (b"])
def test_a_label_selector_that_cannot_be_read_is_refused(labelled, selector):
    answer = labelled.send("GET", CONFIG_MAPS, labelSelector=selector)

    assert answer.status == 400
    assert answer.body["reason"] == "BadRequest"


@pytest.fixture(scope="module")
def populated(shared_api):
    api = shared_api
    api.create(NODES, api_objects.changed(api_objects.node("n1"), "spec.unschedulable", value=True))
    api.create(NODES, api_objects.node("n2"))
    api.create(PODS, api_objects.pod("waiting"))
    api.create(PODS, api_objects.pod("running", nodeName="n1", schedulerName="mine"))
    api.patch(f"{PODS}/running/status", {"status": {"phase": "Running", "podIP": "10.0.0.1"}})
    api.create(SLICES, api_objects.resource_slice("s1", nodeName="n1"))
    api.create(SLICES, api_objects.resource_slice("s2", nodeName="n2", driver="other.example"))
    api.create(SLICES, api_objects.resource_slice("s3", nodeName=None, allNodes=True))
    api.create(CLAIMS, api_objects.claim("c1"))
    api.create(CLAIMS, api_objects.claim("c2"))
    for name, reason, kind in (("e1", "FailedScheduling", "Warning"), ("e2", "Pulled", "Normal")):
        involved = {"kind": "Pod", "name": "running", "namespace": "default", "uid": f"u-{name}"}
        body = {"metadata": {"name": name}, "involvedObject": involved}
        api.create(EVENTS, body | {"reason": reason, "type": kind, "reportingComponent": name})
    return api


@pytest.mark.parametrize(
    ("path", "selector", "names"),
    [
        (PODS, "spec.nodeName=n1", ["running"]),
        (PODS, "spec.nodeName=", ["waiting"]),
        (PODS, "spec.nodeName!=n1", ["waiting"]),
        (PODS, "status.phase=Pending", ["waiting"]),
        (PODS, "status.phase==Running,spec.nodeName=n1", ["running"]),
        (PODS, "status.phase=Running,spec.nodeName=n2", []),
        (PODS, "metadata.name=waiting", ["waiting"]),
        (PODS, "metadata.namespace=kube-system", []),
        (PODS, "spec.schedulerName=mine", ["running"]),
        (PODS, "status.podIP=10.0.0.1", ["running"]),
        (NODES, "spec.unschedulable=true", ["n1"]),
        (NODES, "spec.unschedulable!=true", ["n2"]),
        (NAMESPACES, "status.phase=Active", ["default", "kube-system"]),
        (SLICES, "spec.nodeName=n2", ["s2"]),
        (SLICES, "spec.nodeName=", ["s3"]),
        (SLICES, "spec.driver=gpu.nvidia.com", ["s1", "s3"]),
        (SLICES, "spec.driver=gpu.nvidia.com,spec.nodeName=n1", ["s1"]),
        (CLAIMS, "metadata.name!=c1", ["c2"]),
        (EVENTS, "involvedObject.uid=u-e1", ["e1"]),
        (EVENTS, "involvedObject.kind=Pod,involvedObject.name=running", ["e1", "e2"]),
        (EVENTS, "reason=Pulled", ["e2"]),
        (EVENTS, "type=Warning", ["e1"]),
        (EVENTS.replace("/api/v1", "/apis/events.k8s.io/v1"), "regarding.uid=u-e2", ["e2"]),
        (EVENTS.replace("/api/v1", "/apis/events.k8s.io/v1"), "reportingController=e1", ["e1"]),
    ],
)
def test_fields_select(populated, path, selector, names):
    assert populated.names(path, fieldSelector=selector) == names


@pytest.mark.parametrize(
    ("path", "field"),
    [(PODS, "spec.containers"), (SLICES, "metadata.namespace"), (CLAIMS, "status.phase")],
)
def test_a_field_that_is_not_selectable_is_refused(populated, path, field):
    answer = populated.send("GET", path, fieldSelector=f"{field}=x")

    assert answer.status == 400
    assert f"field label not supported: {field}" in answer.body["message"]


def test_a_field_selector_without_an_operator_is_refused(populated):
    assert populated.send("GET", PODS, fieldSelector="spec.nodeName").status == 400
