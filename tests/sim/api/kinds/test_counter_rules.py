"""Every limit of the table for counters that devices share."""

import pytest
from api_objects import SLICES, changed, device, resource_slice

LABEL = "a lowercase RFC 1123 label must consist of"


def with_device(**fields):
    return resource_slice("", device(**fields))


def counters_only(*sets):
    return resource_slice("", devices=None, sharedCounters=list(sets))


def counter_set(name="memory", count=1):
    return {"name": name, "counters": {f"c{index}": {"value": "1"} for index in range(count)}}


def consumes(count=1, counters=1):
    return [
        {"counterSet": f"set-{index}", "counters": counter_set(count=counters)["counters"]}
        for index in range(count)
    ]


ACCEPTED = {
    "8 counter sets of 32 counters": counters_only(
        *(counter_set(f"set-{index}", 32) for index in range(8))
    ),
    "2 counter consumptions of 32 counters": with_device(consumesCounters=consumes(2, 32)),
}


@pytest.mark.parametrize("body", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(shared_api, body):
    body = changed(body, "metadata", {"generateName": "slice-"})

    answer = shared_api.send("POST", SLICES, body)

    assert (answer.status, answer.causes) == (201, [])


REFUSED = {
    "9 counter sets": (
        counters_only(*(counter_set(f"set-{index}") for index in range(9))),
        "spec.sharedCounters: Too many: 9: must have at most 8 items",
    ),
    "two counter sets of one name": (
        counters_only(counter_set("a"), counter_set("a")),
        'spec.sharedCounters[1]: Duplicate value: "a"',
    ),
    "a counter set without a name": (
        counters_only(counter_set("")),
        "spec.sharedCounters[0].name: Required value",
    ),
    "a counter set without counters": (
        counters_only(counter_set(count=0)),
        "spec.sharedCounters[0].counters: Required value",
    ),
    "33 counters in a set": (
        counters_only(counter_set(count=33)),
        "spec.sharedCounters[0].counters: Too many: 33: must have at most 32 items",
    ),
    "a counter name with a dot": (
        counters_only({"name": "a", "counters": {"b.c": {"value": "1"}}}),
        'spec.sharedCounters[0].counters: Invalid value: "b.c": must not contain dots',
    ),
    "3 counter consumptions": (
        with_device(consumesCounters=consumes(3)),
        "spec.devices[0].consumesCounters: Too many: 3: must have at most 2 items",
    ),
    "two consumptions of one counter set": (
        with_device(consumesCounters=consumes() * 2),
        'spec.devices[0].consumesCounters[1]: Duplicate value: "set-0"',
    ),
    "a consumption of 33 counters": (
        with_device(consumesCounters=consumes(1, 33)),
        "spec.devices[0].consumesCounters[0].counters: Too many: 33",
    ),
    "a consumption of no counter set": (
        with_device(consumesCounters=[{"counters": {"a": {"value": "1"}}}]),
        "spec.devices[0].consumesCounters[0].counterSet: Required value",
    ),
}


@pytest.mark.parametrize(("body", "cause"), REFUSED.values(), ids=REFUSED)
def test_refused(shared_api, body, cause):
    body = changed(body, "metadata", {"generateName": "slice-"})

    answer = shared_api.send("POST", SLICES, body)

    assert answer.status == 422
    assert answer.body["reason"] == "Invalid"
    assert [text for text in answer.causes if text.startswith(cause)], answer.causes


def test_a_counter_without_a_value_is_zero(shared_api):
    counters = {"a": {}, "b": {"value": None}, "c": None, "d": {"value": "2"}}
    body = counters_only({"name": "a", "counters": counters})

    answer = shared_api.send("POST", SLICES, changed(body, "metadata.generateName", "slice-"))

    assert answer.status == 201
    assert answer.body["spec"]["sharedCounters"][0]["counters"] == {
        "a": {"value": "0"},
        "b": {"value": "0"},
        "c": {"value": "0"},
        "d": {"value": "2"},
    }
