import api_objects
import pytest
from api_objects import CONFIG_MAPS, NODES, SLICES

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def version_of(body):
    return body["metadata"]["resourceVersion"]


def test_a_watch_begins_with_what_there_is(api):
    api.create(CONFIG_MAPS, api_objects.config_map("a"))
    with api.watch(CONFIG_MAPS) as watched:
        api.create(CONFIG_MAPS, api_objects.config_map("b"))

        assert watched.take(2) == [("ADDED", "a"), ("ADDED", "b")]


def test_version_zero_means_from_what_there_is(api):
    api.create(CONFIG_MAPS, api_objects.config_map("a"))
    with api.watch(CONFIG_MAPS, resourceVersion="0") as watched:
        assert watched.take(1) == [("ADDED", "a")]


def test_a_watch_tells_what_happens_after_a_version(api):
    first = api.create(CONFIG_MAPS, api_objects.config_map("a"))
    second = api.create(CONFIG_MAPS, api_objects.config_map("b"))
    api.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "1"}})
    last = api.delete(f"{CONFIG_MAPS}/b")
    with api.watch(CONFIG_MAPS, resourceVersion=version_of(first)) as watched:
        events = [watched.next() for _ in range(3)]

    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert events[0]["object"] == second
    assert events[1]["object"]["data"] == {"x": "1"}
    assert events[2]["object"]["metadata"]["uid"] == last["details"]["uid"]


def test_the_event_of_a_removal_has_the_version_of_the_removal(api):
    made = api.create(CONFIG_MAPS, api_objects.config_map("a"))
    with api.watch(CONFIG_MAPS, resourceVersion=version_of(made)) as watched:
        api.delete(f"{CONFIG_MAPS}/a")
        event = watched.next()

    assert int(version_of(event["object"])) > int(version_of(made))


def test_a_list_and_a_watch_from_its_version_miss_nothing(api):
    api.create(CONFIG_MAPS, api_objects.config_map("a"))
    version = version_of(api.get(CONFIG_MAPS))
    api.create(CONFIG_MAPS, api_objects.config_map("b"))
    with api.watch(CONFIG_MAPS, resourceVersion=version) as watched:
        assert watched.take(1) == [("ADDED", "b")]


def test_changes_of_a_status_are_told(api):
    made = api.create(NODES, api_objects.node())
    with api.watch(NODES, resourceVersion=version_of(made)) as watched:
        api.patch(f"{NODES}/node-1/status", {"status": {"phase": "Running"}})

        assert watched.take(1) == [("MODIFIED", "node-1")]


def test_other_namespaces_and_kinds_are_not_told_of(api):
    with api.watch(CONFIG_MAPS) as watched:
        api.create("/api/v1/namespaces/kube-system/configmaps", api_objects.config_map("other"))
        api.create(NODES, api_objects.node())
        api.create(CONFIG_MAPS, api_objects.config_map("mine"))

        assert watched.take(1) == [("ADDED", "mine")]


def test_an_object_enters_and_leaves_a_selection(api):
    api.create(CONFIG_MAPS, api_objects.config_map("a"))
    with api.watch(CONFIG_MAPS, labelSelector="team=red") as watched:
        for team in ("blue", "red", "red", "blue"):
            labels = {"metadata": {"labels": {"team": team}}, "data": {"n": team}}
            api.patch(f"{CONFIG_MAPS}/a", labels)
        api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"team": "red"}}})
        api.patch(f"{CONFIG_MAPS}/a", {"data": {"n": "2"}})
        api.delete(f"{CONFIG_MAPS}/a")

        types = [watched.next()["type"] for _ in range(5)]

    assert types == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]


def test_what_has_left_a_selection_is_shown_as_it_was_in_it(api):
    body = api_objects.config_map("a")
    body["metadata"]["labels"] = {"team": "red"}
    made = api.create(CONFIG_MAPS, body)
    with api.watch(
        CONFIG_MAPS, labelSelector="team=red", resourceVersion=version_of(made)
    ) as watched:
        changed = api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"team": "blue"}}})
        event = watched.next()

    assert event["object"]["metadata"]["labels"] == {"team": "red"}
    assert version_of(event["object"]) == version_of(changed)


def test_slices_of_one_node_can_be_watched(api):
    with api.watch(SLICES, fieldSelector="spec.nodeName=node-2") as watched:
        for node in ("node-1", "node-2"):
            api.create(SLICES, api_objects.resource_slice(f"{node}-gpus", nodeName=node))

        assert watched.take(1) == [("ADDED", "node-2-gpus")]


def test_one_object_can_be_watched(api):
    for name in ("a", "b"):
        api.create(CONFIG_MAPS, api_objects.config_map(name))
    with api.watch(f"/api/v1/watch{CONFIG_MAPS.removeprefix('/api/v1')}/b") as watched:
        assert watched.take(1) == [("ADDED", "b")]


def test_a_version_that_is_no_longer_known_has_expired():
    with api_objects.Api(history=3) as api:
        first = api.create(CONFIG_MAPS, api_objects.config_map("a"))
        for index in range(4):
            api.patch(f"{CONFIG_MAPS}/a", {"data": {"n": str(index)}})

        with api.watch(CONFIG_MAPS, resourceVersion=version_of(first)) as watched:
            event = watched.next()
            ended = watched.ends()

    assert watched.status == 200
    assert event["type"] == "ERROR"
    assert event["object"]["code"] == 410
    assert event["object"]["reason"] == "Expired"
    assert event["object"]["message"].startswith("too old resource version: ")
    assert ended


