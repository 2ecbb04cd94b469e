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
    assert answer.headers.getlist("warning") == [r'299 - "unknown field \"spec.colour\""']


def test_a_refused_patch_has_the_warnings_too(shared_api):
    shared_api.create(CLAIMS, claim("patched"))
    patch = {"spec": {"colour": "red", "devices": {"requests": []}}}

    answer = shared_api.send(
        "PATCH", f"{CLAIMS}/patched", patch, content_type="application/merge-patch+json"
    )

    assert answer.status == 422
    assert answer.headers.getlist("warning") == [r'299 - "unknown field \"spec.colour\""']


def with_unknown(*names, request="a"):
    """A claim whose first requests have a field each that there is not."""
    requests = [{"name": f"{request}{index}", name: 1} for index, name in enumerate(names)]
    return claim("many", spec={"devices": {"requests": requests}})


def warnings_of(api, body):
    return api.send("POST", CLAIMS, body, dryRun="All").headers.getlist("warning")


def test_what_is_not_plain_in_a_name_is_masked_there_and_in_the_header(shared_api):
    body = changed(changed(claim("quoted"), 'spec.a"b', 1), "spec.c\nd", 1)

    assert warnings_of(shared_api, body) == [
        r'299 - "unknown field \"spec.a\\\"b\""',
        r'299 - "unknown field \"spec.c\\nd\""',
    ]


def test_what_cannot_be_in_a_header_is_not_warned_of(shared_api):
    body = changed(changed(claim("control"), "spec.a\x7fb", 1), "spec.c", 1)

    assert warnings_of(shared_api, body) == [r'299 - "unknown field \"spec.c\""']


def test_long_warnings_are_whole_while_all_are_short_enough(shared_api):
    found = warnings_of(shared_api, with_unknown(*["x" * 1000] * 3))

    assert [text.count("x") for text in found] == [1000, 1000, 1000]


def test_long_warnings_are_cut_once_all_are_too_long(shared_api):
    found = warnings_of(shared_api, with_unknown(*["x" * 1000] * 20))

    head = 'unknown field "spec.devices.requests[0].'
    assert len(found) == 16
    assert (
        found[0] == f'299 - "{head.replace(chr(34), chr(92) + chr(34))}{"x" * (256 - len(head))}"'
    )


def test_of_unknown_fields_a_hundred_are_told(shared_api):
    body = with_unknown(*["x"] * 101)

    answer = shared_api.send("POST", CLAIMS, body, fieldValidation="Strict")

    assert answer.status == 400
    assert answer.body["message"].count("unknown field") == 100
    assert answer.body["message"].endswith('unknown field "spec.devices.requests[99].x"')
