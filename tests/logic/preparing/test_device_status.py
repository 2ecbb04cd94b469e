"""What is to be in `status.devices` of a claim, and whether that has to be written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.logic.preparing import device_status
from dra_driver.model import quantities, slices

DRIVER = "gpu.nvidia.com"
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
SHARE, OTHER_SHARE = "0f0e0d0c-0b0a-4908-8706-050403020100", "ffffffff-0b0a-4908-8706-050403020100"


def claim(*devices, reported=(), **metadata):
    """A claim with these devices; one is a name, or fields of the result."""
    results = [
        {"request": "gpu", "driver": DRIVER, "pool": "node-1"}
        | ({"device": device} if isinstance(device, str) else device)
        for device in devices
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": "c",
            "namespace": "ns",
            "uid": "uid-1",
            "resourceVersion": "7",
            "managedFields": [],
            **metadata,
        },
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}, "devices": list(reported)},
    }


def report(device="gpu-0", *, ready=True, **fields):
    reason = fields.pop("reason", "Prepared")
    return device_status.DeviceReport(
        pool="node-1", device=device, ready=ready, reason=reason, **fields
    )


def wanted(body, *reports, now=EARLY):
    return device_status.wanted(body, DRIVER, reports, pool="node-1", now=now)


def test_an_entry_has_the_condition_and_the_data():
    data = {
        "uuid": "MIG-1",
        "gpuInstanceId": 3,
        "isShared": True,
        "driverVersion": slices.Version("580.65.6"),
        "memory": quantities.parse("10Gi"),
        "serial": None,
    }
    (entry,) = wanted(claim("gpu-0"), report(message="ready to use", data=data))
    assert entry == {
        "driver": DRIVER,
        "pool": "node-1",
        "device": "gpu-0",
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Prepared",
                "message": "ready to use",
                "lastTransitionTime": EARLY,
            }
        ],
        "data": {
            "uuid": {"string": "MIG-1"},
            "gpuInstanceId": {"int": 3},
            "isShared": {"bool": True},
            "driverVersion": {"version": "580.65.6"},
            "memory": {"value": "10Gi"},
        },
    }


def test_of_what_cannot_be_seen_stays_what_was_told():
    seen = {"uuid": "GPU-1", "productName": "A card", "index": 3}
    (entry,) = wanted(claim("gpu-0"), report(data=seen))
    there = claim("gpu-0", reported=[entry])
    unseen = device_status.Unseen.AS_TOLD
    known = {"uuid": "GPU-1", "productName": unseen, "serial": unseen, "index": None}

    (after,) = wanted(there, report(data=known))
    assert after["data"] == {"uuid": {"string": "GPU-1"}, "productName": {"string": "A card"}}
    assert wanted(there, report(data=known | {"index": 3})) is None


def test_a_device_that_is_not_ready_says_so_and_has_no_empty_data():
    (entry,) = wanted(claim("gpu-0"), report(ready=False, reason="Lost"))
    assert entry["conditions"][0]["status"] == "False"
    assert "data" not in entry


def test_the_generation_of_the_claim_is_observed_where_it_has_one():
    (entry,) = wanted(claim("gpu-0", generation=4), report())
    assert entry["conditions"][0]["observedGeneration"] == 4


def test_only_devices_that_the_claim_has_get_an_entry():
    body = claim("gpu-0", {"device": "gpu-1", "driver": "nic.example.com"}, {"device": "gpu-2"})
    reports = [report("gpu-0"), report("gpu-1"), report("gpu-2"), report("gpu-3")]
    assert [entry["device"] for entry in wanted(body, *reports)] == ["gpu-0", "gpu-2"]


def test_shares_of_one_device_have_entries_of_their_own():
    body = claim({"device": "gpu-0", "shareID": SHARE}, {"device": "gpu-0", "shareID": OTHER_SHARE})
    entries = wanted(body, report(share_id=SHARE), report(share_id=OTHER_SHARE), report())
    assert [entry["shareID"] for entry in entries] == [SHARE, OTHER_SHARE]


def test_what_is_there_already_is_not_written_again():
    entries = wanted(claim("gpu-0"), report(data={"uuid": "GPU-1"}))
    there = claim("gpu-0", reported=entries)
    assert wanted(there, report(data={"uuid": "GPU-1"}), now=LATE) is None


def test_nothing_is_written_for_a_claim_whose_devices_are_none_of_ours():
    assert wanted(claim({"device": "x", "driver": "nic.example.com"}), report("x")) is None


@pytest.mark.parametrize(
    ("change", "time"),
    [
        ({"data": {"uuid": "GPU-2"}}, EARLY),
        ({"message": "other"}, EARLY),
        ({"reason": "Again"}, EARLY),
        ({"ready": False}, LATE),
    ],
    ids=lambda value: "/".join(value) if isinstance(value, dict) else "",
)
def test_a_change_is_written_and_only_another_status_has_another_time(change, time):
    there = claim("gpu-0", reported=wanted(claim("gpu-0"), report(data={"uuid": "GPU-1"})))
    (entry,) = wanted(there, report(**{"data": {"uuid": "GPU-1"}} | change), now=LATE)
    assert entry["conditions"][0]["lastTransitionTime"] == time


def test_an_entry_that_is_no_longer_reported_is_left_out():
    there = claim(
        "gpu-0", "gpu-1", reported=wanted(claim("gpu-0", "gpu-1"), report(), report("gpu-1"))
    )
    assert [entry["device"] for entry in wanted(there, report("gpu-1"))] == ["gpu-1"]
    assert wanted(there) == ()


@pytest.mark.parametrize("late", [(), (report(),)], ids=["given back", "told late"])
def test_a_claim_that_another_node_has_by_now_is_left_to_that_node(late):
    elsewhere = {"device": "gpu-0", "pool": "node-2"}
    told = device_status.DeviceReport("node-2", "gpu-0", ready=True, reason="Prepared")
    entries = device_status.wanted(claim(elsewhere), DRIVER, [told], pool="node-2", now=EARLY)
    assert wanted(claim(elsewhere, reported=entries), *late, now=LATE) is None


def test_of_a_claim_without_devices_no_entry_is_left():
    entries = wanted(claim("gpu-0"), report())
    assert wanted(claim(reported=entries)) == ()


def test_what_others_have_added_to_an_entry_is_no_reason_to_write():
    (entry,) = wanted(claim("gpu-0"), report())
    entry["conditions"].insert(0, {"type": "example.com/Checked", "status": "True"})
    other = {"driver": "nic.example.com", "pool": "p", "device": "d"}
    there = claim("gpu-0", reported=[other, entry | {"networkData": {"interfaceName": "eth0"}}])
    assert wanted(there, report(), now=LATE) is None


def test_data_that_is_longer_than_the_api_takes_is_refused_by_its_device():
    with pytest.raises(errors.Rejected, match=r"device 'gpu-0': data has \d+ bytes .* 10240"):
        wanted(claim("gpu-0"), report(data={"x": "y" * 10 * 1024}))
    (entry,) = wanted(claim("gpu-0"), report(data={"x": "y" * (10 * 1024 - 21)}))
    assert len(json.dumps(entry["data"])) == 10 * 1024


def test_what_is_applied_is_bound_to_the_object_that_was_read():
    body = claim("gpu-0")
    entries = wanted(body, report())
    assert device_status.application(body, entries) == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns", "uid": "uid-1", "resourceVersion": "7"},
        "status": {"devices": list(entries)},
    }
    assert "status" not in device_status.application(body, ())


def test_entries_that_the_server_left_out_have_not_arrived():
    body = claim("gpu-0", "gpu-1")
    entries = wanted(body, report(), report("gpu-1"))
    assert device_status.arrived(claim("gpu-0", reported=entries), DRIVER, entries)
    assert not device_status.arrived(claim("gpu-0", reported=entries[:1]), DRIVER, entries)
    assert not device_status.arrived({"status": {}}, DRIVER, entries)


NAMES = st.sampled_from(["gpu-0", "gpu-1", "gpu-2"])
REPORTS = st.lists(
    st.builds(
        report,
        NAMES,
        ready=st.booleans(),
        share_id=st.sampled_from([None, SHARE]),
        data=st.dictionaries(st.sampled_from("ab"), st.none() | st.integers() | st.text()),
    ),
    max_size=5,
)
DEVICES = st.lists(
    NAMES | st.builds(lambda device: {"device": device, "shareID": SHARE}, NAMES), max_size=5
)


@given(DEVICES, REPORTS, REPORTS)
def test_what_was_written_once_is_settled_and_never_more_than_the_claim_has(devices, before, after):
    body = claim(*devices, reported=wanted(claim(*devices), *before) or ())
    entries = wanted(body, *after, now=LATE)
    settled = claim(*devices, reported=body["status"]["devices"] if entries is None else entries)
    assert wanted(settled, *after, now="later still") is None
    has = {(item["device"], item.get("shareID")) for item in results(body)}
    told = [(entry["device"], entry.get("shareID")) for entry in entries or ()]
    assert set(told) <= has
    assert len(told) == len(set(told))


def results(body):
    return body["status"]["allocation"]["devices"]["results"]


# How cards are


def well(message="nothing is wrong"):
    return device_status.Health(healthy=True, reason="Well", message=message)


def sick(since, message="XID 79"):
    return device_status.Health(healthy=False, reason="Xid79", message=message, since=since)


def conditions(entries):
    return {one["type"]: one for entry in entries for one in entry["conditions"]}


def test_how_the_card_is_is_a_condition_beside_the_other():
    found = conditions(wanted(claim("gpu-0"), report(health=sick(EARLY)), now=LATE))
    assert found.keys() == {"Ready", "Healthy"}
    assert (found["Ready"]["status"], found["Ready"]["lastTransitionTime"]) == ("True", LATE)
    assert found["Healthy"] == {
        "type": "Healthy",
        "status": "False",
        "reason": "Xid79",
        "message": "XID 79",
        "lastTransitionTime": EARLY,
    }


def test_without_a_word_of_the_card_there_is_no_such_condition():
    assert conditions(wanted(claim("gpu-0"), report())).keys() == {"Ready"}


def test_a_card_that_stays_as_it_is_is_not_told_again_whatever_the_time():
    for health in (well(), sick(EARLY)):
        before = wanted(claim("gpu-0"), report(health=health), now=EARLY)
        body = claim("gpu-0", reported=before)
        assert wanted(body, report(health=health), now=LATE) is None


def test_a_card_that_gets_well_is_so_since_now_and_stays_so_though_what_informs_changes():
    before = wanted(claim("gpu-0"), report(health=sick(EARLY)), now=EARLY)
    after = wanted(claim("gpu-0", reported=before), report(health=well()), now=LATE)
    assert conditions(after)["Healthy"]["lastTransitionTime"] == LATE
    body = claim("gpu-0", reported=after)
    informed = wanted(body, report(health=well("it is hot")), now="2026-01-03T00:00:00Z")
    assert conditions(informed)["Healthy"]["lastTransitionTime"] == LATE
    assert conditions(informed)["Ready"]["lastTransitionTime"] == EARLY


@pytest.mark.parametrize(("others", "told"), [(6, {"Ready", "Healthy"}), (7, {"Ready"})])
@pytest.mark.parametrize("before", [True, False], ids=["told before", "new"])
def test_how_the_card_is_gives_way_where_others_leave_no_room(others, told, before):
    ours = wanted(claim("gpu-0"), report(health=well()))[0]
    theirs = [
        {"type": f"Theirs{n}", "status": "True", "reason": "R", "message": "", "lastTransitionTime":
         EARLY} for n in range(others)
    ]  # fmt: skip
    kept = ours["conditions"][: 2 if before else 1]
    body = claim("gpu-0", reported=[ours | {"conditions": [*theirs, *kept]}])
    found = wanted(body, report(health=sick(EARLY), ready=False))
    assert conditions(found).keys() == told
    assert len(theirs) + len(told) <= device_status.MOST_CONDITIONS
