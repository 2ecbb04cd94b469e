"""Long lists of which little is kept."""

import weakref

import pytest
import served_api
from served_api import CONFIG_MAPS

from dra_driver.adapters.kube import kube, kube_pages, kube_reducing
from dra_driver.sim.api.serving import options

GONE = options.Fault(status=410, reason="Expired")


@pytest.fixture
def api(tmp_path, monkeypatch):
    """A server with five ConfigMaps, of which a page takes two."""
    monkeypatch.setattr(kube, "PAGE", 2)
    monkeypatch.setattr(kube_reducing, "PAGE", 2)
    made = served_api.ServedApi(tmp_path)
    for name in "abcde":
        made.put(name, key="value")
    made.calls.clear()
    yield made
    made.close()


def name(body):
    return body["metadata"]["name"]


def read(api, keep=name, **given):
    return kube_reducing.reduced(api.client, CONFIG_MAPS, keep, "default", **given)


@pytest.mark.parametrize("metadata_only", [False, True])
def test_what_is_kept_of_each_object_comes_from_all_pages(api, metadata_only):
    assert read(api, metadata_only=metadata_only) == list("abcde")
    assert api.count("list") == 3


def test_what_is_none_is_left_out(api):
    assert read(api, lambda body: name(body) if name(body) in "bd" else None) == ["b", "d"]


def test_the_selectors_hold(api):
    assert read(api, field_selector="metadata.name!=b", label_selector="app in (a,b)") == ["a"]


def test_where_metadata_is_enough_the_server_sends_nothing_else(api):
    assert {tuple(body) for body in read(api, dict, metadata_only=True)} == {
        ("kind", "apiVersion", "metadata")
    }
    assert all(body["data"] == {"key": "value"} for body in read(api, dict))


def test_no_page_is_held_while_the_next_one_is_read():
    class Page(dict):
        """A dict that can be watched."""

    held = []

    def call(query):
        assert [each() for each in held] == [None] * len(held)
        number = int(query.get("continue", 0))
        metadata = {"resourceVersion": "7"} | ({"continue": str(number + 1)} if number < 3 else {})
        page = Page(items=[{"number": number}], metadata=metadata)
        held.append(weakref.ref(page))
        return page

    assert kube_pages.reduce(call, "/x", {}, lambda body: body["number"]) == ([0, 1, 2, 3], "7")


def after(count, *faults):
    """The lists after the first `count` ones meet these faults, one each."""
    script = [None] * count + list(faults)
    return lambda call: script.pop(0) if script and call.verb == "list" else None


def test_pages_that_no_longer_fit_together_are_read_again_from_the_first(api):
    api.rule = after(2, GONE)
    assert read(api) == list("abcde")
    assert api.count("list") == 3 + 3


def test_a_list_that_is_gone_again_and_again_is_an_error(api):
    api.rule = after(1, GONE, GONE, GONE)
    with pytest.raises(kube.Gone):
        read(api)


def test_a_list_whose_later_page_fails_is_an_error(api):
    api.rule = after(2, options.Fault(status=503, reason="ServiceUnavailable"))
    with pytest.raises(kube.Unavailable):
        read(api)
