"""Tolerations of the taints by which the driver tells how its devices are."""

import pytest
import webhook_reviews as reviews

from dra_driver.logic.admission import admission
from dra_driver.model import health

PATH = "spec.devices.requests[0].exactly.tolerations[0].key: "


def tolerating(key, device_class="gpu.nvidia.com", **fields):
    """What is said of a toleration that has an effect."""
    toleration = {"key": key, "operator": "Exists", "effect": "NoExecute"} | fields
    request = reviews.request("gpu", device_class, tolerations=[toleration])
    body = reviews.made("resourceclaims", "v1", requests=[request])
    decision = admission.decide(reviews.review("resourceclaims", "v1", body), reviews.DRIVER)
    assert decision.allowed
    assert all(len(text) <= 256 for text in decision.warnings)
    return list(decision.warnings)


@pytest.mark.parametrize("key", health.Key)
def test_the_keys_of_the_driver_are_known(key):
    assert tolerating(f"gpu.nvidia.com/{key}") == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("xids", "xid"),
        ("XID", "xid"),
        ("gpulost", "gpu-lost"),
        ("recover", "recovery"),
        ("unmonitorred", "unmonitored"),
    ],
)
def test_one_that_is_misspelt_is_told_with_what_is_meant(written, meant):
    (text,) = tolerating(f"gpu.nvidia.com/{written}")
    assert text == (
        f"{PATH}gpu.nvidia.com gives its devices no taint 'gpu.nvidia.com/{written}': "
        f"write gpu.nvidia.com/{meant}"
    )


@pytest.mark.parametrize("key", ["gpu.nvidia.com/maintenance", "example.com/xids", "xids", ""])
def test_keys_that_others_may_give_are_not_told(key):
    assert tolerating(key) == []


def test_requests_for_other_drivers_devices_are_not_looked_at():
    assert tolerating("gpu.nvidia.com/xids", device_class="nic.example") == []


@pytest.mark.parametrize("operator", [None, "Equal"])
@pytest.mark.parametrize("key", ["xid", "recovery", "memory", "thermal", "fabric"])
def test_one_without_a_value_tolerates_nothing_where_taints_have_values(key, operator):
    (text,) = tolerating(f"gpu.nvidia.com/{key}", operator=operator)
    assert text == (
        f"{PATH}taints gpu.nvidia.com/{key} have a value, and this tolerates those without one: "
        "add `operator: Exists`, or the value"
    )
    assert tolerating(f"gpu.nvidia.com/{key}", operator=operator, value="79") == []


@pytest.mark.parametrize("key", ["gpu-lost", "driver", "unmonitored"])
def test_one_without_a_value_is_right_where_taints_have_none(key):
    assert tolerating(f"gpu.nvidia.com/{key}", operator="Equal") == []
