import api_objects
import pytest
from api_objects import CLAIMS, NAMESPACES, NODES, PODS

STATUS = {"allocation": api_objects.allocation()}


def test_a_claim_is_created_without_a_status(api):
    body = api_objects.claim() | {"status": STATUS}

    assert api.create(CLAIMS, body)["status"] == {}


def test_a_write_of_the_object_does_not_touch_the_status(api):
    api.create(CLAIMS, api_objects.claim())
    allocated = api.patch(f"{CLAIMS}/mine/status", {"status": STATUS})

    patched = api.patch(f"{CLAIMS}/mine", {"status": {"allocation": None}})
    put = api.put(f"{CLAIMS}/mine", api_objects.claim(labels={"a": "b"}))

    assert patched == allocated
    assert put["status"] == STATUS
    assert put["metadata"]["labels"] == {"a": "b"}


def test_a_write_of_the_status_does_not_touch_the_rest(api):
    made = api.create(CLAIMS, api_objects.claim(labels={"a": "b"}, finalizers=["example.com/a"]))
    body = api_objects.claim(labels={"c": "d"}) | {"status": STATUS}
    body["spec"]["devices"]["requests"] = []

    put = api.put(f"{CLAIMS}/mine/status", body)

    assert put["status"] == STATUS
    assert put["spec"] == made["spec"]
    assert put["metadata"]["labels"] == {"a": "b"}
    assert put["metadata"]["finalizers"] == ["example.com/a"]


def test_a_status_can_be_read(api):
    made = api.create(CLAIMS, api_objects.claim())

    assert api.get(f"{CLAIMS}/mine/status") == made


def test_a_write_of_the_status_with_a_stale_version_is_a_conflict(api):
    made = api.create(CLAIMS, api_objects.claim())
    api.patch(f"{CLAIMS}/mine", {"metadata": {"labels": {"a": "b"}}})

    assert api.send("PUT", f"{CLAIMS}/mine/status", made | {"status": STATUS}).status == 409


def test_a_node_brings_its_status_along(api):
    made = api.create(NODES, api_objects.node() | {"status": {"capacity": {"cpu": "8"}}})

    assert made["status"] == {"capacity": {"cpu": "8"}}


def test_a_status_write_does_not_raise_the_generation(api):
    api.create(PODS, api_objects.pod())

    patched = api.patch(f"{PODS}/train/status", {"status": {"phase": "Running"}})

    assert patched["metadata"]["generation"] == 1
    assert patched["status"]["phase"] == "Running"
    assert patched["status"]["qosClass"] == "BestEffort"


def test_a_namespace_is_active(api):
    made = api.create(NAMESPACES, {"metadata": {"name": "team", "labels": {"a": "b"}}})

    assert made["status"] == {"phase": "Active"}
    assert made["metadata"]["labels"] == {"a": "b", "kubernetes.io/metadata.name": "team"}


def bind(api, node="node-1", **target):
    return api.send("POST", f"{PODS}/train/binding", {"target": {"name": node, **target}})


def test_a_pod_is_bound_once(api):
    made = api.create(PODS, api_objects.pod())

    first, second = bind(api, kind="Node"), bind(api, "node-2")
    bound = api.get(f"{PODS}/train")

    assert first.status == 201
    assert first.body["status"] == "Success"
    assert second.status == 409
    assert second.body["message"].endswith('pod train is already assigned to node "node-1"')
    assert bound["spec"] == made["spec"] | {"nodeName": "node-1"}
    [condition] = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


def test_a_pod_that_is_being_deleted_is_not_bound(api):
    body = api_objects.pod()
    body["metadata"]["finalizers"] = ["example.com/a"]
    api.create(PODS, body)
    api.delete(f"{PODS}/train")

    answer = bind(api)

    assert answer.status == 409
    assert "is being deleted" in answer.body["message"]


def test_a_pod_that_does_not_exist_is_not_bound(api):
    assert bind(api).status == 404


@pytest.mark.parametrize("target", [{"name": ""}, {"name": "n", "kind": "Pod"}])
def test_a_binding_names_a_node(api, target):
    api.create(PODS, api_objects.pod())

    assert api.send("POST", f"{PODS}/train/binding", {"target": target}).status == 400
