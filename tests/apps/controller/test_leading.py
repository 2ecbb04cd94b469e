"""Candidates and the Lease of an API server."""

import itertools
import types

import pytest
import structlog.testing

from dra_driver.adapters.kube import kube
from dra_driver.apps.controller import leading
from dra_driver.sim.api.serving import options

NAMESPACE = "dra-driver"
LONG, SHORT = 3600, 15
NUMBERS = itertools.count()


@pytest.fixture
def passes(monkeypatch):
    """Lets seconds pass for the candidates; else no time passes for them."""
    now = [1000.0]
    monkeypatch.setattr(leading, "time", types.SimpleNamespace(monotonic=lambda: now[0]))

    def let(seconds):
        now[0] += seconds

    return let


@pytest.fixture
def candidate(cluster):
    """Makes candidates for a Lease that no other test has."""
    lease = f"lease-{next(NUMBERS)}"

    def make(identity, seconds=LONG):
        return leading.Candidate(
            cluster.client, namespace=NAMESPACE, name=lease, identity=identity, seconds=seconds
        )

    def give(identity):
        change = {"spec": {"holderIdentity": identity}}
        cluster.client.patch(leading.LEASES, lease, change, NAMESPACE)

    make.spec = lambda: cluster.client.get(leading.LEASES, lease, NAMESPACE)["spec"]
    make.give = give
    return make


@pytest.fixture(autouse=True)
def namespace(cluster):
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    if NAMESPACE not in {n["metadata"]["name"] for n in cluster.client.list(kube.NAMESPACES)[0]}:
        cluster.client.create(kube.NAMESPACES, body)


def failing(cluster, status=503, verb="update"):
    return cluster.faults.where(
        lambda call: (
            options.Fault(status=status) if (call.resource, call.verb) == ("leases", verb) else None
        )
    )


def test_a_namespace_that_is_missing_is_told_with_what_makes_it(cluster):
    with structlog.testing.capture_logs() as log:
        nowhere = leading.Candidate(
            cluster.client, namespace="nowhere", name="lease", identity="a", seconds=LONG
        )
        assert not nowhere.try_to_lead()
    [line] = log
    assert line["event"] == "the lease is not renewed"
    assert 'namespaces "nowhere" not found' in line["reason"]
    assert "kubectl create namespace nowhere;" in line["reason"]


def test_the_first_candidate_leads_and_the_second_waits(candidate):
    first, second = candidate("first"), candidate("second")
    assert not first.leads
    assert first.try_to_lead()
    assert not second.try_to_lead()
    assert first.try_to_lead()
    assert (first.leads, second.leads) == (True, False)
    assert candidate.spec()["holderIdentity"] == "first"
    assert candidate.spec()["leaseTransitions"] == 0


def test_who_leaves_lets_the_next_one_begin_at_once(candidate):
    first, second = candidate("first"), candidate("second")
    first.try_to_lead()
    first.release()
    assert not first.leads
    assert second.try_to_lead()
    assert candidate.spec()["leaseTransitions"] == 1


def test_a_leader_that_is_gone_is_replaced_when_its_lease_has_run_out(candidate, passes):
    first, second = candidate("first", SHORT), candidate("second", SHORT)
    assert first.try_to_lead()
    assert not second.try_to_lead()
    passes(SHORT - 1)
    assert not second.try_to_lead()
    assert first.leads
    passes(2)
    assert second.try_to_lead()
    assert not first.leads
    assert not first.try_to_lead()


def test_a_leader_whose_lease_was_taken_does_not_release_it(candidate, passes):
    first, second = candidate("first", SHORT), candidate("second")
    first.try_to_lead()
    second.try_to_lead()
    passes(SHORT + 1)
    assert second.try_to_lead()
    first.release()
    assert candidate.spec()["holderIdentity"] == "second"


def test_a_lease_that_was_given_to_another_by_hand_is_not_released(candidate):
    first = candidate("first")
    first.try_to_lead()
    candidate.give("other")
    first.release()
    assert candidate.spec()["holderIdentity"] == "other"


def test_who_never_led_has_nothing_to_release(candidate, cluster):
    waiting = candidate("waiting")
    before = len(cluster.faults.calls)
    waiting.release()
    assert len(cluster.faults.calls) == before


def test_a_leader_goes_on_while_the_server_is_away_until_its_lease_runs_out(
    candidate, cluster, passes
):
    leader = candidate("leader", SHORT)
    assert leader.try_to_lead()
    with failing(cluster):
        passes(SHORT - 1)
        assert leader.try_to_lead()
        passes(2)
        assert not leader.try_to_lead()


def test_of_two_that_write_at_once_one_leads(candidate, cluster):
    leader = candidate("leader")
    assert leader.try_to_lead()
    with failing(cluster, status=409):
        assert not leader.try_to_lead()
    assert leader.try_to_lead()


def test_a_candidate_that_may_not_write_does_not_lead(candidate, cluster):
    with failing(cluster, status=403, verb="create"):
        assert not candidate("first").try_to_lead()
