"""What is in the way of pods whose claims have devices."""

import gpu_slices
import pytest
from explain_scene import DRIVER, claim, explain, gpu, held, node, pod, pool

from dra_driver.logic.explaining import explaining, targets
from dra_driver.logic.picturing import snapshots

X = "claim default/mine, device gpu.example.com/a/x"
DELETE_ONE = "Delete the pods of one of the two claims"
ANEW = "Delete the pods that have the claim, and it is allocated anew"


def told(*bodies, target="claim/mine"):
    """The problems with remedies that stop the pod, and those that are only to be known."""
    about = explain(target, *bodies)
    stopping = [f"{one}" for one in about.in_the_way if one.stops]
    expected = explaining.UNUSABLE if stopping else explaining.ALLOCATED
    assert about.verdict == expected
    return stopping, [f"{one}" for one in about.in_the_way if not one.stops]


def only(text):
    return [text]


def ready(body, status="True", reason="Prepared", message="ready for containers"):
    """The claim, with what its driver reports of its devices."""
    condition = {"type": "Ready", "status": status, "reason": reason, "message": message,
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    body["status"]["devices"] = [
        {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": [condition]}
        for result in body["status"]["allocation"]["devices"]["results"]
    ]
    return body


def share(name, device, memory):
    body = held(name, device)
    (result,) = body["status"]["allocation"]["devices"]["results"]
    result |= {"shareID": name, "consumedCapacity": {"memory": memory}}
    return body


SHARED = {"allowMultipleAllocations": True}


def test_a_device_as_it_should_be_has_nothing_in_the_way():
    assert told(pool("a", gpu("x")), ready(held("mine", "a/x"))) == ([], [])


class TestDevicesThatAreNotThere:
    def test_one_that_no_slice_lists_is_named_with_those_that_are(self):
        stopping, _ = told(pool("a", gpu("x"), gpu("y")), held("mine", "a/z"))
        assert stopping == only(
            "claim default/mine, device gpu.example.com/a/z: no ResourceSlice lists it; pool "
            "gpu.example.com/a has x, y. Was the status of the claim written by hand or restored, "
            f"or MIG changed on the node? {ANEW}"
        )

    def test_a_pool_that_nobody_publishes_is_named_with_its_driver(self):
        stopping, _ = told(pool("b", gpu("x")), node("a"), node("b"), held("mine", "a/x"))
        assert stopping == only(
            f"{X}: no ResourceSlice has its pool "
            "gpu.example.com/a. Either driver gpu.example.com does not run on the node, or it has "
            "not published yet: look at its pods and their log. If the node is gone for good, "
            "delete the pods that have the claim"
        )

    def test_of_a_pool_that_is_incomplete_it_is_not_known(self):
        stopping, known = told(pool("a", gpu("x"), count=2), held("mine", "a/x"))
        assert stopping == []
        assert known == only(
            f"{X}: its pool is incomplete: 1 of 2 "
            "slices, so that it cannot be seen whether the device is there. Wait until driver "
            "gpu.example.com has published all of it; else look at its log"
        )

    def test_a_node_that_is_gone_is_told_once_and_not_its_devices(self):
        stopping, _ = told(pool("b", gpu("x")), node("b"), held("mine", "a/x", "a/y"))
        assert stopping == only(
            "claim default/mine: it is allocated to devices of node a, which does not exist. "
            f"{ANEW}"
        )

    def test_without_nodes_in_the_files_none_is_gone(self):
        bodies = [pool("b", gpu("x")), held("mine", "a/x")]
        scene = snapshots.of(snapshots.normalized(body, "default") for body in bodies)
        about = explaining.explain(targets.named(scene, "claim/mine", "default"), scene)
        assert [one.problem for one in about.in_the_way] == [
            "no ResourceSlice has its pool gpu.example.com/a"
        ]

    def test_a_node_that_does_not_answer_is_told(self):
        unreachable = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
        stopping, _ = told(
            node("a", taints=[unreachable]), pool("a", gpu("x")), held("mine", "a/x")
        )
        assert stopping[0].startswith(
            "claim default/mine: node a has the taint node.kubernetes.io/unreachable:NoExecute: "
            "it does not answer. "
        )


class TestDevicesThatOthersHave:
    def test_another_claim_with_the_same_device_is_named_with_its_pods(self):
        stopping, _ = told(
            pool("a", gpu("x")), held("mine", "a/x"), held("theirs", "a/x", pods=("train",))
        )
        assert stopping == [(f"{X}: claim default/theirs (pod train) has it too. {DELETE_ONE}")]

    def test_for_whom_it_is_prepared_is_told(self):
        stopping, _ = told(
            pool("a", gpu("x")), held("mine", "a/x"), ready(held("theirs", "a/x", pods=("train",)))
        )
        assert (
            "claim default/theirs (pod train) has it too, for which it is prepared. "
            in (stopping[0])
        )

    def test_a_whole_device_and_a_share_of_it_exclude_each_other(self):
        scene = pool("a", gpu("x", memory="80Gi", extra=SHARED))
        stopping, _ = told(scene, held("mine", "a/x"), share("theirs", "a/x", "8Gi"))
        assert "claim default/theirs (reserved for no pod) has it too" in stopping[0]
        stopping, _ = told(scene, share("mine", "a/x", "8Gi"), held("theirs", "a/x"))
        assert "claim default/theirs (reserved for no pod) has it too" in stopping[0]

    def test_shares_exclude_each_other_only_if_they_are_more_than_there_is(self):
        scene = pool("a", gpu("x", memory="80Gi", extra=SHARED))
        theirs = share("theirs", "a/x", "40Gi")
        assert told(scene, share("mine", "a/x", "40Gi"), theirs) == ([], [])
        stopping, _ = told(scene, share("mine", "a/x", "41Gi"), theirs)
        assert "claim default/theirs (reserved for no pod) has it too" in stopping[0]

    @pytest.mark.parametrize("whose", ["mine", "theirs"])
    def test_admin_access_is_in_nobodys_way(self, whose):
        claims = {name: held(name, "a/x") for name in ("mine", "theirs")}
        (result,) = claims[whose]["status"]["allocation"]["devices"]["results"]
        result["adminAccess"] = True
        assert told(pool("a", gpu("x")), *claims.values()) == ([], [])

    def test_partitions_that_overlap_are_told(self):
        first, other = (gpu_slices.name(0, of, 0) for of in ("3g.40gb", "1g.10gb"))
        stopping, _ = told(
            *gpu_slices.on_demand("a", 1),
            gpu_slices.held("mine", first, node="a"),
            gpu_slices.held("theirs", other, node="a", pods=("train",)),
            gpu_slices.held("beside", gpu_slices.name(0, "1g.10gb", 6), node="a"),
        )
        assert stopping == only(
            f"claim default/mine, device gpu.nvidia.com/a/{first}: it overlaps {other}, which "
            f"claim default/theirs (pod train) has. {DELETE_ONE}"
        )


class TestDevicesThatAreNotWell:
    def tainted(self, effect, *tolerations, key="broken"):
        body = held("mine", "a/x")
        (result,) = body["status"]["allocation"]["devices"]["results"]
        if tolerations:
            result["tolerations"] = list(tolerations)
        device = gpu("x", extra={"taints": [{"key": key, "effect": effect}]})
        return pool("a", device), body

    def test_a_taint_that_ends_pods_is_told_with_what_follows(self):
        stopping, _ = told(*self.tainted("NoExecute"))
        assert stopping == only(
            f"{X}: it has the taint broken:NoExecute, "
            "which the claim does not tolerate: Kubernetes ends its pods. A pod that is made anew "
            "gets another device; or tolerate it, with `effect: NoExecute`, in the request"
        )

    def test_a_toleration_without_an_effect_does_not_keep_a_pod(self):
        stopping, _ = told(*self.tainted("NoExecute", {"key": "broken", "operator": "Exists"}))
        assert (
            "which the claim tolerates only for the start of pods, without `effect: NoExecute`: "
            "Kubernetes ends its pods"
        ) in stopping[0]

    def test_one_that_is_tolerated_for_a_time_ends_pods_after_it(self):
        limited = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
        stopping, _ = told(*self.tainted("NoExecute", limited))
        assert "which the claim tolerates for 60 s: Kubernetes ends its pods" in stopping[0]

    def test_one_that_is_tolerated_is_only_to_be_known(self):
        stays = {"operator": "Exists", "effect": "NoExecute"}
        stopping, known = told(*self.tainted("NoExecute", stays))
        assert stopping == []
        assert known == only(
            f"{X}: it has the taint broken:NoExecute. "
            "Pods that have the claim keep it; no other claim gets it"
        )

    def test_pods_with_extended_resources_are_not_ended_by_kubernetes(self):
        scene, body = self.tainted("NoExecute")
        body["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
        stopping, _ = told(scene, body)
        assert "Kubernetes before 1.38 does not end pods with extended resources" in stopping[0]

    def test_one_that_keeps_new_claims_away_is_only_to_be_known(self):
        assert told(*self.tainted("NoSchedule"))[0] == []

    def test_one_without_an_effect_on_pods_is_not_told(self):
        assert told(*self.tainted("None")) == ([], [])

    def test_a_gpu_that_is_lost_stops_pods_whatever_the_effect(self):
        stopping, _ = told(*self.tainted("NoSchedule", key=f"{DRIVER}/gpu-lost"))
        assert stopping == only(
            f"{X}: its GPU is not there any more (taint "
            "gpu.example.com/gpu-lost:NoSchedule). Look at the node's kernel log (dmesg | grep -i "
            f"xid). {ANEW}"
        )

    def test_what_the_driver_reports_is_told_with_its_reason(self):
        down = ready(held("mine", "a/x"), "False", "MpsDaemonDown", "MPS daemon d: no answer")
        stopping, _ = told(pool("a", gpu("x")), down)
        assert stopping == only(
            f"{X}: its driver reports that it is not "
            "ready (MpsDaemonDown, since 2026-01-01T00:00:00Z): MPS daemon d: no answer. The log "
            "of driver gpu.example.com on the node has more"
        )


def test_a_report_without_end_is_cut():
    down = ready(held("mine", "a/x"), "False", "MpsDaemonDown", "x" * 32768)
    stopping, _ = told(pool("a", gpu("x")), down)
    assert "x" * 512 + "…" in stopping[0]
    assert len(stopping[0]) < 1000


def test_a_pod_on_another_node_than_its_devices_is_told():
    scene = [pool("a", gpu("x")), pool("b", gpu("x")), held("mine", "a/x", pods=("train",))]
    bound = pod("train", claims={"gpu": "mine"}, nodeName="b")
    stopping, _ = told(*scene, bound, target="pod/train")
    assert stopping == only(
        "claim default/mine: the pod was bound to node b, and its devices are on node a. "
        "Make the pod again, without spec.nodeName: the scheduler binds it where they are"
    )


def test_what_is_in_the_way_of_one_claim_is_told_beside_what_another_would_get():
    pending = pod("train", claims={"old": "mine", "new": "fresh"})
    about = explain(
        "pod/train",
        pool("a", gpu("x"), gpu("y")),
        held("mine", "a/x"),
        held("theirs", "a/x"),
        claim("fresh"),
        pending,
    )
    assert about.verdict == explaining.UNSTARTABLE
    assert [pick.device for pick in about.options[0].picks] == ["gpu.example.com/a/y"]
    assert len(about.in_the_way) == 1
