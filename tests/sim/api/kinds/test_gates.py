"""A feature gate that is off drops its fields, unless they are in use."""

import api_objects
import pytest
from api_objects import CLAIMS, CLASSES, SLICES, changed, claim, device, resource_slice

from dra_driver import errors
from dra_driver.sim.api.kinds import resource_gates

CONDITIONS = {"bindingConditions": ["a"], "bindingFailureConditions": ["b"], "bindsToNode": True}
TAINTS = [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]
COUNTERS = [{"counterSet": "m", "counters": {"memory": {"value": "1Gi"}}}]
POLICY = {"memory": {"value": "80Gi", "requestPolicy": {"default": "1Gi"}}}
ALTERNATIVES = [{"name": "a", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}]

SLICE_FIELDS = {
    "DRADeviceTaints": {"taints": TAINTS},
    "DRAPartitionableDevices": {"consumesCounters": COUNTERS},
    "DRADeviceBindingConditions": CONDITIONS,
    "DRAResourceClaimDeviceStatus": CONDITIONS,
    "DRAConsumableCapacity": {"allowMultipleAllocations": True, "capacity": POLICY},
}


def running_without(*gates, **options):
    return api_objects.Api(disabled_gates=frozenset(gates), **options)


def without(fields):
    """What is left of the fields of a device: capacities, but without policies."""
    if "capacity" in fields:
        return {"capacity": {"memory": {"value": "80Gi"}}}
    return {}


@pytest.mark.parametrize(("gate", "fields"), SLICE_FIELDS.items(), ids=SLICE_FIELDS)
def test_fields_of_a_device_are_kept_or_dropped(gate, fields):
    body = resource_slice("s", device(**fields))
    with running_without() as api:
        kept = api.create(SLICES, body)
    with running_without(gate) as api:
        dropped = api.create(SLICES, body)

    assert kept["spec"]["devices"] == [device(**fields)]
    assert dropped["spec"]["devices"] == [device(**without(fields))]


def test_a_slice_of_counters_comes_back_with_nothing():
    counters = [{"name": "m", "counters": {"memory": {"value": "1Gi"}}}]
    body = resource_slice("s", devices=None, sharedCounters=counters)
    with running_without("DRAPartitionableDevices") as api:
        made = api.create(SLICES, body)

    assert "sharedCounters" not in made["spec"]
    assert "devices" not in made["spec"]


def test_per_device_nodes_are_dropped():
    body = resource_slice("s", device(allNodes=True), perDeviceNodeSelection=True)
    with running_without("DRAPartitionableDevices") as api:
        made = api.create(SLICES, body)

    assert "perDeviceNodeSelection" not in made["spec"]
    assert made["spec"]["devices"] == [device()]


def test_a_slice_that_is_written_again_as_it_came_back_is_not_changed():
    with running_without(*SLICE_FIELDS) as api:
        made = api.create(SLICES, resource_slice("s", device(taints=TAINTS)))
        again = api.put(f"{SLICES}/s", resource_slice("s", device(taints=TAINTS)))

    assert again == made


@pytest.mark.parametrize(("gate", "fields"), SLICE_FIELDS.items(), ids=SLICE_FIELDS)
def test_fields_in_use_are_not_dropped_from_an_update(gate, fields):
    with running_without(gate) as api:
        in_use = resource_slice("s", device(**fields))
        store_as_if_the_gate_had_been_on(api, in_use)

        more = [device(**fields), device("gpu-1", **fields)]
        updated = api.put(f"{SLICES}/s", changed(in_use, "spec.devices", more))

    assert updated["spec"]["devices"] == more


def store_as_if_the_gate_had_been_on(api, body):
    metadata = {"name": "s", "uid": "u", "generation": 1}
    api.server.store.put("resourceslices.resource.k8s.io", body | {"metadata": metadata})


@pytest.mark.parametrize(
    ("gate", "fields"),
    [
        ("DRAListTypeAttributes", {"attributes": {"a": {"strings": ["x", "y"]}}}),
        (
            "DRANodeAllocatableResources",
            {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}},
        ),
    ],
)
def test_gates_that_are_off_by_default_can_be_put_on(gate, fields):
    body = resource_slice("s", device(**fields))
    with running_without() as api:
        answer = api.send("POST", SLICES, body)
    with api_objects.Api(enabled_gates=frozenset({gate})) as api:
        kept = api.create(SLICES, body)

    assert kept["spec"]["devices"] == [device(**fields)]
    assert answer.status == 422 or answer.body["spec"]["devices"] != [device(**fields)]


