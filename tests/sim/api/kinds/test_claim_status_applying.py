"""Server-side apply of `status.devices`: each driver has entries of its own."""

import api_objects
import pytest
from api_objects import CLAIMS, allocation, claim, result

from dra_driver.sim.api.kinds import resource_gates

RESULTS = [result("gpu-0"), result("gpu-1"), result("nic-0", driver="nic.example.com")]


@pytest.fixture
def allocated(api):
    """An allocated claim of two drivers."""
    body = api.create(CLAIMS, claim("c"))
    status = {"allocation": allocation(*RESULTS)}
    return api.put(f"{CLAIMS}/c/status", body | {"status": status})


def entry(device, driver="gpu.nvidia.com", **fields):
    return {"driver": driver, "pool": "node-1", "device": device, **fields}


def apply(api, manager, *entries):
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "status": {"devices": list(entries)},
    }
    path = f"{CLAIMS}/c/status"
    return api.patch(path, body, "apply-patch+yaml", fieldManager=manager, force="true")


def devices(body):
    return [item["device"] for item in body["status"].get("devices") or ()]


def test_each_manager_has_its_entries_and_leaves_those_of_others(api, allocated):
    apply(api, "nic", entry("nic-0", "nic.example.com", data={"mtu": 9000}))
    apply(api, "gpu", entry("gpu-0"), entry("gpu-1"))
    body = apply(api, "gpu", entry("gpu-1"))
    assert body["status"]["devices"] == [
        entry("nic-0", "nic.example.com", data={"mtu": 9000}, conditions=None),
        entry("gpu-1", conditions=None),
    ]
    assert body["status"]["allocation"] == allocated["status"]["allocation"]


def test_a_manager_that_applies_nothing_any_more_leaves_nothing(api, allocated):
    apply(api, "gpu", entry("gpu-0"))
    assert devices(apply(api, "gpu")) == []


def test_applying_the_same_again_is_no_change(api, allocated):
    first = apply(api, "gpu", entry("gpu-0"))
    again = apply(api, "gpu", entry("gpu-0"))
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_an_entry_for_a_device_that_the_claim_does_not_have_is_refused(api, allocated):
    with pytest.raises(AssertionError, match="must be an allocated device in the claim"):
        apply(api, "gpu", entry("gpu-7"))


def test_entries_go_with_the_allocation_and_can_come_back(api, allocated):
    apply(api, "gpu", entry("gpu-0"))
    body = api.get(f"{CLAIMS}/c")
    body = api.put(f"{CLAIMS}/c/status", body | {"status": {}})
    assert devices(body) == []
    api.put(f"{CLAIMS}/c/status", body | {"status": {"allocation": allocation(*RESULTS)}})
    assert devices(apply(api, "gpu", entry("gpu-1"))) == ["gpu-1"]


def test_entries_are_dropped_while_the_gate_is_off():
    off = frozenset({resource_gates.DEVICE_STATUS})
    with api_objects.Api(disabled_gates=off) as api:
        body = api.create(CLAIMS, claim("c"))
        api.put(f"{CLAIMS}/c/status", body | {"status": {"allocation": allocation(*RESULTS)}})
        assert devices(apply(api, "gpu", entry("gpu-0"))) == []
