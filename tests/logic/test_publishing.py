import copy
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic import publishing
from dra_driver.model import quantities, slices

OWNER = publishing.Owner("gpu.nvidia.com", "node-1", "node-uid-1")
TAINT = {"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}


def device(number, **extra):
    return slices.Device(
        f"gpu-{number}", {"minor": number}, {"memory": quantities.parse("80Gi")}, extra
    )


def devices(count, **extra):
    return [device(number, **extra) for number in range(count)]


def content(*numbers):
    """The desired content of a slice with these devices."""
    return {"devices": [{"name": f"gpu-{n}"} for n in numbers]} if numbers else {}


class Server:
    """Stores slices as the API does; counts what it was asked for."""

    def __init__(self, *bodies):
        self._names = itertools.count()
        self.slices = {}
        for body in bodies:
            self.put(copy.deepcopy(body))

    def put(self, body):
        metadata = body["metadata"]
        metadata.setdefault("name", f"{metadata.get('generateName')}{next(self._names):05d}")
        metadata["resourceVersion"] = str(next(self._names))
        self.slices[metadata["name"]] = body

    def existing(self):
        return [self.slices[name] for name in sorted(self.slices)]

    def apply(self, changes):
        for body in changes.delete:
            assert self.slices[body["metadata"]["name"]] == body
            del self.slices[body["metadata"]["name"]]
        for body in changes.update:
            assert body["metadata"] == self.slices[body["metadata"]["name"]]["metadata"]
            self.put(copy.deepcopy(body))
        for body in changes.create:
            assert "name" not in body["metadata"]
            self.put(copy.deepcopy(body))

    def reconcile(self, desired, accepted=None):
        before = copy.deepcopy(self.existing())
        changes = publishing.reconcile(OWNER, desired, self.existing(), accepted or {})
        assert self.existing() == before
        self.apply(changes)
        return tuple(
            [body["metadata"].get("name") or body["metadata"]["generateName"] for body in part]
            for part in (changes.delete, changes.update, changes.create)
        )

    def pool(self):
        """(generation, count, device names) of each slice."""
        return [
            (
                body["spec"]["pool"]["generation"],
                body["spec"]["pool"]["resourceSliceCount"],
                [item["name"] for item in body["spec"].get("devices", ())],
            )
            for body in self.existing()
        ]


def stored(name, body, *, generation=1, count=1, pool="node-1"):
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": "node-1",
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"},
        "spec": spec | copy.deepcopy(body),
    }


PREFIX = "00000-gpu.nvidia.com-node-1-"


def test_the_first_publication_has_generation_1_and_belongs_to_the_node():
    changes = publishing.reconcile(OWNER, [content(0, 1)], [])
    assert changes == publishing.Changes(
        delete=(),
        update=(),
        create=(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {
                    "generateName": "00000-gpu.nvidia.com-node-1-",
                    "ownerReferences": [
                        {
                            "apiVersion": "v1",
                            "kind": "Node",
                            "name": "node-1",
                            "uid": "node-uid-1",
                            "controller": True,
                        }
                    ],
                },
                "spec": {
                    "driver": "gpu.nvidia.com",
                    "nodeName": "node-1",
                    "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
                },
            },
        ),
    )
    assert changes


def test_the_longest_node_name_leaves_a_slice_name_that_the_server_takes():
    long = "n" * 159 + "." + "n" * 93
    owner = publishing.Owner("d" * 63, long, "uid")
    (body,) = publishing.reconcile(owner, [content(0)], []).create
    assert body["metadata"]["generateName"] == f"00000-{'d' * 63}-{'n' * 159}-"
    assert len(body["metadata"]["generateName"]) + 5 <= 253
    assert body["spec"]["nodeName"] == long


def test_slices_are_named_by_their_hexadecimal_index():
    changes = publishing.reconcile(OWNER, [content(n) for n in range(17)], [])
    names = [body["metadata"]["generateName"] for body in changes.create]
    assert names[9:12] + names[16:] == [
        "00009-gpu.nvidia.com-node-1-", "0000a-gpu.nvidia.com-node-1-",
        "0000b-gpu.nvidia.com-node-1-", "00010-gpu.nvidia.com-node-1-",
    ]  # fmt: skip
    assert {body["spec"]["pool"]["resourceSliceCount"] for body in changes.create} == {17}


