"""Daemons as pods: a real API server, and real processes where a kubelet would run containers."""

import pathlib
import threading

import api_cluster
import mps_scene
import polling
import pytest
from mps_pods_scene import NAMESPACE, SECONDS, begun, refusing, started, stopped, uid

from dra_driver.adapters.kube import kube
from dra_driver.adapters.mps import mps_domain, mps_local
from dra_driver.adapters.system import patience, pids
from dra_driver.model import mps
from dra_driver.sim.api.serving import options

pytestmark = pytest.mark.sampled(13)

GIB = 1024**3
ABSENT, RUNNING, READY = mps_local.State


def test_a_daemon_is_ready_with_its_limits_and_stopped_leaves_nothing(launcher, pods, place):
    daemon = place.daemon()
    assert launcher.state(daemon) == ABSENT

    started(launcher, daemon)

    assert launcher.state(daemon) == READY
    assert mps_scene.caps(daemon) == (30, 4 * GIB)
    pod = pods.pod()
    assert pod["metadata"]["name"].startswith(f"mps-{daemon.id}-")
    assert pod["spec"]["nodeName"] == api_cluster.NODE

    stopped(launcher, daemon)

    assert pods.pods() == []
    assert launcher.state(daemon) == ABSENT
    assert mps_scene.runs_nothing(daemon)
    assert not pathlib.Path(daemon.directory).exists()


def test_the_pod_belongs_to_the_node_object(launcher, pods, pods_cluster, place):
    begun(launcher, place.daemon())
    [owner] = pods.pod()["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Node", pods_cluster.node_uid())


def test_the_pod_has_the_service_account_and_the_pull_secrets_of_the_settings(
    launchers, pods, place
):
    secrets = ("registry", "mirror")
    launcher = launchers.new(
        mps_service_account="mps", mps_image_pull_policy="Never", mps_image_pull_secrets=secrets
    )
    started(launcher, place.daemon())
    spec = pods.pod()["spec"]
    assert spec["serviceAccountName"] == "mps"
    assert spec["imagePullSecrets"] == [{"name": "registry"}, {"name": "mirror"}]
    assert spec["containers"][0]["imagePullPolicy"] == "Never"
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_starting_and_stopping_twice_is_fine(launcher, pods, place):
    daemon = started(launcher, place.daemon())
    before, process = uid(pods.pod()), mps_scene.process(daemon)

    started(launcher, daemon)

    assert (uid(pods.pod()), mps_scene.process(daemon)) == (before, process)
    stopped(launcher, daemon)
    stopped(launcher, daemon)


def test_a_start_while_the_pod_still_starts_makes_no_second_one(launcher, pods, place):
    pods.broken = True
    daemon = place.daemon()
    begun(launcher, daemon)
    before = uid(pods.pod())

    begun(launcher, daemon)
    pods.broken = False

    launcher.wait_ready(daemon, patience.Patience(SECONDS))
    assert uid(pods.pod()) == before


def test_after_a_restart_and_an_upgrade_of_the_driver_the_daemon_goes_on_and_can_be_stopped(
    launcher, launchers, pods, place
):
    daemon = started(launcher, place.daemon())
    before, process = uid(pods.pod()), mps_scene.process(daemon)
    client = mps_scene.connect(daemon)

    for later in (launchers.new(), launchers.new(mps_image="driver:2", mps_cpu="50m")):
        assert later.state(daemon) == READY
        started(later, daemon)

    assert (uid(pods.pod()), mps_scene.process(daemon)) == (before, process)
    assert client.is_usable()
    client.close()
    stopped(later, daemon)
    assert pods.pods() == []


def test_a_running_daemon_needs_no_api_server(launcher, pods_cluster, place):
    daemon = started(launcher, place.daemon())
    away = options.Fault(status=503)

    with refusing(pods_cluster, "get", *[away] * 100) as met:
        started(launcher, daemon)

    assert met == []


def test_once_its_daemon_has_ended_a_pod_of_an_older_driver_is_replaced(
    launcher, launchers, pods, place
):
    daemon = started(launcher, place.daemon())
    before = uid(pods.pod())
    pods.broken = True
    mps_scene.kill(mps_scene.supervisor(daemon))
    assert mps_scene.runs_nothing(daemon)

    later = launchers.new(mps_image="driver:2")
    begun(later, daemon)
    pods.broken = False

    later.wait_ready(daemon, patience.Patience(SECONDS))
    assert uid(pods.pod()) != before
    assert pods.pod()["spec"]["containers"][0]["image"] == "driver:2"


