"""The loop of controllers over real HTTP: what is made, once, and made good."""

import threading

import pytest
from api_cluster import Cluster
from polling import until
from workload_scene import job, template, workload

from dra_driver.adapters.kube import informer, kube
from dra_driver.sim.cluster.workloads import controllers, loop

DEPLOYMENTS = kube.Resource("apps", "v1", "deployments")
STATEFUL_SETS = kube.Resource("apps", "v1", "statefulsets")
DAEMON_SETS = kube.Resource("apps", "v1", "daemonsets")
CRON_JOBS = kube.Resource("batch", "v1", "cronjobs")
SHOPS = kube.Resource("shop.example", "v1", "shops")
DEFINITION = {
    "metadata": {"name": "shops.shop.example"},
    "spec": {
        "group": "shop.example",
        "scope": "Namespaced",
        "names": {"plural": "shops", "kind": "Shop"},
        "versions": [{"name": "v1", "served": True, "storage": True}],
    },
}


@pytest.fixture
def cluster():
    made = Cluster()
    yield made
    made.close()


@pytest.fixture
def client(cluster):
    """Of a cluster in which the controllers run."""
    own = kube.Client(kubeconfig=cluster.kubeconfig, user_agent="workloads")
    running = loop.Workloads(own)
    running.start()
    yield cluster.client
    running.stop()
    own.close()


def pods(client):
    return client.list(kube.PODS, "default")[0]


def run(client, pod):
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "conditions": [ready]}
    client.patch(
        kube.PODS, pod["metadata"]["name"], {"status": status}, "default", subresource="status"
    )


def events(client, reason):
    return [item for item in client.list(kube.EVENTS, "default")[0] if item["reason"] == reason]


def status(client, resource):
    return client.get(resource, "web", "default").get("status") or {}


def test_a_deployment_comes_to_be_available(client):
    client.create(DEPLOYMENTS, workload("Deployment", replicas=3), "default")
    made = until(lambda: len(pods(client)) == 3 and pods(client), what="three pods")
    for pod in made:
        run(client, pod)
    until(lambda: status(client, DEPLOYMENTS).get("availableReplicas") == 3, what="it is available")
    assert len(pods(client)) == 3
    told = {item["message"] for item in events(client, "SuccessfulCreate")}
    assert {f"Created pod: {pod['metadata']['name']}" for pod in made} <= told


def test_no_pod_is_made_twice_though_the_watch_is_slow(client, monkeypatch):
    shown, waited_for = threading.Event(), threading.Event()
    see, wait = informer.Informer._apply, informer.Informer.wait_version

    def late(self, kind, item):
        if self._resource == kube.PODS:
            shown.wait(60)
        see(self, kind, item)

    def waits(self, version, timeout):
        if self._resource == kube.PODS:
            waited_for.set()
        return wait(self, version, timeout)

    monkeypatch.setattr(informer.Informer, "_apply", late)
    monkeypatch.setattr(informer.Informer, "wait_version", waits)
    sets = controllers.REPLICA_SETS
    client.create(sets, workload("ReplicaSet", replicas=1), "default")
    assert waited_for.wait(60)
    client.patch(sets, "web", {"spec": {"replicas": 2}}, "default")
    shown.set()
    until(lambda: status(client, sets).get("replicas") == 2, what="two pods")
    assert len(events(client, "SuccessfulCreate")) == 2


def test_what_cannot_be_made_is_told_and_made_later(client):
    body = workload("Deployment", template=template(priorityClassName="urgent"))
    client.create(DEPLOYMENTS, body, "default")
    [event] = until(lambda: events(client, "FailedCreate"), what="it is told")
    name = event["involvedObject"]["name"]
    assert event["message"] == (
        f'Error creating: pods "{name}-" is forbidden: no PriorityClass with name urgent was found'
    )
    assert event["involvedObject"]["kind"] == "ReplicaSet"
    assert pods(client) == []
    classes = kube.Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
    client.create(classes, {"metadata": {"name": "urgent"}, "value": 5})
    [pod] = until(lambda: pods(client), what="its pod")
    assert pod["spec"]["priority"] == 5


