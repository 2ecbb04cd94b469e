import contextlib
import copy
import json
import ssl
import threading

import kubernetes
import polling
import pytest
import raw_http
import served_api
import trustme
from served_api import CONFIG_MAPS

from dra_driver import errors
from dra_driver.adapters import kube
from dra_driver.sim.api import options


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    made = served_api.ServedApi(tmp_path_factory.mktemp("api"), resource_versions=("v1", "v1beta1"))
    yield made
    made.close()


@pytest.fixture
def api(shared):
    """A server without ConfigMaps, calls and faults."""
    shared.rule = lambda _call: None
    shared.client.delete_collection(CONFIG_MAPS, "default", field_selector="metadata.name!=x")
    shared.calls.clear()
    return shared


@pytest.fixture
def client(api):
    return api.client


def raw_client(tmp_path, port, user=None):
    path = tmp_path / "raw"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}/"}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return kube.Client(kubeconfig=path, user_agent="test/1")


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
    assert (type(caught.value), caught.value.status) == (kube.ApiError, 422)
    assert "metadata.name: Invalid value" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, kube.ApiError), (401, kube.ApiError), (403, kube.Forbidden), (404, kube.NotFound),
        (409, kube.Conflict), (410, kube.Gone), (422, kube.ApiError), (408, kube.Unavailable),
        (429, kube.Unavailable), (500, kube.Unavailable), (502, kube.Unavailable),
        (503, kube.Unavailable), (504, kube.Unavailable),
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
    with pytest.raises(kube.Unavailable):
        client.get(CONFIG_MAPS, "a", "default")
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


def test_a_read_that_takes_too_long_is_given_up_and_not_tried_again(api, client):
    api.fail(*[options.Fault(delay_seconds=1)] * 2, verb="get")
    with pytest.raises(kube.Unavailable) as caught:
        client.get(CONFIG_MAPS, "a", "default", timeout=0.1)
    assert "timed out" in str(caught.value)
    polling.until(lambda: api.count("get"), what="its request")
    assert api.count("get") == 1


def test_the_plain_text_of_a_proxy_becomes_the_message(tmp_path):
    answer = raw_http.response(b"upstream \xff is away\n", "502 Bad Gateway", "text/plain")
    with raw_http.serving(answer) as server:
        client = raw_client(tmp_path, server.port)
        with pytest.raises(kube.Unavailable) as caught:
            client.get(kube.NODES, "n")
        client.close()
    assert str(caught.value) == ("GET /api/v1/nodes/n: 502 Unknown: upstream \ufffd is away\n")


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"[]", b""])
def test_an_answer_that_is_no_object_is_not_taken_for_one(tmp_path, body):
    with raw_http.serving(raw_http.response(body)) as server:
        client = raw_client(tmp_path, server.port)
        with pytest.raises(kube.Unavailable) as caught:
            client.get(kube.NODES, "n")
        client.close()
    assert str(caught.value) == (
        f"GET /api/v1/nodes/n: 200 not an object: {body.decode() or 'no message'}"
    )


def test_an_answer_that_breaks_off_is_told_with_its_request(tmp_path):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"
    with raw_http.serving([head]) as server:
        client = raw_client(tmp_path, server.port)
        with pytest.raises(kube.Unavailable) as caught:
            client.create(kube.NODES, {})
        client.close()
    assert str(caught.value).startswith("POST /api/v1/nodes: connection broke: ")


# Who asks


def test_what_is_sent_is_json_with_the_credentials_of_the_kubeconfig(tmp_path):
    answer = raw_http.response(b'{"kind": "Status"}')
    with raw_http.serving(answer, answer) as server:
        client = raw_client(tmp_path, server.port, {"token": "s3cret"})
        client.patch(kube.NODES, "n", {"a": "ä"})
        client.get(kube.NODES, "n")
        client.close()
    head, _, body = server.requests[0].partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    headers = {line.split(": ")[0].lower(): line.split(": ")[1] for line in lines}
    assert first == "PATCH /api/v1/nodes/n HTTP/1.1"
    assert headers["authorization"] == "Bearer s3cret"
    assert headers["content-type"] == "application/merge-patch+json"
    assert headers["accept"] == "application/json"
    assert headers["user-agent"] == "test/1"
    assert json.loads(body) == {"a": "ä"}
    assert "content-type" not in server.requests[1].lower()


