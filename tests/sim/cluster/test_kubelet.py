"""A kubelet and its pods start: a real API server, plugins on real sockets, no containers."""

import kubelet_node
import scripted_plugin
from polling import until

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.adapters.kubelet import dra_grpc
from dra_driver.sim.cluster import kubelet


def publish(node, name, node_name, driver="gpu.example.com"):
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node_name, "pool": pool, "devices": [{"name": "gpu-0"}]}
    node.client.create(kube.SLICES, {"metadata": {"name": name}, "spec": spec})


def slices(node):
    return [body["metadata"]["name"] for body in node.client.list(kube.SLICES)[0]]


# The start, and drivers that go


def test_slices_of_the_node_are_deleted_at_the_start_whoever_s_they_are(node):
    publish(node, "ours", kubelet_node.NODE)
    publish(node, "also-ours", kubelet_node.NODE, driver="net.example.com")
    publish(node, "elsewhere", "node-2")
    node.start_kubelet()
    assert slices(node) == ["elsewhere"]


def test_slices_of_a_driver_that_is_gone_are_deleted(node, monkeypatch):
    monkeypatch.setattr("dra_driver.sim.cluster.plugins.LOOK_SECONDS", 0.02)
    agent = node.start_kubelet()
    monkeypatch.setattr(agent.plugins, "_wipe_seconds", 0.1)
    plugin = node.add_plugin()
    publish(node, "ours", kubelet_node.NODE)
    publish(node, "of-another", kubelet_node.NODE, driver="net.example.com")
    publish(node, "elsewhere", "node-2")
    plugin.stop()
    until(lambda: slices(node) == ["elsewhere", "of-another"], what=f"{slices(node)}")


# Pods that run


def test_a_pod_runs_with_the_devices_of_its_claims(node, plugin, agent):
    node.add_claim("one")
    claim_uid = node.client.get(kube.CLAIMS, "one", "default")["metadata"]["uid"]
    pod = node.run_pod("train", {"gpu": "one"})
    pod = node.wait_phase("train", "Running")
    assert kubelet_node.conditions(pod) == {
        "PodScheduled": "True", "Initialized": "True", "Ready": "True", "ContainersReady": "True",
    }  # fmt: skip
    assert list(kubelet_node.states(pod)) == ["main"]
    assert kubelet_node.states(pod)["main"]["running"]["startedAt"]
    [started] = node.engine.started
    cdi_id = f"k8s.gpu.example.com/claim={claim_uid}-gpu-0"
    assert (started.asked.pod_uid, started.asked.cdi_ids) == (kubelet_node.uid(pod), (cdi_id,))
    assert {name: view.output for name, view in agent.views(kubelet_node.uid(pod)).items()} == {
        "main": (cdi_id,)
    }


def test_each_container_gets_the_requests_that_it_names(node, plugin):
    node.add_claim(
        "one", kubelet_node.result("gpu-0", "small"), kubelet_node.result("gpu-1", "large")
    )
    answers = [("gpu-0", "small"), ("gpu-1", "large")]
    plugin.on_prepare = lambda ref: dra_grpc.Answer(
        tuple(scripted_plugin.device(ref, name, request) for name, request in answers)
    )
    node.run_pod(
        "train",
        {"gpu": "one"},
        kubelet_node.container("all", {"name": "gpu"}),
        kubelet_node.container("large", {"name": "gpu", "request": "large"}),
        kubelet_node.container("twice", {"name": "gpu"}, {"name": "gpu", "request": "small"}),
        kubelet_node.container("none"),
    )
    node.wait_phase("train", "Running")
    given = {
        started.asked.name: [cdi_id[-5:] for cdi_id in started.asked.cdi_ids]
        for started in node.engine.started
    }
    assert given == {
        "all": ["gpu-0", "gpu-1"], "large": ["gpu-1"], "twice": ["gpu-0", "gpu-1"], "none": [],
    }  # fmt: skip


