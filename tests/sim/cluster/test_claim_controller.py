"""Claims come from templates and go again, over real HTTP, with the scheduler where it matters."""

import pytest
from control_plane import DRIVER, ControlPlane, request
from polling import until

from dra_driver.adapters.kube import kube
from dra_driver.sim.api.serving import options as api_options
from dra_driver.sim.cluster import claim_controller, claim_status


@pytest.fixture
def plane(tmp_path):
    running = ControlPlane(tmp_path)
    running.add_class()
    running.start_controller()
    yield running
    running.close()


@pytest.fixture
def cluster(plane):
    """With a scheduler, and a node with two devices."""
    plane.start_scheduler()
    plane.add_node("node-a")
    plane.add_slice("node-a", "gpu-0", "gpu-1")
    return plane


class TestTemplates:
    def test_a_claim_is_made_as_the_template_says(self, plane):
        metadata = {"labels": {"team": "a"}, "annotations": {"note": "b"}}
        plane.add_template("one", request("gpu", count=2), metadata=metadata)
        pod = plane.add_pod("pod", templates={"gpu": "one"})
        name = plane.claim_of("pod")
        claim = plane.claim(name)
        assert name.startswith("pod-gpu-")
        assert claim["metadata"]["labels"] == {"team": "a"}
        assert claim["metadata"]["annotations"] == {
            "note": "b",
            claim_controller.POD_CLAIM_NAME: "gpu",
        }
        assert claim["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "pod",
                "uid": pod["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        assert claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2

    def test_each_entry_of_the_pod_gets_a_claim_of_its_own(self, plane):
        plane.add_template("one")
        plane.add_claim("mine")
        plane.add_pod("pod", templates={"a": "one", "b": "one"}, claims={"c": "mine"})
        first, second = plane.claim_of("pod", "a"), plane.claim_of("pod", "b")
        assert len({first, second}) == 2
        assert set(plane.claims()) == {first, second, "mine"}

    def test_a_template_that_comes_later_is_used(self, plane):
        plane.add_pod("pod", templates={"gpu": "late"})
        (event,) = until(lambda: plane.events_of("pod", "FailedResourceClaimCreation"))
        assert event["type"] == "Warning"
        assert 'resource claim template "late" not found' in event["message"]
        plane.add_template("late")
        assert plane.claim_of("pod") in plane.claims()

    def test_a_claim_that_was_made_before_a_restart_is_found_again(self, plane):
        plane.add_template("one")
        plane.add_pod("pod", templates={"gpu": "one"})
        name = plane.claim_of("pod")
        plane.stop_parts()
        # As if the process had died between the claim and the status of the pod.
        forget = {"status": {"resourceClaimStatuses": None}}
        plane.client.patch(kube.PODS, "pod", forget, "default", subresource="status")
        plane.start_controller()
        assert plane.claim_of("pod") == name
        assert set(plane.claims()) == {name}

    def test_nothing_is_made_for_a_pod_that_is_done(self, plane):
        plane.stop_parts()
        plane.add_template("one")
        plane.add_pod("done", templates={"gpu": "one"})
        plane.finish("done")
        plane.start_controller()
        plane.add_pod("pod", templates={"gpu": "one"})
        name = plane.claim_of("pod")
        assert set(plane.claims()) == {name}

    def test_nothing_is_made_for_a_pod_that_is_being_deleted(self, plane):
        plane.add_pod("ending", templates={"gpu": "late"}, nodeName="node-a")
        until(lambda: plane.events_of("ending", "FailedResourceClaimCreation"))
        plane.client.delete(kube.PODS, "ending", "default")
        assert "deletionTimestamp" in plane.pod("ending")["metadata"]
        # One watch tells of both pods, in order: what knows of the second knows of the deletion.
        plane.add_pod("pod", templates={"gpu": "late"})
        until(lambda: plane.events_of("pod", "FailedResourceClaimCreation"))
        plane.add_template("late")
        name = plane.claim_of("pod")
        assert set(plane.claims()) == {name}

    @pytest.mark.parametrize(
        ("pod", "claim"), [("p" * 63, "gpu"), ("p", "c" * 63), ("p" * 63, "c" * 63)]
    )
    def test_long_names_are_cut_so_that_the_claim_fits_63(self, plane, pod, claim):
        plane.add_template("one")
        plane.add_pod(pod, templates={claim: "one"})
        name = plane.claim_of(pod, claim)
        assert len(name) <= 63
        assert name.startswith(pod[:26])
        assert f"-{claim[:27]}" in name

    def test_a_claim_that_the_server_refuses_is_told_and_tried_again(self, tmp_path):
        left = [api_options.Fault(status=500, reason="Broken", message="not today")]

        def fault(call):
            makes = call.verb == "create" and call.resource == "resourceclaims"
            return left.pop() if left and makes else None

        plane = ControlPlane(tmp_path, fault=fault)
        try:
            plane.start_controller()
            plane.add_template("one")
            plane.add_pod("pod", templates={"gpu": "one"})
            plane.claim_of("pod")
            (event,) = plane.events_of("pod", "FailedResourceClaimCreation")
            assert "not today" in event["message"]
        finally:
            plane.close()


class TestEndOfUse:
    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    def test_a_generated_claim_goes_when_its_pod_is_done(self, cluster, phase):
        cluster.add_template("one")
        cluster.add_pod("pod", templates={"gpu": "one"})
        cluster.node_of("pod")
        cluster.finish("pod", phase)
        until(lambda: not cluster.claims(), what="no claim")
        assert cluster.has(kube.PODS, "pod")

    def test_a_generated_claim_goes_when_its_pod_is_deleted(self, cluster):
        cluster.add_template("one")
        cluster.add_pod("pod", templates={"gpu": "one"})
        cluster.node_of("pod")
        cluster.client.delete(kube.PODS, "pod", "default", grace_period=0)
        until(lambda: not cluster.claims(), what="no claim")

    def test_a_generated_claim_goes_when_its_pod_is_deleted_before_it_has_a_node(self, plane):
        plane.add_template("one")
        plane.add_pod("pod", templates={"gpu": "one"})
        plane.claim_of("pod")
        plane.client.delete(kube.PODS, "pod", "default")
        until(lambda: not plane.claims(), what="no claim")

    def test_a_generated_claim_goes_although_its_pod_does_not_name_it(self, plane):
        pod = plane.add_pod("pod")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod", "controller": True}
        owner["uid"] = pod["metadata"]["uid"]
        claim = plane.add_claim("made")
        claim["metadata"]["ownerReferences"] = [owner]
        plane.client.replace(kube.CLAIMS, claim, "default")
        plane.add_template("one")
        plane.add_pod("other", templates={"gpu": "one"})
        plane.claim_of("other")
        assert plane.has(kube.CLAIMS, "made")
        plane.finish("pod")
        until(lambda: not plane.has(kube.CLAIMS, "made"), what="claim made gone")

    def test_a_claim_stays_while_its_pod_is_being_ended_by_the_kubelet(self, cluster):
        cluster.add_template("one")
        cluster.add_pod("pod", templates={"gpu": "one"})
        cluster.node_of("pod")
        name = cluster.claim_of("pod")
        cluster.client.delete(kube.PODS, "pod", "default")
        # Something that happens after it, so that the controller has seen the deletion.
        cluster.add_pod("other", templates={"gpu": "one"})
        cluster.claim_of("other")
        assert cluster.devices_of(name) == ["node-a/gpu-0"]
        assert cluster.users_of(name) == ["pod"]

    def test_a_users_claim_is_given_back_and_stays(self, cluster):
        cluster.add_claim("mine")
        cluster.add_pod("pod", claims={"gpu": "mine"})
        cluster.node_of("pod")
        cluster.finish("pod")
        until(lambda: not cluster.devices_of("mine"), what="no allocation")
        claim = until(lambda: _without_finalizers(cluster.claim("mine")))
        assert "reservedFor" not in claim["status"]
        assert "deletionTimestamp" not in claim["metadata"]

    def test_a_shared_claim_is_kept_until_its_last_pod_is_done(self, cluster):
        cluster.add_claim("ours")
        for name in ("first", "second"):
            cluster.add_pod(name, claims={"gpu": "ours"})
            cluster.node_of(name)
        cluster.finish("first")
        until(lambda: cluster.users_of("ours") == ["second"])
        assert cluster.devices_of("ours") == ["node-a/gpu-0"]
        cluster.finish("second")
        until(lambda: not cluster.devices_of("ours"), what="no allocation")

    def test_a_users_claim_that_is_deleted_goes_after_its_pod(self, cluster):
        cluster.add_claim("mine")
        cluster.add_pod("pod", claims={"gpu": "mine"})
        cluster.node_of("pod")
        cluster.client.delete(kube.CLAIMS, "mine", "default")
        assert "deletionTimestamp" in cluster.claim("mine")["metadata"]
        assert cluster.devices_of("mine") == ["node-a/gpu-0"]
        cluster.finish("pod")
        until(lambda: not cluster.has(kube.CLAIMS, "mine"), what="claim mine gone")

    def test_a_deleted_claim_that_nobody_uses_goes_at_once(self, plane):
        claim = plane.add_claim("mine")
        claim["metadata"]["finalizers"] = [claim_status.FINALIZER]
        claim = plane.client.replace(kube.CLAIMS, claim, "default")
        result = {"request": "gpu", "driver": DRIVER, "pool": "p", "device": "d"}
        claim["status"] = {"allocation": {"devices": {"results": [result]}}}
        plane.client.replace_status(kube.CLAIMS, claim, "default")
        plane.client.delete(kube.CLAIMS, "mine", "default")
        until(lambda: not plane.has(kube.CLAIMS, "mine"), what="claim mine gone")

    def test_a_claim_reserved_for_a_pod_of_another_uid_is_given_back(self, plane):
        claim = plane.add_claim("mine")
        plane.add_pod("pod", claims={"gpu": "mine"})
        result = {"request": "gpu", "driver": DRIVER, "pool": "p", "device": "d"}
        claim["status"] = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "pod", "uid": "of-an-earlier-pod"}],
        }
        plane.client.replace_status(kube.CLAIMS, claim, "default")
        until(lambda: not plane.devices_of("mine"), what="no allocation")

    def test_a_user_that_is_no_pod_is_left_alone(self, plane):
        claim = plane.add_claim("mine")
        result = {"request": "gpu", "driver": DRIVER, "pool": "p", "device": "d"}
        claim["status"] = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [
                {"apiGroup": "x.example.com", "resource": "things", "name": "t", "uid": "1"},
                {"resource": "pods", "name": "nobody", "uid": "2"},
            ],
        }
        plane.client.replace_status(kube.CLAIMS, claim, "default")
        until(lambda: plane.users_of("mine") == ["t"])
        assert plane.devices_of("mine") == ["p/d"]

    def test_what_ended_while_the_controller_was_away_is_given_back(self, cluster):
        cluster.add_template("one")
        cluster.add_pod("pod", templates={"gpu": "one"})
        cluster.node_of("pod")
        cluster.stop_parts()
        cluster.client.delete(kube.PODS, "pod", "default", grace_period=0)
        assert cluster.claims()
        cluster.start_controller()
        until(lambda: not cluster.claims(), what="no claim")


def test_forty_pods_come_and_go_on_two_devices(cluster):
    cluster.add_template("one")
    for number in range(40):
        cluster.add_pod(f"pod-{number:02}", templates={"gpu": "one"})
    done = 0

    def finish_the_placed():
        nonlocal done
        items, _ = cluster.client.list(kube.PODS, "default")
        running = [
            item["metadata"]["name"]
            for item in items
            if "nodeName" in item["spec"] and item["status"]["phase"] == "Pending"
        ]
        assert len(running) <= 2
        for name in running:
            cluster.finish(name)
            done += 1
        return done == 40 and not cluster.claims()

    until(finish_the_placed, seconds=240, what="all 40 pods done")


def _without_finalizers(claim):
    return claim if not claim["metadata"].get("finalizers") else None
