"""Pods are ended because of taints of their devices, over real HTTP, with a real scheduler."""

import datetime as dt

import pytest
from control_plane import DRIVER, ControlPlane, request
from polling import until

from dra_driver.adapters.kube import kube
from dra_driver.logic.scheduling import emulation
from dra_driver.sim.api.serving import options as api_options
from dra_driver.sim.cluster import evictor, rule_status

ADDED = "2026-11-28T10:00:00Z"
ILL = {"key": "example.com/ill", "value": "yes", "effect": "NoExecute", "timeAdded": ADDED}
STAYS = {"key": "example.com/ill", "operator": "Exists", "effect": "NoExecute"}
ANY_EFFECT = {"key": "example.com/ill", "operator": "Exists"}


@pytest.fixture
def new_plane(tmp_path):
    """Makes control planes with one node of four devices, of a release if one is said."""
    made = []

    def new_plane(release=None, **options):
        if release is not None:
            options |= {"kubernetes_version": f"v{release}.0-emulated"}
        plane = ControlPlane(tmp_path, **options)
        made.append(plane)
        plane.add_class(f'device.driver == "{DRIVER}"')
        plane.add_node("node-a")
        plane.add_slice("node-a", *(f"gpu-{n}" for n in range(4)))
        behaviour = emulation.of_release(release)
        plane.start_scheduler(behaviour=behaviour)
        plane.start_evictor(behaviour=behaviour, rule_seconds=0.0)
        return plane

    yield new_plane
    for plane in made:
        plane.close()


@pytest.fixture
def plane(new_plane):
    return new_plane()


def runs(plane, name, *tolerations, namespace="default"):
    """A pod with a device of its own, which is told by the device's name."""
    plane.add_claim(name, request(tolerations=list(tolerations)))
    plane.add_pod(name, claims={"gpu": name})
    assert plane.node_of(name) == "node-a"
    return plane.devices_of(name)[0].removeprefix("node-a/")


def taint(plane, **by_device):
    """Give devices taints, by their names with a hyphen; all others have none then."""
    body = plane.client.get(kube.SLICES, "slice-node-a")
    for device in body["spec"]["devices"]:
        device["taints"] = by_device.get(device["name"].replace("-", "_"), [])
    plane.client.replace(kube.SLICES, body)


def is_ending(plane, name):
    return "deletionTimestamp" in plane.pod(name)["metadata"]


def ends(plane, name):
    """The pod, once it is being deleted; those with lower names were looked at before it."""
    until(lambda: is_ending(plane, name), what=f"the end of pod {name}")
    return plane.pod(name)


def condition(pod):
    found = pod["status"]["conditions"]
    return next((item for item in found if item["type"] == "DisruptionTarget"), None)