def test_what_is_unchanged_is_not_written():
    server = Server()
    server.reconcile([content(0, 1), content(2)])
    assert server.reconcile([content(0, 1), content(2)]) == ([], [], [])
    assert not publishing.reconcile(OWNER, [content(0, 1), content(2)], server.existing())


def test_one_changed_slice_is_replaced_under_the_same_generation():
    server = Server(
        stored(f"{PREFIX}a", content(0, 1), generation=4, count=2),
        stored("00001-x", content(2), generation=4, count=2),
    )
    assert server.reconcile([content(0, 1), content(2, 3)]) == ([], ["00001-x"], [])
    assert server.pool() == [(4, 2, ["gpu-0", "gpu-1"]), (4, 2, ["gpu-2", "gpu-3"])]


def test_a_pool_of_generation_0_is_not_torn_apart_by_one_update():
    server = Server(
        stored("00000-a", content(0), generation=0, count=2),
        stored("00001-b", content(1), generation=0, count=2),
    )
    assert server.reconcile([content(0), content(7)]) == ([], ["00001-b"], [])
    assert server.pool() == [(0, 2, ["gpu-0"]), (0, 2, ["gpu-7"])]


def test_an_update_keeps_the_identity_and_replaces_the_spec():
    body = stored(f"{PREFIX}a", content(0), generation=4)
    (update,) = publishing.reconcile(OWNER, [content(1)], [body]).update
    assert update["metadata"] == body["metadata"]
    assert update["spec"] == body["spec"] | {"devices": [{"name": "gpu-1"}]}


def test_the_order_of_devices_is_content():
    server = Server(stored(f"{PREFIX}a", content(0, 1)))
    assert server.reconcile([content(1, 0)]) == ([], [f"{PREFIX}a"], [])


def test_two_changed_slices_raise_the_generation_in_all():
    server = Server(
        stored("00000-a", content(0), generation=4, count=3),
        stored("00001-b", content(1), generation=4, count=3),
        stored("00002-c", content(2), generation=4, count=3),
    )
    assert server.reconcile([content(5), content(1), content(7)]) == (
        [], ["00000-a", "00001-b", "00002-c"], [],
    )  # fmt: skip
    assert server.pool() == [(5, 3, ["gpu-5"]), (5, 3, ["gpu-1"]), (5, 3, ["gpu-7"])]


def test_a_missing_slice_is_made_anew_and_raises_the_generation_in_all():
    server = Server(
        stored("00000-a", content(0), generation=4, count=3),
        stored("00002-c", content(2), generation=4, count=3),
    )
    assert server.reconcile([content(0), content(1), content(2)]) == (
        [], ["00000-a", "00002-c"], ["00001-gpu.nvidia.com-node-1-"],
    )  # fmt: skip
    assert server.pool() == [(5, 3, ["gpu-0"]), (5, 3, ["gpu-1"]), (5, 3, ["gpu-2"])]


def test_growing_by_a_slice_raises_generation_and_count_in_all():
    server = Server(stored("00000-a", content(0), generation=7))
    assert server.reconcile([content(0), content(1)]) == (
        [], ["00000-a"], ["00001-gpu.nvidia.com-node-1-"],
    )  # fmt: skip
    assert server.pool() == [(8, 2, ["gpu-0"]), (8, 2, ["gpu-1"])]


def test_shrinking_to_one_slice_keeps_the_generation():
    server = Server(
        stored("00000-a", content(0), generation=4, count=2),
        stored("00001-b", content(1), generation=4, count=2),
    )
    assert server.reconcile([content(0)]) == (["00001-b"], ["00000-a"], [])
    assert server.pool() == [(4, 1, ["gpu-0"])]


def test_shrinking_to_two_slices_changes_two_counts_and_so_raises_the_generation():
    server = Server(*(stored(f"0000{n}-x", content(n), generation=4, count=3) for n in range(3)))
    assert server.reconcile([content(0), content(1)]) == (
        ["00002-x"], ["00000-x", "00001-x"], [],
    )  # fmt: skip
    assert server.pool() == [(5, 2, ["gpu-0"]), (5, 2, ["gpu-1"])]


def test_a_wrong_slice_count_is_corrected():
    server = Server(stored("00000-a", content(0), generation=4, count=2))
    assert server.reconcile([content(0)]) == ([], ["00000-a"], [])
    assert server.pool() == [(4, 1, ["gpu-0"])]