def test_in_a_pod_the_service_account_is_used_and_its_token_followed(tmp_path, monkeypatch):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    token = tmp_path / "token"
    token.write_text("first")
    incluster = kubernetes.config.incluster_config
    monkeypatch.setattr(incluster, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    answer = raw_http.response(b"{}")
    with raw_http.serving(answer, answer, context=context) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        client = kube.Client(user_agent="test/1")
        client.get(kube.NODES, "n")
        token.write_text("second")
        later = incluster.datetime.datetime.now() + incluster.datetime.timedelta(hours=1)

        class Later(incluster.datetime.datetime):
            @classmethod
            def now(cls, _zone=None):
                return later

        monkeypatch.setattr(incluster.datetime, "datetime", Later)
        client.get(kube.NODES, "n")
        client.close()
    assert [
        line
        for request in server.requests
        for line in request.splitlines()
        if line.lower().startswith("authorization")
    ] == ["authorization: bearer first", "authorization: bearer second"]


def test_without_a_service_account_the_next_step_is_told(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(errors.Fatal) as caught:
        kube.Client(user_agent="test/1")
    assert str(caught.value) == (
        "kubeconfig (in cluster): Service host/port is not set. Pass --kubeconfig FILE, "
        "or run in a pod with a service account"
    )


def test_a_kubeconfig_that_is_not_there_is_not_called_malformed(tmp_path):
    path = tmp_path / "config"
    with pytest.raises(errors.Fatal) as caught:
        kube.Client(kubeconfig=path, user_agent="test/1")
    assert str(caught.value).startswith(f"kubeconfig {path}: the file is absent or empty. Pass ")


@pytest.mark.parametrize(
    "content", [None, "", "a: [", "\x07", "[]", "just text", "clusters: 5\ncurrent-context: x\n"]
)
def test_a_kubeconfig_that_is_none_is_told_by_name(tmp_path, content):
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(errors.Fatal) as caught:
        kube.Client(kubeconfig=path, user_agent="test/1")
    assert str(caught.value).startswith(f"kubeconfig {path}: ")
    assert str(caught.value).endswith(
        "Pass --kubeconfig FILE, or run in a pod with a service account"
    )


# Watching


def take(watch, count):
    """The next events as (type, name)."""
    events = iter(watch)
    return [
        (kind, item["metadata"].get("name")) for kind, item in (next(events) for _ in range(count))
    ]


def test_a_watch_shows_what_happens_after_the_version(api, client):
    api.put("before")
    _, version = client.list(CONFIG_MAPS)
    api.put("a", k="1")
    watch = client.watch(CONFIG_MAPS, "default", resource_version=version)
    api.put("a", k="2")
    api.remove("a")
    api.put("b")
    assert take(watch, 4) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    watch.stop()


def test_a_watch_shows_only_what_matches(api, client):
    _, version = client.list(CONFIG_MAPS)
    watch = client.watch(
        CONFIG_MAPS, resource_version=version, label_selector="app=b",
        field_selector="metadata.namespace=default",
    )  # fmt: skip
    api.put("a")
    api.put("b1", "kube-system")
    api.put("b2")
    api.remove("b1", "kube-system")
    assert take(watch, 1) == [("ADDED", "b2")]
    watch.stop()


def test_a_watch_gets_bookmarks(tmp_path):
    api = served_api.ServedApi(tmp_path, bookmark_seconds=0.02)
    _, version = api.client.list(CONFIG_MAPS)
    watch = api.client.watch(CONFIG_MAPS, resource_version=version)
    api.put("other", "kube-system")
    added, told = None, []
    for kind, item in watch:
        if kind == "ADDED":
            added = item["metadata"]["resourceVersion"]
        elif added is not None:
            told.append((kind, item["metadata"]["resourceVersion"]))
            break
    assert told == [("BOOKMARK", added)]
    assert int(added) > int(version)
    api.close()


def test_an_idle_watch_that_is_stopped_ends_its_reader_at_once(api, client):
    _, version = client.list(CONFIG_MAPS)
    watch = client.watch(CONFIG_MAPS, resource_version=version)
    seen, started = [], threading.Event()

    def read():
        started.set()
        seen.extend(watch)

    reader = threading.Thread(target=read)
    reader.start()
    assert started.wait(60)
    polling.until(lambda: api.store.watch_count() == 1)
    watch.stop()
    reader.join(60)
    assert not reader.is_alive()
    assert seen == []
    polling.until(lambda: api.store.watch_count() == 0)


def test_a_watch_that_is_stopped_tells_nothing_more_of_what_has_come(api, client):
    _, version = client.list(CONFIG_MAPS)
    for name in ("a", "b", "c"):
        api.put(name)
    watch = client.watch(CONFIG_MAPS, resource_version=version)
    events = iter(watch)
    assert next(events)[1]["metadata"]["name"] == "a"
    watch.stop()
    assert list(events) == []


def test_a_watch_may_be_stopped_before_it_is_read_and_after_it_has_ended(api, client):
    _, version = client.list(CONFIG_MAPS)
    watch = client.watch(CONFIG_MAPS, resource_version=version)
    watch.stop()
    assert list(watch) == []
    watch.stop()


def test_a_watch_from_a_version_that_is_forgotten_is_gone(api, client):
    _, version = client.list(CONFIG_MAPS)
    api.put("a")
    api.store.forget()
    watch = client.watch(CONFIG_MAPS, resource_version=version)
    with pytest.raises(kube.Gone) as caught:
        list(watch)
    assert (caught.value.status, caught.value.reason) == (410, "Expired")
    assert "too old resource version" in str(caught.value)


def test_a_watch_that_is_refused_says_so_at_once(api, client):
    api.fail(options.Fault(status=410, reason="Expired"), options.Fault(status=403))
    with pytest.raises(kube.Gone):
        client.watch(CONFIG_MAPS, resource_version="1")
    with pytest.raises(kube.Forbidden) as caught:
        client.watch(CONFIG_MAPS, "default", resource_version="1")
    assert str(caught.value).startswith("watch /api/v1/namespaces/default/configmaps: 403 ")


def event(name, kind="ADDED"):
    return json.dumps({"type": kind, "object": {"metadata": {"name": name}}}).encode() + b"\n"


def test_events_are_read_however_they_are_cut_into_pieces(tmp_path):
    name = "ä" * 90_000
    data = event("a") + event("b") + event(name) + b"\n" + event("c")
    pieces = [data[start : start + 65_521] for start in range(0, len(data), 65_521)]
    with raw_http.serving(raw_http.chunked(*pieces)) as server:
        client = raw_client(tmp_path, server.port)
        watch = client.watch(CONFIG_MAPS, resource_version="1")
        assert [item["metadata"]["name"] for _, item in watch] == ["a", "b", name, "c"]
        client.close()


@pytest.mark.parametrize(
    "answer",
    [
        raw_http.chunked(event("a"), end=False),
        raw_http.chunked(event("a"), b'{"type": ', end=False),
        raw_http.chunked(event("a"), b"nonsense\n"),
        raw_http.chunked(event("a"), b"[]\n"),
        raw_http.chunked(event("a"), b"{}\n"),
    ],
)
def test_a_watch_that_breaks_is_unavailable_after_what_came_whole(tmp_path, answer):
    with raw_http.serving(answer) as server:
        client = raw_client(tmp_path, server.port)
        watch = iter(client.watch(CONFIG_MAPS, resource_version="1"))
        assert next(watch)[0] == "ADDED"
        with pytest.raises(kube.Unavailable) as caught:
            next(watch)
        client.close()
    assert str(caught.value).startswith("watch /api/v1/configmaps: watch broke: ")


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        ({"code": 410}, kube.Gone, 410),
        ({}, kube.Unavailable, 500),
        ({"code": 403}, kube.Forbidden, 403),
    ],
)
def test_an_error_event_is_raised_by_its_code(tmp_path, status, kind, code):
    line = json.dumps({"type": "ERROR", "object": status | {"message": "m"}}).encode() + b"\n"
    with raw_http.serving(raw_http.chunked(line)) as server:
        client = raw_client(tmp_path, server.port)
        with pytest.raises(kind) as caught:
            list(client.watch(CONFIG_MAPS, resource_version="1"))
        client.close()
    assert str(caught.value) == f"watch /api/v1/configmaps: {code} Unknown: m"


def test_a_watch_asks_for_bookmarks_and_an_end_and_reads_no_more_than_that(tmp_path):
    with raw_http.serving(raw_http.chunked()) as server:
        client = raw_client(tmp_path, server.port)
        assert list(client.watch(CONFIG_MAPS, resource_version="7")) == []
        client.close()
    line = server.requests[0].splitlines()[0]
    assert line == (
        "GET /api/v1/configmaps?watch=true&allowWatchBookmarks=true&resourceVersion=7"
        "&timeoutSeconds=300 HTTP/1.1"
    )


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
