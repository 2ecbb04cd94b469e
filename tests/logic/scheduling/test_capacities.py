"""What a request takes of a capacity (kubernetes-dra.md, 4.6); amounts worked out by hand."""

import pytest
from dra_objects import DRIVER, device

from dra_driver.logic.scheduling import capacities
from dra_driver.model import quantities

STEPS = {"default": "4Gi", "validRange": {"min": "4Gi", "max": "40Gi", "step": "4Gi"}}
NO_STEP = {"default": "4Gi", "validRange": {"min": "4Gi", "max": "40Gi"}}
OFFSET = {"default": "5", "validRange": {"min": "5", "step": "10"}}
VALUES = {"default": "8Gi", "validValues": ["8Gi", "16Gi", "64Gi"]}
ODD_DEFAULT = {"default": "7", "validRange": {"min": "5", "step": "5"}}


def taken(requested, policy, value="80Gi"):
    """What is taken of the one capacity, as text; None if that device cannot serve the request."""
    offered = device("d", capacity={"c": value}, policy={"c": policy} if policy else {})
    asked = {} if requested is None else {"c": quantities.parse(requested)}
    try:
        return str(capacities.consumption(offered, DRIVER, asked)["c"])
    except capacities.Misfit:
        return None


@pytest.mark.parametrize(
    ("requested", "policy", "value", "expected"),
    [
        # No policy: what is asked for, or everything.
        (None, None, "80Gi", "80Gi"),
        ("10Gi", None, "80Gi", "10Gi"),
        ("80Gi", None, "80Gi", "80Gi"),
        ("81Gi", None, "80Gi", None),
        ("100m", None, "1", "100m"),
        # A default alone: any amount may be asked for.
        (None, {"default": "1Gi"}, "80Gi", "1Gi"),
        ("3Gi", {"default": "1Gi"}, "80Gi", "3Gi"),
        # Steps from the minimum on.
        (None, STEPS, "80Gi", "4Gi"),
        ("1Gi", STEPS, "80Gi", "4Gi"),
        ("4Gi", STEPS, "80Gi", "4Gi"),
        ("4097Mi", STEPS, "80Gi", "8Gi"),
        ("39Gi", STEPS, "80Gi", "40Gi"),
        ("41Gi", STEPS, "80Gi", None),
        ("6", OFFSET, "100", "15"),
        ("15", OFFSET, "100", "15"),
        ("96", OFFSET, "100", None),
        # In whole units: 5500m counts as 6, one above the minimum.
        ("5500m", OFFSET, "100", "15"),
        # The result of a step is written with binary suffixes: 2k is 2000, rounded up to 2048.
        ("2k", {"default": "1Ki", "validRange": {"min": "1Ki", "step": "1Ki"}}, "8Ki", "2Ki"),
        # Without a step the amount is taken as it is.
        ("5Gi", NO_STEP, "80Gi", "5Gi"),
        ("1Gi", NO_STEP, "80Gi", "4Gi"),
        ("40Gi", NO_STEP, "80Gi", "40Gi"),
        ("41Gi", NO_STEP, "80Gi", None),
        # The smallest valid value that is enough.
        (None, VALUES, "80Gi", "8Gi"),
        ("1Gi", VALUES, "80Gi", "8Gi"),
        ("8Gi", VALUES, "80Gi", "8Gi"),
        ("9Gi", VALUES, "80Gi", "16Gi"),
        ("17Gi", VALUES, "80Gi", "64Gi"),
        ("65Gi", VALUES, "80Gi", None),
        # A default is valid although it is off the steps.
        (None, ODD_DEFAULT, "100", "7"),
        ("7", ODD_DEFAULT, "100", "10"),
        # Without a minimum nothing is rounded, and without a default everything is taken.
        ("6", {"default": "4", "validRange": {"step": "4"}}, "100", None),
        ("8", {"default": "4", "validRange": {"step": "4"}}, "100", "8"),
        (None, {"validRange": {"min": "5", "step": "10"}}, "100", None),
        (None, {"validRange": {"min": "5", "step": "10"}}, "95", "95"),
        # Written as the API server stores it.
        ("50", {"default": "0", "validRange": {"min": "0", "step": "1G"}}, "9G", "1G"),
        # A step of nothing is no step.
        ("6", {"default": "5", "validRange": {"min": "5", "step": "0"}}, "100", "6"),
    ],
)
def test_amounts_are_rounded_as_the_policy_says(requested, policy, value, expected):
    assert taken(requested, policy, value) == expected


def test_every_capacity_is_taken_also_those_not_asked_for():
    offered = device("d", capacity={"a": "10", "b": "20"}, policy={"b": {"default": "2"}})
    amounts = capacities.consumption(offered, DRIVER, {"a": quantities.parse("3")})
    assert {name: str(amount) for name, amount in amounts.items()} == {"a": "3", "b": "2"}


@pytest.mark.parametrize(
    ("published", "asked", "known"),
    [("memory", "memory", True), ("memory", f"{DRIVER}/memory", True),
     (f"{DRIVER}/memory", "memory", True), ("memory", "other.example.com/memory", False),
     ("other.example.com/memory", "memory", False), ("memory", "cores", False)],
)  # fmt: skip
def test_a_bare_name_is_one_of_the_driver(published, asked, known):
    offered = device("d", capacity={published: "10"})
    requested = {asked: quantities.parse("1")}
    if known:
        assert list(capacities.consumption(offered, DRIVER, requested)) == [published]
    else:
        with pytest.raises(capacities.Misfit, match=f"no capacity {asked}"):
            capacities.consumption(offered, DRIVER, requested)


def test_room_is_what_others_leave():
    offered = device("d", capacity={"memory": "10Gi", "cores": "4"})
    amounts = capacities.Taken(
        {n: quantities.parse(v) for n, v in [("memory", "4Gi"), ("cores", "1")]}
    )
    gi = 2**30
    assert capacities.room(offered, {"memory": 6 * gi}) == {"memory": 4 * gi, "cores": 4}
    assert capacities.has_room(capacities.room(offered, {"memory": 6 * gi}), amounts)
    assert not capacities.has_room(capacities.room(offered, {"memory": 6 * gi + 1}), amounts)
    assert not capacities.has_room(capacities.room(offered, {"cores": 4}), amounts)
