"""What the server adds, drops and converts."""

import pooled
import pytest

from dra_driver.logic.offering import publishing

# Times of taints


def test_a_taint_without_a_time_equals_the_same_taint_with_one():
    server = pooled.Server(
        pooled.stored(
            f"{pooled.PREFIX}a",
            {"devices": [pooled.tainted(0, pooled.TAINT | {"timeAdded": pooled.TIME})]},
        )
    )
    assert server.reconcile([{"devices": [pooled.tainted(0, pooled.TAINT)]}]) == (
        [],
        [],
        [],
    )


def test_an_update_for_another_reason_keeps_the_times_of_taints():
    before = {
        "devices": [
            pooled.tainted(0, pooled.TAINT | {"timeAdded": pooled.TIME}),
            {"name": "gpu-1"},
        ]
    }
    server = pooled.Server(pooled.stored(f"{pooled.PREFIX}a", before))
    server.reconcile(
        [
            {
                "devices": [
                    pooled.tainted(0, pooled.TAINT),
                    pooled.tainted(1, pooled.TAINT),
                ]
            }
        ]
    )
    assert server.existing()[0]["spec"]["devices"] == [
        pooled.tainted(0, pooled.TAINT | {"timeAdded": pooled.TIME}),
        pooled.tainted(1, pooled.TAINT),
    ]  # fmt: skip


@pytest.mark.parametrize("change", [{"key": "k"}, {"value": "v"}, {"effect": "NoExecute"}])
def test_another_taint_gets_a_time_of_its_own(change):
    before = {"devices": [pooled.tainted(0, pooled.TAINT | {"timeAdded": pooled.TIME})]}
    wanted = {"devices": [pooled.tainted(0, pooled.TAINT | change)]}
    assert publishing.keep_times(wanted, before) == wanted
    server = pooled.Server(pooled.stored(f"{pooled.PREFIX}a", before))
    assert server.reconcile([wanted]) == ([], [f"{pooled.PREFIX}a"], [])


def test_a_time_that_is_wanted_is_published():
    before = {"devices": [pooled.tainted(0, pooled.TAINT | {"timeAdded": pooled.TIME})]}
    wanted = {"devices": [pooled.tainted(0, pooled.TAINT | {"timeAdded": "2026-07-02T12:00:00Z"})]}
    assert publishing.keep_times(wanted, before) == wanted


def test_another_time_alone_is_written_though_the_server_cuts_something_else():
    def wanted(time):
        taint = pooled.TAINT | {"timeAdded": time}
        return {"devices": [pooled.tainted(0, taint) | {"attributes": {"x": {"ints": [1]}}}]}

    def left(time):
        return {"devices": [pooled.tainted(0, pooled.TAINT | {"timeAdded": time})]}

    later = "2026-07-02T12:00:00Z"
    server = pooled.Server(pooled.stored(f"{pooled.PREFIX}a", left(pooled.TIME)))
    desired = wanted(pooled.TIME)
    cut = {publishing.fingerprint(desired): publishing.without_times(left(pooled.TIME))}
    assert server.reconcile([desired], cut) == ([], [], [])
    assert server.reconcile([wanted(later)], cut) == ([], [f"{pooled.PREFIX}a"], [])


def test_a_taint_that_is_gone_is_gone():
    before = {"devices": [pooled.tainted(0, pooled.TAINT | {"timeAdded": pooled.TIME})]}
    wanted = {"devices": [{"name": "gpu-0"}]}
    assert publishing.keep_times(wanted, before) == wanted


# What the server drops


def test_fields_that_did_not_come_back_are_named_by_path_each_once():
    sent = {
        "devices": [
            pooled.tainted(0, pooled.TAINT) | {"a": {"b": 1}},
            pooled.tainted(1, pooled.TAINT),
        ],
        "sharedCounters": [{"name": "x"}],
        "same": 1,
    }
    got = {"devices": [{"name": "gpu-0", "a": {}}, {"name": "gpu-1"}], "same": 2, "more": 3}
    assert publishing.dropped(sent, got) == (
        "devices[].taints", "devices[].a.b", "sharedCounters",
    )  # fmt: skip