class TestATaintThatEndsPods:
    def test_ends_the_pod_that_has_the_device_and_says_why(self, plane):
        assert runs(plane, "ill") == "gpu-0"
        assert runs(plane, "well") == "gpu-1"
        taint(plane, gpu_0=[ILL])
        pod = ends(plane, "ill")
        found = condition(pod)
        assert found.pop("lastTransitionTime")
        assert found == evictor.CONDITION
        # Its grace is the pod's own.
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
        (event,) = until(lambda: plane.events_of("ill", "DeviceTaintManagerEviction"))
        assert event["message"] == "Marking for deletion"
        assert event["source"]["component"] == "device-taint-eviction-controller"
        assert not is_ending(plane, "well")
        assert condition(plane.pod("well")) is None

    def test_keeps_the_conditions_that_the_pod_has(self, plane):
        runs(plane, "pod")
        told = {"type": "Ready", "status": "True"}
        plane.client.patch(
            kube.PODS, "pod", {"status": {"conditions": [told]}}, "default", subresource="status"
        )
        taint(plane, gpu_0=[ILL])
        kinds = [item["type"] for item in ends(plane, "pod")["status"]["conditions"]]
        assert kinds == ["Ready", "DisruptionTarget"]

    def test_ends_also_pods_that_were_there_before_the_controller(self, new_plane):
        plane = new_plane()
        runs(plane, "pod")
        plane.stop_parts()
        taint(plane, gpu_0=[ILL])
        plane.start_evictor()
        ends(plane, "pod")

    def test_of_another_effect_ends_none(self, plane):
        for name in ("none", "kept", "zz-ended"):
            runs(plane, name)
        others = [ILL | {"effect": effect} for effect in ("None", "NoSchedule")]
        taint(plane, gpu_0=[others[0]], gpu_1=[others[1]], gpu_2=[ILL])
        ends(plane, "zz-ended")
        assert not is_ending(plane, "none")
        assert not is_ending(plane, "kept")

    def test_ends_no_pod_that_tolerates_it_with_its_effect(self, plane):
        runs(plane, "stays", STAYS)
        runs(plane, "zz-short", ANY_EFFECT)
        taint(plane, gpu_0=[ILL], gpu_1=[ILL])
        # To tolerate all effects lets a pod start there, and does not let it stay.
        ends(plane, "zz-short")
        assert not is_ending(plane, "stays")

    def test_of_a_generation_that_is_not_the_newest_ends_none(self, plane):
        runs(plane, "pod")
        runs(plane, "zz-ended")
        pool = {"name": "node-a", "generation": 2, "resourceSliceCount": 1}
        plane.add_slice("node-a", {"name": "gpu-1", "taints": [ILL]}, name="new", pool=pool)
        ends(plane, "zz-ended")
        assert not is_ending(plane, "pod")

    def test_ends_all_pods_that_share_a_claim(self, plane):
        plane.add_claim("one")
        for name in ("a", "b"):
            plane.add_pod(name, claims={"gpu": "one"})
            plane.node_of(name)
        taint(plane, gpu_0=[ILL])
        ends(plane, "a")
        ends(plane, "b")

    def test_ends_a_pod_once_however_often_it_changes(self, plane):
        runs(plane, "pod")
        taint(plane, gpu_0=[ILL])
        ends(plane, "pod")
        taint(plane, gpu_0=[ILL, ILL | {"key": "example.com/worn"}])
        runs(plane, "next")
        taint(plane, gpu_0=[ILL], gpu_1=[ILL])
        ends(plane, "next")
        (event,) = plane.events_of("pod", "DeviceTaintManagerEviction")
        assert event["count"] == 1

    def test_ends_a_pod_that_comes_back_under_the_same_name(self, plane):
        runs(plane, "pod", ANY_EFFECT)
        taint(plane, gpu_0=[ILL])
        first = ends(plane, "pod")
        plane.client.delete(kube.PODS, "pod", "default", grace_period=0)
        assert not plane.has(kube.PODS, "pod")
        plane.client.delete(kube.CLAIMS, "pod", "default")
        plane.client.patch(kube.CLAIMS, "pod", {"metadata": {"finalizers": None}}, "default")
        taint(plane, gpu_0=[ILL], gpu_1=[ILL], gpu_2=[ILL], gpu_3=[ILL])
        runs(plane, "pod", ANY_EFFECT)
        assert ends(plane, "pod")["metadata"]["uid"] != first["metadata"]["uid"]

    def test_is_tried_again_where_the_server_refuses(self, tmp_path):
        left = [api_options.Fault(status=500, reason="Broken", message="not today")] * 2

        def fault(call):
            return (
                left.pop() if left and call.verb == "delete" and call.resource == "pods" else None
            )

        plane = ControlPlane(tmp_path, fault=fault)
        try:
            plane.add_class(f'device.driver == "{DRIVER}"')
            plane.add_node("node-a")
            plane.add_slice("node-a", "gpu-0")
            plane.start_scheduler().start_evictor()
            runs(plane, "pod")
            taint(plane, gpu_0=[ILL])
            ends(plane, "pod")
            assert left == []
        finally:
            plane.close()


