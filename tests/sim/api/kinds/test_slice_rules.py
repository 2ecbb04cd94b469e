"""Every limit of the table for ResourceSlices but those of counters and shared capacity."""

import pytest
from api_objects import SLICES, changed, device, resource_slice

LABEL = "a lowercase RFC 1123 label must consist of"
SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of"


def devices(count, **fields):
    return [device(f"gpu-{index}", **fields) for index in range(count)]


def slice_of(*items, **spec):
    return resource_slice("", *items, **spec)


def with_device(**fields):
    return slice_of(device(**fields))


def counter_set(name="memory", count=1):
    return {"name": name, "counters": {f"c{index}": {"value": "1"} for index in range(count)}}


def consumes(count=1, counters=1):
    return [
        {"counterSet": f"set-{index}", "counters": counter_set(count=counters)["counters"]}
        for index in range(count)
    ]


def attributes(count, value=None):
    return {f"a{index}": value or {"int": index} for index in range(count)}


def capacity(**fields):
    return {"memory": {"value": "80Gi", **fields}}


TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
TAINT = {"key": "example.com/broken", "effect": "NoSchedule"}
CONDITIONS = {
    "bindingConditions": ["example.com/ready"],
    "bindingFailureConditions": ["example.com/failed"],
}


def per_device(**fields):
    return slice_of(device(**fields), nodeName=None, perDeviceNodeSelection=True)


ACCEPTED = {
    "128 devices": slice_of(*devices(128)),
    "64 devices with taints": slice_of(*devices(64, taints=[TAINT])),
    "64 devices with counters": slice_of(*devices(64, consumesCounters=consumes())),
    "a slice for all nodes": slice_of(nodeName=None, allNodes=True),
    "a slice for selected nodes": slice_of(
        nodeName=None, nodeSelector={"nodeSelectorTerms": [TERM]}
    ),
    "a slice for one node by its name": slice_of(
        nodeName=None,
        nodeSelector={
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
            ]
        },
    ),
    "devices that each say where they are": per_device(nodeName="node-1"),
    "a slice without devices": slice_of(devices=[]),
    "32 attributes and capacities": with_device(attributes=attributes(31), capacity=capacity()),
    "a value of 64 bytes": with_device(attributes={"a": {"string": "x" * 64}}),
    "an empty text": with_device(attributes={"a": {"string": ""}}),
    "values of all types": with_device(
        attributes={
            "i": {"int": -1},
            "b": {"bool": False},
            "s": {"string": "x"},
            "v": {"version": "1.2.3-rc.1+build.5"},
        }
    ),
    "a qualified attribute name": with_device(attributes={"gpu.example.com/some_Name": {"int": 1}}),
    "more than one slash in an attribute name, which slips through": with_device(
        attributes={"a/b/c": {"int": 1}}
    ),
    "a pool name of several parts": changed(slice_of(), "spec.pool.name", "rack-1/node-1.example"),
    "a pool name of 253 characters": changed(slice_of(), "spec.pool.name", "x" * 253),
    "a driver name of 63 characters": slice_of(driver="d" * 63),
    "generation zero": changed(slice_of(), "spec.pool.generation", 0),
    "16 taints": with_device(
        taints=[TAINT | {"key": f"example.com/k{index}"} for index in range(16)]
    ),
    "a taint with a value and effect None": with_device(
        taints=[{"key": "k", "value": "v", "effect": "None"}]
    ),
    "binding conditions": with_device(**CONDITIONS, bindsToNode=True),
    "4 binding conditions": with_device(
        bindingConditions=[f"c{index}" for index in range(4)],
        bindingFailureConditions=[f"f{index}" for index in range(4)],
    ),
}