OBSOLETE = {
    "of a lower generation": stored("00001-old", content(1), generation=3, count=2),
    "whose name has no index": stored("node-1-gpu.nvidia.com-x7k2p", content(1), generation=4),
    "whose index has too few digits": stored("0001-x", content(1), generation=4, count=2),
    "whose index is taken": stored("00000-b", content(0), generation=4, count=2),
    "whose index is out of range": stored("00002-x", content(2), generation=4, count=2),
    "of another pool": stored("00001-x", content(1), generation=4, count=2, pool="elsewhere"),
    "of another pool and a higher generation": stored(
        "00001-x", content(1), generation=9, count=2, pool="elsewhere"
    ),
}


@pytest.mark.parametrize("body", OBSOLETE.values(), ids=OBSOLETE)
def test_a_slice_that_serves_no_longer_is_deleted_first(body):
    current = [
        stored("00000-a", content(0), generation=4, count=2),
        stored("00001-z", content(1), generation=4, count=2),
    ]
    server = Server(*current, body)
    assert server.reconcile([content(0), content(1)]) == ([body["metadata"]["name"]], [], [])
    assert server.pool() == [(4, 2, ["gpu-0"]), (4, 2, ["gpu-1"])]


def test_slices_of_which_only_another_pool_exists_are_deleted_and_made_anew():
    server = Server(stored("00000-a", content(0), generation=9, pool="elsewhere"))
    assert server.reconcile([content(0)]) == (["00000-a"], [], [PREFIX])
    assert server.pool() == [(1, 1, ["gpu-0"])]


def test_the_generation_rises_above_that_of_deleted_slices_too():
    server = Server(stored("no-index", content(0), generation=9))
    assert server.reconcile([content(0)]) == (["no-index"], [], [PREFIX])
    assert server.pool() == [(10, 1, ["gpu-0"])]


def test_a_pool_without_devices_is_one_empty_slice():
    assert publishing.contents([]) == ({},)
    server = Server()
    server.reconcile(publishing.contents([]))
    assert server.pool() == [(1, 1, [])]
    assert "devices" not in server.existing()[0]["spec"]
    assert server.reconcile(publishing.contents([])) == ([], [], [])


def test_an_empty_slice_is_the_same_with_an_empty_list_of_devices():
    server = Server(stored(f"{PREFIX}a", {"devices": []}))
    assert server.reconcile([{}]) == ([], [], [])


@pytest.mark.parametrize(
    ("count", "extra", "sizes"),
    [
        (128, {}, [128]),
        (129, {}, [128, 1]),
        (64, {"taints": [TAINT]}, [64]),
        (65, {"taints": [TAINT]}, [64, 1]),
        (65, {"consumesCounters": [{"counterSet": "x"}]}, [64, 1]),
        (65, {"taints": []}, [65]),
    ],
)
def test_a_slice_has_at_most_128_devices_or_64_with_taints_or_counters(count, extra, sizes):
    chunks = publishing.contents(devices(count, **extra))
    assert [len(chunk["devices"]) for chunk in chunks] == sizes
    names = [item["name"] for chunk in chunks for item in chunk["devices"]]
    assert names == [f"gpu-{number}" for number in range(count)]


def test_one_tainted_device_makes_all_slices_smaller():
    chunks = publishing.contents([*devices(69), device(69, taints=[TAINT])])
    assert [len(chunk["devices"]) for chunk in chunks] == [64, 6]


def test_contents_are_the_wire_form_of_the_devices():
    assert publishing.contents([device(0, taints=[TAINT])]) == (
        {
            "devices": [
                {
                    "name": "gpu-0",
                    "attributes": {"minor": {"int": 0}},
                    "capacity": {"memory": {"value": "80Gi"}},
                    "taints": [TAINT],
                }
            ]
        },
    )


# Times of taints


def tainted(number, *taints):
    return {"name": f"gpu-{number}", "taints": [dict(taint) for taint in taints]}


TIME = "2026-07-01T12:00:00Z"


def test_a_taint_without_a_time_equals_the_same_taint_with_one():
    server = Server(stored(f"{PREFIX}a", {"devices": [tainted(0, TAINT | {"timeAdded": TIME})]}))
    assert server.reconcile([{"devices": [tainted(0, TAINT)]}]) == ([], [], [])


