"""What is written so that a pool holds what is wanted."""

import pooled
import pytest

from dra_driver.logic.offering import publishing


def test_the_first_publication_has_generation_1_and_belongs_to_the_node():
    changes = publishing.reconcile(pooled.OWNER, [pooled.content(0, 1)], [])
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
    (body,) = publishing.reconcile(owner, [pooled.content(0)], []).create
    assert body["metadata"]["generateName"] == f"00000-{'d' * 63}-{'n' * 159}-"
    assert len(body["metadata"]["generateName"]) + 5 <= 253
    assert body["spec"]["nodeName"] == long


def test_slices_are_named_by_their_hexadecimal_index():
    changes = publishing.reconcile(pooled.OWNER, [pooled.content(n) for n in range(17)], [])
    names = [body["metadata"]["generateName"] for body in changes.create]
    assert names[9:12] + names[16:] == [
        "00009-gpu.nvidia.com-node-1-", "0000a-gpu.nvidia.com-node-1-",
        "0000b-gpu.nvidia.com-node-1-", "00010-gpu.nvidia.com-node-1-",
    ]  # fmt: skip
    assert {body["spec"]["pool"]["resourceSliceCount"] for body in changes.create} == {17}


def test_what_is_unchanged_is_not_written():
    server = pooled.Server()
    server.reconcile([pooled.content(0, 1), pooled.content(2)])
    assert server.reconcile([pooled.content(0, 1), pooled.content(2)]) == ([], [], [])
    assert not publishing.reconcile(
        pooled.OWNER, [pooled.content(0, 1), pooled.content(2)], server.existing()
    )


def test_one_changed_slice_is_replaced_under_the_same_generation():
    server = pooled.Server(
        pooled.stored(f"{pooled.PREFIX}a", pooled.content(0, 1), generation=4, count=2),
        pooled.stored("00001-x", pooled.content(2), generation=4, count=2),
    )
    assert server.reconcile([pooled.content(0, 1), pooled.content(2, 3)]) == (
        [],
        ["00001-x"],
        [],
    )
    assert server.pool() == [(4, 2, ["gpu-0", "gpu-1"]), (4, 2, ["gpu-2", "gpu-3"])]


def test_a_pool_of_generation_0_is_not_torn_apart_by_one_update():
    server = pooled.Server(
        pooled.stored("00000-a", pooled.content(0), generation=0, count=2),
        pooled.stored("00001-b", pooled.content(1), generation=0, count=2),
    )
    assert server.reconcile([pooled.content(0), pooled.content(7)]) == (
        [],
        ["00001-b"],
        [],
    )
    assert server.pool() == [(0, 2, ["gpu-0"]), (0, 2, ["gpu-7"])]


def test_an_update_keeps_the_identity_and_replaces_the_spec():
    body = pooled.stored(f"{pooled.PREFIX}a", pooled.content(0), generation=4)
    (update,) = publishing.reconcile(pooled.OWNER, [pooled.content(1)], [body]).update
    assert update["metadata"] == body["metadata"]
    assert update["spec"] == body["spec"] | {"devices": [{"name": "gpu-1"}]}


def test_the_order_of_devices_is_content():
    server = pooled.Server(pooled.stored(f"{pooled.PREFIX}a", pooled.content(0, 1)))
    assert server.reconcile([pooled.content(1, 0)]) == ([], [f"{pooled.PREFIX}a"], [])


@pytest.mark.parametrize("index", ["00000", "00001", "zzzzz"])
def test_a_pool_whose_last_generation_somebody_has_used_up_begins_anew(index):
    wanted = [pooled.content(0), pooled.content(1)]
    theirs = pooled.stored(f"{index}-theirs", pooled.content(0), generation=2**63 - 1, count=2)
    old = pooled.stored("00000-a", pooled.content(0), generation=4, count=2)
    changes = publishing.reconcile(pooled.OWNER, wanted, [theirs, old])
    assert {body["metadata"]["name"] for body in changes.delete} == {f"{index}-theirs", "00000-a"}
    assert changes.update == ()
    assert [body["spec"]["pool"]["generation"] for body in changes.create] == [1, 1]


