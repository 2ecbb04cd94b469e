"""Warnings about a request come with its answer, whatever that is."""

import pytest
from api_objects import CLAIMS, changed, claim


@pytest.mark.parametrize(("method", "name"), [("POST", ""), ("PUT", "/warned")])
def test_a_refusal_has_the_warnings_too(shared_api, method, name):
    if name:
        shared_api.create(CLAIMS, claim("warned"))
    body = changed(claim("warned"), "spec.devices.requests.0.exactly.deviceClassName", "A")

    answer = shared_api.send(method, CLAIMS + name, changed(body, "spec.colour", "red"))

    assert answer.status == 422
    assert answer.headers.getlist("warning") == ['299 - "unknown field \\"spec.colour\\""']


def test_a_refused_patch_has_the_warnings_too(shared_api):
    shared_api.create(CLAIMS, claim("patched"))
    patch = {"spec": {"colour": "red", "devices": {"requests": []}}}

    answer = shared_api.send(
        "PATCH", f"{CLAIMS}/patched", patch, content_type="application/merge-patch+json"
    )

    assert answer.status == 422
    assert answer.headers.getlist("warning") == ['299 - "unknown field \\"spec.colour\\""']