def test_each_container_gets_what_its_extended_resources_were_given(node, plugin):
    names = ("container-0-request-0", "container-1-request-0")
    node.add_claim("made", *(kubelet_node.result(f"gpu-{n}", name) for n, name in enumerate(names)))
    plugin.on_prepare = lambda ref: dra_grpc.Answer(
        tuple(scripted_plugin.device(ref, f"gpu-{n}", name) for n, name in enumerate(names))
    )
    asking = {"limits": {"nvidia.com/gpu": 1}}
    pod = node.add_pod(
        "train",
        {},
        *(kubelet_node.container(name) | {"resources": asking} for name in ("a", "b")),
        kubelet_node.container("none"),
    )
    mapped = [
        {"containerName": container, "resourceName": "nvidia.com/gpu", "requestName": request}
        for container, request in zip(("a", "b"), names, strict=True)
    ]
    status = {"extendedResourceClaimStatus": {
        "resourceClaimName": "made", "requestMappings": mapped
    }}  # fmt: skip
    node.client.patch(kube.PODS, "train", {"status": status}, "default", subresource="status")
    node.reserve("made", pod)
    node.bind("train")
    node.wait_phase("train", "Running")
    given = {
        started.asked.name: [cdi_id[-5:] for cdi_id in started.asked.cdi_ids]
        for started in node.engine.started
    }
    assert given == {"a": ["gpu-0"], "b": ["gpu-1"], "none": []}
    node.delete_pod("train")
    node.wait_gone("train")
    assert plugin.calls == [("prepare", ["made"]), ("unprepare", ["made"])]


def test_a_claim_that_no_container_uses_is_prepared(node, plugin):
    node.add_claim("one")
    node.run_pod("train", {"gpu": "one"}, kubelet_node.container("main"))
    node.wait_phase("train", "Running")
    assert plugin.calls == [("prepare", ["one"])]
    assert node.engine.started[0].asked.cdi_ids == ()


def test_a_container_gets_its_command_arguments_and_environment(node, agent):
    container = kubelet_node.container("main") | {
        "command": ["sh", "-c"],
        "args": ["sleep 1"],
        "env": [{"name": "A", "value": "1"}, {"name": "EMPTY"}],
    }
    node.run_pod("train", {}, container)
    node.wait_phase("train", "Running")
    asked = node.engine.started[0].asked
    assert asked.command == ("sh", "-c", "sleep 1")
    assert asked.env == {"A": "1", "EMPTY": ""}


def test_a_variable_may_be_a_field_of_the_pod(node, agent):
    index = "batch.kubernetes.io/job-completion-index"
    fields = {
        "NAME": "metadata.name",
        "NODE": "spec.nodeName",
        "IP": "status.podIP",
        "INDEX": f"metadata.labels['{index}']",
        "NONE": "metadata.labels['a.b/c']",
    }
    container = kubelet_node.container("main") | {
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in fields.items()
        ]
        + [{"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]
    }
    node.add_pod("train", {}, container)
    change = {"metadata": {"labels": {index: "3"}}}
    node.client.patch(kube.PODS, "train", change, "default")
    node.bind("train")
    node.wait_phase("train", "Running")
    assert node.engine.started[0].asked.env == {
        "NAME": "train",
        "INDEX": "3",
        "NONE": "",
        "NODE": kubelet_node.NODE,
        "IP": "",
        "SECRET": "",
    }


def test_a_pod_without_a_claim_for_a_name_that_its_status_lists_runs(node, agent):
    pod = node.client.create(
        kube.PODS,
        {
            "metadata": {"name": "train"},
            "spec": {
                "containers": [kubelet_node.container("main", {"name": "gpu"})],
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "any"}],
            },
        },
        "default",
    )
    change = {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}
    node.client.patch(kube.PODS, "train", change, "default", subresource="status")
    node.bind("train")
    assert kubelet_node.uid(node.wait_phase("train", "Running")) == kubelet_node.uid(pod)
    assert node.engine.started[0].asked.cdi_ids == ()


