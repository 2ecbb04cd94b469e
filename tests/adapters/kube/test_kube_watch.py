"""Watches: what they show, how they end, and what breaks them."""

import json
import threading

import polling
import pytest
import raw_http
import served_api
from served_api import CONFIG_MAPS

from dra_driver.adapters.kube import kube
from dra_driver.sim.api.serving import options


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


def test_events_are_read_however_they_are_cut_into_pieces(raw_client):
    name = "ä" * 90_000
    data = event("a") + event("b") + event(name) + b"\n" + event("c")
    pieces = [data[start : start + 65_521] for start in range(0, len(data), 65_521)]
    with raw_http.serving(raw_http.chunked(*pieces)) as server:
        client = raw_client(server.port)
        watch = client.watch(CONFIG_MAPS, resource_version="1")
        assert [item["metadata"]["name"] for _, item in watch] == ["a", "b", name, "c"]


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
def test_a_watch_that_breaks_is_unavailable_after_what_came_whole(raw_client, answer):
    with raw_http.serving(answer) as server:
        client = raw_client(server.port)
        watch = iter(client.watch(CONFIG_MAPS, resource_version="1"))
        assert next(watch)[0] == "ADDED"
        with pytest.raises(kube.Unavailable) as caught:
            next(watch)
    assert str(caught.value).startswith("watch /api/v1/configmaps: watch broke: ")


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        ({"code": 410}, kube.Gone, 410),
        ({}, kube.Unavailable, 500),
        ({"code": 403}, kube.Forbidden, 403),
    ],
)
def test_an_error_event_is_raised_by_its_code(raw_client, status, kind, code):
    line = json.dumps({"type": "ERROR", "object": status | {"message": "m"}}).encode() + b"\n"
    with raw_http.serving(raw_http.chunked(line)) as server:
        client = raw_client(server.port)
        with pytest.raises(kind) as caught:
            list(client.watch(CONFIG_MAPS, resource_version="1"))
    assert str(caught.value) == f"watch /api/v1/configmaps: {code} Unknown: m"


def test_a_watch_asks_for_bookmarks_and_an_end_and_reads_no_more_than_that(raw_client):
    with raw_http.serving(raw_http.chunked()) as server:
        client = raw_client(server.port)
        assert list(client.watch(CONFIG_MAPS, resource_version="7")) == []
    line = server.requests[0].splitlines()[0]
    assert line == (
        "GET /api/v1/configmaps?watch=true&allowWatchBookmarks=true&resourceVersion=7"
        "&timeoutSeconds=300 HTTP/1.1"
    )