def test_an_update_for_another_reason_keeps_the_times_of_taints():
    before = {"devices": [tainted(0, TAINT | {"timeAdded": TIME}), {"name": "gpu-1"}]}
    server = Server(stored(f"{PREFIX}a", before))
    server.reconcile([{"devices": [tainted(0, TAINT), tainted(1, TAINT)]}])
    assert server.existing()[0]["spec"]["devices"] == [
        tainted(0, TAINT | {"timeAdded": TIME}), tainted(1, TAINT),
    ]  # fmt: skip


@pytest.mark.parametrize("change", [{"key": "k"}, {"value": "v"}, {"effect": "NoExecute"}])
def test_another_taint_gets_a_time_of_its_own(change):
    before = {"devices": [tainted(0, TAINT | {"timeAdded": TIME})]}
    wanted = {"devices": [tainted(0, TAINT | change)]}
    assert publishing.keep_times(wanted, before) == wanted
    server = Server(stored(f"{PREFIX}a", before))
    assert server.reconcile([wanted]) == ([], [f"{PREFIX}a"], [])


def test_a_time_that_is_wanted_is_published():
    before = {"devices": [tainted(0, TAINT | {"timeAdded": TIME})]}
    wanted = {"devices": [tainted(0, TAINT | {"timeAdded": "2026-07-02T12:00:00Z"})]}
    assert publishing.keep_times(wanted, before) == wanted


def test_a_taint_that_is_gone_is_gone():
    before = {"devices": [tainted(0, TAINT | {"timeAdded": TIME})]}
    wanted = {"devices": [{"name": "gpu-0"}]}
    assert publishing.keep_times(wanted, before) == wanted


# What the server drops


def test_fields_that_did_not_come_back_are_named_by_path_each_once():
    sent = {
        "devices": [tainted(0, TAINT) | {"a": {"b": 1}}, tainted(1, TAINT)],
        "sharedCounters": [{"name": "x"}],
        "same": 1,
    }
    got = {"devices": [{"name": "gpu-0", "a": {}}, {"name": "gpu-1"}], "same": 2, "more": 3}
    assert publishing.dropped(sent, got) == (
        "devices[].taints", "devices[].a.b", "sharedCounters",
    )  # fmt: skip


def test_nothing_is_dropped_where_the_server_only_adds_and_rewrites():
    sent = {"devices": [tainted(0, TAINT)], "pool": {"name": "p"}}
    got = {"devices": [tainted(0, TAINT | {"timeAdded": TIME})], "pool": {"name": "p"}, "x": {}}
    assert publishing.dropped(sent, got) == ()
    assert publishing.dropped(sent, sent) == ()


def test_an_object_that_came_back_as_something_else_is_dropped_in_full():
    assert publishing.dropped({"a": {"b": 1, "c": 2}}, {"a": None}) == ("a.b", "a.c")


def test_content_that_the_server_cut_is_accepted_and_does_not_loop():
    desired = [{"devices": [tainted(0, TAINT)]}]
    server = Server(stored(f"{PREFIX}a", {"devices": [{"name": "gpu-0"}]}))
    assert server.reconcile(desired) != ([], [], [])
    cut = server.existing()[0]
    del cut["spec"]["devices"][0]["taints"]
    accepted = {publishing.fingerprint(desired[0]): cut["spec"]}
    assert server.reconcile(desired, accepted) == ([], [], [])
    other = [{"devices": [tainted(1, TAINT)]}]
    assert server.reconcile(other, accepted) == ([], [f"{PREFIX}a"], [])


def test_accepted_content_does_not_excuse_other_content():
    desired = [{"devices": [tainted(0, TAINT)]}]
    accepted = {publishing.fingerprint(desired[0]): content(0)}
    server = Server(stored(f"{PREFIX}a", content(0, 1)))
    assert server.reconcile(desired, accepted) == ([], [f"{PREFIX}a"], [])


def test_a_counter_slice_that_came_back_empty_is_accepted():
    desired = [content(0), {"sharedCounters": [{"name": "gpu-0", "counters": {}}]}]
    accepted = {publishing.fingerprint(desired[1]): {}}
    server = Server(stored("00000-a", content(0), count=2), stored("00001-b", {}, count=2))
    assert server.reconcile(desired, accepted) == ([], [], [])
    assert server.reconcile(desired)[1] == ["00001-b"]


