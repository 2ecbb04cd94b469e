"""Attributes that a request derives from those of devices, in constraints."""

import pytest
from dra_objects import (
    DRIVER,
    GPU_CLASS,
    NODE,
    allocate,
    alternative,
    claim,
    device,
    devices_of,
    distinct,
    exactly,
    first_available,
    match,
    slice_of,
)

from dra_driver.logic.scheduling import allocation, demand, pools
from dra_driver.model import claims

NIC = "nic.example.com"
CLASSES = [GPU_CLASS, claims.DeviceClass("nic", (f'device.driver == "{NIC}"',))]
GPUS = slice_of(device("gpu-0", numa=0), device("gpu-1", numa=1))
NICS = slice_of(
    device("nic-1", place="numa1-pcie0"), device("nic-0", place="numa0-pcie0"),
    name="nics", driver=NIC,
)  # fmt: skip
NAME = "derived/numa"


def deriving(expression, name=NAME):
    return {"derivedAttributes": [{"name": name, "expression": expression}]}


GPU_NUMA = deriving(f'device.attributes["{DRIVER}"].numa')
NIC_NUMA = deriving(f'int(device.attributes["{NIC}"].place.substring(4, 5))')


def found(*requests, constraints=(), published=(GPUS, NICS), **options):
    pending = claim(*requests, constraints=constraints)
    outcome = allocate([pending], *published, classes=CLASSES, **options)
    return outcome.allocations and [name for _, name in devices_of(outcome)[0]]


def test_devices_of_two_drivers_agree_in_what_is_derived_of_each():
    requests = exactly("gpu", extra=GPU_NUMA), exactly("nic", device_class="nic", extra=NIC_NUMA)
    assert found(*requests) == ["gpu-0", "nic-1"]
    assert found(*requests, constraints=[match(NAME)]) == ["gpu-0", "nic-0"]
    assert found(*requests, constraints=[match(NAME)], in_use={"gpu-0"}) == ["gpu-1", "nic-1"]


def test_devices_differ_in_what_is_derived():
    requests = exactly("gpu", extra=GPU_NUMA), exactly("nic", device_class="nic", extra=NIC_NUMA)
    assert found(*requests, constraints=[distinct(NAME)]) == ["gpu-0", "nic-1"]
    assert found(*requests, constraints=[distinct(NAME)], in_use={"nic-1"}) == ["gpu-1", "nic-0"]


def test_it_stands_before_an_attribute_of_the_same_name():
    published = slice_of(device("a", numa=0), device("b", numa=1))
    shadow = deriving('"same"', f"{DRIVER}/numa")
    constraints = [match(f"{DRIVER}/numa")]
    assert found(exactly(count=2), constraints=constraints, published=[published]) is None
    request = exactly(count=2, extra=shadow)
    assert found(request, constraints=constraints, published=[published]) == ["a", "b"]


def test_selectors_do_not_see_it():
    request = exactly("gpu", 'device.attributes["derived"].numa == 0', extra=GPU_NUMA)
    with pytest.raises(demand.Aborted, match="no such key: numa"):
        found(request, constraints=[match(NAME)])


def test_each_alternative_derives_its_own():
    request = first_available(
        "gpu", alternative("three", count=3), alternative("two", count=2, extra=deriving('"all"'))
    )
    assert found(request, constraints=[match(NAME)]) == ["gpu-0", "gpu-1"]


def test_a_device_for_which_it_fails_stops_the_pod():
    request = exactly("gpu", extra=deriving(f'device.attributes["{DRIVER}"].zone'))
    with pytest.raises(demand.Aborted) as told:
        found(request, constraints=[match(NAME)])
    assert str(told.value).startswith(
        'request "gpu" of claim default/claim, derived attribute derived/numa, device '
        f"{DRIVER}/node-a/gpu-0: "
    )
    assert "no such key: zone" in str(told.value)


def test_so_does_an_expression_that_does_not_compile():
    with pytest.raises(demand.Aborted, match=r'request "gpu", derived/numa: .*syntax error'):
        found(exactly("gpu", extra=deriving("1 +")), constraints=[match(NAME)])


def test_a_node_where_it_might_fail_is_looked_at_though_another_fits():
    plans = [
        demand.plan([claim(exactly("gpu", extra=extra))], {"gpu": GPU_CLASS})
        for extra in (GPU_NUMA, {})
    ]
    inventory = pools.Inventory.of([GPUS])
    may_fail = [allocation.may_fail(plan, node=NODE, inventory=inventory) for plan in plans]
    assert may_fail == [True, False]


def test_they_are_read_from_a_claim():
    spec = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", **GPU_NUMA}}]}
    metadata = {"namespace": "default", "name": "c", "uid": "u"}
    parsed = claims.parse({"metadata": metadata, "spec": {"devices": spec}})
    [item] = demand.plan([parsed], {"gpu": GPU_CLASS})
    assert list(item.wants[0].derived) == [NAME]
