"""What the API server of a release refuses, knows and drops that that of another does not."""

import api_objects
import pytest
from api_objects import CLAIMS, SLICES, changed, claim, device, resource_slice

TERM = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
COUNTERS = [{"counterSet": "m", "counters": {"memory": {"value": "1Gi"}}}]


def answer(minor, path, body, **options):
    with api_objects.Api(kubernetes_version=f"v1.{minor}.0", **options) as api:
        return api.send("POST", path, body)


class TestNamesWithTwoSlashes:
    @pytest.mark.parametrize(("minor", "status"), [(36, 201), (37, 201), (38, 422)])
    @pytest.mark.parametrize(
        "fields", [{"attributes": {"a/b/c": {"int": 1}}}, {"capacity": {"a/b/c": {"value": "1"}}}]
    )
    def test_of_an_attribute_or_a_capacity(self, minor, status, fields):
        assert answer(minor, SLICES, resource_slice("s", device(**fields))).status == status

    @pytest.mark.parametrize(("minor", "status"), [(37, 201), (38, 422)])
    @pytest.mark.parametrize("kind", ["matchAttribute", "distinctAttribute"])
    def test_of_a_constraint(self, minor, status, kind):
        spec = api_objects.claim_spec(constraints=[{kind: "a.example/b/c"}])
        assert answer(minor, CLAIMS, claim(spec=spec)).status == status

    def test_the_cause_is_told_once(self):
        body = resource_slice("s", device(attributes={"a//c": {"int": 1}}))
        assert answer(38, SLICES, body).causes == [
            (
                'spec.devices[0].attributes: Invalid value: "a//c": a qualified name must be an '
                "identifier, or a domain and one with a slash between"
            )
        ]


@pytest.mark.parametrize(("minor", "status"), [(36, 201), (37, 201), (38, 422)])
def test_a_device_with_two_terms_of_nodes(minor, status):
    selector = {"nodeSelectorTerms": [TERM, TERM]}
    body = resource_slice("s", device(nodeSelector=selector), perDeviceNodeSelection=True)
    del body["spec"]["nodeName"]
    told = answer(minor, SLICES, body)
    assert told.status == status
    if status == 422:
        [cause] = told.causes
        assert cause.startswith("spec.devices[0].nodeSelector.nodeSelectorTerms: Invalid value")
        assert cause.endswith("must have exactly one node selector term")


@pytest.mark.parametrize(("minor", "causes"), [(36, 0), (37, 1)])
def test_the_tolerations_of_a_result_are_looked_at_from_1_37_on(minor, causes):
    result = api_objects.result(tolerations=[{"key": "k", "operator": "Exists", "value": "v"}])
    with api_objects.Api(kubernetes_version=f"v1.{minor}.0") as api:
        made = api.create(CLAIMS, claim())
        made["status"] = {"allocation": api_objects.allocation(result)}
        told = api.send("PUT", f"{CLAIMS}/mine/status", made).causes
    assert (
        told
        == [
            (
                "status.allocation.devices.results[0].tolerations[0].value: "
                'Invalid value: "v": must be empty for operator `Exists`'
            )
        ][:causes]
    )


@pytest.mark.parametrize("minor", [36, 37])
@pytest.mark.parametrize("times", [1, 2])
def test_configs_for_all_requests_and_the_same_twice_are_taken(minor, times):
    config = {"source": "FromClaim", "opaque": {"driver": "d.example", "parameters": {}}}
    allocation = api_objects.allocation()
    allocation["devices"]["config"] = [config] * times
    with api_objects.Api(kubernetes_version=f"v1.{minor}.0") as api:
        made = api.create(CLAIMS, claim())
        made["status"] = {"allocation": allocation}
        written = api.put(f"{CLAIMS}/mine/status", made)
    assert written["status"]["allocation"]["devices"]["config"] == [config] * times


MAPPING = {"mapping": {"deviceMultiplier": "2"}, "overhead": {"perPod": "1Gi"}}
DERIVED = [{"name": "derived/numa", "expression": "device.attributes['d'].numa"}]


def of_device(**fields):
    return SLICES, resource_slice("s", device(**fields)), ("spec", "devices", 0)


def of_slice(**fields):
    return SLICES, resource_slice("s", device(), **fields), ("spec",)


def of_request(**fields):
    request = {"name": "gpu", "exactly": {"deviceClassName": "c", **fields}}
    constraints = [{"requests": ["gpu"], "matchAttribute": "derived/numa"}]
    spec = {"devices": {"requests": [request], "constraints": constraints}}
    return CLAIMS, claim(spec=spec), ("spec", "devices", "requests", 0, "exactly")


GROUPS = {"counterSet": "m", "counters": COUNTERS[0]["counters"], "compatibilityGroups": ["mig"]}

NEW_IN_1_37 = {
    "DRANodeAllocatableResources": (
        of_device(nodeAllocatableResources={"memory": MAPPING}), "nodeAllocatableResources",
    ),
    "DRAPartitionableDevicesType": (
        of_slice(partitionTypeAttribute="gpu.example.com/profile"), "partitionTypeAttribute",
    ),
    "DRAOptionalNodeOperations": (of_slice(skipNodeOperations=["*"]), "skipNodeOperations"),
    "DRADeviceCompatibilityGroups": (
        (*of_device(consumesCounters=[GROUPS])[:2], ("spec", "devices", 0, "consumesCounters", 0)),
        "compatibilityGroups",
    ),
    "DRADerivedAttributes": (of_request(derivedAttributes=DERIVED), "derivedAttributes"),
}  # fmt: skip


def at(body, place):
    for key in place:
        body = body[key]
    return body


WRITTEN = list(NEW_IN_1_37.values())


