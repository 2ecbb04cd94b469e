"""What `kubectl get` is given to print, and other forms of answers."""

import datetime as dt

import api_objects
import pytest
from api_objects import CLAIMS, CONFIG_MAPS, EVENTS, NODES, PODS, SLICES

from dra_driver.sim.api.kinds import printing
from dra_driver.sim.api.serving import representing

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
BORN = {"creationTimestamp": "2026-01-01T11:59:15Z"}


def row(columns, body, *, wide=False):
    body = {"metadata": {"name": "it", **BORN, **body.get("metadata", {})}} | {
        key: value for key, value in body.items() if key != "metadata"
    }
    return {column.name: column.cell(body, NOW) for column in columns if wide or not column.wide}


def test_a_list_comes_as_a_table(api):
    api.create(CONFIG_MAPS, api_objects.config_map("a", x="1"))

    answer = api.send("GET", CONFIG_MAPS, headers={"accept": f"{TABLE},application/json"})

    assert answer.headers["content-type"] == TABLE
    assert answer.body["kind"] == "Table"
    assert [item["name"] for item in answer.body["columnDefinitions"]] == ["Name", "Data", "Age"]
    [printed] = answer.body["rows"]
    assert printed["cells"][:2] == ["a", 1]
    assert printed["object"]["kind"] == "PartialObjectMetadata"
    assert answer.body["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("include", "kind"), [("Object", "ConfigMap"), ("Metadata", "PartialObjectMetadata")]
)
def test_a_row_carries_what_is_asked_for(api, include, kind):
    api.create(CONFIG_MAPS, api_objects.config_map("a"))

    answer = api.send("GET", f"{CONFIG_MAPS}/a", headers={"accept": TABLE}, includeObject=include)

    assert answer.body["rows"][0]["object"]["kind"] == kind


def test_a_row_can_carry_nothing(api):
    api.create(CONFIG_MAPS, api_objects.config_map("a"))

    answer = api.send("GET", CONFIG_MAPS, headers={"accept": TABLE}, includeObject="None")

    assert "object" not in answer.body["rows"][0]


def test_metadata_alone_can_be_asked_for(api):
    made = api.create(CONFIG_MAPS, api_objects.config_map("a", x="1"))
    accept = "application/json;as={};v=v1;g=meta.k8s.io"

    one = api.send(
        "GET", f"{CONFIG_MAPS}/a", headers={"accept": accept.format("PartialObjectMetadata")}
    )
    several = api.send(
        "GET", CONFIG_MAPS, headers={"accept": accept.format("PartialObjectMetadataList")}
    )

    assert one.body["metadata"] == made["metadata"]
    assert "data" not in one.body
    assert several.body["kind"] == "PartialObjectMetadataList"
    assert [item["metadata"] for item in several.body["items"]] == [made["metadata"]]


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", representing.Form.OBJECT),
        ("*/*", representing.Form.OBJECT),
        ("application/json", representing.Form.OBJECT),
        ("application/vnd.kubernetes.protobuf,application/json", representing.Form.OBJECT),
        (TABLE, representing.Form.TABLE),
        (f"application/json;as=Table;v=v1beta1;g=meta.k8s.io,{TABLE}", representing.Form.TABLE),
        (f"application/json,{TABLE}", representing.Form.OBJECT),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", representing.Form.OBJECT),
        ("application/json;as=Chart;v=v1;g=meta.k8s.io", representing.Form.OBJECT),
    ],
)
def test_the_first_form_that_is_known_is_taken(accept, form):
    assert representing.negotiate(accept) is form


POD_SPEC = {"containers": [{"name": "a"}, {"name": "b"}], "nodeName": "node-1"}
PODS_PRINTED = {
    "a pod that waits": (
        {"spec": POD_SPEC, "status": {"phase": "Pending"}},
        {"Ready": "0/2", "Status": "Pending", "Restarts": "0", "Age": "45s"},
    ),
    "a pod that runs": (
        {
            "spec": POD_SPEC,
            "status": {
                "phase": "Running",
                "podIP": "10.0.0.1",
                "containerStatuses": [
                    {"ready": True, "restartCount": 2, "state": {"running": {}}},
                    {"ready": False, "restartCount": 1, "state": {"running": {}}},
                ],
            },
        },
        {"Ready": "1/2", "Status": "Running", "Restarts": "3", "IP": "10.0.0.1"},
    ),
    "a pod whose container cannot start": (
        {
            "spec": POD_SPEC,
            "status": {
                "phase": "Pending",
                "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}],
            },
        },
        {"Status": "ContainerCreating", "Node": "node-1"},
    ),
    "a pod that is done": (
        {
            "spec": POD_SPEC,
            "status": {
                "phase": "Succeeded",
                "containerStatuses": [{"state": {"terminated": {"reason": "Completed"}}}],
            },
        },
        {"Status": "Completed"},
    ),
    "a pod that goes": (
        {
            "metadata": {"deletionTimestamp": "2026-01-01T12:00:30Z"},
            "spec": POD_SPEC,
            "status": {"phase": "Running"},
        },
        {"Status": "Terminating"},
    ),
    "a pod that was evicted": (
        {"spec": POD_SPEC, "status": {"phase": "Failed", "reason": "Evicted"}},
        {"Status": "Evicted"},
    ),
    "a pod that is gated": (
        {
            "spec": {"containers": [{"name": "a"}]},
            "status": {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}],
            },
        },
        {"Status": "SchedulingGated", "Node": "<none>", "IP": "<none>"},
    ),
}


