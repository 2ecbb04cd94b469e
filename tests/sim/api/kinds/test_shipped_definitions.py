"""The kinds that the chart installs: an API server takes them, and refuses mistakes of users."""

import functools
import pathlib

import pytest
import yaml
from custom_resources import DEFINITIONS

CRDS = pathlib.Path(__file__).parents[4] / "crds"
FILES = sorted(CRDS.glob("*.yaml"))
PARAMETERS = "/apis/gpu.resource.nvidia.com/v1alpha1/namespaces/default/gpuclaimparameters"


@pytest.fixture
def kinds(api):
    for path in FILES:
        api.create(DEFINITIONS, definition(path))
    return api


@functools.cache
def definition(path):
    return yaml.safe_load(path.read_text())


def parameters(**spec):
    return {"metadata": {"name": "a"}, "spec": spec}


def test_there_are_some():
    assert [path.name.partition(".")[0] for path in FILES] == [
        "gpuclaimparameters", "migclaimparameters", "migdeviceclaimparameters",
        "vfiogpuclaimparameters",
    ]  # fmt: skip


def test_what_is_right_is_taken_with_its_defaults(kinds):
    memory = {"memory": {"value": "16Gi", "operator": "GreaterThan"}}
    selector = {"andExpression": [{"productName": "*t4*"}, memory]}
    made = kinds.create(PARAMETERS, parameters(selector=selector))
    assert made["spec"] == {"count": 1, "selector": selector}


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"count": 0}, "spec.count in body should be greater than or equal to 1"),
        ({"selector": {"memory": {"value": "1Gi", "operator": "Above"}}}, "Unsupported value"),
        ({"selector": {"memory": {"value": "1Gi"}}}, "spec.selector.memory.operator: Required"),
        ({"selector": {"index": 1, "brand": "x"}}, "spec.selector: Invalid value: "),
        ({"sharing": {"strategy": "Both"}}, 'spec.sharing.strategy: Unsupported value: "Both"'),
    ],
    ids=["number", "operator", "no operator", "two properties", "strategy"],
)
def test_a_mistake_is_refused_by_the_api_server_itself(kinds, spec, cause):
    answer = kinds.send("POST", PARAMETERS, parameters(**spec))
    assert answer.status == 422
    assert any(cause in found for found in answer.causes), answer.causes


def test_a_condition_in_the_status_is_shown_in_a_column(kinds):
    kinds.create(PARAMETERS, parameters(count=2))
    moment = "2026-11-30T10:00:00Z"
    ready = {"type": "Ready", "status": "False", "reason": "NoDevice", "message": "none"}
    status = {"conditions": [ready | {"lastTransitionTime": moment}], "matching": 0}
    kinds.patch(f"{PARAMETERS}/a/status", {"status": status})
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    answer = kinds.send("GET", PARAMETERS, headers={"accept": table}).body
    assert answer["rows"][0]["cells"][:4] == ["a", "False", 0, "NoDevice"]
