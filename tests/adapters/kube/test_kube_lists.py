"""Long lists come in pages; a part of one is never taken for the whole. And server-side apply."""

import json

import pytest
import raw_http
import served_api
from served_api import CONFIG_MAPS

from dra_driver.adapters.kube import kube
from dra_driver.sim.api.serving import options

GONE = options.Fault(status=410, reason="Expired")
AWAY = options.Fault(status=503, reason="ServiceUnavailable")


@pytest.fixture
def api(tmp_path, monkeypatch):
    """A server with five ConfigMaps, of which a page takes two."""
    monkeypatch.setattr(kube, "PAGE", 2)
    made = served_api.ServedApi(tmp_path)
    for name in "abcde":
        made.put(name)
    made.calls.clear()
    yield made
    made.close()


def names(api, **selectors):
    items, _ = api.client.list(CONFIG_MAPS, "default", **selectors)
    return "".join(item["metadata"]["name"] for item in items)


def after(count, *faults):
    """The lists after the first `count` ones meet these faults, one each."""
    script = [None] * count + list(faults)
    return lambda call: script.pop(0) if script and call.verb == "list" else None


def test_a_list_is_whole_however_many_pages_it_takes(api):
    assert names(api, field_selector="metadata.name!=b") == "acde"
    assert names(api) == "abcde"
    assert api.count("list") == 2 + 3


def test_the_version_is_that_of_the_first_page_so_that_a_watch_misses_nothing(api):
    seen = []

    def rule(call):
        if call.verb == "list":
            seen.append(api.store.version)
            if len(seen) == 2:
                body = api.store.get("configmaps", ("default", "a"))
                api.store.put("configmaps", body | {"data": {"k": "v"}})

    api.rule = rule
    items, version = api.client.list(CONFIG_MAPS, "default")
    assert [item["metadata"]["name"] for item in items] == list("abcde")
    assert int(version) == seen[0] < api.store.version


def test_pages_that_no_longer_fit_together_are_thrown_away_for_one_answer(api):
    api.rule = after(2, GONE)
    assert names(api) == "abcde"
    assert api.count("list") == 4


def test_a_list_that_is_gone_again_and_again_is_an_error(api):
    api.rule = after(1, GONE, GONE)
    with pytest.raises(kube.Gone):
        names(api)


@pytest.mark.parametrize("fault", [AWAY, options.Fault(status=403, reason="Forbidden")])
def test_a_list_whose_later_page_fails_is_an_error(api, fault):
    api.rule = after(2, fault)
    with pytest.raises(kube.ApiError):
        names(api)


@pytest.mark.parametrize(
    "body",
    [{}, {"kind": "Status"}, {"items": []}, {"metadata": {"resourceVersion": "1"}}, {"items": 7}],
    ids=str,
)
def test_an_answer_that_is_no_list_is_not_taken_for_an_empty_one(raw_client, body):
    answer = raw_http.response(json.dumps(body).encode())
    not_a_list = pytest.raises(kube.Unavailable, match="not a list")
    with raw_http.serving(answer) as server, not_a_list:
        raw_client(server.port).list(CONFIG_MAPS)


def test_a_list_without_objects_may_say_so_by_null(raw_client):
    body = {"metadata": {"resourceVersion": "7"}, "items": None}
    with raw_http.serving(raw_http.response(json.dumps(body).encode())) as server:
        assert raw_client(server.port).list(CONFIG_MAPS) == ([], "7")


# Server-side apply


def config_map(**metadata):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", **metadata}}


def test_what_is_applied_is_all_that_its_manager_wants(api):
    apply, data = api.client.apply, {"one": "1", "two": "2"}
    made = apply(CONFIG_MAPS, config_map() | {"data": data}, "default", manager="me")
    assert made["data"] == data
    apply(CONFIG_MAPS, config_map() | {"data": {"three": "3"}}, "default", manager="other")
    body = config_map() | {"data": {"two": "zwei"}}
    assert apply(CONFIG_MAPS, body, "default", manager="me")["data"] == {
        "two": "zwei",
        "three": "3",
    }


@pytest.mark.parametrize("other", [{"uid": "other"}, {"resourceVersion": "1"}], ids=str)
def test_what_is_applied_to_another_object_than_is_there_is_a_conflict(api, other):
    api.put("x")
    with pytest.raises(kube.Conflict):
        api.client.apply(CONFIG_MAPS, config_map(**other), "default", manager="me")


def test_an_apply_goes_to_the_subresource_and_wins_over_other_managers(raw_client):
    with raw_http.serving(raw_http.response(b"{}")) as server:
        raw_client(server.port).apply(
            kube.CLAIMS, config_map(), "ns", manager="me", subresource="status"
        )
    (request,) = server.requests
    path = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/x/status"
    assert request.startswith(f"PATCH {path}?fieldManager=me&force=true HTTP/1.1")
    assert "application/apply-patch+yaml" in request
