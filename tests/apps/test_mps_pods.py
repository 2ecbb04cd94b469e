"""Daemons as pods: a real API server, and real processes where a kubelet would run containers."""

import pathlib
import threading

import api_cluster
import mps_pods_scene
import mps_scene
import polling
import pytest
from mps_pods_scene import NAMESPACE, SECONDS, refusing, started, uid

from dra_driver.adapters import kube, mps_domain, mps_local, pids
from dra_driver.model import mps
from dra_driver.sim.api import options

GIB = 1024**3
ABSENT, RUNNING, READY = mps_local.State


@pytest.fixture(scope="module")
def cluster():
    with mps_pods_scene.serving() as made:
        yield made


@pytest.fixture
def scene():
    scene = mps_scene.Scene()
    yield scene
    scene.close()


@pytest.fixture
def kubelet(cluster, scene):
    with mps_pods_scene.running_pods(cluster) as made:
        yield made


@pytest.fixture
def launchers(cluster, scene, kubelet):
    return mps_pods_scene.Launchers(cluster, scene)


@pytest.fixture
def launcher(launchers):
    return launchers.new()


def test_a_daemon_is_ready_with_its_limits_and_stopped_leaves_nothing(launcher, kubelet, scene):
    daemon = scene.daemon()
    assert launcher.state(daemon) == ABSENT

    started(launcher, daemon)

    assert launcher.state(daemon) == READY
    assert mps_scene.caps(daemon) == (30, 4 * GIB)
    pod = kubelet.pod()
    assert pod["metadata"]["name"].startswith(f"mps-{daemon.id}-")
    assert pod["spec"]["nodeName"] == api_cluster.NODE

    launcher.stop(daemon, SECONDS)

    assert kubelet.pods() == []
    assert launcher.state(daemon) == ABSENT
    assert mps_scene.processes_of(daemon) == []
    assert not pathlib.Path(daemon.directory).exists()


def test_the_pod_belongs_to_the_node_object(launcher, kubelet, cluster, scene):
    launcher.start(scene.daemon())
    [owner] = kubelet.pod()["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Node", cluster.node_uid())


def test_the_pod_has_the_service_account_and_the_pull_secrets_of_the_settings(
    launchers, kubelet, scene
):
    secrets = ("registry", "mirror")
    launcher = launchers.new(
        mps_service_account="mps", mps_image_pull_policy="Never", mps_image_pull_secrets=secrets
    )
    started(launcher, scene.daemon())
    spec = kubelet.pod()["spec"]
    assert spec["serviceAccountName"] == "mps"
    assert spec["imagePullSecrets"] == [{"name": "registry"}, {"name": "mirror"}]
    assert spec["containers"][0]["imagePullPolicy"] == "Never"
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_starting_and_stopping_twice_is_fine(launcher, kubelet, scene):
    daemon = started(launcher, scene.daemon())
    before, process = uid(kubelet.pod()), mps_scene.process(daemon)

    started(launcher, daemon)

    assert (uid(kubelet.pod()), mps_scene.process(daemon)) == (before, process)
    launcher.stop(daemon, SECONDS)
    launcher.stop(daemon, SECONDS)


def test_a_start_while_the_pod_still_starts_makes_no_second_one(launcher, kubelet, scene):
    kubelet.broken = True
    daemon = scene.daemon()
    launcher.start(daemon)
    before = uid(kubelet.pod())

    launcher.start(daemon)
    kubelet.broken = False

    launcher.wait_ready(daemon, SECONDS)
    assert uid(kubelet.pod()) == before


def test_after_a_restart_and_an_upgrade_of_the_driver_the_daemon_goes_on_and_can_be_stopped(
    launcher, launchers, kubelet, scene
):
    daemon = started(launcher, scene.daemon())
    before, process = uid(kubelet.pod()), mps_scene.process(daemon)
    client = mps_scene.connect(daemon)

    for later in (launchers.new(), launchers.new(mps_image="driver:2", mps_cpu="50m")):
        assert later.state(daemon) == READY
        started(later, daemon)

    assert (uid(kubelet.pod()), mps_scene.process(daemon)) == (before, process)
    assert client.is_usable()
    client.close()
    later.stop(daemon, SECONDS)
    assert kubelet.pods() == []


def test_a_running_daemon_needs_no_api_server(launcher, cluster, scene):
    daemon = started(launcher, scene.daemon())
    away = options.Fault(status=503)

    with refusing(cluster, "get", *[away] * 100) as met:
        started(launcher, daemon)

    assert met == []


