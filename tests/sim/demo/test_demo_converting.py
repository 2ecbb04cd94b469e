"""`dra-driver demo --convert`: pods that ask as HAMi had it, by the webhook as a process."""

import json
import os
import pathlib
import signal
import threading

import chart
import pytest
from demo_manifests import NODES, TEMPLATE, pod

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster import cluster, converter, runtime
from dra_driver.sim.demo import bringing, observing, outcome

pytestmark = pytest.mark.sampled(5)

OLD = """
---
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: NAMESPACE, labels: LABELS, annotations: ANNOTATIONS}
spec:
  containers:
  - name: main
    image: none
    command: [sleep, infinity]
    resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: MEMORY, nvidia.com/gpucores: 30}}
"""
WEB = """
---
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: main
        image: none
        command: [sleep, infinity]
        resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 2048}}
"""
SHARED = ("--shares=memory",)
WAITS = {outcome.EXPECT_ANNOTATION: "Unschedulable"}


def old(name, *, namespace="default", memory=4096, labels=None, expect=None):
    values = {
        "NAMESPACE": namespace,
        "NAME": name,
        "LABELS": json.dumps(labels or {}),
        "ANNOTATIONS": json.dumps(expect or {}),
        "MEMORY": str(memory),
    }
    text = OLD
    for key, value in values.items():
        text = text.replace(key, value)
    return text


def shown(out):
    return {f"{each['namespace']}/{each['name']}": each for each in json.loads(out)["pods"]}


def devices(found):
    return [device for claim in found["claims"] for device in claim["devices"]]


def test_pods_and_those_of_workloads_get_what_they_asked_for(play):
    status, out, _ = play(
        old("train") + WEB, convert=True, plugin_flags=SHARED, output="json", nodes=NODES
    )
    assert status == 0
    pods = shown(out)
    train = pods.pop("default/train")
    (device,) = devices(train)
    assert device["share"]["consumed"] == {"memory": "4Gi", "cores": "30"}
    assert train["convertedFrom"] == [
        "container main: nvidia.com/gpu: 1, nvidia.com/gpumem: 4096, nvidia.com/gpucores: 30"
    ]
    assert [name.rpartition("-")[0].rpartition("-")[0] for name in pods] == ["team/web"] * 2
    for each in pods.values():
        (device,) = devices(each)
        assert device["share"]["consumed"]["memory"] == "2Gi"


def test_what_was_asked_for_is_shown_to_people(play):
    status, out, _ = play(old("train"), convert=True, plugin_flags=SHARED)
    assert status == 0
    assert "  converted: container main: nvidia.com/gpu: 1, nvidia.com/gpumem: 4096, nvid" in out
    assert "share of 4Gi, 30 % of Tesla T4" in out


def test_pods_with_claims_are_what_they_are_without(play):
    status, out, _ = play(TEMPLATE + pod("a"), convert=True, output="json")
    assert status == 0
    (found,) = shown(out).values()
    assert found["convertedFrom"] == []
    assert len(devices(found)) == 1


def test_without_the_option_nothing_is_converted(play):
    status, out, _ = play(old("train", expect=WAITS), plugin_flags=SHARED, output="json")
    assert status == 0
    assert shown(out)["default/train"]["claims"] == []


def test_a_pod_that_wants_to_be_left_alone_is(play):
    labels = {"hami.io/webhook": "ignore"}
    text = old("train", labels=labels, expect=WAITS)
    status, out, _ = play(text, convert=True, plugin_flags=SHARED, output="json")
    assert status == 0
    assert shown(out)["default/train"]["convertedFrom"] == []


def test_a_namespace_that_says_no_is_left_alone(play):
    namespace = """
apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {dra-driver.dev/convert: disabled}}
"""
    text = namespace + old("train", namespace="team", expect=WAITS)
    status, out, _ = play(text, convert=True, plugin_flags=SHARED, output="json")
    assert status == 0
    assert shown(out)["team/train"]["convertedFrom"] == []


def test_an_ask_that_cannot_be_met_is_told_and_ends_the_demo(play):
    with pytest.raises(errors.DriverError) as refused:
        play(old("train", memory=-1), convert=True, plugin_flags=SHARED)
    assert 'admission webhook "convert.gpu.nvidia.com" denied the request' in str(refused.value)
    assert "container main: nvidia.com/gpumem" in str(refused.value)


def test_namespaces_are_those_of_what_makes_pods():
    objects = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "x"}},
    ]
    assert bringing.namespaces(objects) == {"default"}


# The webhook's process


@pytest.fixture
def embedded(temporary):
    made = cluster.Cluster(
        (),
        pathlib.Path(temporary),
        runtime_for=lambda cdi, _: runtime.PretendedRuntime(cdi),
        convert=True,
    )
    made.start()
    assert made.wait_ready(threading.Event())
    yield made
    made.stop()


def create(embedded, name, **metadata):
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name} | metadata,
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "none",
                    "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096"}},
                }
            ]
        },
    }
    return embedded.client.create(kube.PODS, body, "default")


def test_where_it_is_down_only_pods_of_labelled_namespaces_are_refused(embedded):
    assert "resourceClaims" not in create(embedded, "before")["spec"]
    embedded.converter.enable({"default", "absent"})
    assert len(create(embedded, "converted")["spec"]["resourceClaims"]) == 1
    os.kill(embedded.converter._process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, embedded.converter._process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(kube.Unavailable, match='failed calling webhook "convert'):
        create(embedded, "later")
    ignored = create(embedded, "ignored", labels={"hami.io/webhook": "ignore"})
    assert "resourceClaims" not in ignored["spec"]
    with pytest.raises(errors.Fatal, match="the webhook ended with status -9; its log ends:"):
        observing.Observer(embedded).check_alive()


def test_it_is_asked_as_the_chart_has_it(embedded):
    values = {"webhook": {"convert": {"enabled": True}}}
    [theirs] = chart.the(chart.objects(values), "MutatingWebhookConfiguration")["webhooks"]
    # The driver has no namespace here.
    del theirs["clientConfig"], theirs["namespaceSelector"]["matchExpressions"]
    theirs["rules"] = [rule | {"scope": "Namespaced"} for rule in theirs["rules"]]
    stored = embedded.client.get(converter.CONFIGURATIONS, "dra-driver-webhook")
    [ours] = stored["webhooks"]
    del ours["clientConfig"]
    assert ours == theirs


def test_a_namespace_that_is_there_and_says_no_stays_so(embedded):
    said = {"metadata": {"labels": {converter.LABEL: "disabled"}}}
    embedded.client.patch(converter.NAMESPACES, "default", said)
    embedded.converter.enable({"default"})
    assert "resourceClaims" not in create(embedded, "left-alone")["spec"]


def test_its_key_is_for_nobody_else(embedded):
    key = embedded.kubeconfig.parent / "webhook.d" / "tls.key"
    assert key.stat().st_mode & 0o077 == 0


def test_a_namespace_is_labelled_unless_it_says_something_itself():
    said = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "a", "labels": {"b": "c"}},
    }
    no = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}
    no["metadata"]["labels"] = {converter.LABEL: "disabled"}
    other = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    (found, *rest) = converter.labelled([said, no, other])
    assert found["metadata"]["labels"] == {"b": "c", converter.LABEL: "enabled"}
    assert rest == [no, other]
    assert said["metadata"]["labels"] == {"b": "c"}
