"""Counters in the slice of the devices that consume them, as Kubernetes 1.34 wants them."""

import api_objects
import pytest
from api_objects import SLICES, changed, device, resource_slice

GATE = frozenset({"DRAPartitionableDevices"})


@pytest.fixture(scope="module")
def old_api():
    """A server of Kubernetes 1.34 whose gate is on."""
    with api_objects.Api(kubernetes_version="v1.34.3", enabled_gates=GATE) as running:
        yield running


def counters(count):
    return {f"c{index}": {"value": "1"} for index in range(count)}


def sets(count, size=1):
    return [{"name": f"set-{index}", "counters": counters(size)} for index in range(count)]


def part(name="part", *sizes):
    """A device that consumes so many counters of the first, second, ... set."""
    used = [
        {"counterSet": f"set-{index}", "counters": counters(size)}
        for index, size in enumerate(sizes)
    ]
    return device(name, consumesCounters=used) if used else device(name)


def parts(count, size):
    return [part(f"part-{index}", size) for index in range(count)]


def together(devices, shared):
    return resource_slice("", *devices, sharedCounters=shared)


def create(api, body):
    return api.send("POST", SLICES, changed(body, "metadata", {"generateName": "slice-"}))


ACCEPTED = {
    "a GPU with its parts": together(parts(30, 14), sets(1, 14)),
    "32 counters in 2 sets": together([part()], sets(2, 16)),
    "32 sets of one counter, all of which a device consumes": together(
        [part("part", *[1] * 32)], sets(32)
    ),
    "1024 counters in devices": together(parts(64, 16), sets(1, 16)),
    "128 devices": together(parts(128, 8), sets(1, 8)),
    "counters alone": resource_slice("", devices=None, sharedCounters=sets(1)),
}


@pytest.mark.parametrize("body", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted_and_kept(old_api, body):
    answer = create(old_api, body)
    assert (answer.status, answer.causes) == (201, [])
    made = answer.body["spec"]
    assert made["sharedCounters"] == body["spec"]["sharedCounters"]
    assert made.get("devices") == body["spec"].get("devices")


REFUSED = {
    "33 counters in 2 sets": (
        together([part()], [*sets(1, 32), {"name": "more", "counters": counters(1)}]),
        (
            "spec.sharedCounters: Invalid value: 33: "
            "the total number of shared counters must not exceed 32"
        ),
    ),
    "33 counters of a device": (
        together([part("part", 16, 17)], sets(2, 16)),
        "spec.devices[0]: Invalid value: 33: the total number of counters must not exceed 32",
    ),
    "1025 counters in devices": (
        together([*parts(64, 16), part("more", 1)], sets(1, 16)),
        (
            "spec.devices: Invalid value: 1025: "
            "the total number of counters in devices must not exceed 1024"
        ),
    ),
    "a set that another slice has": (
        together([part("part", 1)], []),
        (
            'spec.devices[0].consumesCounters[0].counterSet: Invalid value: "set-0": '
            "must reference a counterSet defined in the ResourceSlice sharedCounters"
        ),
    ),
    "two sets of one name": (
        together([part()], sets(1) * 2),
        'spec.sharedCounters[1]: Duplicate value: "set-0"',
    ),
}


@pytest.mark.parametrize(("body", "cause"), REFUSED.values(), ids=REFUSED)
def test_refused(old_api, body, cause):
    answer = create(old_api, body)
    assert (answer.status, answer.causes) == (422, [cause])


@pytest.mark.parametrize("minor", [35, 36])
def test_newer_servers_want_them_apart(minor):
    with api_objects.Api(kubernetes_version=f"v1.{minor}.0", enabled_gates=GATE) as api:
        assert create(api, together([part("part", 1)], sets(1))).causes == [
            'spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed'
        ]
        assert create(api, resource_slice("", part("part", 1))).status == 201
        counters_alone = resource_slice("", devices=None, sharedCounters=sets(1))
        assert create(api, counters_alone).status == 201


@pytest.mark.parametrize("minor", [34, 35])
def test_while_the_gate_is_off_they_are_dropped(minor):
    with api_objects.Api(kubernetes_version=f"v1.{minor}.0") as api:
        made = create(api, together([part("part", 1)], sets(1))).body["spec"]
    assert "sharedCounters" not in made
    assert "consumesCounters" not in made["devices"][0]
