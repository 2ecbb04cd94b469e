"""Commands of `kubectl` that wait or watch, and deletions."""

import subprocess

import api_objects
import pytest
from kubectl_program import MANIFEST, Kubectl


@pytest.fixture
def applied(api, tmp_path):
    kubectl = Kubectl(api, tmp_path)
    kubectl("apply -f -", MANIFEST)
    return kubectl


def table(text):
    """The lines of a table, each a list of cells."""
    return [line.split() for line in text.strip().splitlines()]


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
    command = applied.command("wait pod/train -n demo --for=condition=Ready --timeout=60s")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        api_objects.wait_for(lambda: api.server.store.watch_count() > 0, "the watch")
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        api.patch("/api/v1/namespaces/demo/pods/train/status", {"status": status})
        output, _ = waiting.communicate(timeout=60)

    assert (waiting.returncode, output) == (0, "pod/train condition met\n")


def test_a_deletion_is_waited_for(api, applied):
    command = applied.command("wait pod/train -n demo --for=delete --timeout=60s")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        api_objects.wait_for(lambda: api.server.store.watch_count() > 0, "the watch")
        api.delete("/api/v1/namespaces/demo/pods/train")
        waiting.communicate(timeout=60)

    assert waiting.returncode == 0
