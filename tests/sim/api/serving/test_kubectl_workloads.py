"""`kubectl` with workloads: what a user types to make, scale, exchange and end them."""

import pytest
from kubectl_program import Kubectl
from polling import until

from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster.workloads import loop

pytestmark = pytest.mark.sampled(3)

MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "busybox:1"}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 1
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: main, image: "busybox:1"}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: "busybox:1"}]}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: shops, kind: Shop, shortNames: [sh]}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


@pytest.fixture
def kubectl(api, tmp_path):
    made = Kubectl(api, tmp_path)
    made("apply -f -", MANIFEST)
    return made


@pytest.fixture
def client(api, tmp_path):
    """Of a cluster in which controllers run, and pods as soon as they are there."""
    path = tmp_path / "kubeconfig-of-the-controllers"
    api.server.write_kubeconfig(path)
    own = kube.Client(kubeconfig=path, user_agent="workloads")
    running = loop.Workloads(own)
    running.start()
    yield own
    running.stop()
    own.close()


def run_all(client):
    ready = {"type": "Ready", "status": "True"}
    for pod in client.list(kube.PODS, "default")[0]:
        if pod["status"]["phase"] == "Pending":
            phase = "Succeeded" if "job-name" in pod["metadata"]["labels"] else "Running"
            change = {"status": {"phase": phase, "conditions": [ready]}}
            name = pod["metadata"]["name"]
            client.patch(kube.PODS, name, change, "default", subresource="status")
    return True


def test_applying_again_changes_no_version(api, kubectl):
    version = api.server.store.version
    kubectl("apply -f -", MANIFEST)
    assert api.server.store.version == version


def test_a_rollout_is_waited_for(kubectl, client):
    until(lambda: run_all(client) and "2/2" in kubectl("get deployment web"), what="two of two")
    assert "successfully rolled out" in kubectl("rollout status deployment/web --timeout=60s")
    until(lambda: run_all(client) and "1/1" in kubectl("get statefulset db"), what="one of one")
    kubectl("rollout status statefulset/db --timeout=60s")
    kubectl("wait --for=condition=Available deployment/web --timeout=60s")
    kubectl("wait --for=condition=Complete job/train --timeout=60s")
    assert "Complete" in kubectl("get job train")


def test_scaling_and_exchanging_and_going_back(kubectl, client):
    kubectl("scale deployment/web --replicas=3")
    until(lambda: run_all(client) and "3/3" in kubectl("get deployment web"), what="three of three")
    kubectl("set image deployment/web main=busybox:2")
    images = "get pods -l app=web -o jsonpath={.items[*].spec.containers[0].image}"
    until(lambda: run_all(client) and kubectl(images) == " ".join(["busybox:2"] * 3), what="new")
    assert kubectl("rollout history deployment/web").count("<none>") == 2
    kubectl("rollout undo deployment/web")
    until(lambda: run_all(client) and kubectl(images) == " ".join(["busybox:1"] * 3), what="old")


def test_what_was_made_goes_with_what_made_it(kubectl, client):
    until(lambda: run_all(client) and "2/2" in kubectl("get deployment web"), what="two of two")
    kubectl("delete deployment web")
    assert kubectl("get pods,replicasets -l app=web -o name") == ""


def test_kinds_of_ones_own_are_used_as_any_other(kubectl):
    kubectl("wait --for=condition=Established crd/shops.example.com --timeout=60s")
    shop = "{apiVersion: example.com/v1, kind: Shop, metadata: {name: a}, spec: {open: true}}"
    assert kubectl("apply -f -", shop).strip() == "shop.example.com/a created"
    assert kubectl("get sh -o name").strip() == "shop.example.com/a"
    kubectl("delete crd shops.example.com")


def test_priority_classes_are_listed_with_those_of_the_system(kubectl):
    names = kubectl("get priorityclasses -o name").split()
    assert [name.partition("/")[2] for name in names] == [
        "system-cluster-critical", "system-node-critical", "urgent",
    ]  # fmt: skip
