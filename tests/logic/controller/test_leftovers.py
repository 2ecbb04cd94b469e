import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.controller import leftovers
from dra_driver.logic.preparing import mps_pod
from dra_driver.model import claims

DRIVER = "gpu.nvidia.com"
OURS = {mps_pod.MANAGED_BY: mps_pod.MANAGER, mps_pod.DOMAIN: "1234"}
SLICE = leftovers.Leftover("ResourceSlice", "", "s", "uid-s", "node-2")
CLAIM = leftovers.Leftover("ResourceClaim", "ns", "claim", "uid-c", "node-2")


def pod(node="node-2", labels=None):
    spec = {"nodeName": node} if node else {}
    metadata = {"name": "p", "namespace": "dra-driver", "uid": "uid-p"}
    return {"metadata": metadata | {"labels": OURS if labels is None else labels}, "spec": spec}


def published(driver=DRIVER, **spec):
    return {"metadata": {"name": "s", "uid": "uid-s"}, "spec": {"driver": driver} | spec}


def claim(*devices):
    results = [
        {"request": "gpu", "driver": driver, "pool": pool, "device": "gpu-0"}
        for driver, pool in devices
    ]
    body = {"metadata": {"namespace": "ns", "name": "claim", "uid": "uid-c"}}
    if devices:
        body["status"] = {"allocation": {"devices": {"results": results}}}
    return claims.parse_outcome(body)


def gone(*found, nodes=("node-1",)):
    return leftovers.gone([each for each in found if each is not None], {*nodes})


def of_slice(body):
    return leftovers.of_slice(body, DRIVER)


def owned_by(*owners):
    return {"metadata": {"name": "s", "uid": "uid-s", "ownerReferences": [*owners]}}


def owner(name="node-2", kind="Node", version="v1"):
    return {"apiVersion": version, "kind": kind, "name": name, "uid": "uid-n"}


def test_pods_of_daemons_go_with_their_node():
    found = [leftovers.Leftover("Pod", "dra-driver", "p", "uid-p", "node-2")]
    assert gone(leftovers.of_pod(pod())) == found
    assert gone(leftovers.of_pod(pod()), nodes=["node-2"]) == []


@pytest.mark.parametrize(
    "other",
    [
        pod(labels={}),
        pod(labels={mps_pod.DOMAIN: "1234"}),
        pod(labels={mps_pod.MANAGED_BY: mps_pod.MANAGER}),
        pod(node=""),
    ],
)
def test_other_pods_are_left_alone(other):
    assert leftovers.of_pod(other) is None


def test_slices_go_with_their_node():
    assert gone(of_slice(published(nodeName="node-2"))) == [SLICE]
    assert gone(of_slice(published(nodeName="node-1"))) == []


@pytest.mark.parametrize("other", [published("x.example.com", nodeName="node-2"), published()])
def test_slices_of_other_drivers_and_of_no_node_are_left_alone(other):
    assert of_slice(other) is None


def test_the_metadata_of_a_slice_tell_its_node_by_the_owner():
    of_metadata = leftovers.of_slice_metadata
    assert gone(of_metadata(owned_by(owner()))) == [SLICE]
    assert gone(of_metadata(owned_by(owner("node-1")))) == []


@pytest.mark.parametrize(
    "owners",
    [(), (owner(kind="DaemonSet", version="apps/v1"),), (owner(version="example.com/v1"),)],
)
def test_without_a_node_that_owns_it_the_node_of_a_slice_is_not_known(owners):
    assert leftovers.of_slice_metadata(owned_by(*owners)).nodes == ()


@pytest.mark.parametrize(
    ("devices", "gone_nodes"),
    [
        ((), None),
        (((DRIVER, "node-1"),), None),
        ((("x.example.com", "node-2"),), None),
        (((DRIVER, "node-1"), (DRIVER, "node-2")), "node-2"),
        (((DRIVER, "node-3"), (DRIVER, "node-2")), "node-2, node-3"),
    ],
)
def test_a_claim_with_a_device_of_a_node_that_is_gone_is_stale(devices, gone_nodes):
    expected = [dataclasses.replace(CLAIM, node=gone_nodes)] if gone_nodes else []
    assert gone(leftovers.of_claim(claim(*devices), DRIVER)) == expected


def test_of_claims_without_devices_of_the_driver_nothing_is_kept():
    assert leftovers.of_claim(claim(("x.example.com", "node-2")), DRIVER) is None


def test_what_is_found_twice_and_for_long_enough_is_due():
    since, ripe = leftovers.due([SLICE], {}, now=10.0, grace=0.0)
    assert (since, ripe) == ({SLICE: 10.0}, ())
    since, ripe = leftovers.due([SLICE, CLAIM], since, now=69.9, grace=60.0)
    assert (since, ripe) == ({SLICE: 10.0, CLAIM: 69.9}, ())
    assert leftovers.due([SLICE, CLAIM], since, now=70.0, grace=60.0) == (since, (SLICE,))


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 100)), max_size=20))
def test_what_was_back_meanwhile_is_new(looks):
    before, now, gone_since = {}, 0.0, None
    for gone, pause in looks:
        now += pause
        fresh = gone_since is None
        gone_since = (now if fresh else gone_since) if gone else None
        before, ripe = leftovers.due([SLICE] if gone else [], before, now=now, grace=60.0)
        assert bool(ripe) == (gone and not fresh and now - gone_since >= 60.0)


def test_the_event_of_a_stale_claim_has_one_name_and_fits():
    long = dataclasses.replace(CLAIM, name="c" * 253)
    event = leftovers.claim_event(long, component="controller", time="2026-01-01T00:00:00Z")
    again = leftovers.claim_event(long, component="controller", time="2026-01-02T00:00:00Z")
    assert event["metadata"] == again["metadata"]
    assert len(event["metadata"]["name"]) == 253
    other = dataclasses.replace(long, uid="other")
    named = leftovers.claim_event(other, component="controller", time="")["metadata"]
    assert named != event["metadata"]
