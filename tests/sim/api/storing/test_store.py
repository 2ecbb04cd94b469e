import threading

import hypothesis
import pytest
from hypothesis import strategies as st

from dra_driver.sim.api.storing import store

RESOURCE = "things"


def body(name, value=0, owners=()):
    references = [{"uid": uid} for uid in owners]
    return {"metadata": {"name": name, "ownerReferences": references}, "value": value}


def watch(objects, since=None):
    return objects.watch(RESOURCE, since=since, wake=lambda: None)


def taken(objects, reader):
    with objects.lock:
        return reader.take()


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["put", "remove"]), st.sampled_from("abc"), st.integers(0, 9)),
    max_size=30,
)


def run(objects, operations):
    """Carries the operations out; what there is after each, by version."""
    states = {objects.version: {}}
    for kind, name, value in operations:
        if kind == "put":
            objects.put(RESOURCE, body(name, value))
        elif objects.get(RESOURCE, ("", name)) is not None:
            objects.remove(RESOURCE, ("", name))
        else:
            continue
        states[objects.version] = {
            item["metadata"]["name"]: item for item in objects.items(RESOURCE)
        }
    return states


@hypothesis.given(OPERATIONS)
def test_the_changes_after_any_version_lead_from_its_list_to_the_last(operations):
    objects = store.Store(history=100)
    states = run(objects, operations)

    for version, state in states.items():
        replayed = dict(state)
        for change in taken(objects, watch(objects, since=version)):
            name = change.body["metadata"]["name"]
            if change.type == store.DELETED:
                del replayed[name]
            else:
                assert (name in replayed) == (change.type == store.MODIFIED)
                replayed[name] = change.body
        assert replayed == states[objects.version]


@hypothesis.given(OPERATIONS)
def test_versions_rise_with_every_change(operations):
    objects = store.Store(history=100)
    run(objects, operations)

    changes = taken(objects, watch(objects, since=1))

    versions = [change.version for change in changes]
    assert versions == sorted(set(versions))
    assert [change.body["metadata"]["resourceVersion"] for change in changes] == [
        str(version) for version in versions
    ]


@hypothesis.given(OPERATIONS, st.integers(1, 5))
def test_a_bounded_history_is_whole_or_refused(operations, history):
    objects = store.Store(history=history)
    states = run(objects, operations)
    complete = list(states)

    for index, version in enumerate(complete):
        missed = len(complete) - 1 - index
        if missed > history:
            with pytest.raises(store.TooOldError):
                watch(objects, since=version)
        else:
            assert len(taken(objects, watch(objects, since=version))) == missed


def test_an_object_that_was_read_does_not_change():
    objects = store.Store(history=10)
    first = objects.put(RESOURCE, body("a", 1))
    objects.put(RESOURCE, body("a", 2))

    assert first["value"] == 1


def test_a_reader_that_falls_behind_is_cut_off():
    objects = store.Store(history=10)
    reader = watch(objects)
    for value in range(1001):
        objects.put(RESOURCE, body("a", value))

    assert reader.ended
    assert len(taken(objects, reader)) == 1000


def test_readers_are_woken_by_writers_in_other_threads():
    objects = store.Store(history=2000)
    woken = threading.Event()
    reader = objects.watch(RESOURCE, since=None, wake=woken.set)

    def write(name):
        for value in range(100):
            objects.put(RESOURCE, body(name, value))

    writers = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for writer in writers:
        writer.start()
    seen = []
    while len(seen) < 400:
        assert woken.wait(60)
        woken.clear()
        seen += taken(objects, reader)
    for writer in writers:
        writer.join()

    versions = [change.version for change in seen]
    assert versions == sorted(set(versions))


def test_a_store_that_is_closed_ends_watches_that_come_later():
    objects = store.Store(history=10)
    objects.close()

    assert watch(objects).ended


def test_dependents_are_found_by_the_uid_of_their_owner():
    objects = store.Store(history=10)
    objects.put(RESOURCE, body("a", owners=["u1"]))
    objects.put(RESOURCE, body("b", owners=["u1", "u2"]))
    objects.put(RESOURCE, body("c", owners=["u2"]))
    before = objects.dependents("u1")
    objects.put(RESOURCE, body("a"))
    objects.remove(RESOURCE, ("", "c"))

    assert before == [(RESOURCE, ("", "a")), (RESOURCE, ("", "b"))]
    assert objects.dependents("u1") == objects.dependents("u2") == [(RESOURCE, ("", "b"))]
    assert objects.dependents("nobody") == []