def test_pods_of_other_nodes_are_left_alone(node, agent):
    node.add_pod("elsewhere", {}, nodeName="node-2")
    node.run_pod("here")
    node.wait_phase("here", "Running")
    assert node.phase("elsewhere") == "Pending"


# Pods that cannot start


def test_a_pod_whose_claim_cannot_be_prepared_says_why_and_starts_when_it_can(node, plugin):
    node.add_claim("one")
    working, plugin.on_prepare = plugin.on_prepare, lambda _ref: dra_grpc.Answer(error="no memory")
    node.run_pod("train", {"gpu": "one"})
    message = node.wait_event("train", "FailedPrepareDynamicResources")
    assert message.startswith("NodePrepareResources failed for claim default/one (")
    assert message.endswith("): no memory")
    until(lambda: len(plugin.calls) > 2, what="it is tried again and again")
    assert node.phase("train") == "Pending"
    [event] = [
        item
        for item in node.client.list(kube.EVENTS, "default")[0]
        if item["involvedObject"]["uid"] == kubelet_node.uid(node.pod("train"))
    ]
    assert event["count"] > 1
    assert event["source"] == {"component": "kubelet/node-1"}
    assert event["type"] == "Warning"
    plugin.on_prepare = working
    node.wait_phase("train", "Running")


def test_a_pod_waits_for_a_claim_that_is_not_reserved_for_it(node, plugin):
    node.add_claim("one")
    pod = node.add_pod("train", {"gpu": "one"})
    node.bind("train")
    assert "is not reserved for the pod" in node.wait_event(
        "train", "FailedPrepareDynamicResources"
    )
    node.reserve("one", pod)
    node.wait_phase("train", "Running")


def test_a_pod_waits_for_its_driver(node, agent):
    node.add_claim("one")
    node.run_pod("train", {"gpu": "one"})
    message = node.wait_event("train", "FailedPrepareDynamicResources")
    assert message == "DRA driver gpu.example.com is not registered"
    node.add_plugin()
    node.wait_phase("train", "Running")


def test_a_change_of_the_pod_brings_the_next_attempt_forward(node, plugin, monkeypatch):
    monkeypatch.setattr(kubelet, "RETRY_SECONDS", 3600.0)
    node.add_claim("one")
    working, plugin.on_prepare = plugin.on_prepare, lambda _ref: dra_grpc.Answer(error="no")
    node.run_pod("train", {"gpu": "one"})
    node.wait_event("train", "FailedPrepareDynamicResources")
    plugin.on_prepare = working
    node.client.patch(kube.PODS, "train", {"metadata": {"labels": {"a": "b"}}}, "default")
    node.wait_phase("train", "Running")


def test_containers_of_a_pod_of_which_one_cannot_start_are_all_stopped(node, plugin):
    node.add_claim("one")
    node.engine.refuse["second"] = errors.Retryable("no such image")
    containers = [kubelet_node.container(name, {"name": "gpu"}) for name in ("first", "second")]
    node.run_pod("train", {"gpu": "one"}, *containers)
    assert node.wait_event("train", "Failed") == "no such image"
    assert node.engine.started[0].stopped.wait(60)
    assert node.phase("train") == "Pending"
    node.engine.refuse.clear()
    node.wait_phase("train", "Running")
    assert [started.stopped.is_set() for started in node.engine.started[-2:]] == [False, False]
    assert plugin.names("prepare") == [["one"]]


def test_a_fault_of_ours_with_one_pod_is_none_of_others_and_the_pod_can_be_deleted(node, agent):
    node.engine.refuse["main"] = ZeroDivisionError("not foreseen")
    node.run_pod("broken")
    until(lambda: [pod.ended for pod in list(agent._pods.values())] == [True], what="given up")
    node.run_pod("other", {}, kubelet_node.container("fine"))
    node.wait_phase("other", "Running")
    assert node.phase("broken") == "Pending"
    node.delete_pod("broken")
    node.wait_gone("broken")
