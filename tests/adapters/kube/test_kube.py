import contextlib
import copy
import socket
import threading

import pytest
import raw_http
import served_api
from served_api import CONFIG_MAPS

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.sim.api.serving import options

# Paths


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "path"),
    [
        (kube.PODS, None, None, "/api/v1/pods"),
        (kube.PODS, "ns", None, "/api/v1/namespaces/ns/pods"),
        (kube.PODS, "ns", "p", "/api/v1/namespaces/ns/pods/p"),
        (kube.NODES, None, "n", "/api/v1/nodes/n"),
        (kube.NODES, "ignored", "n", "/api/v1/nodes/n"),
        (kube.SLICES, None, None, "/apis/resource.k8s.io/v1/resourceslices"),
        (kube.CLAIMS, "ns", "c", "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c"),
        (kube.PODS, "ns", "../x?y", "/api/v1/namespaces/ns/pods/..%2Fx%3Fy"),
    ],
)
def test_a_resource_knows_its_paths(resource, namespace, name, path):
    assert resource.path(namespace, name) == path


# Reading and writing


def test_an_object_is_created_read_replaced_and_deleted(api, client):
    made = client.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "1"}}, "default")
    assert made["metadata"]["uid"]
    assert client.get(CONFIG_MAPS, "a", "default") == made
    changed = client.replace(CONFIG_MAPS, made | {"data": {"k": "2"}}, "default")
    assert changed["data"] == {"k": "2"}
    assert changed["metadata"]["resourceVersion"] > made["metadata"]["resourceVersion"]
    client.delete(CONFIG_MAPS, "a", "default")
    with pytest.raises(kube.NotFound):
        client.get(CONFIG_MAPS, "a", "default")
    assert [(call.method, call.path) for call in api.calls[:2]] == [
        ("POST", "/api/v1/namespaces/default/configmaps"),
        ("GET", "/api/v1/namespaces/default/configmaps/a"),
    ]
    assert {call.user_agent for call in api.calls} == {"test/1"}


def test_a_list_has_all_that_match_and_the_version_to_watch_from(api, client):
    for name in ("a1", "a2", "b1"):
        last = api.put(name)
    items, version = client.list(CONFIG_MAPS, "default")
    assert [item["metadata"]["name"] for item in items] == ["a1", "a2", "b1"]
    assert int(version) >= int(last["metadata"]["resourceVersion"])
    items, _ = client.list(CONFIG_MAPS, label_selector="app=a")
    assert [item["metadata"]["name"] for item in items] == ["a1", "a2"]
    items, _ = client.list(
        CONFIG_MAPS, field_selector="metadata.name=b1,metadata.namespace=default"
    )
    assert [item["metadata"]["name"] for item in items] == ["b1"]
    assert client.list(CONFIG_MAPS, "kube-system")[0] == []


@pytest.fixture
def pod(client):
    """A pod with two containers."""
    containers = [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]
    body = {"metadata": {"name": "p"}, "spec": {"containers": containers}}
    yield client.create(kube.PODS, body, "default")
    with contextlib.suppress(kube.NotFound):
        client.delete(kube.PODS, "p", "default", grace_period=0)


def images(body):
    return {container["name"]: container["image"] for container in body["spec"]["containers"]}


def test_a_status_is_replaced_alone(client, pod):
    changed = copy.deepcopy(pod) | {"status": {"phase": "Running"}}
    changed["spec"]["containers"][0]["image"] = "other"
    answer = client.replace_status(kube.PODS, changed, "default")
    assert answer["status"]["phase"] == "Running"
    assert images(answer) == {"c": "i", "d": "i"}


def test_each_kind_of_patch_is_sent_as_what_it_is(api, client, pod):
    api.put("a", one="1", two="2")
    merged = client.patch(CONFIG_MAPS, "a", {"data": {"one": None, "three": "3"}}, "default")
    assert merged["data"] == {"two": "2", "three": "3"}
    operations = [{"op": "replace", "path": "/data/two", "value": "zwei"}]
    answer = client.patch(CONFIG_MAPS, "a", operations, "default", kind=kube.JSON_PATCH)
    assert answer["data"] == {"two": "zwei", "three": "3"}
    strategic = {"spec": {"containers": [{"name": "d", "image": "j"}]}}
    answer = client.patch(kube.PODS, "p", strategic, "default", kind=kube.STRATEGIC_PATCH)
    assert images(answer) == {"c": "i", "d": "j"}
    answer = client.patch(
        kube.PODS, "p", {"status": {"phase": "Running"}}, "default", subresource="status"
    )
    assert answer["status"]["phase"] == "Running"


