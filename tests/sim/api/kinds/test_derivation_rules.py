"""Attributes that requests derive, where the gate DRADerivedAttributes is on."""

import api_objects
import pytest
from api_objects import CLAIMS, TEMPLATES, claim

from dra_driver.logic.cel import derivation

GATES = frozenset({"DRADerivedAttributes"})


@pytest.fixture(scope="module")
def api():
    with api_objects.Api(
        kubernetes_version="v1.37.0", enabled_gates=GATES, derivation_check=derivation.check
    ) as running:
        yield running


def derived(name="derived/numa", expression="device.attributes['d.example'].numa"):
    return {"name": name, "expression": expression}


def spec(*items, constraints=({"matchAttribute": "derived/numa"},), **request):
    asked = {"deviceClassName": "c", "derivedAttributes": list(items)}
    return {
        "devices": {
            "requests": [{"name": "gpu", "exactly": asked} | request],
            "constraints": list(constraints),
        }
    }


def answer(api, *items, **options):
    body = claim(spec=spec(*items, **options))
    body["metadata"] = {"generateName": "c-"}
    return api.send("POST", CLAIMS, body)


PATH = "spec.devices.requests[0].exactly.derivedAttributes"


@pytest.mark.parametrize(
    "constraint",
    [
        {"matchAttribute": "derived/numa"},
        {"matchAttribute": "derived/numa", "requests": ["gpu"]},
        {"distinctAttribute": "derived/numa"},
    ],
)
def test_one_that_a_constraint_of_the_request_uses_is_taken(api, constraint):
    made = answer(api, derived(), constraints=[constraint])
    assert (made.status, made.causes) == (201, [])
    assert made.body["spec"]["devices"]["requests"][0]["exactly"]["derivedAttributes"] == [
        derived()
    ]


@pytest.mark.parametrize("reference", ["alt", "alt/small"])
def test_alternatives_have_theirs(api, reference):
    inner = {"name": "small", "deviceClassName": "c", "derivedAttributes": [derived()]}
    constraints = [{"matchAttribute": "derived/numa", "requests": [reference]}]
    body = claim(
        spec={
            "devices": {
                "requests": [{"name": "alt", "firstAvailable": [inner]}],
                "constraints": constraints,
            }
        }
    )
    body["metadata"] = {"generateName": "c-"}
    made = api.send("POST", CLAIMS, body)
    assert (made.status, made.causes) == (201, [])


UNUSED = "must be used by at least one constraint that applies to the request"
REFUSED = {
    "that no constraint uses": (
        [derived(), derived("derived/other")],
        f'{PATH}[1].name: Invalid value: "derived/other": {UNUSED}',
    ),
    "without a name": ([derived("")], f"{PATH}[0].name: Required value"),
    "without a domain": (
        [derived("numa")],
        f'{PATH}[0].name: Invalid value: "numa": a fully qualified name',
    ),
    "twice": ([derived(), derived()], f"{PATH}[1]: Duplicate value"),
    "without an expression": ([derived(expression="")], f"{PATH}[0].expression: Required value"),
    "with an expression that does not compile": (
        [derived(expression="1 +")],
        f'{PATH}[0].expression: Invalid value: "1 +"',
    ),
    "with a value that no attribute has": (
        [derived(expression="1.5")],
        f'{PATH}[0].expression: Invalid value: "1.5": line 1, column 1: must evaluate to',
    ),
    "with a long expression": (
        [derived(expression=f'"{"x" * 10240}"')],
        f"{PATH}[0].expression: Too long: may not be more than 10240 bytes",
    ),
    "of which there are 33": (
        [derived(f"derived/a{n}") for n in range(33)],
        f"{PATH}: Too many: 33: must have at most 32 items",
    ),
}


@pytest.mark.parametrize(("items", "cause"), REFUSED.values(), ids=REFUSED)
def test_refused(api, items, cause):
    told = answer(api, *items)
    assert told.status == 422
    assert [text for text in told.causes if text.startswith(cause)], told.causes


def test_a_constraint_of_another_request_does_not_use_it(api):
    body = claim(
        spec=spec(
            derived(), constraints=[{"matchAttribute": "derived/numa", "requests": ["other"]}]
        )
    )
    other = {"name": "other", "exactly": {"deviceClassName": "c"}}
    body["spec"]["devices"]["requests"].append(other)
    assert f'{PATH}[0].name: Invalid value: "derived/numa": {UNUSED}' in (
        api.send("POST", CLAIMS, body).causes
    )


def test_templates_are_looked_at_too(api):
    body = {"metadata": {"generateName": "t-"}, "spec": {"spec": spec(derived(), constraints=[])}}
    [cause] = api.send("POST", TEMPLATES, body).causes
    assert cause.startswith("spec.spec.devices.requests[0].exactly.derivedAttributes[0].name: ")