def test_nothing_is_dropped_where_the_server_only_adds_and_rewrites():
    sent = {"devices": [pooled.tainted(0, pooled.TAINT)], "pool": {"name": "p"}}
    got = {
        "devices": [pooled.tainted(0, pooled.TAINT | {"timeAdded": pooled.TIME})],
        "pool": {"name": "p"},
        "x": {},
    }
    assert publishing.dropped(sent, got) == ()
    assert publishing.dropped(sent, sent) == ()


def test_an_object_that_came_back_as_something_else_is_dropped_in_full():
    assert publishing.dropped({"a": {"b": 1, "c": 2}}, {"a": None}) == ("a.b", "a.c")


def test_content_that_the_server_cut_is_accepted_and_does_not_loop():
    desired = [{"devices": [pooled.tainted(0, pooled.TAINT)]}]
    server = pooled.Server(pooled.stored(f"{pooled.PREFIX}a", {"devices": [{"name": "gpu-0"}]}))
    assert server.reconcile(desired) != ([], [], [])
    cut = server.existing()[0]
    del cut["spec"]["devices"][0]["taints"]
    accepted = {publishing.fingerprint(desired[0]): cut["spec"]}
    assert server.reconcile(desired, accepted) == ([], [], [])
    other = [{"devices": [pooled.tainted(1, pooled.TAINT)]}]
    assert server.reconcile(other, accepted) == ([], [f"{pooled.PREFIX}a"], [])


def test_accepted_content_does_not_excuse_other_content():
    desired = [{"devices": [pooled.tainted(0, pooled.TAINT)]}]
    accepted = {publishing.fingerprint(desired[0]): pooled.content(0)}
    server = pooled.Server(pooled.stored(f"{pooled.PREFIX}a", pooled.content(0, 1)))
    assert server.reconcile(desired, accepted) == ([], [f"{pooled.PREFIX}a"], [])


def test_a_counter_slice_that_came_back_empty_is_accepted():
    desired = [pooled.content(0), {"sharedCounters": [{"name": "gpu-0", "counters": {}}]}]
    accepted = {publishing.fingerprint(desired[1]): {}}
    server = pooled.Server(
        pooled.stored("00000-a", pooled.content(0), count=2),
        pooled.stored("00001-b", {}, count=2),
    )
    assert server.reconcile(desired, accepted) == ([], [], [])
    assert server.reconcile(desired)[1] == ["00001-b"]


def test_the_fingerprint_is_of_the_content_alone():
    one = {"pool": {"generation": 1}, "devices": [{"name": "a", "x": 1}]}
    other = {"devices": [{"x": 1, "name": "a"}], "pool": {"generation": 2}}
    assert publishing.fingerprint(one) == publishing.fingerprint(other)
    assert publishing.fingerprint(one) != publishing.fingerprint({"devices": [{"name": "a"}]})
    assert publishing.fingerprint({}) == publishing.fingerprint({"devices": []})


# API versions

BODY = pooled.stored(
    f"{pooled.PREFIX}a",
    {"devices": [pooled.tainted(0, pooled.TAINT) | {"attributes": {}}, {"name": "b"}]},
)


def test_v1beta1_wraps_each_device_in_basic():
    body = publishing.to_version(BODY, "v1beta1")
    assert body["apiVersion"] == "resource.k8s.io/v1beta1"
    assert body["metadata"] == BODY["metadata"]
    assert body["spec"] == BODY["spec"] | {
        "devices": [
            {"name": "gpu-0", "basic": {"taints": [pooled.TAINT], "attributes": {}}},
            {"name": "b", "basic": {}},
        ]
    }


@pytest.mark.parametrize("version", publishing.API_VERSIONS)
@pytest.mark.parametrize(
    "body", [BODY, pooled.stored("x", {}), pooled.stored("x", {"devices": []})]
)
def test_a_slice_survives_the_way_through_every_version(version, body):
    converted = publishing.to_version(body, version)
    assert converted["apiVersion"] == f"resource.k8s.io/{version}"
    assert publishing.from_version(converted, version) == body


def test_a_device_of_v1beta1_without_basic_has_a_name():
    body = BODY | {"spec": BODY["spec"] | {"devices": [{"name": "a"}]}}
    assert publishing.from_version(body, "v1beta1")["spec"]["devices"] == [{"name": "a"}]


def test_versions_are_tried_newest_first():
    assert publishing.API_VERSIONS == ("v1", "v1beta2", "v1beta1")
