"""How the API server is found to take counters, and what does not count as an answer."""

import api_cluster
import pytest

from dra_driver.adapters.kube import kube
from dra_driver.apps.node import counter_support
from dra_driver.logic.offering import publishing
from dra_driver.sim.api.serving import options

GATE = "DRAPartitionableDevices"
OWNER = publishing.Owner(api_cluster.DRIVER, api_cluster.NODE, "uid-1")
SPLIT, PLAIN = publishing.Layout.SPLIT, publishing.Layout.PLAIN
WHY = [(403, "Forbidden"), (400, "BadRequest"), (422, "Invalid")]


@pytest.fixture
def support(own_cluster):
    return counter_support.CounterSupport(own_cluster.client)


def refusing(cluster, status, reason):
    """Inside the block every question is refused."""
    fault = options.Fault(status=status, reason=reason, message="not now")
    return cluster.faults.where(lambda call: fault if call.dry_run else None)


@pytest.mark.parametrize(("status", "reason"), WHY)
def test_a_refused_question_does_not_take_back_what_is_known(own_cluster, support, status, reason):
    assert support.layout(OWNER, "v1") is SPLIT
    support.doubt()
    with refusing(own_cluster, status, reason) as happened:
        assert support.layout(OWNER, "v1") is SPLIT
    assert len(happened) == 1


@pytest.mark.parametrize(("status", "reason"), WHY)
def test_a_server_that_refuses_from_the_start_gets_none_until_it_is_asked_again(
    own_cluster, support, status, reason
):
    with refusing(own_cluster, status, reason):
        assert support.layout(OWNER, "v1") is PLAIN
    assert support.layout(OWNER, "v1") is PLAIN
    support.doubt()
    assert support.layout(OWNER, "v1") is SPLIT


def test_a_server_that_does_not_answer_changes_nothing(own_cluster, support):
    assert support.layout(OWNER, "v1") is SPLIT
    support.doubt()
    with refusing(own_cluster, 503, "ServiceUnavailable"), pytest.raises(kube.Unavailable):
        support.layout(OWNER, "v1")
    assert support.layout(OWNER, "v1") is SPLIT


def test_a_server_that_drops_them_gets_none_any_more(own_cluster, support):
    assert support.layout(OWNER, "v1") is SPLIT
    own_cluster.upgrade(disabled_gates=frozenset({GATE}))
    assert support.layout(OWNER, "v1") is SPLIT
    support.doubt()
    assert support.layout(OWNER, "v1") is PLAIN
