"""Thousands of pods are placed as a recorded kube-scheduler 1.36.2 placed them."""

import pytest
import recorded_decisions

RECORDINGS = ("own-slices", "mixed")
STRIDE = 20


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_part_of_them_is_decided_alike(recording):
    decisions = recorded_decisions.load(recording)[::STRIDE]
    assert len(decisions) >= 150
    assert differences(decisions) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("recording", RECORDINGS)
def test_all_are_decided_alike(recording):
    decisions = recorded_decisions.load(recording)
    assert len(decisions) >= 3000
    assert differences(decisions) == []


def differences(decisions):
    found = (recorded_decisions.difference(*decision) for decision in decisions)
    return [each for each in found if each is not None]