def test_a_pod_is_bound_through_its_subresource(client, pod):
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "node-1"}}
    client.create_subresource(kube.PODS, "p", "binding", binding, "default")
    assert client.get(kube.PODS, "p", "default")["spec"]["nodeName"] == "node-1"
    client.delete(kube.PODS, "p", "default", grace_period=5)
    going = client.get(kube.PODS, "p", "default")
    assert going["metadata"]["deletionGracePeriodSeconds"] == 5
    client.delete(kube.PODS, "p", "default", grace_period=0)
    with pytest.raises(kube.NotFound):
        client.get(kube.PODS, "p", "default")


@pytest.mark.parametrize("precondition", [{"uid": "other"}, {"resource_version": "1"}])
def test_an_object_that_has_changed_is_not_deleted(api, client, precondition):
    made = api.put("a")
    with pytest.raises(kube.Conflict):
        client.delete(CONFIG_MAPS, "a", "default", **precondition)
    client.delete(
        CONFIG_MAPS, "a", "default",
        uid=made["metadata"]["uid"], resource_version=made["metadata"]["resourceVersion"],
    )  # fmt: skip
    assert client.list(CONFIG_MAPS)[0] == []


def test_a_collection_is_deleted_as_far_as_it_matches(api, client):
    api.put("a")
    api.put("b")
    client.delete_collection(CONFIG_MAPS, "default", field_selector="metadata.name=a")
    assert [item["metadata"]["name"] for item in client.list(CONFIG_MAPS)[0]] == ["b"]


def test_other_paths_and_the_served_versions_can_be_asked_for(client):
    assert client.get_path("/version")["gitVersion"] == "v1.36.2-sim"
    assert kube.served_versions(client, "resource.k8s.io") == ("v1", "v1beta1")
    assert kube.served_versions(client, "absent.example.com") == ()


def test_threads_share_a_client(api, client):
    api.put("a")
    failures = []

    def ask():
        try:
            for _ in range(20):
                assert client.get(CONFIG_MAPS, "a", "default")["metadata"]["name"] == "a"
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert api.count("get") == 160


# Errors


def test_an_absent_object_is_not_found_with_the_servers_words(client):
    with pytest.raises(kube.NotFound) as caught:
        client.get(CONFIG_MAPS, "absent", "default")
    error = caught.value
    assert (error.status, error.reason) == (404, "NotFound")
    assert error.message == 'configmaps "absent" not found'
    assert str(error) == (
        "GET /api/v1/namespaces/default/configmaps/absent: 404 NotFound: "
        'configmaps "absent" not found'
    )
    assert not isinstance(error, errors.Retryable)


def test_a_name_that_is_taken_and_an_old_version_are_conflicts(api, client):
    made = api.put("a")
    with pytest.raises(kube.Conflict) as caught:
        client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, "default")
    assert (caught.value.status, caught.value.reason) == (409, "AlreadyExists")
    api.put("a", k="new")
    with pytest.raises(kube.Conflict) as caught:
        client.replace(CONFIG_MAPS, made, "default")
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")


def test_an_object_that_is_not_valid_is_refused(client):
    with pytest.raises(kube.ApiError) as caught:
        client.create(CONFIG_MAPS, {"metadata": {"name": "Not_A_Name"}}, "default")
    assert (type(caught.value), caught.value.status) == (kube.Refused, 422)
    assert "metadata.name: Invalid value" in str(caught.value)
    assert caught.value.fields == ("metadata.name",)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, kube.Refused), (401, kube.ApiError), (403, kube.Forbidden), (404, kube.NotFound),
        (409, kube.Conflict), (410, kube.Gone), (413, kube.Refused), (422, kube.Refused),
        (408, kube.Unavailable), (429, kube.Unavailable), (500, kube.Unavailable),
        (502, kube.Unavailable), (503, kube.Unavailable), (504, kube.Unavailable),
    ],
)  # fmt: skip
def test_each_status_has_its_error_and_is_asked_for_once(api, client, status, kind):
    api.fail(*[options.Fault(status=status, reason="Why", message="because")] * 2)
    with pytest.raises(kube.ApiError) as caught:
        client.get(CONFIG_MAPS, "a", "default")
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.reason) == (status, "Why")
    assert isinstance(caught.value, errors.Retryable) == (kind is kube.Unavailable)
    assert str(caught.value).endswith(f": {status} Why: because")
    assert api.count("get") == 1