def test_what_is_still_in_the_history_has_not_expired():
    with api_objects.Api(history=3) as api:
        bodies = [api.create(CONFIG_MAPS, api_objects.config_map(name)) for name in "abcde"]

        with api.watch(CONFIG_MAPS, resourceVersion=version_of(bodies[1])) as watched:
            assert watched.take(3) == [("ADDED", name) for name in "cde"]


def test_the_history_can_be_dropped(api):
    first = api.create(CONFIG_MAPS, api_objects.config_map("a"))
    last = api.create(CONFIG_MAPS, api_objects.config_map("b"))
    api.server.store.forget()

    with api.watch(CONFIG_MAPS, resourceVersion=version_of(first)) as watched:
        assert watched.next()["object"]["code"] == 410
    with api.watch(CONFIG_MAPS, resourceVersion=version_of(last)) as watched:
        api.create(CONFIG_MAPS, api_objects.config_map("c"))
        assert watched.take(1) == [("ADDED", "c")]


def test_a_version_of_a_server_that_was_here_before_has_expired(api):
    with api.watch(CONFIG_MAPS, resourceVersion="7") as watched:
        assert watched.next()["object"]["code"] == 410


def test_a_watch_ends_when_its_time_is_up(api):
    with api.watch(CONFIG_MAPS, timeoutSeconds=1) as watched:
        assert watched.ends()


def test_a_silent_watch_gets_bookmarks():
    with api_objects.Api(bookmark_seconds=0.05) as api:
        made = api.create(NODES, api_objects.node())
        with api.watch(
            CONFIG_MAPS, allowWatchBookmarks="true", resourceVersion=version_of(made)
        ) as watched:
            event = watched.next()

    assert event["type"] == "BOOKMARK"
    assert event["object"]["kind"] == "ConfigMap"
    assert event["object"]["apiVersion"] == "v1"
    assert version_of(event["object"]) == version_of(made)


def test_a_watch_that_did_not_ask_gets_no_bookmarks():
    with (
        api_objects.Api(bookmark_seconds=0.01) as api,
        api.watch(CONFIG_MAPS, timeoutSeconds=1) as watched,
    ):
        assert watched.ends()


def test_a_watch_that_has_events_gets_no_bookmarks_between_them(api):
    with api.watch(CONFIG_MAPS, allowWatchBookmarks="true") as watched:
        seen = []
        for name in ("a", "b", "c"):
            api.create(CONFIG_MAPS, api_objects.config_map(name))
            seen += watched.take(1)

    assert seen == [("ADDED", name) for name in ("a", "b", "c")]


def test_a_bookmark_marks_the_end_of_the_initial_objects(api):
    api.create(CONFIG_MAPS, api_objects.config_map("a"))
    with api.watch(
        CONFIG_MAPS,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    ) as watched:
        first, mark = watched.next(), watched.next()

    assert first["type"] == "ADDED"
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert version_of(mark["object"]) == version_of(first["object"])


def test_a_watch_of_tables_has_the_headings_once(api):
    with api.watch(CONFIG_MAPS, headers={"accept": TABLE}) as watched:
        api.create(CONFIG_MAPS, api_objects.config_map("a", x="1"))
        api.create(CONFIG_MAPS, api_objects.config_map("b"))
        first, second = watched.next()["object"], watched.next()["object"]

    assert [column["name"] for column in first["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert first["rows"][0]["cells"][:2] == ["a", 1]
    assert second["columnDefinitions"] == []
    assert second["rows"][0]["object"]["metadata"]["name"] == "b"


def test_a_closed_watch_is_forgotten(api):
    with api.watch(CONFIG_MAPS):
        api_objects.wait_for(lambda: api.server.store.watch_count() == 1, "the watch")

    api_objects.wait_for(lambda: api.server.store.watch_count() == 0, "its end")


def test_stopping_the_server_ends_its_watches():
    api = api_objects.Api()
    with api, api.watch(CONFIG_MAPS) as watched:
        api.server.stop()
        assert watched.ends()


def test_open_watches_can_be_ended(api):
    with api.watch(CONFIG_MAPS) as watched:
        api_objects.wait_for(lambda: api.server.store.watch_count() == 1, "the watch")
        api.server.store.end_watches()
        assert watched.ends()
    with api.watch(CONFIG_MAPS) as watched:
        api.create(CONFIG_MAPS, api_objects.config_map("a"))
        assert watched.take(1) == [("ADDED", "a")]


def test_many_watchers_see_the_same(api):
    watches = [api.watch(CONFIG_MAPS) for _ in range(20)]
    opened = [watch.__enter__() for watch in watches]
    try:
        for name in ("a", "b"):
            api.create(CONFIG_MAPS, api_objects.config_map(name))
        seen = [watched.take(2) for watched in opened]
    finally:
        for watch in watches:
            watch.__exit__(None, None, None)

    assert seen == [[("ADDED", "a"), ("ADDED", "b")]] * 20


@pytest.mark.parametrize("query", [{"labelSelector": "a=("}, {"resourceVersion": "x"}])
def test_a_watch_that_cannot_be_understood_is_refused(api, query):
    assert api.send("GET", CONFIG_MAPS, watch="true", **query).status == 400
