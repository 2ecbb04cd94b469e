"""No body, however strange, makes the server fail."""

import copy

import api_objects
import effort
import hypothesis
import pytest
from api_objects import CLAIMS, CLASSES, EVENTS, NAMESPACES, NODES, PODS, SLICES, TEMPLATES
from hypothesis import strategies as st

RESULT = api_objects.result(tolerations=[{"operator": "Exists"}])
STATUS = {
    "allocation": api_objects.allocation(RESULT, nodeSelector={"nodeSelectorTerms": [{}]}),
    "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    "devices": [{"driver": "d", "pool": "p", "device": "d", "networkData": {"ips": ["x"]}}],
}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
METADATA = {"labels": {"a": "b"}, "finalizers": ["x/y"], "ownerReferences": [OWNER]}
DEVICE = api_objects.device(
    capacity={"m": {"value": "1", "requestPolicy": {"default": "1", "validRange": {"min": "1"}}}},
    consumesCounters=[{"counterSet": "a", "counters": {"b": {"value": "1"}}}],
    taints=[{"key": "k", "effect": "NoSchedule"}],
    bindingConditions=["a"],
)
CLAIM_SPEC = api_objects.claim_spec(
    constraints=[{"matchAttribute": "a/b", "requests": ["gpu"]}],
    config=[{"opaque": {"driver": "d", "parameters": {}}}],
)
BODIES = {
    NAMESPACES: {},
    NODES: {"spec": {"taints": [{}]}, "status": {"conditions": [{}], "capacity": {"a": "1"}}},
    EVENTS: {"involvedObject": {"kind": "Pod"}, "series": {"count": 1}, "count": 1},
    PODS: api_objects.pod(
        initContainers=[{"name": "i", "image": "x"}],
        resourceClaims=[{"name": "gpu", "resourceClaimName": "x"}],
        tolerations=[{"key": "k"}],
    ),
    CLASSES: api_objects.device_class(selectors=[{"cel": {"expression": "true"}}]),
    CLAIMS: api_objects.claim(spec=CLAIM_SPEC),
    TEMPLATES: api_objects.template(spec=CLAIM_SPEC),
    SLICES: api_objects.resource_slice("", DEVICE, sharedCounters=[{"name": "a"}]),
}
SCALARS = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        2**70,
        1.5,
        "",
        "x",
        "x/y/z",
        "\x00",
        "ü" * 100,
        [],
        {},
        [[]],
        [None],
        {"": 1},
    ]
)
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.sampled_from("ab"), SCALARS)
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


def places(value, path=()):
    """The paths of everything in the value."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def replaced(body, path, value):
    if not path:
        return value
    body = copy.deepcopy(body)
    place = body
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return body


@st.composite
def strange(draw, body):
    return replaced(body, draw(st.sampled_from(list(places(body)))), draw(VALUES))


@pytest.mark.parametrize("collection", BODIES)
@hypothesis.settings(max_examples=effort.examples(120), deadline=None)
@hypothesis.given(data=st.data())
def test_an_object_is_created_or_refused(shared_api, collection, data):
    body = BODIES[collection] | {"metadata": {"generateName": "x-", **METADATA}}
    if data.draw(st.booleans()):
        body["metadata"] = {"generateName": "x-"}

    answer = shared_api.send("POST", collection, data.draw(strange(body)))

    assert answer.status in (201, 400, 422), answer
    if answer.status == 201:
        assert shared_api.send("GET", collection, headers=TABLE).status == 200


@hypothesis.settings(max_examples=effort.examples(150), deadline=None)
@hypothesis.given(data=st.data())
def test_a_status_is_written_or_refused(shared_api, data):
    name = shared_api.create(CLAIMS, BODIES[CLAIMS] | {"metadata": {"generateName": "x-"}})[
        "metadata"
    ]["name"]
    body = {"metadata": {}, "status": data.draw(strange(STATUS))}

    assert shared_api.send("PUT", f"{CLAIMS}/{name}/status", body).status in (200, 400, 422)


PATCHES = {
    "merge-patch+json": VALUES,
    "strategic-merge-patch+json": strange(
        {
            "spec": {
                "containers": [{"name": "main", "env": [{"name": "A", "$patch": "delete"}]}],
                "$setElementOrder/containers": [{"name": "main"}],
                "$retainKeys": ["containers"],
            },
            "metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["x/y"]},
        }
    ),
    "json-patch+json": strange(
        [
            {"op": "add", "path": "/metadata/labels", "value": {}},
            {"op": "move", "from": "/metadata/labels", "path": "/metadata/annotations"},
        ]
    ),
    "apply-patch+yaml": strange(api_objects.pod()),
}


@pytest.mark.parametrize("form", PATCHES)
@hypothesis.settings(max_examples=effort.examples(120), deadline=None)
@hypothesis.given(data=st.data())
def test_a_patch_is_applied_or_refused(shared_api, form, data):
    name = shared_api.create(PODS, api_objects.pod() | {"metadata": {"generateName": "x-"}})[
        "metadata"
    ]["name"]

    answer = shared_api.send(
        "PATCH",
        f"{PODS}/{name}",
        data.draw(PATCHES[form]),
        content_type=f"application/{form}",
        fieldManager="me",
    )

    assert answer.status in (200, 400, 409, 422), answer
