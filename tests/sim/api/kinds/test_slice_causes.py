"""All causes, in their order, where more than one rule speaks of a place in a slice."""

from api_objects import SLICES, device, resource_slice


def causes(api, **fields):
    per_device = {"nodeName": None, "perDeviceNodeSelection": True}
    placed = "nodeSelector" in fields
    body = resource_slice("refused", device(**fields), **(per_device if placed else {}))
    answer = api.send("POST", SLICES, body)
    assert answer.status == 422
    return answer.causes


def test_an_empty_selector_is_a_way_to_name_nodes(shared_api):
    detail = "Required value: must have at least one node selector term"

    assert causes(shared_api, nodeSelector={}) == [
        f"spec.devices[0].nodeSelector.nodeSelectorTerms: {detail}"
    ]


def test_of_too_many_binding_conditions_each_that_is_there_twice_is_told(shared_api):
    conditions = {"bindingConditions": ["a"] * 5, "bindingFailureConditions": ["f"]}

    place = "spec.devices[0].bindingConditions"
    assert causes(shared_api, **conditions) == [
        f"{place}: Too many: 5: must have at most 4 items",
        *(f'{place}[{index}]: Duplicate value: "a"' for index in range(1, 5)),
    ]


def test_failure_conditions_are_compared_after_all_are_read(shared_api):
    conditions = {"bindingConditions": ["a", "a"], "bindingFailureConditions": ["a", "-"]}

    assert [cause.partition(": name")[0] for cause in causes(shared_api, **conditions)] == [
        'spec.devices[0].bindingFailureConditions[1]: Invalid value: "-"',
        'spec.devices[0].bindingConditions[1]: Duplicate value: "a"',
        (
            'spec.devices[0].bindingFailureConditions[0]: Invalid value: "a": '
            "bindingFailureConditions must not overlap with bindingConditions"
        ),
    ]


def test_a_long_name_is_cut_where_it_is_a_place(shared_api):
    place = f"spec.devices[0].attributes[{'a' * 47}...{'b' * 46}]"

    assert causes(shared_api, attributes={"a" * 60 + "b" * 60: {}}) == [
        "spec.devices[0].attributes: Too long: may not be more than 32 bytes",
        f'{place}: Invalid value: "": exactly one value must be specified',
    ]


def test_a_policy_is_measured_by_a_capacity_of_zero(shared_api):
    policy = {"default": "1", "validRange": {"min": "1"}}
    fields = {"capacity": {"a": {"requestPolicy": policy}}, "allowMultipleAllocations": True}

    place = "spec.devices[0].capacity[a].requestPolicy.validRange.min"
    assert causes(shared_api, **fields) == [
        f'{place}: Invalid value: "1": min is larger than capacity value: 0'
    ]


def test_of_too_many_valid_values_none_is_the_default(shared_api):
    policy = {"default": "1", "validValues": [str(number) for number in range(1, 12)]}
    capacity = {"a": {"value": "20", "requestPolicy": policy}}

    place = "spec.devices[0].capacity[a].requestPolicy.validValues"
    assert causes(shared_api, capacity=capacity, allowMultipleAllocations=True) == [
        f"{place}: Too many: 11: must have at most 10 items",
        f'{place}: Invalid value: "1": default value is not valid according to the requestPolicy',
    ]