def test_the_fingerprint_is_of_the_content_alone():
    one = {"pool": {"generation": 1}, "devices": [{"name": "a", "x": 1}]}
    other = {"devices": [{"x": 1, "name": "a"}], "pool": {"generation": 2}}
    assert publishing.fingerprint(one) == publishing.fingerprint(other)
    assert publishing.fingerprint(one) != publishing.fingerprint({"devices": [{"name": "a"}]})
    assert publishing.fingerprint({}) == publishing.fingerprint({"devices": []})


# API versions

BODY = stored(f"{PREFIX}a", {"devices": [tainted(0, TAINT) | {"attributes": {}}, {"name": "b"}]})


def test_v1beta1_wraps_each_device_in_basic():
    body = publishing.to_version(BODY, "v1beta1")
    assert body["apiVersion"] == "resource.k8s.io/v1beta1"
    assert body["metadata"] == BODY["metadata"]
    assert body["spec"] == BODY["spec"] | {
        "devices": [
            {"name": "gpu-0", "basic": {"taints": [TAINT], "attributes": {}}},
            {"name": "b", "basic": {}},
        ]
    }


@pytest.mark.parametrize("version", publishing.API_VERSIONS)
@pytest.mark.parametrize("body", [BODY, stored("x", {}), stored("x", {"devices": []})])
def test_a_slice_survives_the_way_through_every_version(version, body):
    converted = publishing.to_version(body, version)
    assert converted["apiVersion"] == f"resource.k8s.io/{version}"
    assert publishing.from_version(converted, version) == body


def test_a_device_of_v1beta1_without_basic_has_a_name():
    body = BODY | {"spec": BODY["spec"] | {"devices": [{"name": "a"}]}}
    assert publishing.from_version(body, "v1beta1")["spec"]["devices"] == [{"name": "a"}]


def test_versions_are_tried_newest_first():
    assert publishing.API_VERSIONS == ("v1", "v1beta2", "v1beta1")


# Whatever was there before

DESIRED = st.lists(
    st.lists(st.integers(0, 6), max_size=3).map(lambda numbers: content(*numbers)),
    min_size=1, max_size=4,
)  # fmt: skip
STORED = st.builds(
    stored,
    st.from_regex(r"0000[0-5]-[a-z]{1,3}|0{6}-[a-z]|[a-z]{1,8}-[a-z]", fullmatch=True),
    st.lists(st.integers(0, 6), max_size=3).map(lambda numbers: content(*numbers)),
    generation=st.integers(0, 4),
    count=st.integers(1, 4),
    pool=st.sampled_from(["node-1", "node-1", "node-1", "elsewhere"]),
)


@given(DESIRED, st.lists(STORED, max_size=6, unique_by=lambda body: body["metadata"]["name"]))
def test_from_any_start_one_pass_publishes_exactly_what_is_wanted_and_the_next_writes_nothing(
    desired, start
):
    server = Server(*start)
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
    assert written[2] == [] or pools[0]["generation"] > before
    published = [body["spec"].get("devices", []) for body in server.existing()]
    assert published == [body.get("devices", []) for body in desired]
    assert server.reconcile(desired) == ([], [], [])


@given(DESIRED, DESIRED)
def test_readers_never_see_a_mixture_of_two_generations_as_complete(first, second):
    server = Server()
    server.reconcile(first)
    old = [body["spec"].get("devices", []) for body in server.existing()]
    changes = publishing.reconcile(OWNER, second, server.existing())
    writes = [
        *((body, "delete") for body in changes.delete),
        *((body, "update") for body in changes.update),
        *((body, "create") for body in changes.create),
    ]
    new = [body.get("devices", []) for body in second]
    for body, kind in writes:
        server.apply(publishing.Changes(**{k: (body,) if k == kind else () for k in _PARTS}))
        complete = _complete(server)
        assert complete in (None, old, new)
    assert _complete(server) == new


_PARTS = ("delete", "update", "create")


def _complete(server):
    """The devices of the pool as a scheduler reads it; None while the pool is incomplete."""
    pools = [body["spec"]["pool"] for body in server.existing()]
    newest = max((pool["generation"] for pool in pools), default=0)
    current = [body for body in server.existing() if body["spec"]["pool"]["generation"] == newest]
    if not current or len(current) != current[0]["spec"]["pool"]["resourceSliceCount"]:
        return None
    return [body["spec"].get("devices", []) for body in current]