class TestATaintThatIsToleratedForSomeTime:
    @pytest.fixture
    def clock(self, monkeypatch):
        """The time of day of the controller, in seconds since the taints were added."""
        clock = {"seconds": 0.0}
        begin = dt.datetime.fromisoformat(ADDED)
        monkeypatch.setattr(evictor, "_now", lambda: begin + dt.timedelta(seconds=clock["seconds"]))
        return clock

    def test_ends_the_pod_at_its_time_counted_from_the_taint(self, plane, clock):
        runs(plane, "short", STAYS | {"tolerationSeconds": 60})
        runs(plane, "zz-first")
        runs(plane, "last")
        clock["seconds"] = 59.0
        taint(plane, gpu_0=[ILL], gpu_1=[ILL])
        ends(plane, "zz-first")
        assert not is_ending(plane, "short")
        clock["seconds"] = 60.0
        # Some change, so that it is looked at again.
        plane.client.patch(kube.PODS, "short", {"metadata": {"labels": {"a": "b"}}}, "default")
        ends(plane, "short")
        assert not is_ending(plane, "last")

    def test_ends_the_pod_though_nothing_else_changes(self, plane, clock):
        runs(plane, "pod", STAYS | {"tolerationSeconds": 60})
        clock["seconds"] = 59.9
        taint(plane, gpu_0=[ILL])

        def later():
            clock["seconds"] += 0.01
            return is_ending(plane, "pod")

        until(later)

    def test_counts_from_another_time_once_the_taint_has_it(self, plane, clock):
        runs(plane, "pod", STAYS | {"tolerationSeconds": 60})
        clock["seconds"] = 30.0
        taint(plane, gpu_0=[ILL])
        taint(plane, gpu_0=[ILL | {"timeAdded": "2026-11-28T09:59:00Z"}])
        ends(plane, "pod")

    @pytest.mark.usefixtures("clock")
    @pytest.mark.parametrize("gone", ["slice", "allocation", "reservation"])
    def test_of_a_device_that_is_not_the_pods_any_more_ends_it_not(self, plane, gone):
        runs(plane, "pod", STAYS | {"tolerationSeconds": 60})
        runs(plane, "zz-first")
        taint(plane, gpu_0=[ILL], gpu_1=[ILL])
        ends(plane, "zz-first")
        if gone == "slice":
            plane.client.delete(kube.SLICES, "slice-node-a")
        else:
            claim = plane.claim("pod")
            kept = {} if gone == "allocation" else {"allocation": claim["status"]["allocation"]}
            plane.client.replace_status(kube.CLAIMS, claim | {"status": kept}, "default")
        (event,) = until(lambda: plane.events_of("pod", "DeviceTaintManagerEviction"))
        assert event["message"] == "Cancelling deletion"

    def test_that_goes_in_time_lets_the_pod_stay_and_says_so(self, plane, clock):
        runs(plane, "pod", STAYS | {"tolerationSeconds": 60})
        runs(plane, "zz-first")
        taint(plane, gpu_0=[ILL], gpu_1=[ILL])
        ends(plane, "zz-first")
        taint(plane)
        (event,) = until(lambda: plane.events_of("pod", "DeviceTaintManagerEviction"))
        assert event["message"] == "Cancelling deletion"
        clock["seconds"] = 3600.0
        runs(plane, "second")
        taint(plane, gpu_2=[ILL])
        ends(plane, "second")
        assert not is_ending(plane, "pod")


def rule(plane, name, effect="NoExecute", **spec):
    added = {"key": "example.com/ill", "effect": effect}
    return plane.create(kube.TAINT_RULES, name, spec={"taint": added, **spec})


def told(plane, name, reason):
    """The condition of a rule, once it has the reason."""

    def found():
        conditions = plane.client.get(kube.TAINT_RULES, name).get("status", {}).get("conditions")
        (one,) = conditions or [{"reason": None}]
        return one if one["reason"] == reason else None

    return until(found, what=f"a condition {reason} of rule {name}")


