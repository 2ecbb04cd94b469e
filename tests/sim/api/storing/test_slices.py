"""What becomes of ResourceSlices beyond their limits."""

import api_objects
import pytest
from api_objects import SLICES, changed, device, resource_slice

from dra_driver.sim.api.storing import registry

TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
TAINT = {"key": "example.com/broken", "effect": "NoSchedule"}


def counter_set(name="memory", count=1):
    return {"name": name, "counters": {f"c{index}": {"value": "1"} for index in range(count)}}


def consumes(count=1, counters=1):
    return [
        {"counterSet": f"set-{index}", "counters": counter_set(count=counters)["counters"]}
        for index in range(count)
    ]


def test_a_refusal_names_the_object_and_all_causes(shared_api):
    body = resource_slice("bad", device("GPU"), driver=None)

    answer = shared_api.send("POST", SLICES, body)

    assert answer.body["message"].startswith(
        'ResourceSlice.resource.k8s.io "bad" is invalid: [spec.driver: Required value, '
        'spec.devices[0].name: Invalid value: "GPU": '
    )
    assert answer.body["details"]["kind"] == "ResourceSlice"
    assert [cause["field"] for cause in answer.body["details"]["causes"]] == [
        "spec.driver",
        "spec.devices[0].name",
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [("spec.driver", "other"), ("spec.pool.name", "other"), ("spec.nodeName", "node-2")],
)
def test_what_identifies_a_slice_cannot_be_changed(api, path, value):
    made = api.create(SLICES, resource_slice())

    answer = api.send("PUT", f"{SLICES}/node-1-gpus", changed(made, path, value))

    assert answer.causes == [f'{path}: Invalid value: "{value}": field is immutable']


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.pool.generation", 2),
        ("spec.pool.resourceSliceCount", 2),
        ("spec.devices", [device("gpu-1")]),
    ],
)
def test_the_rest_of_a_slice_can_be_changed(api, path, value):
    made = api.create(SLICES, resource_slice())

    assert api.put(f"{SLICES}/node-1-gpus", changed(made, path, value)) != made


def test_a_selector_can_become_all_nodes(api):
    body = resource_slice(nodeName=None, nodeSelector={"nodeSelectorTerms": [TERM]})
    made = api.create(SLICES, body)

    patch = {"spec": {"nodeSelector": None, "allNodes": True}}
    patched = api.patch(f"{SLICES}/{made['metadata']['name']}", patch)

    assert patched["spec"]["allNodes"] is True


def test_a_taint_gets_the_time_of_its_arrival(api, monkeypatch):
    times = (f"2026-01-01T00:00:{second:02}Z" for second in range(60))
    monkeypatch.setattr(registry.Registry, "now", lambda _registry: next(times))
    made = api.create(SLICES, resource_slice("s", device(taints=[TAINT])))
    [taint] = made["spec"]["devices"][0]["taints"]

    assert taint["timeAdded"] == made["metadata"]["creationTimestamp"]


def test_the_time_of_a_taint_is_kept_in_whole_seconds(api):
    taint = TAINT | {"timeAdded": "2026-01-01T01:00:00.5+01:00"}
    made = api.create(SLICES, resource_slice("s", device(taints=[taint])))

    assert made["spec"]["devices"][0]["taints"][0]["timeAdded"] == "2026-01-01T00:00:00Z"
    assert api.put(f"{SLICES}/s", made) == made


def test_amounts_come_back_in_their_canonical_form(api):
    body = resource_slice("s", device(capacity={"memory": {"value": "81920Mi"}, "n": {"value": 2}}))

    capacity = api.create(SLICES, body)["spec"]["devices"][0]["capacity"]

    assert capacity == {"memory": {"value": "80Gi"}, "n": {"value": "2"}}


def test_an_upper_case_driver_name_is_worth_a_warning(api):
    answer = api.send("POST", SLICES, resource_slice(driver="GPU.example.com"))

    assert answer.status == 201
    assert answer.headers["warning"] == (
        '299 - "spec.driver: driver names should be lowercase; \\"GPU.example.com\\" '
        'contains uppercase characters"'
    )


def test_empty_lists_and_maps_do_not_come_back(api):
    body = resource_slice("s", device(attributes={}, taints=[]))
    body["metadata"]["labels"] = {}

    made = api.create(SLICES, body)

    assert made["spec"]["devices"] == [{"name": "gpu-0"}]
    assert "labels" not in made["metadata"]


def test_before_1_35_counters_stand_with_the_devices_that_consume_them():
    with api_objects.Api(
        kubernetes_version="v1.34.1", enabled_gates=frozenset({"DRAPartitionableDevices"})
    ) as api:
        part = device("part", consumesCounters=consumes())
        together = resource_slice("s", part, sharedCounters=[counter_set("set-0")])
        apart = resource_slice("t", part)

        api.create(SLICES, together)
        answer = api.send("POST", SLICES, apart)

    assert answer.causes == [
        (
            'spec.devices[0].consumesCounters[0].counterSet: Invalid value: "set-0": '
            "must reference a counterSet defined in the ResourceSlice sharedCounters"
        )
    ]
