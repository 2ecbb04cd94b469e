"""Which template of a name may be used: only what is as it would be made."""

import copy

import pytest

from dra_driver.logic.admission import converted_templates
from dra_driver.logic.converting import conversion

DOOR = conversion.Door.WEBHOOK
EXACT = {"deviceClassName": "c", "capacity": {"requests": {"memory": "1024Mi", "cores": "30"}}}
SPEC = {
    "devices": {
        "requests": [
            {"name": "gpu", "exactly": EXACT},
            {"name": "gpu-2", "firstAvailable": [{"name": "x", **EXACT, "count": 2}]},
        ],
        "constraints": [{"requests": ["gpu-2"], "distinctAttribute": "gpu.nvidia.com/uuid"}],
    }
}
TEMPLATE = conversion.Template("converted-1", SPEC)


def stored():
    """As an API server has it, with what it sets itself."""
    body = copy.deepcopy(converted_templates.body(TEMPLATE, "ns", DOOR))
    body["metadata"] |= {"uid": "u", "annotations": {"x": "y"}}
    first, second = body["spec"]["spec"]["devices"]["requests"]
    for asked in (first["exactly"], second["firstAvailable"][0]):
        asked.setdefault("allocationMode", "ExactCount")
        asked.setdefault("count", 1)
        asked["capacity"]["requests"]["memory"] = "1Gi"
    body["spec"]["metadata"] = {"creationTimestamp": None}
    return body


def problem(body):
    return converted_templates.problem(body, TEMPLATE, "ns", DOOR)


def test_what_the_api_server_makes_of_it_is_as_it_should_be():
    assert problem(converted_templates.body(TEMPLATE, "ns", DOOR)) is None
    assert problem(stored()) is None


def _asked(body):
    return body["spec"]["spec"]["devices"]["requests"][0]["exactly"]


@pytest.mark.parametrize(
    "change",
    [
        lambda body: _asked(body).update(count=2),
        lambda body: _asked(body).update(allocationMode="All"),
        lambda body: _asked(body).update(adminAccess=True),
        lambda body: _asked(body).update(deviceClassName="d"),
        lambda body: _asked(body)["capacity"]["requests"].update(memory="1025Mi"),
        lambda body: _asked(body)["capacity"]["requests"].update(memory="much"),
        lambda body: _asked(body)["capacity"]["requests"].pop("cores"),
        lambda body: body["spec"]["spec"]["devices"].pop("constraints"),
        lambda body: body["spec"]["spec"]["devices"]["requests"].pop(),
        lambda body: body["spec"]["spec"]["devices"].update(config=[{"opaque": {}}]),
        lambda body: body["spec"].pop("spec"),
        lambda body: body["spec"]["spec"].update(devices=None),
        lambda body: body["spec"]["spec"]["devices"].update(requests="all"),
    ],
)
def test_any_other_spec_is_a_problem(change):
    body = stored()
    change(body)
    found = problem(body)
    assert str(found).startswith("ResourceClaimTemplate ns/converted-1: spec.spec: changed: ")


@pytest.mark.parametrize("field", ["labels", "annotations", "ownerReferences"])
def test_what_it_would_write_on_claims_is_a_problem(field):
    body = stored()
    body["spec"]["metadata"][field] = {"kueue.x-k8s.io/queue-name": "theirs"}
    found = problem(body)
    assert (found.field, found.value) == ("spec.metadata", f"['{field}']")
    assert found.rule.startswith("claims are to have none of it: somebody else's has the name")


@pytest.mark.parametrize("labels", [None, {}, {"dra-driver.dev/converted": "command"}, "no"])
def test_one_without_the_label_is_somebody_else_s(labels):
    body = stored()
    body["metadata"]["labels"] = labels
    found = problem(body)
    assert found.field == "metadata.labels[dra-driver.dev/converted]"
    assert "delete it, or give it another name" in found.rule