@pytest.mark.parametrize("body", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(shared_api, body):
    body = changed(body, "metadata", {"generateName": "slice-"})

    answer = shared_api.send("POST", SLICES, body)

    assert (answer.status, answer.causes) == (201, [])


REFUSED = {
    "no driver": (slice_of(driver=None), "spec.driver: Required value"),
    "a driver name of 64 characters": (
        slice_of(driver="d" * 64),
        "spec.driver: Too long: may not be more than 63 bytes",
    ),
    "a driver name that is no subdomain": (
        slice_of(driver="gpu_driver"),
        f'spec.driver: Invalid value: "gpu_driver": {SUBDOMAIN}',
    ),
    "no pool name": (changed(slice_of(), "spec.pool.name", None), "spec.pool.name: Required"),
    "a pool name of 254 characters": (
        changed(slice_of(), "spec.pool.name", "x" * 254),
        "spec.pool.name: Too long: may not be more than 253 bytes",
    ),
    "a pool name with an empty part": (
        changed(slice_of(), "spec.pool.name", "a//b"),
        f'spec.pool.name: Invalid value: "": {SUBDOMAIN}',
    ),
    "a negative generation": (
        changed(slice_of(), "spec.pool.generation", -1),
        "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
    ),
    "a pool of no slices": (
        changed(slice_of(), "spec.pool.resourceSliceCount", 0),
        "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
    ),
    "no nodes": (
        slice_of(nodeName=None),
        (
            "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, "
            "`perDeviceNodeSelection` is required"
        ),
    ),
    "two ways to name nodes": (
        slice_of(allNodes=True),
        'spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of',
    ),
    "an empty node name": (
        slice_of(nodeName=""),
        'spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string',
    ),
    "all nodes, but false": (
        slice_of(allNodes=False),
        "spec.allNodes: Invalid value: false: must be either unset or set to true",
    ),
    "per-device selection, but false": (
        slice_of(perDeviceNodeSelection=False),
        "spec.perDeviceNodeSelection: Invalid value: false",
    ),
    "a node selector without terms": (
        slice_of(nodeName=None, nodeSelector={"nodeSelectorTerms": []}),
        "spec.nodeSelector.nodeSelectorTerms: Required value: must have at least one",
    ),
    "a node selector with two terms": (
        slice_of(nodeName=None, nodeSelector={"nodeSelectorTerms": [TERM, TERM]}),
        "spec.nodeSelector.nodeSelectorTerms: Invalid value",
    ),
    "a node selector with an unknown operator": (
        slice_of(
            nodeName=None,
            nodeSelector={
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Like"}]}]
            },
        ),
        "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].operator: Invalid value",
    ),
    "a node selector on an unknown field": (
        slice_of(
            nodeName=None,
            nodeSelector={
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "spec.x", "operator": "In", "values": ["n"]}]}
                ]
            },
        ),
        "spec.nodeSelector.nodeSelectorTerms[0].matchFields[0].key: Invalid value",
    ),
    "a node selector on a label value that is none": (
        slice_of(
            nodeName=None,
            nodeSelector={"nodeSelectorTerms": [changed(TERM, "matchExpressions.0.values", ["-"])]},
        ),
        "spec.nodeSelector.nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid value",
    ),
    "devices and counters in one slice": (
        slice_of(sharedCounters=[counter_set()]),
        'spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed',
    ),
    "129 devices": (
        slice_of(*devices(129)),
        "spec.devices: Too many: 129: must have at most 128 items",
    ),
    "65 devices of which one has a taint": (
        slice_of(*devices(64), device("tainted", taints=[TAINT])),
        "spec.devices: Too many: 65: must have at most 64 items",
    ),
    "65 devices of which one consumes counters": (
        slice_of(*devices(64), device("part", consumesCounters=consumes())),
        "spec.devices: Too many: 65: must have at most 64 items",
    ),
    "two devices of one name": (
        slice_of(device("gpu-0"), device("gpu-0")),
        'spec.devices[1]: Duplicate value: "gpu-0"',
    ),
    "a device without a name": (
        with_device(name=""),
        f'spec.devices[0].name: Invalid value: "": {LABEL}',
    ),
    "a device name in capitals": (
        slice_of(device("GPU-0")),
        f'spec.devices[0].name: Invalid value: "GPU-0": {LABEL}',
    ),
    "a device name of 64 characters": (
        slice_of(device("g" * 64)),
        "spec.devices[0].name: Invalid value",
    ),
    "33 attributes and capacities": (
        with_device(attributes=attributes(32), capacity=capacity()),
        (
            "spec.devices[0]: Invalid value: 33: the total number of attributes and capacities "
            "must not exceed 32"
        ),
    ),
    "an attribute without a value": (
        with_device(attributes={"a": {}}),
        'spec.devices[0].attributes[a]: Invalid value: "": exactly one value must be specified',
    ),
    "an attribute with two values": (
        with_device(attributes={"a": {"int": 1, "bool": True}}),
        "spec.devices[0].attributes[a]: Invalid value",
    ),
    "a text of 65 bytes": (
        with_device(attributes={"a": {"string": "x" * 65}}),
        "spec.devices[0].attributes[a].string: Too long: may not be more than 64 bytes",
    ),
    "a text of 64 characters that are more bytes": (
        with_device(attributes={"a": {"string": "ü" * 33}}),
        "spec.devices[0].attributes[a].string: Too long: may not be more than 64 bytes",
    ),
    "a version with two numbers": (
        with_device(attributes={"a": {"version": "12.8"}}),
        (
            'spec.devices[0].attributes[a].version: Invalid value: "12.8": must be a string '
            "compatible with semver.org spec 2.0.0"
        ),
    ),
    "a version with a leading zero": (
        with_device(attributes={"a": {"version": "580.65.06"}}),
        "spec.devices[0].attributes[a].version: Invalid value",
    ),
    "a version of 65 bytes": (
        with_device(attributes={"a": {"version": "1.0.0-" + "x" * 59}}),
        "spec.devices[0].attributes[a].version: Too long",
    ),
    "an attribute name with a hyphen": (
        with_device(attributes={"a-b": {"int": 1}}),
        'spec.devices[0].attributes: Invalid value: "a-b": a valid C identifier',
    ),
    "an attribute name of 33 characters": (
        with_device(attributes={"a" * 33: {"int": 1}}),
        "spec.devices[0].attributes: Too long: may not be more than 32 bytes",
    ),
    "an attribute domain of 64 characters": (
        with_device(attributes={f"{'d' * 64}/a": {"int": 1}}),
        "spec.devices[0].attributes: Too long: may not be more than 63 bytes",
    ),
    "an attribute with an empty domain": (
        with_device(attributes={"/a": {"int": 1}}),
        'spec.devices[0].attributes: Invalid value: "": the domain must not be empty',
    ),
    "an attribute with an empty name": (
        with_device(attributes={"d/": {"int": 1}}),
        'spec.devices[0].attributes: Invalid value: "": the name must not be empty',
    ),
    "a capacity name with a hyphen": (
        with_device(capacity={"a-b": {"value": "1"}}),
        'spec.devices[0].capacity: Invalid value: "a-b": a valid C identifier',
    ),
    "17 taints": (
        with_device(taints=[TAINT] * 17),
        "spec.devices[0].taints: Too many: 17: must have at most 16 items",
    ),
    "a taint without a key": (
        with_device(taints=[{"effect": "NoSchedule"}]),
        'spec.devices[0].taints[0].key: Invalid value: "": name part must be non-empty',
    ),
    "a taint without an effect": (
        with_device(taints=[{"key": "k"}]),
        "spec.devices[0].taints[0].effect: Required value",
    ),
    "a taint with an unknown effect": (
        with_device(taints=[{"key": "k", "effect": "PreferNoSchedule"}]),
        (
            'spec.devices[0].taints[0].effect: Unsupported value: "PreferNoSchedule": '
            'supported values: "NoExecute", "NoSchedule", "None"'
        ),
    ),
    "a taint value that is no label value": (
        with_device(taints=[TAINT | {"value": "a b"}]),
        'spec.devices[0].taints[0].value: Invalid value: "a b"',
    ),
    "5 binding conditions": (
        with_device(
            bindingConditions=[f"c{index}" for index in range(5)],
            bindingFailureConditions=["f"],
        ),
        "spec.devices[0].bindingConditions: Too many: 5: must have at most 4 items",
    ),
    "binding conditions without failure conditions": (
        with_device(bindingConditions=["a"]),
        "spec.devices[0].bindingFailureConditions: Invalid value: []",
    ),
    "failure conditions without binding conditions": (
        with_device(bindingFailureConditions=["a"]),
        "spec.devices[0].bindingConditions: Invalid value: []",
    ),
    "a binding condition twice": (
        with_device(bindingConditions=["a", "a"], bindingFailureConditions=["f"]),
        'spec.devices[0].bindingConditions[1]: Duplicate value: "a"',
    ),
    "a condition of both kinds": (
        with_device(bindingConditions=["a"], bindingFailureConditions=["a"]),
        (
            'spec.devices[0].bindingFailureConditions[0]: Invalid value: "a": '
            "bindingFailureConditions must not overlap with bindingConditions"
        ),
    ),
    "a condition that is no label key": (
        with_device(bindingConditions=["a b"], bindingFailureConditions=["f"]),
        'spec.devices[0].bindingConditions[0]: Invalid value: "a b"',
    ),
    "a device's node without per-device selection": (
        with_device(nodeName="node-1"),
        "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can",
    ),
    "per-device selection without a device's node": (
        per_device(),
        "spec.devices[0]: Required value: exactly one of `nodeName`, `nodeSelector`, or",
    ),
    "per-device selection with two ways to name nodes": (
        per_device(nodeName="n", allNodes=True),
        'spec.devices[0]: Invalid value: "{`nodeName`, `allNodes`}"',
    ),
    "per-device selection with an empty node name": (
        per_device(nodeName=""),
        'spec.devices[0].nodeName: Invalid value: "": must not be empty',
    ),
}


@pytest.mark.parametrize(("body", "cause"), REFUSED.values(), ids=REFUSED)
def test_refused(shared_api, body, cause):
    body = changed(body, "metadata", {"generateName": "slice-"})

    answer = shared_api.send("POST", SLICES, body)

    assert answer.status == 422
    assert answer.body["reason"] == "Invalid"
    assert [text for text in answer.causes if text.startswith(cause)], answer.causes
