import pytest

from dra_driver.model import quantities, request_policies, slices

RANGE = {"default": "4Gi", "validRange": {"min": "2Gi", "max": "40Gi", "step": "2Gi"}}


@pytest.mark.parametrize(
    "body",
    [RANGE, {"default": "1", "validValues": ["1", "2", "500"]}, {"default": "1Gi"},
     {"default": "1", "validRange": {"min": "1"}}],
)  # fmt: skip
def test_a_policy_is_written_as_it_was_read(body):
    assert request_policies.format_policy(request_policies.parse(body)) == body


def test_a_range_is_read():
    policy = request_policies.parse(RANGE)
    assert policy.default == quantities.parse("4Gi")
    assert policy.within.maximum == quantities.parse("40Gi")
    assert policy.values == ()


def test_a_device_keeps_the_policies_of_its_capacities():
    body = {
        "name": "gpu-0",
        "capacity": {"memory": {"value": "40Gi", "requestPolicy": RANGE}, "cores": {"value": "4"}},
        "allowMultipleAllocations": True,
    }
    device = slices.parse_device(body)
    assert list(device.policies) == ["memory"]
    assert slices.format_device(device) == body
