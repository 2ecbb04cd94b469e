"""What is in the way of a daemon's pod."""

import concurrent.futures
import dataclasses
import pathlib

import mps_scene
import polling
import pytest
from mps_pods_scene import NAMESPACE, begun, ended, refusing, started, stopped, uid

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.adapters.system import patience
from dra_driver.apps.mps import mps_pods
from dra_driver.logic.preparing import mps_pod
from dra_driver.sim.api.serving import options

pytestmark = pytest.mark.sampled(11)


def test_a_pod_of_somebody_else_is_neither_used_nor_deleted(launcher, pods, pods_cluster, place):
    daemon = place.daemon()
    begun(launcher, daemon)
    made = pods.pod()
    name = made["metadata"]["name"]
    stopped(launcher, daemon)
    plain = {"containers": [{"name": "c", "image": "i"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": plain}
    pods_cluster.client.create(kube.PODS, body, NAMESPACE)

    with pytest.raises(errors.Rejected, match=rf"{name} is there and was not made by this driver"):
        begun(launcher, daemon)
    stopped(launcher, daemon)

    assert pods.pod()["spec"]["containers"][0]["image"] == "i"


def test_a_pod_that_took_the_place_of_the_one_to_stop_is_not_deleted(launcher, pods, place):
    pods.broken = True
    daemon = place.daemon()
    begun(launcher, daemon)
    found = pods.pod()
    earlier = found | {"metadata": found["metadata"] | {"uid": "an-earlier-one"}}

    launcher._delete(earlier)

    assert uid(pods.pod()) == uid(found)
    assert "deletionTimestamp" not in pods.pod()["metadata"]


def test_a_pod_that_does_not_start_is_told_with_what_is_in_its_way(launcher, pods, place):
    pods.broken = True
    daemon = place.daemon()
    begun(launcher, daemon)
    polling.until(lambda: pods.pod()["status"].get("containerStatuses"))

    with pytest.raises(
        errors.Retryable, match=r"not ready within 0\.1 s; pod dra-driver/mps-.*CreateContainerErr"
    ):
        launcher.wait_ready(daemon, patience.Patience(0.1))


def test_the_reason_that_a_daemon_in_a_pod_logs_is_told_with_its_pod(launcher, pods, place):
    mps_scene.replace(place.program, "#!/bin/sh\necho no such device\nexit 3\n")
    daemon = begun(launcher, place.daemon())
    polling.until(lambda: mps_scene.domain(daemon).problem())

    reason = r"exit status 3; its log ends with: no such device; pod dra-driver/mps-.*: Running"
    with pytest.raises(errors.Retryable, match=reason):
        launcher.wait_ready(daemon, patience.Patience(0.01))


def test_a_pod_that_ends_is_not_waited_for(launcher, pods, place):
    pods.broken = True
    daemon = place.daemon()
    launcher.start(daemon)
    with concurrent.futures.ThreadPoolExecutor() as background:
        waiting = background.submit(launcher.wait_ready, daemon, patience.Patience(60))
        polling.until(pods.pods)
        pods.fail()
        with pytest.raises(errors.Retryable, match=r"it has ended; pod .*: Failed, Evicted, low"):
            waiting.result(60)


def test_a_daemon_whose_processes_the_driver_cannot_see_gives_a_hint(launcher, pods, place):
    pods.broken = True
    daemon = place.daemon()
    begun(launcher, daemon)
    named = pathlib.Path(daemon.directory) / "supervisor.json"
    named.write_text('{"pid": 1, "start_time": 1}', encoding="utf-8")

    with pytest.raises(errors.Retryable, match="does the pod of this driver have hostPID"):
        launcher.wait_ready(daemon, patience.Patience(0.1))


@pytest.mark.parametrize(
    ("verb", "fault", "text"),
    [
        ("get", options.Fault(status=503), "503"),
        ("create", options.Fault(status=429), "429"),
        ("create", options.Fault(status=403, reason="Forbidden"), "Apply its role anew"),
        ("create", options.Fault(status=422, reason="Invalid"), "422"),
    ],
)
def test_what_the_api_server_refuses_may_work_later(
    launcher, pods, pods_cluster, place, verb, fault, text
):
    daemon = place.daemon()
    # What only reads is sent once more by itself.
    with (
        pods_cluster.faults.where(
            lambda call: fault if call.verb == verb and call.namespace else None
        ),
        pytest.raises(errors.Retryable, match=rf"pod dra-driver/mps-{daemon.id}.*{text}"),
    ):
        begun(launcher, daemon)

    started(launcher, daemon)


def test_a_priority_class_that_is_not_there_is_named(launchers, pods, pods_cluster, place):
    launcher = launchers.new(mps_priority_class="high")
    text = "pods is forbidden: no PriorityClass with name high was found"
    missing = options.Fault(status=403, reason="Forbidden", message=text)
    with (
        refusing(pods_cluster, "create", missing),
        pytest.raises(errors.Retryable, match=r"Make the priority class high .*--mps-priority-cl"),
    ):
        begun(launcher, place.daemon())


def test_on_a_full_node_that_is_said_with_what_the_pod_wants(launcher, pods, place):
    pods.broken = True
    daemon = place.daemon()
    launcher.start(daemon)
    reason = (
        r"it has ended; pod .*: Failed, OutOfcpu, .*enough resource: cpu, CreateContainerError, "
        r"no \[\]\. The node has no room for it: it requests cpu 10m and memory 128Mi .* evicts "
        r"nobody\. It is tried again"
    )
    with concurrent.futures.ThreadPoolExecutor() as background:
        waiting = background.submit(launcher.wait_ready, daemon, patience.Patience(60))
        # What its container waits for is told, too, once the kubelet has seen the pod.
        polling.until(lambda: any("containerStatuses" in pod["status"] for pod in pods.pods()))
        pods.fail("OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu")
        with pytest.raises(errors.Retryable, match=reason):
            waiting.result(60)


def test_a_service_account_that_is_not_there_is_named(launchers, pods, pods_cluster, place):
    launcher = launchers.new(mps_service_account="mps")
    text = 'error looking up service account dra-driver/mps: serviceaccount "mps" not found'
    missing = options.Fault(status=403, reason="Forbidden", message=f"pods is forbidden: {text}")
    with (
        refusing(pods_cluster, "create", missing),
        pytest.raises(errors.Retryable, match=r"Make the service account mps .*mps-service-acc"),
    ):
        begun(launcher, place.daemon())


@pytest.mark.parametrize(
    ("verb", "fault"), [("get", options.Fault(status=503)), ("delete", options.Fault(status=503))]
)
def test_a_daemon_ends_without_the_api_server_and_its_pod_once_that_is_back(
    launcher, pods, pods_cluster, place, verb, fault
):
    daemon = started(launcher, place.daemon())
    with pods_cluster.faults.where(
        lambda call: fault if (call.resource, call.verb) == ("pods", verb) else None
    ):
        ended(launcher, daemon)
        assert mps_scene.runs_nothing(daemon)
        assert not pathlib.Path(daemon.directory).exists()
        assert launcher.sweeper.sweep() is False

    polling.until(launcher.sweeper.sweep)
    assert pods.pods() == []


def test_a_pod_whose_daemon_ended_before_the_driver_was_killed_is_deleted_by_the_next(
    launcher, launchers, pods, place
):
    daemon = started(launcher, place.daemon())
    ended(launcher, daemon)

    later = launchers.new()
    later.sweeper.start()

    polling.until(lambda: pods.pods() == [])
    polling.until(lambda: list(place.root.joinpath("mps-pods").iterdir()) == [])
    later.sweeper.stop()


def test_the_pod_of_an_earlier_version_of_the_driver_that_left_no_mark_is_deleted_too(
    launcher, launchers, pods, place
):
    daemon = started(launcher, place.daemon())
    place.root.joinpath("mps-pods", daemon.id).unlink()

    stopped(launchers.new(), daemon)

    assert pods.pods() == []


def test_a_pod_that_is_made_while_its_daemon_is_unprepared_is_deleted(
    launcher, pods, place, monkeypatch
):
    pods.broken = True
    daemon = place.daemon()
    swept = []
    create = launcher._client.create

    def created_late(*arguments):
        ended(launcher, daemon)
        swept.append(launcher.sweeper.sweep())
        return create(*arguments)

    monkeypatch.setattr(launcher._client, "create", created_late)
    begun(launcher, daemon)

    assert swept == [False]
    monkeypatch.undo()
    polling.until(launcher.sweeper.sweep)
    assert pods.pods() == []
    assert list(place.root.joinpath("mps-pods").iterdir()) == []


def test_a_pod_of_a_daemon_that_is_wanted_again_stays(launcher, pods, place):
    daemon = started(launcher, place.daemon())
    ended(launcher, daemon)
    launcher.start(daemon)
    assert launcher.sweeper.sweep() is True
    assert len(pods.pods()) == 1


def test_an_earlier_pod_that_the_kubelet_does_not_end_is_told(launcher, pods, place, monkeypatch):
    monkeypatch.setattr(mps_pods, "_GONE_SECONDS", 0.1 - mps_pod.GRACE_SECONDS)
    daemon = started(launcher, place.daemon())
    pods.patient = True
    ended(launcher, daemon)
    assert launcher.sweeper.sweep() is False

    with pytest.raises(errors.Retryable, match=r"the kubelet has not ended it .*being deleted"):
        begun(launcher, daemon)

    pods.patient = False
    started(launcher, daemon)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"mps_image": ""}, "give --mps-image"),
        ({"pod_namespace": ""}, "give --pod-namespace, or POD_NAMESPACE"),
    ],
)
def test_what_pods_need_has_to_be_set(launchers, fields, text):
    with pytest.raises(errors.Fatal, match=text):
        launchers.new(**fields)


def test_a_driver_root_that_a_pod_cannot_have_is_refused(launcher, pods_cluster, place):
    site = dataclasses.replace(launcher._site, driver_root="/", driver_root_seen="/")
    with pytest.raises(errors.Fatal, match="give --driver-root-seen"):
        mps_pods.PodLauncher(pods_cluster.client, site, place.launcher(), place.root / "mps")