@pytest.mark.parametrize(("body", "cells"), PODS_PRINTED.values(), ids=PODS_PRINTED)
def test_pods_are_printed(body, cells):
    assert row(printing.POD, body, wide=True).items() >= cells.items()


@pytest.mark.parametrize(
    ("metadata", "status", "state"),
    [
        ({}, {}, "pending"),
        ({}, {"allocation": {}}, "allocated"),
        ({}, {"allocation": {}, "reservedFor": [{}]}, "allocated,reserved"),
        ({"deletionTimestamp": "x"}, {}, "deleted"),
        ({"deletionTimestamp": "x"}, {"allocation": {}, "reservedFor": [{}]},
         "deleted,allocated,reserved"),
    ],
)  # fmt: skip
def test_claims_are_printed(metadata, status, state):
    printed = row(printing.CLAIM, {"metadata": metadata, "status": status})

    assert printed == {"Name": "it", "State": state, "Age": "45s"}


@pytest.mark.parametrize(
    ("spec", "node"),
    [({"nodeName": "n"}, "n"), ({"allNodes": True}, "<all>"), ({"nodeSelector": {}}, "<unset>")],
)
def test_slices_are_printed(spec, node):
    body = {"spec": {"driver": "d", "pool": {"name": "p"}, **spec}}

    assert row(printing.SLICE, body) == {
        "Name": "it",
        "Node": node,
        "Driver": "d",
        "Pool": "p",
        "Age": "45s",
    }


@pytest.mark.parametrize(
    ("spec", "conditions", "status"),
    [
        ({}, [{"type": "Ready", "status": "True"}], "Ready"),
        ({}, [{"type": "Ready", "status": "False"}], "NotReady"),
        ({"unschedulable": True}, [{"type": "Ready", "status": "True"}],
         "Ready,SchedulingDisabled"),
        ({}, [], "Unknown"),
    ],
)  # fmt: skip
def test_nodes_are_printed(spec, conditions, status):
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
    body = {
        "metadata": {"labels": {"node-role.kubernetes.io/gpu": ""}},
        "spec": spec,
        "status": {
            "conditions": conditions,
            "addresses": addresses,
            "nodeInfo": {"kubeletVersion": "v1.36.2"},
        },
    }

    cells = row(printing.NODE, body, wide=True)

    assert cells["Status"] == status
    assert cells["Roles"] == "gpu"
    assert cells["Version"] == "v1.36.2"
    assert cells["Internal-IP"] == "10.0.0.1"
    assert cells["External-IP"] == "<none>"


def test_events_are_printed():
    body = {
        "involvedObject": {"kind": "Pod", "name": "train"},
        "type": "Warning",
        "reason": "Failed",
        "message": "no\n",
        "lastTimestamp": "2026-01-01T11:00:00Z",
        "firstTimestamp": "2026-01-01T10:00:00Z",
        "count": 3,
        "source": {"component": "kubelet", "host": "node-1"},
    }

    assert row(printing.EVENT, body, wide=True) == {
        "Last Seen": "60m",
        "Type": "Warning",
        "Reason": "Failed",
        "Object": "pod/train",
        "Subobject": "",
        "Source": "kubelet, node-1",
        "Message": "no",
        "First Seen": "120m",
        "Count": 3,
        "Name": "it",
    }


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (48 * 3600, "2d"),
        (50 * 3600, "2d2h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (740 * 86400, "2y10d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_ages_are_short(seconds, words):
    assert printing.human_duration(seconds) == words


def test_an_age_that_is_not_known_is_said_so():
    assert printing.age(None, NOW) == "<unknown>"


@pytest.mark.parametrize("path", [PODS, NODES, EVENTS, CLAIMS, SLICES])
def test_an_empty_table_has_its_headings(shared_api, path):
    answer = shared_api.send("GET", path, headers={"accept": TABLE})

    assert answer.body["rows"] == []
    assert answer.body["columnDefinitions"]
