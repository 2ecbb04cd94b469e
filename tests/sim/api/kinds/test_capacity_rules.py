"""Every limit of the table for capacity that several claims can share."""

import api_objects
import pytest
from api_objects import SLICES, changed, device, resource_slice

from dra_driver import errors


def with_device(**fields):
    return resource_slice("", device(**fields))


def capacity(**fields):
    return {"memory": {"value": "80Gi", **fields}}


def shared_device(**policy):
    return with_device(allowMultipleAllocations=True, capacity=capacity(requestPolicy=policy))


ACCEPTED = {
    "a request policy with a default alone": shared_device(default="1Gi"),
    "10 valid values": shared_device(
        default="1Gi", validValues=[f"{index}Gi" for index in range(1, 11)]
    ),
    "a valid range with steps": shared_device(
        default="2Gi", validRange={"min": "1Gi", "max": "80Gi", "step": "1Gi"}
    ),
    "steps down": shared_device(default="2Gi", validRange={"min": "1Gi", "step": "-1Gi"}),
    "a device that can be shared without a policy": with_device(
        allowMultipleAllocations=True, capacity=capacity()
    ),
}


@pytest.mark.parametrize("body", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(shared_api, body):
    body = changed(body, "metadata", {"generateName": "slice-"})

    answer = shared_api.send("POST", SLICES, body)

    assert (answer.status, answer.causes) == (201, [])


REFUSED = {
    "a policy for a device that cannot be shared": (
        with_device(capacity=capacity(requestPolicy={"default": "1Gi"})),
        (
            "spec.devices[0].capacity[memory].requestPolicy: Forbidden: "
            "allowMultipleAllocations must be true"
        ),
    ),
    "valid values and a valid range": (
        shared_device(default="1Gi", validValues=["1Gi"], validRange={"min": "1Gi"}),
        "spec.devices[0].capacity[memory].requestPolicy: Forbidden: exactly one policy",
    ),
    "valid values without a default": (
        shared_device(validValues=["1Gi"]),
        (
            "spec.devices[0].capacity[memory].requestPolicy.default: Required value: "
            "required when validValues is defined"
        ),
    ),
    "a valid range without a default": (
        shared_device(validRange={"min": "1Gi"}),
        (
            "spec.devices[0].capacity[memory].requestPolicy.default: Required value: "
            "required when validRange is defined"
        ),
    ),
    "11 valid values": (
        shared_device(default="1Gi", validValues=[f"{index}Gi" for index in range(1, 12)]),
        "spec.devices[0].capacity[memory].requestPolicy.validValues: Too many: 11",
    ),
    "valid values in descending order": (
        shared_device(default="1Gi", validValues=["2Gi", "1Gi"]),
        (
            'spec.devices[0].capacity[memory].requestPolicy.validValues[1]: Invalid value: "1Gi": '
            "values must be sorted in ascending order"
        ),
    ),
    "a valid value twice": (
        shared_device(default="1Gi", validValues=["1Gi", "1Gi"]),
        "spec.devices[0].capacity[memory].requestPolicy.validValues[1]: Duplicate value",
    ),
    "valid values that are equal when rounded up": (
        shared_device(default="1", validValues=["500m", "1"]),
        "spec.devices[0].capacity[memory].requestPolicy.validValues[1]: Duplicate value",
    ),
    "a default that is not among the valid values": (
        shared_device(default="3Gi", validValues=["1Gi", "2Gi"]),
        (
            'spec.devices[0].capacity[memory].requestPolicy.validValues: Invalid value: "3Gi": '
            "default value is not valid"
        ),
    ),
    "a valid value above the capacity": (
        shared_device(default="1Gi", validValues=["1Gi", "81Gi"]),
        (
            "spec.devices[0].capacity[memory].requestPolicy.validValues[1]: Invalid value: "
            '"81Gi": option is larger than capacity value: 80Gi'
        ),
    ),
    "a range without a minimum": (
        shared_device(default="1Gi", validRange={"max": "2Gi"}),
        "spec.devices[0].capacity[memory].requestPolicy.validRange.min: Required value",
    ),
    "a minimum above the capacity": (
        shared_device(default="90Gi", validRange={"min": "90Gi"}),
        (
            "spec.devices[0].capacity[memory].requestPolicy.validRange.min: Invalid value: "
            '"90Gi": min is larger than capacity value: 80Gi'
        ),
    ),
    "a default below the minimum": (
        shared_device(default="1Gi", validRange={"min": "2Gi"}),
        (
            "spec.devices[0].capacity[memory].requestPolicy.validRange.min: Invalid value: "
            '"1Gi": default is less than min: 2Gi'
        ),
    ),
    "a default above the maximum": (
        shared_device(default="5Gi", validRange={"min": "2Gi", "max": "4Gi"}),
        (
            "spec.devices[0].capacity[memory].requestPolicy.validRange.max: Invalid value: "
            '"5Gi": default is more than max: 4Gi'
        ),
    ),
    "a minimum above the maximum": (
        shared_device(default="4Gi", validRange={"min": "4Gi", "max": "2Gi"}),
        (
            "spec.devices[0].capacity[memory].requestPolicy.validRange.max: Invalid value: "
            '"4Gi": min is larger than max: 2Gi'
        ),
    ),
    "a maximum above the capacity": (
        shared_device(default="4Gi", validRange={"min": "4Gi", "max": "81Gi"}),
        (
            "spec.devices[0].capacity[memory].requestPolicy.validRange.max: Invalid value: "
            '"81Gi": max is larger than capacity value: 80Gi'
        ),
    ),
    "a default that is no whole number of steps above the minimum": (
        shared_device(default="2Gi", validRange={"min": "1Gi", "step": "3Gi"}),
        (
            "spec.devices[0].capacity[memory].requestPolicy.validRange.step: Invalid value: "
            '"2Gi": value is not a multiple of a given step (3Gi) from (1Gi)'
        ),
    ),
    "a maximum that is no whole number of steps above the minimum": (
        shared_device(default="1Gi", validRange={"min": "1Gi", "max": "3Gi", "step": "3Gi"}),
        (
            "spec.devices[0].capacity[memory].requestPolicy.validRange.step: Invalid value: "
            '"3Gi": value is not a multiple'
        ),
    ),
    "a first step above the capacity": (
        shared_device(default="1Gi", validRange={"min": "1Gi", "step": "80Gi"}),
        (
            "spec.devices[0].capacity[memory].requestPolicy.validRange.step: Invalid value: "
            '"80Gi": one step 81Gi is larger than capacity value: 80Gi'
        ),
    ),
    "steps of zero": (
        shared_device(default="1Gi", validRange={"min": "1Gi", "step": "0"}),
        (
            "spec.devices[0].capacity[memory].requestPolicy.validRange.step: Invalid value: "
            '"0": must be greater than zero'
        ),
    ),
}


@pytest.mark.parametrize(("body", "cause"), REFUSED.values(), ids=REFUSED)
def test_refused(shared_api, body, cause):
    body = changed(body, "metadata", {"generateName": "slice-"})

    answer = shared_api.send("POST", SLICES, body)

    assert answer.status == 422
    assert answer.body["reason"] == "Invalid"
    assert [text for text in answer.causes if text.startswith(cause)], answer.causes


def test_a_capacity_without_a_value_is_zero(shared_api):
    body = with_device(capacity={"memory": {}, "cores": {"value": None}, "engines": None})

    answer = shared_api.send("POST", SLICES, changed(body, "metadata.generateName", "slice-"))

    assert answer.status == 201
    assert answer.body["spec"]["devices"][0]["capacity"] == {
        "memory": {"value": "0"},
        "cores": {"value": "0"},
        "engines": {"value": "0"},
    }


def test_a_policy_without_a_default_says_so(shared_api):
    body = changed(shared_device(), "metadata.generateName", "slice-")

    answer = shared_api.send("POST", SLICES, body)

    assert answer.status == 201
    assert answer.body["spec"]["devices"][0]["capacity"]["memory"] == {
        "value": "80Gi",
        "requestPolicy": {"default": None},
    }


SINCE_1_37 = {
    "steps down": ({"min": "1Gi", "step": "-1Gi"}, "step", "-1Gi", "must be between 0 and 92"),
    "no step at all": ({"min": "1Gi", "step": "0"}, "step", "0", "must be greater than zero"),
    "a minimum below zero": ({"min": "-1", "step": "1Gi"}, "min", "-1", "must be between 0 and"),
}


@pytest.mark.parametrize(("limits", "name", "value", "detail"), SINCE_1_37.values(), ids=SINCE_1_37)
def test_from_1_37_on_the_amounts_of_a_range_are_not_negative(limits, name, value, detail):
    body = changed(shared_device(default="2Gi", validRange=limits), "metadata.generateName", "s-")
    with api_objects.Api(kubernetes_version="v1.37.0") as api:
        answer = api.send("POST", SLICES, body)

    assert answer.status == 422
    path = f"spec.devices[0].capacity[memory].requestPolicy.validRange.{name}"
    [told] = answer.body["details"]["causes"]
    assert told["field"] == path
    assert f'"{value}": {detail}' in told["message"]


@pytest.mark.parametrize(("minor", "status"), [(36, 201), (37, 422), (38, 422)])
def test_the_release_decides_on_a_default_below_zero(minor, status):
    body = changed(shared_device(default="-1"), "metadata.generateName", "slice-")
    with api_objects.Api(kubernetes_version=f"v1.{minor}.0") as api:
        assert api.send("POST", SLICES, body).status == status


GATE = frozenset({"DRAFractionalCapacityRange"})
TENTHS = {"min": "200m", "max": "1", "step": "100m"}


def answer_to(policy, *, minor=37, **options):
    body = with_device(
        allowMultipleAllocations=True,
        capacity={"cores": {"value": "1", "requestPolicy": policy}},
    )
    with api_objects.Api(kubernetes_version=f"v1.{minor}.0", **options) as api:
        return api.send("POST", SLICES, changed(body, "metadata.generateName", "slice-"))


def test_parts_of_one_are_counted_in_thousandths_where_the_gate_is_on():
    on = {"enabled_gates": GATE}
    assert answer_to({"default": "200m", "validRange": TENTHS}, **on).status == 201
    [cause] = answer_to({"default": "250m", "validRange": TENTHS}, **on).causes
    assert cause == (
        "spec.devices[0].capacity[cores].requestPolicy.validRange.step: "
        'Invalid value: "250m": value is not a multiple of a given step (100m) from (200m)'
    )


@pytest.mark.parametrize("minor", [36, 37])
def test_without_the_gate_they_are_rounded_up_to_whole_ones(minor):
    answer = answer_to({"default": "250m", "validRange": TENTHS}, minor=minor)
    assert (answer.status, answer.causes) == (201, [])


def test_the_gate_is_on_from_1_38_on_and_not_known_before_1_37():
    assert answer_to({"default": "250m", "validRange": TENTHS}, minor=38).status == 422
    with pytest.raises(errors.Rejected, match=r"DRAFractionalCapacityRange.*not known in 1\.36"):
        answer_to({}, minor=36, enabled_gates=GATE)


def test_what_is_finer_than_a_thousandth_is_refused_with_the_gate():
    answer = answer_to({"default": "20u", "validRange": {"min": "10u"}}, enabled_gates=GATE)
    path = "spec.devices[0].capacity[cores].requestPolicy.validRange"
    detail = "value cannot be represented as a milli value"
    assert answer.causes == [
        f'{path}.default: Invalid value: "20u": {detail}',
        f'{path}.min: Invalid value: "10u": {detail}',
    ]


def test_valid_values_of_which_both_round_up_to_one_differ_with_the_gate():
    policy = {"default": "1", "validValues": ["500m", "1"]}
    assert answer_to(policy, enabled_gates=GATE).status == 201
    assert answer_to(policy).status == 422
