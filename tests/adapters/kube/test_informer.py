import queue
import threading

import polling
import pytest
import served_api
from served_api import CONFIG_MAPS

from dra_driver import errors
from dra_driver.adapters.kube import informer, kube
from dra_driver.sim.api.serving import options

pytestmark = pytest.mark.sampled(3)


class Watcher:
    """An informer on ConfigMaps and what it told, in order."""

    def __init__(self, api, **selection):
        self.changes = queue.SimpleQueue()
        self.errors = queue.SimpleQueue()
        self.informer = informer.Informer(
            api.client, CONFIG_MAPS,
            on_change=lambda kind, item: self.changes.put((kind, item)),
            on_error=self.errors.put,
            **selection,
        )  # fmt: skip
        self.informer.start()

    def next(self, count):
        """The next changes as (type, name); fails where they do not come."""
        taken = [self.changes.get(timeout=60) for _ in range(count)]
        return [(kind, item["metadata"]["name"]) for kind, item in taken]

    def names(self):
        return [item["metadata"]["name"] for item in self.informer.objects()]


class Held:
    """Requests of one verb that wait, from now on, before they are sent."""

    def __init__(self, api, monkeypatch, verb):
        self.asked, self.go_on = threading.Event(), threading.Event()
        self._send = getattr(api.client, verb)
        monkeypatch.setattr(api.client, verb, self._held)

    def _held(self, *arguments, **options):
        self.asked.set()
        assert self.go_on.wait(60)
        return self._send(*arguments, **options)


@pytest.fixture
def api(tmp_path):
    made = served_api.ServedApi(tmp_path)
    yield made
    made.close()


@pytest.fixture
def watching(api):
    """Makes informers that have read their first list; none of them leaves a thread behind."""
    made = []

    def start(**selection):
        made.append(Watcher(api, **selection))
        assert made[-1].informer.wait_synced(60)
        return made[-1]

    yield start
    for watcher in made:
        watcher.informer.stop()
    assert not [watcher for watcher in made if watcher.informer.is_alive]


def test_what_is_there_and_what_changes_is_told_in_order(api, watching):
    api.put("b")
    api.put("a")
    watcher = watching()
    assert watcher.next(2) == [("ADDED", "a"), ("ADDED", "b")]
    api.put("c", k="1")
    api.put("c", k="2")
    api.remove("a")
    assert watcher.next(3) == [("ADDED", "c"), ("MODIFIED", "c"), ("DELETED", "a")]
    assert watcher.names() == ["b", "c"]
    assert watcher.informer.get("c", "default")["data"] == {"k": "2"}
    assert watcher.informer.get("a", "default") is None
    assert watcher.informer.get("c") is None
    assert watcher.changes.empty()
    assert watcher.errors.empty()


def test_objects_are_ordered_by_namespace_and_name(api, watching):
    watcher = watching()
    for name, namespace in (("z", "default"), ("a", "kube-system"), ("b", "default")):
        api.put(name, namespace)
    watcher.next(3)
    assert watcher.names() == ["b", "z", "a"]


def test_a_cluster_scoped_object_has_no_namespace(api):
    nodes = informer.Informer(api.client, kube.NODES)
    nodes.start()
    made = api.client.create(kube.NODES, {"metadata": {"name": "node-1"}})
    assert nodes.wait_version(made["metadata"]["resourceVersion"], 60)
    assert nodes.get("node-1") == made
    nodes.stop()


def test_only_what_is_selected_is_seen(api, watching):
    by_label = watching(label_selector="app=a", namespace="default")
    by_field = watching(field_selector="metadata.name=b2")
    for name in ("a1", "b2", "a3"):
        api.put(name)
    api.put("a4", "kube-system")
    assert by_label.next(2) == [("ADDED", "a1"), ("ADDED", "a3")]
    assert by_field.next(1) == [("ADDED", "b2")]


def test_an_object_that_is_selected_no_longer_is_deleted(api, watching):
    watcher = watching(label_selector="app=a")
    made = api.put("a")
    assert watcher.next(1) == [("ADDED", "a")]
    made["metadata"]["labels"] = {"app": "other"}
    api.client.replace(CONFIG_MAPS, made, "default")
    assert watcher.next(1) == [("DELETED", "a")]
    assert watcher.names() == []