@pytest.mark.parametrize("status", [429, 503])
def test_a_wait_that_the_server_asks_for_is_left_to_the_caller(api, client, status):
    api.put("a")
    api.fail(options.Fault(status=status, retry_after=1))
    with pytest.raises(kube.Unavailable) as caught:
        client.get(CONFIG_MAPS, "a", "default")
    assert caught.value.retry_after == 1.0
    assert api.count("get") == 1


def test_a_server_that_is_away_is_unavailable(tmp_path):
    away = served_api.ServedApi(tmp_path)
    away.stop()
    for ask in (
        lambda: away.client.get(CONFIG_MAPS, "a", "default"),
        lambda: away.client.create(CONFIG_MAPS, {}, "default"),
        lambda: away.client.watch(CONFIG_MAPS, resource_version="1"),
    ):
        with pytest.raises(kube.Unavailable) as caught:
            ask()
        assert (caught.value.status, caught.value.reason) == (0, "no answer")
        assert "Connection refused" in str(caught.value)
    away.close()


def test_a_read_whose_connection_drops_is_tried_once_more(api, client):
    api.put("a")
    api.fail(options.Fault(drop="before"), verb="get")
    assert client.get(CONFIG_MAPS, "a", "default")["metadata"]["name"] == "a"
    assert api.count("get") == 2
    api.fail(*[options.Fault(drop="before")] * 2, verb="get")
    with pytest.raises(kube.Unavailable):
        client.get(CONFIG_MAPS, "a", "default")
    assert api.count("get") == 4


@pytest.mark.parametrize(("drop", "made"), [("before", 0), ("after", 1)])
def test_a_write_whose_connection_drops_is_not_sent_twice(api, client, drop, made):
    api.fail(options.Fault(drop=drop), verb="create")
    with pytest.raises(kube.Unavailable):
        client.create(CONFIG_MAPS, {"metadata": {"generateName": "a-"}}, "default")
    assert api.count("create") == 1
    assert len(client.list(CONFIG_MAPS)[0]) == made


def test_a_read_that_takes_too_long_is_given_up_and_not_tried_again(raw_client):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(kube.Unavailable, match="timed out"):
            raw_client(silent.getsockname()[1]).get(CONFIG_MAPS, "a", "default", timeout=0.1)
        silent.settimeout(0)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_the_plain_text_of_a_proxy_becomes_the_message(raw_client):
    answer = raw_http.response(b"upstream \xff is away\n", "502 Bad Gateway", "text/plain")
    with raw_http.serving(answer) as server:
        client = raw_client(server.port)
        with pytest.raises(kube.Unavailable) as caught:
            client.get(kube.NODES, "n")
    assert str(caught.value) == ("GET /api/v1/nodes/n: 502 Unknown: upstream \ufffd is away\n")


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"[]", b""])
def test_an_answer_that_is_no_object_is_not_taken_for_one(raw_client, body):
    with raw_http.serving(raw_http.response(body)) as server:
        client = raw_client(server.port)
        with pytest.raises(kube.Unavailable) as caught:
            client.get(kube.NODES, "n")
    assert str(caught.value) == (
        f"GET /api/v1/nodes/n: 200 not an object: {body.decode() or 'no message'}"
    )


def test_an_answer_that_breaks_off_is_told_with_its_request(raw_client):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"
    with raw_http.serving([head]) as server:
        client = raw_client(server.port)
        with pytest.raises(kube.Unavailable) as caught:
            client.create(kube.NODES, {})
    assert str(caught.value).startswith("POST /api/v1/nodes: connection broke: ")