def test_a_node_that_comes_gets_its_pod(client):
    client.create(DAEMON_SETS, workload("DaemonSet"), "default")
    until(
        lambda: status(client, DAEMON_SETS).get("currentNumberScheduled") == 1,
        what="the pod of the first node",
    )
    # What comes after it in the queue: the DaemonSet is at rest by then.
    client.create(STATEFUL_SETS, workload("StatefulSet"), "default")
    until(lambda: len(pods(client)) == 2, what="the pod of what comes after it")
    client.create(kube.NODES, {"metadata": {"name": "node-2"}})
    until(lambda: len(pods(client)) == 3, what="the pod of the second node")


def test_a_stateful_set_goes_on_when_its_first_pod_is_ready(client):
    client.create(STATEFUL_SETS, workload("StatefulSet", replicas=2), "default")
    [first] = until(lambda: pods(client), what="its first pod")
    run(client, first)
    until(lambda: len(pods(client)) == 2, what="its second pod")


def test_a_cron_job_makes_a_job_which_makes_a_pod_and_all_are_told_of_the_end(client):
    spec = {"schedule": "@daily", "jobTemplate": {"spec": job()["spec"]}}
    client.create(CRON_JOBS, {"metadata": {"name": "web"}, "spec": spec}, "default")
    [pod] = until(lambda: pods(client), what="its pod")
    name = pod["metadata"]["name"]
    done = {"status": {"phase": "Succeeded"}}
    client.patch(kube.PODS, name, done, "default", subresource="status")
    until(lambda: status(client, CRON_JOBS).get("lastSuccessfulTime"), what="the end is told")
    [made] = client.list(controllers.JOBS, "default")[0]
    assert made["status"]["succeeded"] == 1


def test_a_kind_that_is_defined_later_is_looked_after_until_it_goes(client):
    client.create(controllers.DEFINITIONS, DEFINITION)
    shop = {"metadata": {"name": "web"}, "spec": {"template": template()}}
    client.create(SHOPS, shop, "default")
    [pod] = until(lambda: pods(client), what="its pod")
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "Shop"
    client.delete(controllers.DEFINITIONS, "shops.shop.example")
    until(lambda: pods(client) == [], what="its pod goes with its kind")
    client.create(controllers.DEFINITIONS, DEFINITION)
    client.create(SHOPS, shop, "default")
    until(lambda: pods(client), what="the kind is known again")


def test_a_workload_that_is_being_deleted_makes_nothing(client):
    body = workload("Deployment", replicas=1)
    body["metadata"]["finalizers"] = ["example.com/wait"]
    client.create(DEPLOYMENTS, body, "default")
    until(lambda: status(client, DEPLOYMENTS).get("replicas") == 1, what="its pod")
    client.delete(DEPLOYMENTS, "web", "default")
    client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 5}}, "default")
    client.create(STATEFUL_SETS, workload("StatefulSet"), "default")
    until(
        lambda: any(pod["metadata"]["name"] == "web-0" for pod in pods(client)),
        what="the pod of what came after it",
    )
    [replica_set] = client.list(controllers.REPLICA_SETS, "default")[0]
    assert replica_set["spec"]["replicas"] == 1


def test_a_defined_kind_is_watched_until_it_goes_or_the_loop_is_stopped(cluster):
    own = kube.Client(kubeconfig=cluster.kubeconfig, user_agent="workloads")
    running = loop.Workloads(own)
    running.start()
    before = set(threading.enumerate())

    def watching():
        more = set(threading.enumerate()) - before
        # Those of the server come and go.
        return {thread for thread in more if "shops" in thread.name}

    name = DEFINITION["metadata"]["name"]
    cluster.client.create(controllers.DEFINITIONS, DEFINITION)
    until(watching, what="a thread that watches")
    cluster.client.delete(controllers.DEFINITIONS, name)
    until(lambda: not watching(), what="its end")
    cluster.client.create(controllers.DEFINITIONS, DEFINITION)
    until(watching, what="a thread that watches again")
    running.stop()
    own.close()
    assert not watching()