def test_a_supervisor_that_is_killed_is_started_again_by_the_kubelet(launcher, pods, place):
    daemon = started(launcher, place.daemon())
    before = uid(pods.pod())
    old = mps_scene.process(daemon)

    mps_scene.kill(mps_scene.supervisor(daemon))
    begun(launcher, daemon)

    mps_scene.ready_after(daemon, old)
    assert uid(pods.pod()) == before
    assert mps_scene.caps(daemon) == (30, 4 * GIB)


def test_a_pod_that_has_failed_is_replaced(launcher, pods, place):
    daemon = started(launcher, place.daemon())
    before = uid(pods.pod())
    pods.fail()
    assert launcher.state(daemon) == ABSENT

    started(launcher, daemon)

    assert uid(pods.pod()) != before
    assert mps_scene.caps(daemon) == (30, 4 * GIB)


def test_a_pod_that_is_being_deleted_is_waited_for_and_replaced(
    launcher, pods, pods_cluster, place
):
    pods.broken = pods.patient = True
    daemon = place.daemon()
    begun(launcher, daemon)
    old = pods.pod()
    pods_cluster.client.delete(kube.PODS, old["metadata"]["name"], NAMESPACE)
    asked = len(pods_cluster.faults.calls)

    thread = threading.Thread(target=begun, args=(launcher, daemon), daemon=True)
    thread.start()
    polling.until(lambda: [c for c in pods_cluster.faults.calls[asked:] if c.verb == "get"])
    assert uid(pods.pod()) == uid(old)
    pods.broken = pods.patient = False
    thread.join(SECONDS)

    launcher.wait_ready(daemon, patience.Patience(SECONDS))
    assert uid(pods.pod()) != uid(old)


def test_who_waits_for_limits_that_another_claim_has_raised_meanwhile_waits_no_longer(
    launcher, pods, place
):
    pods.broken = True
    low = place.daemon()
    begun(launcher, low)
    launcher.start(low.limited(mps.Limits(60, None)))

    launcher.wait_ready(low, patience.Patience(SECONDS))

    assert launcher.state(low) is not mps_local.State.READY
    pods.broken = False
    started(launcher, low.limited(mps.Limits(60, None)))


def test_other_limits_reach_a_running_daemon(launcher, pods, place):
    daemon = started(launcher, place.daemon())
    client, before = mps_scene.connect(daemon), uid(pods.pod())

    started(launcher, daemon.limited(mps.Limits(60, None)))

    assert mps_scene.caps(daemon) == (60, None)
    assert client.is_usable()
    assert uid(pods.pod()) == before
    client.close()


def test_other_limits_reach_a_daemon_that_the_kubelet_starts_at_this_moment(
    launcher, pods, place, monkeypatch
):
    pods.broken = True
    daemon = place.daemon()
    begun(launcher, daemon)
    create = mps_domain.Domain.create

    def late(domain, wanted, *, shm):
        pods.broken = False
        polling.until(lambda: launcher.state(daemon) == READY)
        create(domain, wanted, shm=shm)

    monkeypatch.setattr(mps_domain.Domain, "create", late)

    started(launcher, daemon.limited(mps.Limits(60, None)))

    assert mps_scene.caps(daemon) == (60, None)


def test_a_pod_that_another_instance_of_the_driver_makes_first_is_taken(
    launcher, pods, pods_cluster, place
):
    daemon = place.daemon()
    with refusing(pods_cluster, "create", options.Fault(status=409, reason="AlreadyExists")) as met:
        started(launcher, daemon)
    assert len(met) == 1
    assert len(pods.pods()) == 1


def test_what_the_kubelet_starts_while_a_pod_is_being_deleted_ends_at_once(
    launcher, pods_cluster, place
):
    daemon = started(launcher, place.daemon())
    described = []

    def rule(call):
        if call.verb == "delete" and not described:
            described.append(mps_scene.domain(daemon).description.exists())

    with pods_cluster.faults.where(rule):
        stopped(launcher, daemon)

    assert described == [False]


def test_a_daemon_that_runs_as_a_process_is_kept_and_stopped(launcher, pods, place):
    daemon = place.started(place.daemon())

    started(launcher, daemon)
    assert pods.pods() == []
    stopped(launcher, daemon)

    assert mps_scene.runs_nothing(daemon)
    assert not pathlib.Path(daemon.directory).exists()


def test_stopped_the_supervisor_ends_the_daemon_itself(launcher, pods, place):
    daemon = started(launcher, place.daemon())
    supervisor = mps_scene.supervisor(daemon)

    stopped(launcher, daemon)

    assert pids.find(supervisor.pid) is None