def test_two_changed_slices_raise_the_generation_in_all():
    server = pooled.Server(
        pooled.stored("00000-a", pooled.content(0), generation=4, count=3),
        pooled.stored("00001-b", pooled.content(1), generation=4, count=3),
        pooled.stored("00002-c", pooled.content(2), generation=4, count=3),
    )
    assert server.reconcile([pooled.content(5), pooled.content(1), pooled.content(7)]) == (
        [], ["00000-a", "00001-b", "00002-c"], [],
    )  # fmt: skip
    assert server.pool() == [(5, 3, ["gpu-5"]), (5, 3, ["gpu-1"]), (5, 3, ["gpu-7"])]


def test_missing_slices_are_made_anew_and_the_others_are_left_as_they_are():
    server = pooled.Server(pooled.stored("00001-b", pooled.content(1), generation=4, count=3))
    assert server.reconcile([pooled.content(0), pooled.content(1), pooled.content(2)]) == (
        [], [], [pooled.PREFIX, "00002-gpu.nvidia.com-node-1-"],
    )  # fmt: skip
    assert server.pool() == [(4, 3, ["gpu-0"]), (4, 3, ["gpu-1"]), (4, 3, ["gpu-2"])]


def test_a_missing_slice_beside_one_that_changes_raises_the_generation_in_all():
    server = pooled.Server(
        pooled.stored("00000-a", pooled.content(0), generation=4, count=3),
        pooled.stored("00002-c", pooled.content(2), generation=4, count=3),
    )
    assert server.reconcile([pooled.content(5), pooled.content(1), pooled.content(2)]) == (
        [], ["00000-a", "00002-c"], ["00001-gpu.nvidia.com-node-1-"],
    )  # fmt: skip
    assert server.pool() == [(5, 3, ["gpu-5"]), (5, 3, ["gpu-1"]), (5, 3, ["gpu-2"])]


def test_growing_by_a_slice_raises_generation_and_count_in_all():
    server = pooled.Server(pooled.stored("00000-a", pooled.content(0), generation=7))
    assert server.reconcile([pooled.content(0), pooled.content(1)]) == (
        [], ["00000-a"], ["00001-gpu.nvidia.com-node-1-"],
    )  # fmt: skip
    assert server.pool() == [(8, 2, ["gpu-0"]), (8, 2, ["gpu-1"])]


def test_shrinking_to_one_slice_keeps_the_generation():
    server = pooled.Server(
        pooled.stored("00000-a", pooled.content(0), generation=4, count=2),
        pooled.stored("00001-b", pooled.content(1), generation=4, count=2),
    )
    assert server.reconcile([pooled.content(0)]) == (["00001-b"], ["00000-a"], [])
    assert server.pool() == [(4, 1, ["gpu-0"])]


def test_shrinking_to_two_slices_changes_two_counts_and_so_raises_the_generation():
    server = pooled.Server(
        *(pooled.stored(f"0000{n}-x", pooled.content(n), generation=4, count=3) for n in range(3))
    )
    assert server.reconcile([pooled.content(0), pooled.content(1)]) == (
        ["00002-x"], ["00000-x", "00001-x"], [],
    )  # fmt: skip
    assert server.pool() == [(5, 2, ["gpu-0"]), (5, 2, ["gpu-1"])]


def test_a_wrong_slice_count_is_corrected():
    server = pooled.Server(pooled.stored("00000-a", pooled.content(0), generation=4, count=2))
    assert server.reconcile([pooled.content(0)]) == ([], ["00000-a"], [])
    assert server.pool() == [(4, 1, ["gpu-0"])]


OBSOLETE = {
    "of a lower generation": pooled.stored("00001-old", pooled.content(1), generation=3, count=2),
    "whose name has no index": pooled.stored(
        "node-1-gpu.nvidia.com-x7k2p", pooled.content(1), generation=4
    ),
    "whose index has too few digits": pooled.stored(
        "0001-x", pooled.content(1), generation=4, count=2
    ),
    "whose index is taken": pooled.stored("00000-b", pooled.content(0), generation=4, count=2),
    "whose index is out of range": pooled.stored(
        "00002-x", pooled.content(2), generation=4, count=2
    ),
    "of another pool": pooled.stored(
        "00001-x", pooled.content(1), generation=4, count=2, pool="elsewhere"
    ),
    "of another pool and a higher generation": pooled.stored(
        "00001-x", pooled.content(1), generation=9, count=2, pool="elsewhere"
    ),
}


