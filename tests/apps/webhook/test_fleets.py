"""Pods whose claims depend on how much memory the cluster's GPUs have."""

import pod_reviews
import pytest

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.apps.webhook import fleets
from dra_driver.logic.converting import fleet
from dra_driver.sim.api.serving import options

GIB = 2**30


@pytest.fixture
def client(own_cluster, tmp_path):
    with pod_reviews.converting_webhook(own_cluster, tmp_path) as connected:
        yield connected


def part(percent="50"):
    """A pod that asks for a part of a card, whatever that has."""
    return pod_reviews.pod({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": percent})


def ask(client, body):
    return client.convert(pod_reviews.review(body))


def amounts(cluster):
    """What the alternatives of the only template ask for."""
    [template] = pod_reviews.templates(cluster).values()
    [request] = template["spec"]["spec"]["devices"]["requests"]
    ways = request.get("firstAvailable") or [request["exactly"]]
    return [way["capacity"]["requests"]["memory"] for way in ways]


def test_a_percentage_is_of_the_sizes_that_the_cluster_has(own_cluster, client):
    pod_reviews.publish(own_cluster, 40, 80)
    # Cards that nobody shares by memory are of no use for it.
    pod_reviews.publish(own_cluster, 24, shared="")
    pod_reviews.publish(own_cluster, 16, shared="count")
    assert ask(client, part())["allowed"]
    assert amounts(own_cluster) == ["20Gi", "40Gi"]


def test_more_than_any_card_has_is_refused(own_cluster, client):
    pod_reviews.publish(own_cluster, 40)
    response = ask(client, pod_reviews.share(str(41 * 1024)))
    assert not response["allowed"]
    assert "the largest card that is shared has 40Gi" in response["status"]["message"]


def test_without_cards_a_percentage_is_refused_and_an_amount_is_not(own_cluster, client):
    response = ask(client, part())
    assert (response["allowed"], response["status"]["code"]) == (False, 422)
    assert ask(client, pod_reviews.share())["allowed"]


def test_what_was_read_is_good_for_a_while(own_cluster, client):
    pod_reviews.publish(own_cluster, 40)
    for percent in ("50", "25", "50"):
        assert ask(client, part(percent))["allowed"]
    assert pod_reviews.calls(own_cluster, "resourceslices", "list") == 1


def test_slices_that_cannot_be_read_are_in_the_way_of_those_alone_who_need_them(
    own_cluster, client
):
    pod_reviews.publish(own_cluster, 40)
    fault = options.Fault(status=403, reason="Forbidden", message="not for you")
    rule = lambda call: fault if call.resource == "resourceslices" else None  # noqa: E731
    with own_cluster.faults.where(rule):
        response = ask(client, part())
        assert (response["allowed"], response["status"]["code"]) == (False, 500)
        assert "the sizes of the cluster's GPUs are not known: " in response["status"]["message"]
        assert "not for you" in response["status"]["message"]
        assert ask(client, pod_reviews.share())["allowed"]
    assert len(pod_reviews.templates(own_cluster)) == 1
    # A failure is not kept.
    assert ask(client, part())["allowed"]


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def known(own_cluster, clock):
    client = kube.Client(kubeconfig=own_cluster.kubeconfig, user_agent="dra-driver/test webhook")
    return fleets.Fleets(client, "gpu.nvidia.com", 60.0, clock=clock)


def sizes(found: fleet.Fleet):
    return [size // GIB for size in found.sizes]


def test_it_is_read_anew_when_it_is_old(own_cluster, known, clock):
    pod_reviews.publish(own_cluster, 40)
    assert sizes(known.get(60)) == [40]
    pod_reviews.publish(own_cluster, 80)
    clock.now += 59
    assert sizes(known.get(60)) == [40]
    clock.now += 1
    assert sizes(known.get(60)) == [40, 80]


def test_who_cannot_wait_is_told_so_and_the_reading_goes_on_for_the_next(own_cluster, known, clock):
    pod_reviews.publish(own_cluster, 40)
    slow = options.Fault(delay_seconds=0.5)
    with own_cluster.faults.where(lambda _call: slow):
        with pytest.raises(errors.Retryable, match="still being read; try again"):
            known.get(0)
        assert sizes(known.get(60)) == [40]
        assert pod_reviews.calls(own_cluster, "resourceslices", "list") == 1
        # Later the old answer is better than none.
        clock.now += 60
        assert sizes(known.get(0)) == [40]


def test_a_cluster_without_such_slices_is_told(own_cluster, known):
    own_cluster.restart_with(resource_versions=("v1beta1",))
    with pytest.raises(errors.Retryable, match=r"does not serve resource\.k8s\.io/v1"):
        known.get(60)


def test_other_drivers_slices_are_not_read(own_cluster, known, clock):
    pod_reviews.publish(own_cluster, 40)
    other = own_cluster.client.get(kube.SLICES, "node-40-memory")
    spec = other["spec"] | {"driver": "other.example.com"}
    spec["devices"][0]["capacity"]["memory"]["value"] = "80Gi"
    own_cluster.client.create(kube.SLICES, {"metadata": {"name": "other"}, "spec": spec})
    assert sizes(known.get(60)) == [40]
