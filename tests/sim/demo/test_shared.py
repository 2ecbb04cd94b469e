"""How shares and the limits of MPS read."""

import pytest

from dra_driver.sim.demo import shared


@pytest.mark.parametrize(
    ("consumed", "shares", "text"),
    [
        ({"memory": "10Gi", "cores": "30"}, None, "share of 10Gi, 30 % of Tesla T4"),
        ({"memory": "1Gi", "cores": "9", "encoders": "0"}, None, "share of 1Gi, 9 % of Tesla T4"),
        ({"memory": "10Gi"}, None, "share of 10Gi of Tesla T4"),
        ({}, None, "share of Tesla T4"),
        ({"shares": "2", "memory": "0"}, 4, "2/4 of Tesla T4"),
        ({"shares": "1", "memory": "5Gi"}, 4, "1/4, 5Gi of Tesla T4"),
    ],
)
def test_a_share_is_called_by_what_it_takes(consumed, shares, text):
    assert shared.Share("a", consumed, shares).of("Tesla T4") == text


@pytest.mark.parametrize(
    ("percent", "memory", "limits"),
    [
        (None, None, ()),
        ("30", None, ("30 %",)),
        (None, "0=4096M", ("4Gi",)),
        ("30", "0=4097M", ("30 %", "4097Mi")),
        ("30", "GPU-a-1=4096M,GPU-b-2=8192M", ("30 %", "4Gi on GPU-a-1, 8Gi on GPU-b-2")),
        (None, "all of it", ("all of it",)),
    ],
)
def test_limits_of_mps_are_read_from_the_variables_of_a_container(percent, memory, limits):
    given = {shared.PERCENT: percent, shared.MEMORY: memory}
    env = {name: value for name, value in given.items() if value is not None}
    assert shared.mps_limits({shared.PIPE: "/tmp/nvidia-mps", **env}) == limits


def test_what_the_daemon_of_several_cards_holds_each_to_is_read_as_well():
    env = {shared.PIPE: "/tmp/nvidia-mps", "DRA_DRIVER_MPS_MEMORY_LIMIT": "4096M"}
    assert shared.mps_limits(env) == ("4Gi on each",)


def test_a_container_without_a_daemon_has_no_limits():
    assert shared.mps_limits({shared.PERCENT: "30", "A": "1"}) is None