def asking(**fields):
    request = {"name": "gpu", "exactly": {"deviceClassName": "c", **fields}}
    return {"devices": {"requests": [request]}}


@pytest.mark.parametrize(
    ("gate", "field", "value"),
    [
        ("DRAAdminAccess", "adminAccess", True),
        ("DRADeviceTaints", "tolerations", [{"operator": "Exists"}]),
        ("DRAConsumableCapacity", "capacity", {"requests": {"memory": "1Gi"}}),
    ],
)
def test_fields_of_a_request_are_dropped(gate, field, value):
    with running_without(gate) as api:
        made = api.create(CLAIMS, claim(spec=asking(**{field: value})))

    assert field not in made["spec"]["devices"]["requests"][0]["exactly"]


def test_without_alternatives_a_prioritized_request_is_none():
    spec = {"devices": {"requests": [{"name": "gpu", "firstAvailable": ALTERNATIVES}]}}
    with running_without("DRAPrioritizedList") as api:
        answer = api.send("POST", CLAIMS, claim(spec=spec))

    [cause] = answer.causes
    assert cause.startswith("spec.devices.requests[0]: Required value: exactly one of `exactly`")


def test_without_shares_a_distinct_attribute_is_no_constraint():
    spec = api_objects.claim_spec(constraints=[{"distinctAttribute": "a.example/b"}])
    with running_without("DRAConsumableCapacity") as api:
        answer = api.send("POST", CLAIMS, claim(spec=spec))

    assert answer.causes == ["spec.devices.constraints[0].matchAttribute: Required value"]


def test_fields_of_an_allocation_are_dropped():
    share = "0f0e0d0c-0b0a-4908-8706-050403020100"
    result = api_objects.result(shareID=share, consumedCapacity={"m": "1"}, **CONDITIONS)
    del result["bindsToNode"]
    status = {
        "allocation": api_objects.allocation(result, allocationTimestamp="2026-01-01T00:00:00Z"),
        "devices": [api_objects.changed(api_objects.result(), "request", None)],
    }
    gates = ("DRAConsumableCapacity", "DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus")
    with running_without(*gates) as api:
        api.create(CLAIMS, claim())
        written = api.patch(f"{CLAIMS}/mine/status", {"status": status})

    assert written["status"] == {"allocation": api_objects.allocation()}


def test_an_extended_resource_is_dropped_from_a_class():
    body = api_objects.device_class(extendedResourceName="nvidia.com/gpu")
    with running_without("DRAExtendedResource") as api:
        assert api.create(CLASSES, body)["spec"] == {}


@pytest.mark.parametrize(
    ("minor", "off"),
    [
        (32, {"DRAResourceClaimDeviceStatus", "DRAPrioritizedList", "DRADeviceTaints"}),
        (34, {"DRAPartitionableDevices", "DRAConsumableCapacity", "DRADeviceTaints"}),
        (36, {"DRAListTypeAttributes", "DRANodeAllocatableResources"}),
    ],
)
def test_which_gates_are_off_follows_from_the_version(minor, off):
    assert off <= resource_gates.disabled(minor, off=(), on=())


def test_at_1_36_only_alpha_gates_are_off():
    assert resource_gates.disabled(36, off=(), on=()) == {
        "DRAListTypeAttributes",
        "DRANodeAllocatableResources",
    }


def test_an_older_server_drops_taints():
    with api_objects.Api(kubernetes_version="v1.34.0") as api:
        made = api.create(SLICES, resource_slice("s", device(taints=TAINTS)))

    assert made["spec"]["devices"] == [device()]


def test_a_gate_that_does_not_exist_is_refused():
    with pytest.raises(errors.Rejected, match="DRATaints"):
        api_objects.Api(disabled_gates=frozenset({"DRATaints"}))


@pytest.mark.parametrize(
    ("options", "on"),
    [
        ({}, True),
        ({"kubernetes_version": "v1.35.3"}, False),
        ({"disabled_gates": frozenset({"DRAExtendedResource"})}, False),
        ({"kubernetes_version": "v1.34.0",
          "enabled_gates": frozenset({"DRAExtendedResource"})}, True),
    ],
    ids=str,
)  # fmt: skip
def test_a_server_tells_which_gates_are_on(options, on):
    assert api_objects.Api(**options).server.is_on("DRAExtendedResource") is on
