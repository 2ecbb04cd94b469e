"""Another order of devices, and what readers see of any change."""

import copy

import pooled
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.offering import publishing


def test_reordering_devices_in_several_slices_writes_those_and_no_new_generation():
    server = pooled.Server(
        pooled.stored("00000-a", pooled.content(0, 1), generation=4, count=3),
        pooled.stored("00001-b", pooled.content(2, 3), generation=4, count=3),
        pooled.stored("00002-c", pooled.content(4, 5), generation=4, count=3),
    )
    assert server.reconcile([pooled.content(1, 0), pooled.content(2, 3), pooled.content(5, 4)]) == (
        [], ["00000-a", "00002-c"], [],
    )  # fmt: skip
    assert server.pool() == [
        (4, 3, ["gpu-1", "gpu-0"]), (4, 3, ["gpu-2", "gpu-3"]), (4, 3, ["gpu-5", "gpu-4"]),
    ]  # fmt: skip


OTHERS_THAN_AN_ORDER = {
    "a device that moves to another slice": [pooled.content(2, 0), pooled.content(1, 3)],
    "a device more in one": [pooled.content(1, 0), pooled.content(3, 2, 6)],
    "a device less in one": [pooled.content(1, 0), pooled.content(3)],
    "a device that has changed": [
        pooled.content(1, 0),
        {"devices": [{"name": "gpu-3", "attributes": {"x": {"int": 1}}}, {"name": "gpu-2"}]},
    ],
    "counters that come in": [
        pooled.content(1, 0), pooled.content(3, 2) | {"sharedCounters": [{"name": "x"}]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("desired", OTHERS_THAN_AN_ORDER.values(), ids=OTHERS_THAN_AN_ORDER)
def test_more_than_another_order_in_two_slices_raises_the_generation(desired):
    server = pooled.Server(
        pooled.stored("00000-a", pooled.content(0, 1), generation=4, count=2),
        pooled.stored("00001-b", pooled.content(2, 3), generation=4, count=2),
    )
    assert server.reconcile(desired) == ([], ["00000-a", "00001-b"], [])
    assert {generation for generation, _, _ in server.pool()} == {5}


def test_taints_in_several_slices_are_written_to_those_and_no_new_generation():
    server = pooled.Server(
        pooled.stored("00000-a", pooled.content(0, 1), generation=4, count=3),
        pooled.stored("00001-b", pooled.content(2, 3), generation=4, count=3),
        pooled.stored("00002-c", pooled.content(4, 5), generation=4, count=3),
    )
    before = server.pool()
    wanted = [
        {"devices": [pooled.tainted(0, pooled.TAINT), {"name": "gpu-1"}]},
        pooled.content(2, 3),
        {"devices": [{"name": "gpu-4"}, pooled.tainted(5, pooled.TAINT)]},
    ]
    changes = publishing.reconcile(pooled.OWNER, wanted, server.existing())
    assert not changes.tears
    assert server.reconcile(wanted) == ([], ["00000-a", "00002-c"], [])
    assert server.pool() == before
    assert server.reconcile([pooled.content(*two) for two in ((0, 1), (2, 3), (4, 5))]) == (
        [], ["00000-a", "00002-c"], [],
    )  # fmt: skip
    assert server.reconcile([pooled.content(*two) for two in ((0, 1), (2, 3), (4, 5))]) == (
        [], [], [],
    )  # fmt: skip


def test_an_order_and_a_wrong_slice_count_in_two_slices_raise_the_generation():
    server = pooled.Server(
        pooled.stored("00000-a", pooled.content(0, 1), generation=4, count=3),
        pooled.stored("00001-b", pooled.content(2, 3), generation=4, count=3),
    )
    server.reconcile([pooled.content(1, 0), pooled.content(3, 2)])
    assert server.pool() == [(5, 2, ["gpu-1", "gpu-0"]), (5, 2, ["gpu-3", "gpu-2"])]


# Whatever was there before

PLAIN = st.lists(st.integers(0, 6), max_size=3).map(lambda numbers: pooled.content(*numbers))
COUNTERS = st.integers(0, 2).map(
    lambda n: {"sharedCounters": [{"name": f"set-{n}", "counters": {"memory": {"value": "1"}}}]}
)


def taints(*times):
    """Contents all of whose devices have a taint, maybe with a time."""
    with_times = st.sampled_from([pooled.TAINT | ({"timeAdded": t} if t else {}) for t in times])
    tainted = st.builds(pooled.tainted, st.integers(0, 6), with_times)
    return st.lists(tainted, min_size=1, max_size=3).map(lambda found: {"devices": found})


DESIRED = st.lists(PLAIN | COUNTERS | taints(None), min_size=1, max_size=4)
STORED = st.builds(
    pooled.stored,
    st.from_regex(r"0000[0-5]-[a-z]{1,3}|0{6}-[a-z]|[a-z]{1,8}-[a-z]", fullmatch=True),
    PLAIN | COUNTERS | taints(pooled.TIME),
    generation=st.integers(0, 4),
    count=st.integers(1, 4),
    pool=st.sampled_from(["node-1", "node-1", "node-1", "elsewhere"]),
)


@given(DESIRED, st.lists(STORED, max_size=6, unique_by=lambda body: body["metadata"]["name"]))
def test_from_any_start_one_pass_publishes_exactly_what_is_wanted_and_the_next_writes_nothing(
    desired, start
):
    server = pooled.Server(*start)
    before = max(
        (
            body["spec"]["pool"]["generation"]
            for body in start
            if body["spec"]["pool"]["name"] == "node-1"
        ),
        default=0,
    )
    written = server.reconcile(desired)
    pools = [body["spec"]["pool"] for body in server.existing()]
    assert {pool["name"] for pool in pools} == {"node-1"}
    assert {pool["resourceSliceCount"] for pool in pools} == {len(desired)} == {len(pools)}
    assert len({pool["generation"] for pool in pools}) == 1
    assert pools[0]["generation"] >= before
    assert pools[0]["generation"] > before or not (written[1] and written[2])
    published = [_offered(body["spec"]) for body in server.existing()]
    assert published == desired
    assert server.reconcile(desired) == ([], [], [])


@given(st.lists(DESIRED, min_size=2, max_size=4))
def test_whatever_is_wanted_after_whatever_is_published_just_so(history):
    server = pooled.Server(gives_times=True)
    for desired in history:
        server.reconcile(desired)
        assert [_offered(body["spec"]) for body in server.existing()] == desired
        assert server.reconcile(desired) == ([], [], [])


def _offered(spec):
    """What a slice offers, without the times that are kept; a field that is empty is there."""
    found = copy.deepcopy({key: spec[key] for key in ("devices", "sharedCounters") if key in spec})
    for device in found.get("devices", ()):
        for taint in device.get("taints", ()):
            taint.pop("timeAdded", None)
    return found


@given(st.lists(DESIRED, min_size=2, max_size=3), st.data())
def test_readers_never_see_a_mixture_as_a_whole_pool_whatever_breaks_off_or_is_deleted(
    history, data
):
    server = pooled.Server()
    server.reconcile(history[0])
    seen = [_complete(server)]
    for desired in history[1:]:
        names = sorted(server.slices)
        for name in data.draw(st.lists(st.sampled_from(names or [""]), unique=True)):
            # Somebody else deletes it.
            server.slices.pop(name, None)
            seen.append(_complete(server))
        writes = _writes(publishing.reconcile(pooled.OWNER, desired, server.existing()))
        done = data.draw(st.integers(0, len(writes)), "writes that are carried out")
        _carry_out(server, writes[:done], seen)
    _carry_out(
        server, _writes(publishing.reconcile(pooled.OWNER, history[-1], server.existing())), seen
    )
    assert _complete(server) == history[-1]
    allowed = [_unordered(desired) for desired in history]
    assert all(one is None or _unordered(one) in allowed for one in seen)


def _writes(changes):
    """One after another, each as changes of its own."""
    return [
        publishing.Changes(**{kind: (body,) if kind == part else () for kind in _PARTS})
        for part in _PARTS
        for body in getattr(changes, part)
    ]


def _carry_out(server, writes, seen):
    for one in writes:
        server.apply(one)
        seen.append(_complete(server))


_PARTS = ("delete", "update", "create")


def _unordered(published):
    """Slice by slice, for an order alone may change in the middle of a generation."""
    return [
        (
            sorted(str(item) for item in body.get("devices", ())),
            body.get("sharedCounters"),
        )
        for body in published
    ]


def _complete(server):
    """What the pool offers as a scheduler reads it; None while the pool is incomplete."""
    pools = [body["spec"]["pool"] for body in server.existing()]
    newest = max((pool["generation"] for pool in pools), default=0)
    current = [body for body in server.existing() if body["spec"]["pool"]["generation"] == newest]
    if not current or len(current) != current[0]["spec"]["pool"]["resourceSliceCount"]:
        return None
    return [_offered(body["spec"]) for body in current]