@pytest.mark.parametrize("gate", NEW_IN_1_37)
def test_a_field_that_1_37_brings_is_kept_where_its_gate_is_on(gate):
    (path, body, place), field = NEW_IN_1_37[gate]
    made = answer(37, path, body, enabled_gates=frozenset({gate}))
    assert made.status == 201, made.causes
    assert at(made.body, place)[field] == at(body, place)[field]


@pytest.mark.parametrize("minor", [37, 38])
@pytest.mark.parametrize(("written", "field"), WRITTEN, ids=NEW_IN_1_37)
def test_it_is_dropped_where_the_gate_is_off(written, field, minor):
    path, body, place = written
    with api_objects.Api(kubernetes_version=f"v1.{minor}.0") as api:
        made = api.send("POST", path, body, fieldValidation="Strict")
    assert made.status == 201, made.causes
    assert field not in at(made.body, place)


@pytest.mark.parametrize(("written", "field"), WRITTEN, ids=NEW_IN_1_37)
def test_it_is_not_known_in_1_36(written, field):
    path, body, _ = written
    with api_objects.Api() as api:
        made = api.send("POST", path, body, fieldValidation="Strict")
    assert made.status == 400
    assert "strict decoding error: unknown field" in made.body["message"]
    assert field in made.body["message"]


def test_the_field_that_they_took_the_place_of_is_not_known_in_1_37():
    body = resource_slice("s", device(nodeAllocatableResourceMappings={"cpu": {}}))
    gates = {"enabled_gates": frozenset({"DRANodeAllocatableResources"})}
    assert (
        "nodeAllocatableResourceMappings"
        in answer(36, SLICES, body, **gates).body["spec"]["devices"][0]
    )
    assert answer(37, SLICES, body, **gates).body["spec"]["devices"] == [device()]


REFUSED = {
    "resources without mapping and overhead": (
        of_device(nodeAllocatableResources={"cpu": {}}),
        "spec.devices[0].nodeAllocatableResources[cpu]: Required value: at least one of",
    ),
    "a mapping that says nothing": (
        of_device(nodeAllocatableResources={"cpu": {"mapping": {}}}),
        "spec.devices[0].nodeAllocatableResources[cpu].mapping: Required value: exactly one of",
    ),
    "a key of a capacity without a multiplier": (
        of_device(
            capacity={"cores": {"value": "8"}},
            nodeAllocatableResources={"cpu": {"mapping": {"capacityKey": "cores"}}},
        ),
        (
            "spec.devices[0].nodeAllocatableResources[cpu].mapping.capacityMultiplier: "
            "Required value: required when `capacityKey` is set"
        ),
    ),
    "a resource that is none of the node": (
        of_device(nodeAllocatableResources={"nvidia.com/gpu": MAPPING}),
        'spec.devices[0].nodeAllocatableResources[nvidia.com/gpu]: Invalid value: "nvidia.com/gpu"',
    ),
    "an operation that there is not": (
        of_slice(skipNodeOperations=["Everything"]),
        'spec.skipNodeOperations[0]: Unsupported value: "Everything"',
    ),
    "prepare alone": (
        of_slice(skipNodeOperations=["NodePrepareResources"]),
        "spec.skipNodeOperations: Invalid value",
    ),
    "a kind of partition without a domain": (
        of_slice(partitionTypeAttribute="profile"),
        'spec.partitionTypeAttribute: Invalid value: "profile": a fully qualified name',
    ),
    "three groups": (
        of_device(consumesCounters=[{**GROUPS, "compatibilityGroups": ["a", "b", "c"]}]),
        "spec.devices[0].consumesCounters[0].compatibilityGroups: Too many: 3",
    ),
    "a group twice": (
        of_device(consumesCounters=[{**GROUPS, "compatibilityGroups": ["a", "a"]}]),
        "spec.devices[0].consumesCounters[0].compatibilityGroups[1]: Duplicate value",
    ),
}


@pytest.mark.parametrize(("written", "cause"), REFUSED.values(), ids=REFUSED)
def test_refused_where_the_gates_are_on(written, cause):
    path, body, _ = written
    told = answer(37, path, body, enabled_gates=frozenset(NEW_IN_1_37))
    assert told.status == 422
    assert [text for text in told.causes if text.startswith(cause)], told.causes


@pytest.mark.parametrize(("minor", "kept"), [(35, False), (36, True)])
def test_the_health_of_devices_is_part_of_a_pods_status_from_1_36_on(minor, kept):
    health = {"name": "claim:gpu", "resources": [{"resourceID": "x", "health": "Healthy"}]}
    status = {"containerStatuses": [{"name": "c", "allocatedResourcesStatus": [health]}]}
    with api_objects.Api(kubernetes_version=f"v1.{minor}.0") as api:
        api.create(api_objects.PODS, api_objects.pod("p"))
        written = api.patch(f"{api_objects.PODS}/p/status", {"status": status})
    assert ("allocatedResourcesStatus" in written["status"]["containerStatuses"][0]) == kept


@pytest.mark.parametrize(("minor", "status"), [(36, 400), (37, 200), (38, 200)])
def test_slices_of_a_pool_can_be_asked_for_from_1_37_on(minor, status):
    with api_objects.Api(kubernetes_version=f"v1.{minor}.0") as api:
        for name in ("a", "b"):
            body = changed(resource_slice(name, device()), "spec.pool.name", f"pool-{name}")
            api.create(SLICES, body)
        found = api.send("GET", SLICES, fieldSelector="spec.pool.name=pool-b")
    assert found.status == status
    if status == 200:
        assert [item["metadata"]["name"] for item in found.body["items"]] == ["b"]
    else:
        assert "field label not supported: spec.pool.name" in found.body["message"]
