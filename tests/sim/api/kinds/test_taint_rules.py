"""DeviceTaintRules: where they are served, and what is right in them."""

import api_objects
import pytest

RULES = "/apis/resource.k8s.io/{}/devicetaintrules"
V1 = RULES.format("v1")
TAINT = {"key": "example.com/ill", "effect": "NoExecute"}


def rule(name="r", taint=TAINT, **selector):
    return {"metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": taint}}


@pytest.fixture(scope="module")
def api():
    with api_objects.Api(kubernetes_version="v1.37.0") as running:
        yield running


@pytest.mark.parametrize(
    ("minor", "version", "status"),
    [(36, "v1", 404), (37, "v1", 201), (38, "v1", 201), (35, "v1beta2", 404), (36, "v1beta2", 201),
     (37, "v1beta2", 201), (37, "v1beta1", 404)],
)  # fmt: skip
def test_they_are_in_v1_from_1_37_on_and_in_v1beta2_from_1_36_on(minor, version, status):
    versions = ("v1", "v1beta2", "v1beta1")
    with api_objects.Api(kubernetes_version=f"v1.{minor}.0", resource_versions=versions) as running:
        made = running.send("POST", RULES.format(version), rule())
        listed = running.get(f"/apis/resource.k8s.io/{version}")["resources"]
    assert made.status == status
    assert ("devicetaintrules" in [item["name"] for item in listed]) == (status == 201)


def test_a_taint_gets_the_time_at_which_it_came_and_another_with_another_effect(api):
    then = "2026-01-01T00:00:00Z"
    made = api.create(V1, rule("timed", TAINT | {"timeAdded": then}))
    assert made["spec"]["taint"]["timeAdded"] == then
    made["spec"]["taint"]["key"] = "example.com/worse"
    kept = api.put(f"{V1}/timed", made)
    assert kept["spec"]["taint"]["timeAdded"] == then
    kept["spec"]["taint"]["effect"] = "None"
    renewed = api.put(f"{V1}/timed", kept)
    assert renewed["spec"]["taint"]["timeAdded"] > then
    assert renewed["metadata"]["generation"] == 3


def test_a_selector_may_be_empty_or_missing(api):
    empty = api.create(V1, rule("empty"))
    assert empty["spec"]["deviceSelector"] == {}
    body = rule("missing")
    del body["spec"]["deviceSelector"]
    assert "deviceSelector" not in api.create(V1, body)["spec"]


REFUSED = {
    "a driver that is no name": ({"driver": "Not A Driver"}, TAINT, "deviceSelector.driver"),
    "a pool that is no name": ({"pool": "a//b"}, TAINT, "deviceSelector.pool"),
    "a device that is no name": ({"device": "a.b"}, TAINT, "deviceSelector.device"),
    "no key": ({}, {"effect": "NoExecute"}, "taint.key"),
    "no effect": ({}, {"key": "k"}, "taint.effect"),
    "an effect that there is not": ({}, {"key": "k", "effect": "Nothing"}, "taint.effect"),
}


@pytest.mark.parametrize(("selector", "taint", "field"), REFUSED.values(), ids=REFUSED)
def test_refused(api, selector, taint, field):
    told = api.send("POST", V1, rule("bad", taint, **selector))
    assert told.status == 422
    assert {item["field"] for item in told.body["details"]["causes"]} == {f"spec.{field}"}


def test_a_status_has_conditions(api):
    api.create(V1, rule("told"))
    condition = {
        "type": "EvictionInProgress", "status": "False", "reason": "Done", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    status = {"status": {"conditions": [condition]}}
    assert api.patch(f"{V1}/told/status", status)["status"]["conditions"] == [condition]
    wrong = {"status": {"conditions": [condition | {"status": "Maybe"}]}}
    told = api.send(
        "PATCH", f"{V1}/told/status", wrong, content_type="application/merge-patch+json"
    )
    assert told.status == 422
