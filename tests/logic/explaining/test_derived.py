"""Claims whose requests derive attributes (gate DRADerivedAttributes), as explain sees them."""

from explain_scene import A, claim, explain, gpu, pool, request

NODES = [
    pool("a", gpu("x", numaNode=0, productName="T4"), gpu("y", numaNode=1, productName="T4")),
    pool("b", gpu("z", numaNode=1, productName="T4"), gpu("w", numaNode=1, productName="T4")),
]


def explained(expression, count=2):
    derived = [{"name": "derived/numa", "expression": expression}]
    constraints = [{"matchAttribute": "derived/numa"}]
    asked = claim("mine", request(count=count, derivedAttributes=derived), constraints=constraints)
    return explain("claim/mine", *NODES, asked)


def test_devices_that_agree_in_it_fit():
    found = explained(f"{A}.numaNode")
    assert found.verdict == "fits"
    assert found.reasons == ()


def test_that_no_device_has_such_an_attribute_is_not_told():
    found = explained(f"{A}.numaNode", count=3)
    assert found.verdict == "does not fit"
    assert found.reasons == ()
    assert "devices with numa" in found.groups[0]


def test_one_that_fails_for_a_device_is_told_with_the_place_and_without_a_guard():
    found = explained(f"{A}.zone")
    assert found.verdict == "does not fit"
    assert "derived attribute derived/numa" in found.problem.message
    assert "no such key: zone" in found.problem.message
    assert (found.problem.expression, found.problem.guarded) == (f"{A}.zone", "")
