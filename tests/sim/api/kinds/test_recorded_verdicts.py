"""Thousands of objects, right and wrong, get the answers of a recorded kube-apiserver 1.36.2."""

import api_objects
import pytest
import recorded_verdicts

from dra_driver.logic.cel import selection
from dra_driver.sim.api.kinds import resource_gates

KINDS = ("slice", "claim", "template", "class", "status", "update")
STRIDE = 20


@pytest.fixture(scope="module")
def replay():
    gates = resource_gates.known(36)
    with api_objects.Api(enabled_gates=gates, expression_check=selection.check) as api:
        yield recorded_verdicts.Replay(api)


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_them_is_answered_alike(replay, kind):
    lines = recorded_verdicts.load(kind)[::STRIDE]

    assert len(lines) >= 10
    assert replay.differences(lines) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_all_are_answered_alike(replay, kind):
    lines = recorded_verdicts.load(kind)

    assert len(lines) >= 200
    assert replay.differences(lines) == []