@pytest.mark.parametrize("body", OBSOLETE.values(), ids=OBSOLETE)
def test_a_slice_that_serves_no_longer_is_deleted_first(body):
    current = [
        pooled.stored("00000-a", pooled.content(0), generation=4, count=2),
        pooled.stored("00001-z", pooled.content(1), generation=4, count=2),
    ]
    server = pooled.Server(*current, body)
    assert server.reconcile([pooled.content(0), pooled.content(1)]) == (
        [body["metadata"]["name"]],
        [],
        [],
    )
    assert server.pool() == [(4, 2, ["gpu-0"]), (4, 2, ["gpu-1"])]


def test_slices_of_which_only_another_pool_exists_are_deleted_and_made_anew():
    server = pooled.Server(
        pooled.stored("00000-a", pooled.content(0), generation=9, pool="elsewhere")
    )
    assert server.reconcile([pooled.content(0)]) == (["00000-a"], [], [pooled.PREFIX])
    assert server.pool() == [(1, 1, ["gpu-0"])]


def test_the_generation_rises_above_that_of_deleted_slices_too():
    server = pooled.Server(pooled.stored("no-index", pooled.content(0), generation=9))
    assert server.reconcile([pooled.content(0)]) == (["no-index"], [], [pooled.PREFIX])
    assert server.pool() == [(10, 1, ["gpu-0"])]


def test_a_pool_without_devices_is_one_empty_slice():
    assert publishing.contents([]) == ({},)
    server = pooled.Server()
    server.reconcile(publishing.contents([]))
    assert server.pool() == [(1, 1, [])]
    assert "devices" not in server.existing()[0]["spec"]
    assert server.reconcile(publishing.contents([])) == ([], [], [])


def test_an_empty_slice_is_the_same_with_an_empty_list_of_devices():
    server = pooled.Server(pooled.stored(f"{pooled.PREFIX}a", {"devices": []}))
    assert server.reconcile([{}]) == ([], [], [])


TWO = tuple(pooled.stored(f"0000{n}-x", pooled.content(n), generation=4, count=2) for n in range(2))


@pytest.mark.parametrize(
    ("desired", "tears"),
    [
        ([pooled.content(0), pooled.content(1)], False),
        ([pooled.content(0), pooled.content(7)], False),
        ([pooled.content(6), pooled.content(7)], True),
        ([pooled.content(0), pooled.content(1), pooled.content(2)], True),
        ([pooled.content(0)], True),
    ],
    ids=["none", "one", "two", "one more", "one less"],
)
def test_changes_tell_whether_readers_are_left_without_a_whole_pool_meanwhile(desired, tears):
    assert publishing.reconcile(pooled.OWNER, desired, TWO).tears is tears


def test_a_pool_that_is_not_whole_yet_is_not_torn():
    assert not publishing.reconcile(pooled.OWNER, [pooled.content(0)] * 2, []).tears
    assert not publishing.reconcile(pooled.OWNER, [pooled.content(0)] * 2, TWO[:1]).tears


def test_counters_are_content():
    def with_counters(number):
        counters = {"memory-slice-0": {"value": number}}
        return {"sharedCounters": [{"name": "gpu-0-counter-set", "counters": counters}]}

    server = pooled.Server()
    server.reconcile([with_counters("1"), pooled.content(0)])
    assert server.reconcile([with_counters("1"), pooled.content(0)]) == ([], [], [])
    (_, updated, _) = server.reconcile([with_counters("0"), pooled.content(0)])
    assert updated == [f"{pooled.PREFIX}00000"]
    assert server.existing()[0]["spec"]["sharedCounters"] == with_counters("0")["sharedCounters"]