def test_once_its_daemon_has_ended_a_pod_of_an_older_driver_is_replaced(
    launcher, launchers, kubelet, scene
):
    daemon = started(launcher, scene.daemon())
    before = uid(kubelet.pod())
    kubelet.broken = True
    mps_scene.kill(mps_scene.supervisor(daemon))
    polling.until(lambda: mps_scene.processes_of(daemon) == [])

    launchers.new(mps_image="driver:2").start(daemon)
    kubelet.broken = False

    launcher.wait_ready(daemon, SECONDS)
    assert uid(kubelet.pod()) != before
    assert kubelet.pod()["spec"]["containers"][0]["image"] == "driver:2"


def test_a_supervisor_that_is_killed_is_started_again_by_the_kubelet(launcher, kubelet, scene):
    daemon = started(launcher, scene.daemon())
    before = uid(kubelet.pod())
    old = mps_scene.process(daemon)

    mps_scene.kill(mps_scene.supervisor(daemon))
    launcher.start(daemon)

    mps_scene.ready_after(daemon, old)
    assert uid(kubelet.pod()) == before
    assert mps_scene.caps(daemon) == (30, 4 * GIB)


def test_a_pod_that_has_failed_is_replaced(launcher, kubelet, scene):
    daemon = started(launcher, scene.daemon())
    before = uid(kubelet.pod())
    kubelet.fail()
    assert launcher.state(daemon) == ABSENT

    started(launcher, daemon)

    assert uid(kubelet.pod()) != before
    assert mps_scene.caps(daemon) == (30, 4 * GIB)


def test_a_pod_that_is_being_deleted_is_waited_for_and_replaced(launcher, kubelet, cluster, scene):
    kubelet.broken = kubelet.patient = True
    daemon = scene.daemon()
    launcher.start(daemon)
    old = kubelet.pod()
    cluster.client.delete(kube.PODS, old["metadata"]["name"], NAMESPACE)
    asked = len(cluster.faults.calls)

    thread = threading.Thread(target=launcher.start, args=(daemon,), daemon=True)
    thread.start()
    polling.until(lambda: [c for c in cluster.faults.calls[asked:] if c.verb == "get"])
    assert uid(kubelet.pod()) == uid(old)
    kubelet.broken = kubelet.patient = False
    thread.join(SECONDS)

    launcher.wait_ready(daemon, SECONDS)
    assert uid(kubelet.pod()) != uid(old)


def test_other_limits_reach_a_running_daemon(launcher, kubelet, scene):
    daemon = started(launcher, scene.daemon())
    client, before = mps_scene.connect(daemon), uid(kubelet.pod())

    started(launcher, daemon.limited(mps.Limits(60, None)))

    assert mps_scene.caps(daemon) == (60, None)
    assert client.is_usable()
    assert uid(kubelet.pod()) == before
    client.close()


def test_other_limits_reach_a_daemon_that_the_kubelet_starts_at_this_moment(
    launcher, kubelet, scene, monkeypatch
):
    kubelet.broken = True
    daemon = scene.daemon()
    launcher.start(daemon)
    create = mps_domain.Domain.create

    def late(domain, wanted, *, shm):
        kubelet.broken = False
        launcher.wait_ready(daemon, SECONDS)
        create(domain, wanted, shm=shm)

    monkeypatch.setattr(mps_domain.Domain, "create", late)

    started(launcher, daemon.limited(mps.Limits(60, None)))

    assert mps_scene.caps(daemon) == (60, None)


def test_a_pod_that_another_instance_of_the_driver_makes_first_is_taken(
    launcher, kubelet, cluster, scene
):
    daemon = scene.daemon()
    with refusing(cluster, "create", options.Fault(status=409, reason="AlreadyExists")) as met:
        started(launcher, daemon)
    assert len(met) == 1
    assert len(kubelet.pods()) == 1


def test_what_the_kubelet_starts_while_a_pod_is_being_deleted_ends_at_once(
    launcher, cluster, scene
):
    daemon = started(launcher, scene.daemon())
    described = []

    def rule(call):
        if call.verb == "delete" and not described:
            described.append(mps_scene.domain(daemon).description.exists())

    with cluster.faults.where(rule):
        launcher.stop(daemon, SECONDS)

    assert described == [False]


def test_a_daemon_that_runs_as_a_process_is_kept_and_stopped(launcher, kubelet, scene):
    daemon = scene.started(scene.daemon())

    started(launcher, daemon)
    assert kubelet.pods() == []
    launcher.stop(daemon, SECONDS)

    assert mps_scene.processes_of(daemon) == []
    assert not pathlib.Path(daemon.directory).exists()


def test_stopped_the_supervisor_ends_the_daemon_itself(launcher, kubelet, scene):
    daemon = started(launcher, scene.daemon())
    supervisor = mps_scene.supervisor(daemon)

    launcher.stop(daemon, SECONDS)

    assert pids.find(supervisor.pid) is None
