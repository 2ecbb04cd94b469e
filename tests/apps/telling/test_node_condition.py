"""The condition of a Node that tells of a reboot that a GPU needs, in an API server."""

import types

import api_cluster
import mig_cards
import pytest

from dra_driver.adapters.kube import kube
from dra_driver.apps.offering import inventory
from dra_driver.apps.telling import node_condition
from dra_driver.logic.health import conditions, meaning
from dra_driver.model import health
from dra_driver.sim.api.serving import options

KIND = "GPUNeedsReboot"
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}


class Told:
    """The condition of a node with two GPUs, of which a test says what is wrong."""

    def __init__(self, cluster, **options_):
        self.cluster = cluster
        self.gpu = mig_cards.node("h100-80gb-hbm3:2")[0].uuid
        cards = tuple(mig_cards.dynamic("h100-80gb-hbm3:2"))
        self.view, self.is_newest = conditions.View(), True
        self.client = kube.Client(kubeconfig=cluster.kubeconfig, user_agent="teller")
        self.teller = node_condition.NodeCondition(
            self.client,
            api_cluster.NODE,
            KIND,
            types.SimpleNamespace(snapshot=inventory.Snapshot(cards)),
            lambda: self.view,
            may_tell=lambda: self.is_newest,
            **options_,
        )

    def wrong(self, *numbers):
        events = [health.Event(health.EventKind.XID, self.gpu, number) for number in numbers]
        found = [meaning.of_event(event, None, meaning.Policy()) for event in events]
        self.view = conditions.View(tuple(health.Condition(one, "then") for one in found))
        self.teller.changed()

    def conditions(self):
        """By type."""
        status = self.cluster.client.get(kube.NODES, api_cluster.NODE).get("status") or {}
        return {one["type"]: one for one in status.get("conditions") or ()}

    def wait(self, status):
        def is_so():
            return self.conditions().get(KIND, {}).get("status") == status

        api_cluster.wait_for(is_so, f"{KIND}={status}")

    def calls(self, verb):
        return [
            call
            for call in self.cluster.faults.calls
            if (call.user_agent, call.verb) == ("teller", verb)
        ]

    def close(self):
        self.teller.stop()
        self.client.close()


@pytest.fixture
def told(own_cluster):
    made = Told(own_cluster)
    yield made
    made.close()


def test_it_is_false_true_and_false_again_and_others_stay_as_they_are(told, own_cluster):
    patch = {"status": {"conditions": [READY]}}
    kind = kube.STRATEGIC_PATCH
    own_cluster.client.patch(kube.NODES, api_cluster.NODE, patch, subresource="status", kind=kind)
    told.teller.start()
    told.wait("False")
    told.wrong(79)
    told.wait("True")
    assert told.conditions()[KIND]["reason"] == "GpuNeedsReboot"
    told.wrong(48)
    told.wait("False")
    assert told.conditions()["Ready"].items() >= READY.items()


def test_what_changes_nothing_of_it_is_not_written(told):
    told.wrong(79)
    told.teller.start()
    told.wait("True")
    before = len(told.calls("patch"))
    told.wrong(79, 48)
    told.wrong()
    told.wait("False")
    assert len(told.calls("patch")) == before + 1
    told.teller.stop()
    assert len(told.calls("get")) == len(told.calls("patch"))


def test_it_is_written_again_as_a_sign_of_life(own_cluster):
    told = Told(own_cluster, heartbeat=0.01)
    told.teller.start()
    api_cluster.wait_for(lambda: len(told.calls("patch")) >= 3, "signs of life")
    told.close()
    assert told.conditions()[KIND]["status"] == "False"


def test_it_is_written_once_the_api_server_is_back(told, own_cluster):
    def away(call):
        return options.Fault(status=503) if call.resource == "nodes" else None

    told.wrong(79)
    with own_cluster.faults.where(away) as happened:
        told.teller.start()
        api_cluster.wait_for(lambda: happened, "a request that failed")
    told.wait("True")


def test_of_two_instances_of_the_driver_the_newer_writes_it(told, own_cluster):
    told.is_newest = False
    told.wrong(79)
    told.teller.start()
    newer = Told(own_cluster)
    newer.teller.start()
    newer.wait("False")
    newer.close()
    assert len(told.calls("patch")) == 1
