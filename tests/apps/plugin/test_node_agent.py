"""What the agent tells when several of its threads have something to tell at once."""

import contextlib
import dataclasses
import pathlib
import threading

import api_cluster
import doctor_scene
import plugin_process
import polling
import pytest
import structlog

from dra_driver import errors, telemetry
from dra_driver.apps.plugin import node_agent
from dra_driver.logic.preparing import reports
from dra_driver.model import prepared
from dra_driver.sim.gpus import hardware


class Scene:
    """An agent in this process, which is not started, and claims that it has prepared."""

    def __init__(self, machine, cluster):
        node = doctor_scene.Node(machine, cluster.kubeconfig)
        machine.plugin.mkdir(parents=True)
        self.cluster = cluster
        config = node.configured(mig_mode="off")
        self.metrics = telemetry.Metrics(config.driver_name, config.node_name)
        self.agent = node_agent.NodeAgent(
            config, hardware.simulated(config), self.metrics, user_agent="dra-driver/test"
        )

    def prepared(self, device):
        """Remember that a new claim has this device."""
        ref = self.cluster.claim(device)
        record = prepared.Record(
            uid=ref.uid,
            namespace=ref.namespace,
            name=ref.name,
            phase=prepared.Phase.COMPLETED,
            boot_id="boot-1",
            devices=(
                prepared.PreparedDevice(**plugin_process.device(ref, device, is_first=False)),
            ),
        )
        self.agent._on.records.write(record)
        return record

    def told(self):
        """How many claims the metrics count."""
        labels = {"driver": api_cluster.DRIVER, "node": api_cluster.NODE}
        return self.metrics.registry.get_sample_value("dra_driver_prepared_claims", labels)


@pytest.fixture
def scene(own_machine, own_cluster):
    made = Scene(own_machine, own_cluster)
    yield made
    made.agent.stop()
    # What it still says is said in this test, and not in the next one.
    polling.until(lambda: not made.agent._telling.readiness.is_alive)


def test_what_changes_while_changes_are_told_is_told_too(scene, monkeypatch):
    known, looked, go_on = (
        scene.agent._telling.announcer.known,
        threading.Event(),
        threading.Event(),
    )

    def slow_once():
        found = known()
        if not looked.is_set():
            looked.set()
            assert go_on.wait(api_cluster.DEADLINE)
        return found

    monkeypatch.setattr(scene.agent._telling.announcer, "known", slow_once)
    scene.agent._telling.announcer.start()
    scene.agent._changed()
    assert looked.wait(api_cluster.DEADLINE)
    scene.prepared("gpu-0")
    scene.agent._changed()
    go_on.set()
    polling.until(lambda: scene.told() == 1)


def test_changes_are_told_after_they_could_not_be(scene, monkeypatch):
    known, failed = scene.agent._telling.announcer.known, []

    def failing_once():
        if not failed:
            failed.append(True)
            raise errors.Rejected("the disk refuses")
        return known()

    monkeypatch.setattr(scene.agent._telling.announcer, "known", failing_once)
    with structlog.testing.capture_logs() as log:
        scene.agent._telling.announcer.start()
        scene.prepared("gpu-0")
        scene.agent._changed()
        polling.until(lambda: failed)
        scene.agent._changed()
        polling.until(lambda: scene.told() == 1)
    told = [line["reason"] for line in log if line["event"] == "changes not told for now"]
    assert told == ["the disk refuses"]


def test_what_the_first_call_reports_of_a_claim_is_not_overtaken_by_the_start(scene):
    record = scene.prepared("gpu-0")

    def ready(_preparer):
        newer = [
            dataclasses.replace(report, ready=False, reason="Newer")
            for report in reports.of_record(record)
        ]
        scene.agent._telling.statuses.report(record.ref, newer)

    scene.agent.start(ready)
    assert scene.agent._telling.statuses.wait_idle(api_cluster.DEADLINE)
    [entry] = scene.cluster.get_claim(record.ref)["status"]["devices"]
    assert entry["conditions"][0]["reason"] == "Newer"


def test_an_agent_that_could_not_start_leaves_no_file_open(own_machine, own_cluster):
    def opened():
        found = []
        for path in pathlib.Path("/proc/self/fd").iterdir():
            # Other threads close theirs meanwhile.
            with contextlib.suppress(FileNotFoundError):
                found.append(path.readlink())
        return found.count(own_machine.records.parent / "locks")

    before = opened()
    scene = Scene(own_machine, own_cluster)
    assert opened() == before + 1
    scene.agent.stop()
    assert opened() == before
