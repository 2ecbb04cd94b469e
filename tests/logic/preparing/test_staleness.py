"""Which records are of claims that the API knows nothing of any more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.preparing import planning, staleness
from dra_driver.model import claims, prepared, slices

NODE = planning.Node("gpu.nvidia.com", pool="node-1")
GRACE = 60.0


def record(uid="uid-1", *devices, name="c", boot="boot-1", phase=prepared.Phase.COMPLETED):
    return prepared.Record(
        uid=uid,
        namespace="ns" if name else "",
        name=name,
        phase=phase,
        boot_id=boot,
        devices=tuple(
            prepared.PreparedDevice(requests=("gpu",), pool="node-1", device=device, cdi_ids=())
            for device in devices or ("gpu-0",)
        ),
    )


def claim(uid="uid-1", *devices, allocated=True, name="c", driver=NODE.driver_name, pool=NODE.pool):
    results = tuple(
        claims.Result("gpu", slices.DeviceId(driver, pool, device)) for device in devices
    )
    return claims.ResourceClaim(
        ref=claims.ClaimRef("ns", name, claims.ClaimUid(uid)),
        allocation=claims.Allocation(results) if allocated else None,
    )


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "does not exist any more"),
        (claim("uid-2", "gpu-0"), "made again, its UID is uid-2"),
        (claim(allocated=False), "no longer allocated"),
        (claim("uid-1", "gpu-1"), "allocated to other devices now: gpu-1"),
        (claim("uid-1", "gpu-0", pool="node-2"), "other devices now: none of this node"),
        (claim("uid-1", "gpu-0", driver="other.example.com"), "none of this node"),
        (claim("uid-1"), "none of this node"),
    ],
    ids=["gone", "made again", "free", "other device", "other node", "other driver", "nothing"],
)
def test_a_claim_that_has_none_of_the_recorded_devices_makes_a_record_stale(found, reason):
    assert reason in staleness.why_stale(record(), found, NODE)


@pytest.mark.parametrize("phase", list(prepared.Phase))
def test_a_claim_that_still_has_one_of_the_recorded_devices_keeps_its_record(phase):
    kept = record("uid-1", "gpu-0", "gpu-1", phase=phase)
    assert staleness.why_stale(kept, claim("uid-1", "gpu-1", "gpu-2"), NODE) is None


def test_a_record_that_names_no_device_is_kept_as_long_as_its_claim_has_one_here():
    empty = record().model_copy(update={"devices": ()})
    assert staleness.why_stale(empty, claim("uid-1", "gpu-0"), NODE) is None
    assert staleness.why_stale(empty, claim(allocated=False), NODE) is not None


def test_the_devices_of_a_node_are_those_that_claims_have_of_its_driver_and_pool():
    everywhere = [
        claim("here", "gpu-0"),
        claim("elsewhere", "gpu-3", pool="node-2"),
        claim("other", "gpu-4", driver="other.example.com"),
        claim("free", allocated=False),
        claim("too", "gpu-1", "gpu-2"),
    ]
    assert staleness.devices_here(everywhere, NODE) == {"gpu-0", "gpu-1", "gpu-2"}
    assert staleness.devices_here([], NODE) == frozenset()


def suspects(records, everywhere=(), before=None, *, now=0.0):
    """The suspects where the API has these claims."""
    by_uid = {claim.ref.uid: claim for claim in everywhere}
    found = {record.uid: by_uid.get(record.uid) for record in records}
    return staleness.suspects(records, found, NODE, before or {}, now=now)


def due(found, now):
    return [suspect.record.uid for suspect in staleness.due(found, now=now, grace=GRACE)]


def test_a_record_is_due_at_a_second_look_after_the_grace():
    first = suspects([record()])
    assert due(first, 0.0) == []
    early = suspects([record()], before=first, now=59.9)
    assert due(early, 59.9) == []
    assert due(suspects([record()], before=early, now=60.0), 60.0) == ["uid-1"]


def test_without_any_grace_it_takes_two_looks_all_the_same():
    first = suspects([record()])
    assert staleness.due(first, now=0.0, grace=0.0) == ()
    assert len(staleness.due(first, now=0.1, grace=0.0)) == 1


def test_a_claim_that_was_seen_again_in_between_starts_anew():
    first = suspects([record()])
    assert suspects([record()], [claim("uid-1", "gpu-0")], first, now=30.0) == {}
    assert due(suspects([record()], before={}, now=90.0), 90.0) == []


def test_a_record_that_was_written_anew_in_between_starts_anew():
    first = suspects([record("uid-1", "gpu-0")])
    again = suspects([record("uid-1", "gpu-1")], before=first, now=60.0)
    assert due(again, 60.0) == []
    assert due(again, 120.0) == ["uid-1"]


def test_a_record_without_a_name_is_found_by_its_uid_and_gets_the_name():
    everywhere = [claim("uid-1", allocated=False, name="named"), claim("uid-2", "gpu-0", name="x")]
    found = suspects([record("uid-1", name=""), record("uid-2", name="")], everywhere)
    assert {uid: suspect.ref.name for uid, suspect in found.items()} == {"uid-1": "named"}


def test_a_claim_of_the_same_name_is_not_taken_for_the_one_that_is_gone():
    again = claim("uid-2", "gpu-0")
    (suspect,) = staleness.suspects([record()], {"uid-1": again}, NODE, {}, now=0.0).values()
    assert suspect.ref == record().ref
    assert "made again" in suspect.reason


UIDS = st.sampled_from(["uid-1", "uid-2", "uid-3", "uid-4"])
DEVICES = st.lists(st.sampled_from(["gpu-0", "gpu-1", "gpu-2"]), min_size=1, unique=True)
RECORDS = st.dictionaries(UIDS, DEVICES).map(
    lambda given: [record(uid, *devices) for uid, devices in given.items()]
)
CLAIMS = st.dictionaries(UIDS, DEVICES).map(
    lambda given: [claim(uid, *devices) for uid, devices in given.items()]
)


@given(st.lists(st.tuples(RECORDS, CLAIMS, st.floats(0.1, 100.0)), min_size=1, max_size=8))
def test_what_is_due_was_stale_at_every_look_of_the_last_grace_and_is_not_allocated(looks):
    found, now, history = {}, 0.0, []
    for records, everywhere, pause in looks:
        now += pause
        found = suspects(records, everywhere, found, now=now)
        history.append((now, {kept.uid: kept for kept in records}, everywhere, set(found)))
        for suspect in staleness.due(found, now=now, grace=GRACE):
            uid = suspect.record.uid
            has = {
                r.device.device
                for c in everywhere
                if c.ref.uid == uid
                for r in c.allocation.results
            }
            assert not has & {device.device for device in suspect.record.devices}
            recent = [look for look in history if look[0] >= suspect.since]
            assert recent[-1][0] - recent[0][0] >= GRACE
            assert all(uid in look[3] and look[1][uid] == suspect.record for look in recent)


@given(st.text(), st.floats(0.0, 1e6))
def test_the_moment_of_a_node_is_always_the_same_and_within_the_span(name, span):
    moment = staleness.offset(name, span)
    assert 0 <= moment <= span
    assert staleness.offset(name, span) == moment


def test_the_moments_of_many_nodes_are_spread_evenly():
    seconds = [int(staleness.offset(f"node-{number}", 60.0)) for number in range(5000)]
    # A hash of their names: 83 in each second on average, with a deviation of 9.
    counts = [seconds.count(second) for second in range(60)]
    assert sum(counts) == 5000
    assert min(counts) > 40
    assert max(counts) < 130
