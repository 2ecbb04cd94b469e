"""What a taint says to those who want its device."""

import pytest

from dra_driver.logic.health import prospects
from dra_driver.model import health, taints

DRIVER = "gpu.nvidia.com"


def taint(key, value="", **fields):
    return taints.Taint(f"{DRIVER}/{key}", value, **fields)


@pytest.mark.parametrize(
    ("key", "value", "awaited"),
    [
        ("recovery", "reset", "wait for the reset of the card"),
        ("recovery", "reboot", "wait for a reboot of the node"),
        ("recovery", "drain", "wait until the pods on it and its peers have ended"),
        (
            "recovery",
            "drain-and-reset",
            "wait until the pods on it have ended, and for the reset of the card",
        ),
        ("memory", "remap-pending", "wait for the reset of the card"),
        ("memory", "remap-failed", "wait until the card is replaced"),
        ("memory", "ecc", "wait for the reset of the card"),
        ("gpu-lost", "", "wait until its node has it again"),
        ("thermal", "slowdown", "wait until it is cool and has its power"),
        ("fabric", "route-unhealthy", "wait until the fabric is well again"),
        ("driver", "", "wait until it does"),
        ("unmonitored", "", "wait until they are"),
        ("xid", "79", "wait for a reboot of the node"),
        ("xid", "48", "wait for the reset of the card"),
        (
            "xid",
            "54",
            (
                "wait until it is gone: power down the node and check the card's power cables and "
                "seat"
            ),
        ),
        ("xid", "31", "wait until the pods that have it have ended"),
        ("xid", "odd", "wait until it is gone"),
        ("recovery", "something", "wait until it is gone"),
        ("unheard-of", "", "wait until it is gone"),
    ],
)
def test_each_is_waited_for_in_its_way(key, value, awaited):
    assert prospects.awaited(taint(key, value), DRIVER) == awaited


@pytest.mark.parametrize("key", health.Key)
def test_every_key_of_ours_says_what_is_wrong(key):
    value = {"xid": "79", "recovery": "reset", "memory": "ecc"}.get(key, "")
    assert prospects.meaning(taint(key, value), DRIVER)
    assert prospects.is_own(f"{DRIVER}/{key}", DRIVER)


def test_all_of_it_is_told_together():
    lost = taint("gpu-lost", added="2026-11-28T10:00:00Z")
    assert prospects.told(lost, DRIVER) == (
        f"{DRIVER}/gpu-lost:NoSchedule since 2026-11-28T10:00:00Z: the GPU is lost"
    )


@pytest.mark.parametrize("key", ["gpu.example.com/xid", "xid", "example.com/worn", f"{DRIVER}/"])
def test_a_key_of_somebody_else_says_nothing_but_its_name(key):
    foreign = taints.Taint(key, "79")
    assert prospects.meaning(foreign, DRIVER) == ""
    assert prospects.awaited(foreign, DRIVER) == "wait until it is gone"
    assert prospects.told(foreign, DRIVER) == f"{key}=79:NoSchedule"
    assert not prospects.is_own(key, DRIVER)
