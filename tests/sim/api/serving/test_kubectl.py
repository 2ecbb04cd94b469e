"""`kubectl` against the embedded API."""

import json

import api_objects
import pytest
from kubectl_program import KINDS, MANIFEST, Kubectl

pytestmark = pytest.mark.sampled(9)


@pytest.fixture
def kubectl(api, tmp_path):
    return Kubectl(api, tmp_path)


@pytest.fixture
def applied(api, tmp_path):
    kubectl = Kubectl(api, tmp_path)
    kubectl("apply -f -", MANIFEST)
    return kubectl


def table(text):
    """The lines of a table, each a list of cells."""
    return [line.split() for line in text.strip().splitlines()]


def test_every_kind_is_listed(kubectl):
    listed = kubectl("api-resources -o name").split()

    assert {"pods", "nodes", "resourceslices.resource.k8s.io", "leases.coordination.k8s.io"} <= set(
        listed
    )


def test_a_manifest_of_every_kind_is_applied_and_deleted(kubectl):
    created = kubectl("apply -f -", MANIFEST).splitlines()
    again = kubectl("apply -f -", MANIFEST).splitlines()
    deleted = kubectl("delete -f - --wait=false --ignore-not-found", MANIFEST)

    assert [line.split()[-1] for line in created] == ["created"] * KINDS
    assert len(again) == KINDS
    assert all(line.split()[-1] in ("unchanged", "configured") for line in again)
    assert deleted.splitlines()[0] == 'namespace "demo" deleted'
    assert kubectl("get all,resourceclaims,resourceslices,nodes -A -o name") == ""


def test_applying_again_changes_no_version(api, applied):
    version = api.server.store.version
    applied("apply -f -", MANIFEST)

    assert api.server.store.version == version


def test_a_changed_manifest_is_applied(applied):
    changed = MANIFEST.replace("busybox:1", "busybox:2").replace('a: "1"', 'b: "2"')
    applied("apply -f -", changed)

    pod = json.loads(applied("get pod train -n demo -o json"))
    settings = json.loads(applied("get cm settings -n demo -o json"))

    assert pod["spec"]["containers"][0]["image"] == "busybox:2"
    assert settings["data"] == {"b": "2"}


def test_a_manifest_is_applied_by_the_server(kubectl):
    first = kubectl("apply --server-side -f -", MANIFEST).splitlines()
    kubectl("apply --server-side -f -", MANIFEST.replace('a: "1"', 'b: "2"'))

    settings = json.loads(kubectl("get cm settings -n demo -o json --show-managed-fields"))

    assert [line.split()[-1] for line in first] == ["serverside-applied"] * KINDS
    assert settings["data"] == {"b": "2"}
    assert settings["metadata"]["managedFields"][0]["manager"] == "kubectl"


def test_what_was_applied_by_the_client_can_be_applied_by_the_server(applied):
    applied("apply --server-side -f -", MANIFEST.replace('a: "1"', 'b: "2"'))

    settings = json.loads(applied("get cm settings -n demo -o json"))

    assert settings["data"]["b"] == "2"


@pytest.mark.parametrize("command", ["apply", "apply --server-side", "create"])
def test_an_unknown_field_is_refused(kubectl, command):
    manifest = MANIFEST.replace("driver: gpu", "colour: red\n  driver: gpu")

    finished = kubectl.run(f"{command} -f -", manifest)

    assert finished.returncode == 1
    assert 'unknown field "spec.colour"' in finished.stderr


def test_an_invalid_object_is_refused_with_its_causes(kubectl):
    finished = kubectl.run("apply -f -", MANIFEST.replace("gpu-0", "GPU-0"))

    assert finished.returncode == 1
    assert 'The ResourceSlice "node-1-gpus" is invalid' in finished.stderr
    assert "spec.devices[0].name" in finished.stderr