def test_an_own_write_can_be_waited_for(api, watching):
    watcher = watching()
    version = api.put("a")["metadata"]["resourceVersion"]
    assert watcher.informer.wait_version(version, 60)
    assert watcher.names() == ["a"]
    assert not watcher.informer.wait_version(str(int(version) + 1), 0.02)


def test_the_version_of_the_list_counts_as_seen(api, watching):
    version = api.put("a")["metadata"]["resourceVersion"]
    assert watching().informer.wait_version(version, 0)


def test_nothing_is_synced_before_the_first_list(api, monkeypatch):
    lists = Held(api, monkeypatch, "list")
    watcher = Watcher(api)
    assert lists.asked.wait(60)
    assert not watcher.informer.wait_synced(0.02)
    assert watcher.names() == []
    lists.go_on.set()
    assert watcher.informer.wait_synced(60)
    watcher.informer.stop()


def test_a_bookmark_is_seen_and_not_told(tmp_path):
    api = served_api.ServedApi(tmp_path, bookmark_seconds=0.02)
    watcher = Watcher(api, namespace="default")
    assert watcher.informer.wait_synced(60)
    elsewhere = api.put("a", "kube-system")["metadata"]["resourceVersion"]
    assert watcher.informer.wait_version(elsewhere, 60)
    assert watcher.changes.empty()
    watcher.informer.stop()
    api.close()


# What goes wrong


def test_a_watch_that_ends_goes_on_where_it_stopped(api, watching, monkeypatch):
    monkeypatch.setattr(kube, "WATCH_TIMEOUT", 1)
    api.put("a")
    watcher = watching()
    polling.until(lambda: api.count("watch") >= 2)
    api.put("b")
    assert watcher.next(2) == [("ADDED", "a"), ("ADDED", "b")]
    assert api.count("list") == 1
    assert watcher.changes.empty()
    assert watcher.errors.empty()


def test_a_version_that_is_gone_is_met_with_a_new_list_and_the_differences(
    api, watching, monkeypatch
):
    for name in ("a", "b", "c"):
        api.put(name)
    watcher = watching()
    watcher.next(3)
    polling.until(lambda: api.store.watch_count() == 1)
    # The watch ends, and before the next one the history is compacted.
    watches = Held(api, monkeypatch, "watch")
    api.fail(options.Fault(status=410, reason="Expired"), verb="watch")
    _end_watches(api)
    assert watches.asked.wait(60)
    api.put("b", k="new")
    api.remove("a")
    api.remove("c")
    api.put("c")
    api.put("d")
    watches.go_on.set()
    # "c" was made again under its name: to whoever listens it is another object.
    assert watcher.next(5) == [
        ("DELETED", "a"), ("DELETED", "c"), ("MODIFIED", "b"), ("ADDED", "c"), ("ADDED", "d"),
    ]  # fmt: skip
    assert watcher.names() == ["b", "c", "d"]
    api.put("e")
    assert watcher.next(1) == [("ADDED", "e")]
    assert watcher.errors.empty()


def test_410_alone_is_no_error_and_told_to_nobody(api, watching):
    api.fail(options.Fault(status=410, reason="Expired"), verb="watch")
    watcher = watching()
    api.put("a")
    assert watcher.next(1) == [("ADDED", "a")]
    polling.until(lambda: api.count("list") == 2)
    assert watcher.errors.empty()


def test_a_history_that_is_forgotten_is_met_with_a_new_list(api, watching, monkeypatch):
    watcher = watching(namespace="default")
    polling.until(lambda: api.store.watch_count() == 1)
    watches = Held(api, monkeypatch, "watch")
    _end_watches(api)
    assert watches.asked.wait(60)
    api.put("a")
    api.store.forget()
    watches.go_on.set()
    assert watcher.next(1) == [("ADDED", "a")]
    assert api.count("list") == 2
    assert watcher.errors.empty()