@pytest.mark.parametrize("release", ["1.37", "1.38"])
class TestARule:
    def test_ends_pods_and_tells_how_many(self, new_plane, release):
        plane = new_plane(release)
        runs(plane, "ill")
        runs(plane, "well")
        rule(plane, "mine", deviceSelector={"driver": DRIVER, "device": "gpu-0"})
        ends(plane, "ill")
        done = told(plane, "mine", "Completed")
        assert done["type"] == rule_status.CONDITION
        assert done["status"] == "False"
        assert done["message"] == "1 pod evicted since starting the controller."
        assert not is_ending(plane, "well")

    def test_is_done_once_its_pods_are_seen_to_end_however_late_that_is(
        self, new_plane, release, monkeypatch
    ):
        plane = new_plane(release)
        runs(plane, "pod")
        watched = plane.part(evictor.Evictor)._pods
        behind = until(lambda: [one for one in watched.objects() if "nodeName" in one["spec"]])
        with monkeypatch.context() as lag:
            lag.setattr(watched, "objects", lambda: behind)
            rule(plane, "mine", deviceSelector={"device": "gpu-0"})
            until(lambda: "1 pod evicted" in told(plane, "mine", "PodsPendingEviction")["message"])
            until(lambda: "deletionTimestamp" in watched.get("pod", "default")["metadata"])
            # What its status, and the pod's end, have brought about is over by then.
            rule(plane, "later", deviceSelector={"device": "gpu-3"})
            told(plane, "later", "NotStarted")
        assert told(plane, "mine", "Completed")

    def test_ends_pods_that_come_later_and_counts_them(self, new_plane, release):
        plane = new_plane(release)
        rule(plane, "mine", deviceSelector={"device": "gpu-0"})
        told(plane, "mine", "NotStarted")
        runs(plane, "pod", ANY_EFFECT)
        ends(plane, "pod")
        assert "1 pod evicted" in told(plane, "mine", "Completed")["message"]

    def test_without_effect_tells_what_it_would_do(self, new_plane, release):
        plane = new_plane(release)
        runs(plane, "a")
        runs(plane, "b", STAYS)
        rule(plane, "mine", "None", deviceSelector={"driver": DRIVER})
        dry = told(plane, "mine", "NoEffect")
        assert dry["message"].startswith(
            "4 published devices selected. 2 allocated devices selected. 1 pod would be evicted in "
            "1 namespace if"
        )
        assert not is_ending(plane, "a")

    def test_that_gets_an_effect_ends_pods(self, new_plane, release):
        plane = new_plane(release)
        runs(plane, "pod")
        rule(plane, "mine", "None", deviceSelector={"device": "gpu-0"})
        told(plane, "mine", "NoEffect")
        change = {"spec": {"taint": {"effect": "NoExecute"}}}
        plane.client.patch(kube.TAINT_RULES, "mine", change)
        ends(plane, "pod")

    def test_that_keeps_pods_away_says_that_it_ends_none(self, new_plane, release):
        plane = new_plane(release)
        rule(plane, "mine", "NoSchedule", deviceSelector={"driver": DRIVER})
        assert told(plane, "mine", "OtherEffect")["status"] == "False"

    def test_without_a_selector_ends_none(self, new_plane, release):
        plane = new_plane(release)
        runs(plane, "kept")
        runs(plane, "zz-ended")
        rule(plane, "all")
        told(plane, "all", "NotStarted")
        rule(plane, "one", deviceSelector={"device": "gpu-1"})
        ends(plane, "zz-ended")
        assert not is_ending(plane, "kept")

    def test_that_pods_tolerate_for_a_while_is_in_progress(self, new_plane, release):
        plane = new_plane(release)
        runs(plane, "pod", STAYS | {"tolerationSeconds": 3600})
        rule(plane, "mine", deviceSelector={"device": "gpu-0"})
        waiting = told(plane, "mine", "PodsPendingEviction")
        assert waiting["status"] == "True"
        assert waiting["message"] == "1 pod needs to be evicted in 1 namespace."
        plane.client.delete(kube.TAINT_RULES, "mine")
        (event,) = until(lambda: plane.events_of("pod", "DeviceTaintManagerEviction"))
        assert event["message"] == "Cancelling deletion"


@pytest.mark.parametrize(("release", "ends_them"), [("1.36.2", False), ("1.38", True)])
def test_pods_with_extended_resources_are_ended_from_1_38_on(new_plane, release, ends_them):
    plane = new_plane(release)
    plane.add_class(
        f'device.driver == "{DRIVER}"', name="x", extendedResourceName="example.com/gpu"
    )
    limits = {"resources": {"limits": {"example.com/gpu": "1"}}}
    plane.add_pod("extended", containers=[{"name": "main", "image": "none"} | limits])
    plane.node_of("extended")
    runs(plane, "zz-claimed")
    taint(plane, gpu_0=[ILL], gpu_1=[ILL])
    ends(plane, "zz-claimed")
    if ends_them:
        ends(plane, "extended")
    assert is_ending(plane, "extended") is ends_them
