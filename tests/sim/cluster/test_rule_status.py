"""What a DeviceTaintRule is told to have done."""

import datetime as dt

import pytest

from dra_driver.sim.cluster import rule_status

NOW = dt.datetime(2026, 11, 28, 10, 0, 30, tzinfo=dt.UTC)


def rule(effect="NoExecute", *conditions, generation=1):
    return {
        "metadata": {"name": "mine", "generation": generation},
        "spec": {"taint": {"key": "ill", "effect": effect}},
        "status": {"conditions": list(conditions)},
    }


def told(effect, **counts):
    found = rule_status.condition(rule(effect), rule_status.Counts(**counts), NOW)
    return found["status"], found["reason"], found["message"]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, ("False", "NotStarted", "")),
        (
            {"pods": 1, "namespaces": 1},
            ("True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace."),
        ),
        (
            {"pods": 3, "namespaces": 2, "ended": 1},
            (
                "True",
                "PodsPendingEviction",
                (
                    "3 pods need to be evicted in 2 different namespaces. "
                    "1 pod evicted since starting the controller."
                ),
            ),
        ),
        (
            {"ended": 2},
            ("False", "Completed", "2 pods evicted since starting the controller."),
        ),
    ],
)
def test_a_rule_that_ends_pods_tells_how_far_it_is(counts, expected):
    assert told("NoExecute", **counts) == expected


def test_a_rule_without_effect_tells_once_what_it_would_do():
    status, reason, message = told("None", pods=2, namespaces=1, listed=1, allocated=3)
    assert (status, reason) == ("False", "NoEffect")
    assert message == (
        "1 published device selected. 3 allocated devices selected. 2 pods would be evicted in "
        "1 namespace if the effect was NoExecute. This information will not be updated again. "
        "Recreate the DeviceTaintRule to trigger an update."
    )


def test_a_rule_that_only_keeps_pods_away_says_so():
    assert told("NoSchedule") == (
        "False", "OtherEffect", "Eviction only happens for the NoExecute effect."
    )  # fmt: skip


def test_what_is_told_already_is_not_told_again():
    first = rule_status.condition(rule(), rule_status.Counts(), NOW)
    assert first["type"] == "EvictionInProgress"
    assert first["observedGeneration"] == 1
    assert first["lastTransitionTime"] == "2026-11-28T10:00:30Z"
    later = NOW + dt.timedelta(minutes=1)
    assert rule_status.condition(rule("NoExecute", first), rule_status.Counts(), later) is None
    more = rule_status.condition(rule("NoExecute", first), rule_status.Counts(ended=1), later)
    assert more["lastTransitionTime"] == "2026-11-28T10:01:30Z"


@pytest.mark.parametrize(
    ("generation", "seconds", "wait"), [(1, 4, 6), (1, 10, 0), (1, 60, 0), (2, 4, 0)]
)
def test_a_rule_of_one_spec_is_told_of_every_ten_seconds_at_most(generation, seconds, wait):
    first = rule_status.condition(rule(), rule_status.Counts(), NOW)
    body = rule("NoExecute", first, generation=generation)
    assert rule_status.wait_seconds(body, NOW + dt.timedelta(seconds=seconds)) == wait


def test_a_rule_of_which_nothing_is_told_is_told_of_at_once():
    assert rule_status.wait_seconds(rule(), NOW) == 0