@pytest.mark.parametrize(
    "fault",
    [
        options.Fault(status=500), options.Fault(status=429, retry_after=1),
        options.Fault(status=403), options.Fault(drop="before"), options.Fault(drop="after"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_server_that_fails_is_told_of_and_asked_again(api, monkeypatch, fault, verb):
    monkeypatch.setattr(informer, "FIRST_BACKOFF", 0.02)
    api.put("a")
    # A read whose connection drops is repeated by the client itself, once.
    api.fail(fault, fault, verb=verb)
    watcher = Watcher(api)
    assert isinstance(watcher.errors.get(timeout=60), errors.DriverError)
    assert watcher.next(1) == [("ADDED", "a")]
    api.put("b")
    assert watcher.next(1) == [("ADDED", "b")]
    watcher.informer.stop()


def test_a_server_that_comes_back_empty_on_its_port_is_read_anew(api, watching):
    api.put("a")
    api.put("b")
    watcher = watching()
    watcher.next(2)
    api.stop()
    assert isinstance(watcher.errors.get(timeout=60), kube.Unavailable)
    assert watcher.names() == ["a", "b"]
    api.start()
    made = api.put("b", k="new")
    polling.until(lambda: watcher.informer.get("b", "default") == made)
    assert watcher.names() == ["b"]
    told = []
    while told[-1:] != [("DELETED", "a")]:
        told += watcher.next(1)
    api.put("c")
    polling.until(lambda: "c" in watcher.names())


def test_a_server_that_is_away_from_the_start_is_waited_for(api):
    api.stop()
    watcher = Watcher(api)
    assert isinstance(watcher.errors.get(timeout=60), kube.Unavailable)
    assert not watcher.informer.wait_synced(0)
    api.start()
    assert watcher.informer.wait_synced(60)
    watcher.informer.stop()


def stumbling(api):
    """An informer whose `on_change` fails at "bad"; what it was told, and what failed."""
    told, problems = queue.SimpleQueue(), queue.SimpleQueue()

    def handle(kind, item):
        if item["metadata"]["name"] == "bad":
            raise KeyError("spec")
        told.put((kind, item["metadata"]["name"]))

    made = informer.Informer(api.client, CONFIG_MAPS, on_change=handle, on_error=problems.put)
    made.start()
    return made, told, problems


def test_a_change_that_cannot_be_handled_is_told_and_the_next_ones_still_come(api, monkeypatch):
    monkeypatch.setattr(informer, "FIRST_BACKOFF", 0.02)
    made, told, problems = stumbling(api)
    assert made.wait_synced(60)
    api.put("bad")
    assert str(problems.get(timeout=60)) == "failed unexpectedly: KeyError: 'spec'"
    api.put("good")
    assert told.get(timeout=60) == ("ADDED", "good")
    assert [item["metadata"]["name"] for item in made.objects()] == ["bad", "good"]
    made.stop()


def test_one_of_a_list_that_cannot_be_handled_does_not_keep_the_others_back(api):
    for name in ("first", "bad", "last"):
        api.put(name)
    made, told, problems = stumbling(api)
    assert str(problems.get(timeout=60)) == "failed unexpectedly: KeyError: 'spec'"
    assert [told.get(timeout=60) for _ in range(2)] == [("ADDED", "first"), ("ADDED", "last")]
    assert made.wait_synced(60)
    made.stop()


# Stop


def test_stop_returns_at_once_while_the_watch_is_idle(api):
    watcher = Watcher(api)
    polling.until(lambda: api.store.watch_count() == 1)
    watcher.informer.stop()
    assert not watcher.informer.is_alive
    polling.until(lambda: api.store.watch_count() == 0)


def test_stop_returns_at_once_while_the_server_is_away(api):
    api.stop()
    watcher = Watcher(api)
    watcher.errors.get(timeout=60)
    watcher.informer.stop()
    assert not watcher.informer.is_alive


def test_stop_is_fine_before_start_and_twice_and_from_within(api):
    informer.Informer(api.client, CONFIG_MAPS).stop()
    stopped = threading.Event()

    def stop(*_):
        made.stop()
        stopped.set()

    made = informer.Informer(api.client, CONFIG_MAPS, on_change=stop)
    made.start()
    api.put("a")
    assert stopped.wait(60)
    made.stop()
    assert not made.is_alive


def _end_watches(api):
    """End the watches that are open, as a server does after their time."""
    with api.store.lock:
        for watches in api.store._watches.values():
            for watch in watches:
                watch.end()