def test_tables_are_printed(applied):
    assert table(applied("get pods -n demo"))[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert table(applied("get pods -A"))[1][:5] == ["demo", "train", "0/1", "Pending", "0"]
    assert table(applied("get resourceclaims -n demo"))[1][:2] == ["mine", "pending"]
    assert table(applied("get resourceslices"))[1][:4] == [
        "node-1-gpus",
        "node-1",
        "gpu.nvidia.com",
        "node-1",
    ]
    assert table(applied("get events -n demo"))[1][1:4] == ["Normal", "Greeting", "pod/train"]
    assert table(applied("get deviceclasses,resourceclaimtemplates -A --no-headers"))


def test_wide_tables_have_more_columns(applied):
    heading = table(applied("get pods -n demo -o wide"))[0]

    assert heading[5:7] == ["IP", "NODE"]


def test_objects_are_selected(applied):
    applied("label pod train -n demo team=red")

    assert applied("get pods -A -l team=red -o name") == "pod/train\n"
    assert applied("get pods -A -l team!=red -o name") == ""
    assert applied("get pods -A --field-selector status.phase=Pending -o name") == "pod/train\n"
    assert applied("get resourceslices --field-selector spec.nodeName=node-2 -o name") == ""


def test_labels_and_annotations_are_set_and_removed(api, applied):
    applied("annotate pod train -n demo note=x")
    applied("label pod train -n demo a=b")
    set_then = api.get("/api/v1/namespaces/demo/pods/train")["metadata"]
    applied("label pod train -n demo a-")
    removed = api.get("/api/v1/namespaces/demo/pods/train")["metadata"]

    assert set_then["annotations"]["note"] == "x"
    assert set_then["labels"] == {"a": "b"}
    assert "labels" not in removed


def test_an_object_is_edited(applied):
    applied("edit pod train -n demo")

    image = applied("get pod train -n demo -o jsonpath={.spec.containers[0].image}")
    assert image == "busybox:9"


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("merge", '{"data":{"c":"3"}}'),
        ("json", '[{"op":"add","path":"/data/c","value":"3"}]'),
        ("strategic", '{"data":{"c":"3"}}'),
    ],
)
def test_an_object_is_patched(applied, kind, patch):
    applied(f"patch cm settings -n demo --type={kind} -p {patch}")

    assert json.loads(applied("get cm settings -n demo -o json"))["data"] == {"a": "1", "c": "3"}


def test_a_status_is_patched(applied):
    applied('patch pod train -n demo --subresource=status -p {"status":{"phase":"Running"}}')

    assert table(applied("get pods -n demo"))[1][2] == "Running"


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("pod train -n demo", ["Status:", "Pending", "Failed", "no"]),
        ("node node-1", ["Name:", "node-1"]),
        ("resourceclaim mine -n demo", ["Device Class Name:", "ExactCount"]),
        ("resourceclaimtemplate one -n demo", ["Device Class Name:"]),
        ("resourceslice node-1-gpus", ["Pool:", "gpu-0"]),
        ("deviceclass gpu.nvidia.com", ["Expression:"]),
        ("configmap settings -n demo", ["Data"]),
        ("namespace demo", ["Active"]),
    ],
)
def test_objects_are_described(api, applied, what, words):
    pod = api.get("/api/v1/namespaces/demo/pods/train")
    involved = {"kind": "Pod", "namespace": "demo", "uid": pod["metadata"]["uid"]}
    event = {"involvedObject": involved | {"name": "train"}, "reason": "Failed", "message": "no"}
    api.create("/api/v1/namespaces/demo/events", {"metadata": {"name": "e"}} | event)

    described = applied(f"describe {what}")

    assert [word for word in words if word not in described] == []


def test_fields_are_explained(kubectl):
    explained = kubectl("explain resourceclaim.spec.devices.requests.exactly")

    assert "deviceClassName" in explained
    assert "allocationMode" in explained
    assert "containers" in kubectl("explain pod.spec")


def test_objects_are_created_by_words(kubectl):
    kubectl("create namespace team")
    kubectl("create configmap made -n team --from-literal=a=1")
    kubectl("create secret generic hidden -n team --from-literal=a=1")
    kubectl("create serviceaccount runner -n team")

    assert table(kubectl("get namespaces"))[2][:2] == ["kube-system", "Active"]
    assert kubectl("get cm made -n team -o jsonpath={.data.a}") == "1"
    assert kubectl("get secret hidden -n team -o jsonpath={.data.a}{.type}") == "MQ==Opaque"
    assert kubectl("get sa -n team -o name") == "serviceaccount/runner\n"


def test_what_cannot_be_created_by_words_is_told_how_it_can(kubectl):
    finished = kubectl.run("create deployment web --image=busybox")

    assert finished.returncode == 1
    assert "Deployment is only accepted as JSON" in finished.stderr
    assert "kubectl apply -f -" in finished.stderr


def test_a_dry_run_on_the_server_shows_the_defaults(kubectl):
    kubectl("create namespace demo")
    text = kubectl("apply -f - --dry-run=server -o name", MANIFEST)

    assert "resourceclaim.resource.k8s.io/mine" in text
    assert kubectl("get resourceclaims -A -o name") == ""


def test_the_newest_version_that_is_served_is_used(tmp_path):
    with api_objects.Api(resource_versions=("v1beta1",)) as api:
        kubectl = Kubectl(api, tmp_path)
        api.create(
            "/apis/resource.k8s.io/v1beta1/deviceclasses", {"metadata": {"name": "gpu.nvidia.com"}}
        )

        body = json.loads(kubectl("get deviceclass gpu.nvidia.com -o json"))

    assert body["apiVersion"] == "resource.k8s.io/v1beta1"
