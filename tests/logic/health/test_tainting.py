"""Conditions as taints of devices."""

import random

from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.health import conditions, meaning, tainting
from dra_driver.model import devices, health, taints

GPU = devices.GpuUuid("GPU-1")
DRIVER = "gpu.nvidia.com"


def condition(key, value="", effect=taints.NO_SCHEDULE, since="2026-11-30T10:00:00Z"):
    return health.Condition(health.Finding(GPU, health.Key(key), value, effect, "why"), since)


def test_a_taint_has_the_key_of_the_driver_its_value_effect_and_the_time_when_it_began():
    lost = condition("gpu-lost")
    xid = condition("xid", "79", since="2026-11-30T11:00:00Z")
    assert tainting.of((xid, lost), DRIVER) == (
        {
            "key": "gpu.nvidia.com/gpu-lost",
            "effect": "NoSchedule",
            "timeAdded": "2026-11-30T10:00:00Z",
        },
        {
            "key": "gpu.nvidia.com/xid",
            "value": "79",
            "effect": "NoSchedule",
            "timeAdded": "2026-11-30T11:00:00Z",
        },
    )


def test_of_the_same_taint_the_gravest_effect_and_the_earliest_time_count():
    early = condition("memory", "ecc", taints.NONE)
    late = condition("memory", "ecc", since="2026-11-30T11:00:00Z")
    [taint] = tainting.of((early, late), DRIVER)
    assert (taint["effect"], taint["timeAdded"]) == ("NoSchedule", early.since)


def test_of_more_than_sixteen_the_gravest_are_kept_and_the_message_has_them_all():
    listed = [condition("xid", str(number), taints.NONE) for number in range(20)]
    listed += [condition("fabric", "failed"), condition("recovery", "reset", taints.NO_EXECUTE)]
    found = tainting.of(listed, DRIVER)
    assert len(found) == tainting.MOST
    assert {one["effect"] for one in found} == {"NoExecute", "NoSchedule", "None"}
    assert [one["key"].partition("/")[2] for one in found[:2]] == ["fabric", "recovery"]


@given(st.lists(st.sampled_from(range(30)), max_size=30), st.randoms(use_true_random=False))
def test_the_order_in_which_things_happen_changes_no_taint(numbers, chance):
    listed = [
        condition("xid", str(number), taints.NONE if number % 2 else taints.NO_SCHEDULE)
        for number in numbers
    ]
    mixed = list(listed)
    chance.shuffle(mixed)
    assert tainting.of(listed, DRIVER) == tainting.of(mixed, DRIVER)


def test_what_only_informs_withdraws_nothing():
    informs = tainting.of((condition("thermal", "slowdown", taints.NONE),), DRIVER)
    assert not tainting.withdraws(informs)
    assert tainting.withdraws(tainting.of((condition("gpu-lost"),), DRIVER))


def test_every_condition_that_can_be_is_a_valid_taint():
    everything = meaning.of_facts(
        GPU,
        health.Facts(
            recovery=4,
            remap_pending=True,
            remap_failed=True,
            uncorrectable_ecc=1,
            thermal_slowdown=True,
            power_brake=True,
            fabric=health.Fabric(3, 1, 0x255),
            links_down=(1,),
        ),
        meaning.Policy(),
    )
    state = conditions.State()
    found = list(everything.findings)
    random.Random(1).shuffle(found)
    for finding in found:
        state = conditions.found(state, finding, conditions.Now(0, "2026-11-30T10:00:00Z"), 30)
    for taint in tainting.of(state.conditions, DRIVER):
        key = taint["key"].removeprefix(f"{DRIVER}/")
        text = f"{key}={taint['value']}" if "value" in taint else key
        assert health.parse_cause(text).covers(health.Key(key), taint.get("value", ""))
