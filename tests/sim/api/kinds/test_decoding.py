"""Null, nothing and other types: objects are read and written as Go does it."""

import api_objects
import pytest
from api_objects import CLAIMS, CONFIG_MAPS, SLICES, changed, claim, device, resource_slice


def create(api, path, body):
    return api.create(path, changed(body, "metadata", {"generateName": "x-"}))


@pytest.mark.parametrize(
    "spec", [None, {}, {"devices": None}, {"devices": {}}, {"devices": {"requests": []}}]
)
def test_requests_that_are_not_there_are_null(shared_api, spec):
    body = create(shared_api, CLAIMS, {**claim(), "spec": spec})

    assert body["spec"] == {"devices": {"requests": None}}
    assert body["status"] == {}


def test_a_null_in_a_list_of_objects_is_an_empty_object(shared_api):
    body = claim(spec=api_objects.claim_spec(config=[None], constraints=[None]))

    causes = shared_api.send("POST", CLAIMS, body).causes

    assert [cause.partition(": ")[0] for cause in causes] == [
        "spec.devices.constraints[0]",
        "spec.devices.config[0].opaque",
    ]


def test_a_null_in_a_list_of_texts_is_an_empty_text(shared_api):
    config = {"requests": [None], "opaque": {"driver": "d", "parameters": {}}}
    body = claim(spec=api_objects.claim_spec(config=[config]))

    causes = shared_api.send("POST", CLAIMS, body).causes

    place = "spec.devices.config[0].requests[0]"
    assert [cause.partition(": ")[0] for cause in causes] == [place, place]
    assert causes[0].startswith(f'{place}: Invalid value: "": a lowercase RFC 1123 label')


def test_a_null_in_a_map_is_what_the_map_has_for_nothing(shared_api):
    config_map = {**api_objects.config_map(), "data": {"a": None, "b": "c"}}
    body = resource_slice("refused", device(attributes={"a": None}))

    assert create(shared_api, CONFIG_MAPS, config_map)["data"] == {"a": "", "b": "c"}
    assert shared_api.send("POST", SLICES, body).causes == [
        'spec.devices[0].attributes[a]: Invalid value: "": exactly one value must be specified'
    ]


def test_an_empty_text_is_not_written_where_it_says_nothing(shared_api):
    toleration = {"key": "", "operator": "Exists", "value": "", "effect": ""}
    request = {"name": "a", "exactly": {"deviceClassName": "b", "tolerations": [toleration]}}
    body = create(shared_api, CLAIMS, claim(spec={"devices": {"requests": [request]}}))

    assert body["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] == [
        {"operator": "Exists"}
    ]


def test_an_empty_text_is_written_where_it_differs_from_none(shared_api):
    body = create(shared_api, SLICES, resource_slice("", device(attributes={"a": {"string": ""}})))

    assert body["spec"]["devices"][0]["attributes"] == {"a": {"string": ""}}


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 1.5, "1", True, [], {}])
def test_a_number_has_to_be_whole_and_to_fit_into_64_bits(shared_api, value):
    body = changed(resource_slice("", device()), "spec.pool.generation", value)

    answer = shared_api.send("POST", SLICES, body)

    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")


def test_the_largest_number_fits(shared_api):
    body = changed(resource_slice("", device()), "spec.pool.generation", 2**63 - 1)

    assert create(shared_api, SLICES, body)["spec"]["pool"]["generation"] == 2**63 - 1


@pytest.mark.parametrize(
    "time",
    ["2026-01-02", "2026-01-02 03:04:05Z", "20260102T030405Z", "2026-01-02T03:04:05", "", "x"],
)
def test_a_time_has_one_form(shared_api, time):
    taint = {"key": "k", "effect": "NoSchedule", "timeAdded": time}

    answer = shared_api.send("POST", SLICES, resource_slice("", device(taints=[taint])))

    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")


def test_a_time_is_kept_in_utc_and_in_seconds(shared_api):
    taint = {"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05.678+01:00"}
    body = create(shared_api, SLICES, resource_slice("", device(taints=[taint])))

    assert body["spec"]["devices"][0]["taints"][0]["timeAdded"] == "2026-01-02T02:04:05Z"


def test_half_of_a_pair_is_no_character(shared_api):
    body = create(shared_api, CONFIG_MAPS, api_objects.config_map(a="x\ud800y", b="\ud83d\ude00"))

    assert body["data"] == {"a": "x\ufffdy", "b": "\U0001f600"}
