"""What is told of claims that have devices, and which claims are asked for."""

import pytest
from explain_scene import (
    claim,
    explain,
    gpu,
    held,
    pod,
    pool,
    snapshot,
    template,
)

from dra_driver import errors
from dra_driver.logic.explaining import explaining, targets
from dra_driver.logic.offering import classes
from dra_driver.logic.picturing import granted, snapshots


class TestAllocated:
    CONFIGS = (
        {"source": "FromClass", "opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}},
        {"source": "FromClaim", "requests": ["gpu"],
         "opaque": {"driver": "gpu.example.com", "parameters": {"a": 2}}},
        {"source": "FromClaim", "requests": ["other"],
         "opaque": {"driver": "gpu.example.com", "parameters": {"a": 3}}},
        {"source": "FromClaim", "opaque": {"driver": "else.example.com", "parameters": {}}},
    )  # fmt: skip

    def test_device_node_configs_and_pods_are_told(self):
        mine = held("mine", "a/x", pods=("train",), config=list(self.CONFIGS))
        about = explain("claim/mine", pool("a", gpu("x")), mine)
        assert about.verdict == explaining.ALLOCATED
        (has,) = about.allocated
        assert (has.device, has.node, has.reserved_for) == ("gpu.example.com/a/x", "a", ("train",))
        assert has.configs == (
            granted.Config("class", {"a": 1}),
            granted.Config("claim", {"a": 2}),
        )
        assert has.prepared == granted.UNKNOWN

    @pytest.mark.parametrize(
        ("phases", "told"),
        [
            ({"train": "Running"}, "yes: pod train is Running"),
            ({"train": "Succeeded"}, "no longer: pod train is Succeeded"),
            ({"train": "Failed"}, "no longer: pod train is Failed"),
            ({"eval": "Failed", "train": "Running"}, "yes: pod train is Running"),
            (
                {"eval": "Failed", "train": "Pending"},
                "not yet: pod eval is Failed, pod train is Pending",
            ),
            ({"train": "Pending"}, "not yet: pod train is Pending"),
            ({"train": None}, "not yet: pod train is Pending"),
            ({"eval": "Pending", "train": "Running"}, "yes: pod train is Running"),
            (
                {"eval": "Pending", "train": "Pending"},
                "not yet: pod eval is Pending, pod train is Pending",
            ),
        ],
    )
    def test_whether_it_is_prepared_follows_from_the_pods_that_use_it(self, phases, told):
        mine = held("mine", "a/x", pods=tuple(phases))
        users = [
            pod(name, claims={"gpu": "mine"}) | ({"status": {"phase": phase}} if phase else {})
            for name, phase in phases.items()
        ]
        (has,) = explain("claim/mine", pool("a", gpu("x")), mine, *users).allocated
        assert has.prepared == told

    def test_a_pod_without_a_node_keeps_what_its_claim_has(self):
        mine = held("mine", "a/x")
        waiting = pod("train", claims={"gpu": "mine"})
        about = explain("pod/train", pool("a", gpu("x")), pool("b", gpu("x")), mine, waiting)
        assert about.verdict == explaining.ALLOCATED
        assert (about.allocated[0].node, about.options) == ("a", ())

    def test_what_the_driver_reported_of_a_device_is_told(self):
        mine = held("mine", "a/x")
        mine["status"]["devices"] = [
            {"driver": "gpu.example.com", "pool": "a", "device": "x",
             "conditions": [{"type": "Ready", "status": "True"}]},
        ]  # fmt: skip
        (has,) = explain("claim/mine", pool("a", gpu("x")), mine).allocated
        assert has.prepared == "reported by the driver: Ready=True"

    def test_of_a_share_only_its_own_report_counts(self):
        mine = held("mine", "a/x")
        mine["status"]["allocation"]["devices"]["results"][0] |= {
            "shareID": "one",
            "consumedCapacity": {"memory": "8Gi"},
        }
        place = {"driver": "gpu.example.com", "pool": "a", "device": "x"}
        mine["status"]["devices"] = [
            place | {"shareID": "other", "conditions": [{"type": "Bad", "status": "True"}]},
            place | {"shareID": "one"},
        ]
        (has,) = explain("claim/mine", pool("a", gpu("x")), mine).allocated
        assert (has.share_id, has.consumed) == ("one", ("memory 8Gi",))
        assert has.prepared == "reported by the driver: without conditions"

    def test_the_node_is_that_of_the_slice_where_the_allocation_names_none(self):
        mine = held("mine", "a/x")
        del mine["status"]["allocation"]["nodeSelector"]
        (has,) = explain("claim/mine", pool("a", gpu("x")), mine).allocated
        assert has.node == "a"

    def test_a_device_that_is_not_ready_is_told(self):
        mine = held("mine", "a/x")
        result = mine["status"]["allocation"]["devices"]["results"][0]
        result["bindingConditions"] = ["Attached"]
        about = explain("claim/mine", pool("a", gpu("x")), mine)
        assert about.notes == (
            "claim default/mine waits for condition Attached of device gpu.example.com/a/x",
        )


class TestTargets:
    def test_a_name_that_does_not_exist_is_refused_with_those_that_do(self):
        with pytest.raises(errors.Rejected, match=r"claim default/nope does not exist.*mine"):
            explain("claim/nope", claim("mine"))

    def test_one_that_exists_in_another_namespace_is_told_with_that(self):
        theirs = claim("mine")
        theirs["metadata"]["namespace"] = "team"
        told = "one of that name is in namespace team: name it with -n"
        with pytest.raises(errors.Rejected, match=told):
            explain("claim/mine", theirs)
        told = "create it there; that in namespace team is for pods of that namespace alone"
        with pytest.raises(errors.Rejected, match=told):
            explain("pod/train", theirs, pod("train", claims={"gpu": "mine"}))

    def test_a_claim_of_a_template_that_is_gone_is_not_to_be_created(self):
        made = pod("train", templates={"gpu": "t"})
        made["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "old"}]}
        with pytest.raises(errors.Rejected, match="it was made of template t"):
            explain("pod/train", template("t"), made)

    def test_a_pod_that_needs_no_claim_after_all_is_told_as_such(self):
        spared = pod("train", templates={"gpu": "t"})
        spared["status"] = {"resourceClaimStatuses": [{"name": "gpu"}]}
        with pytest.raises(errors.Rejected, match="needs no claim, though"):
            explain("pod/train", template("t"), spared)

    def test_a_pod_for_another_scheduler_is_told_as_such(self):
        theirs = pod("train", claims={"gpu": "mine"}, schedulerName="kai")
        about = explain("pod/train", pool("a", gpu("x")), claim("mine"), theirs)
        assert about.notes == ("the pod is for scheduler kai, which may decide otherwise",)

    @pytest.mark.parametrize("name", ["mine", "node/mine", "pod/"])
    def test_another_form_is_refused(self, name):
        with pytest.raises(errors.Rejected, match="allowed are pod/NAME and claim/NAME"):
            explain(name, claim("mine"))

    def test_a_pod_without_claims_is_refused(self):
        with pytest.raises(errors.Rejected, match=r"no spec\.resourceClaims"):
            explain("pod/plain", pod("plain"))

    def test_a_template_that_does_not_exist_is_refused(self):
        with pytest.raises(errors.Rejected, match="template default/t does not exist"):
            explain("pod/train", pod("train", templates={"gpu": "t"}))

    def test_a_manifest_gives_its_pods_and_the_claims_that_none_uses(self):
        bodies = [template("used"), template("free"), pod("train", templates={"gpu": "used"})]
        inner = pod("x", templates={"gpu": "used"})
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "night"},
            "spec": {"parallelism": 3, "template": {"spec": inner["spec"]}},
        }
        cron = job | {
            "kind": "CronJob",
            "metadata": {"name": "often"},
            "spec": {"jobTemplate": {"spec": job["spec"]}},
        }
        normal = [snapshots.normalized(body, "team") for body in [*bodies, job, cron]]
        found = targets.in_manifest(snapshots.of(normal), normal)
        assert [target.title for target in found] == [
            "pod team/train",
            "job team/night",
            "cronjob team/often",
            "template team/free",
        ]
        assert [target.notes for target in found] == [
            (),
            ("one of its 3 pods is explained: each needs as much",),
            ("one of its 3 pods is explained: each needs as much",),
            (),
        ]


class TestSnapshots:
    def test_a_claim_with_a_status_and_no_allocation_holds_nothing(self):
        waiting = claim("mine") | {"status": {"reservedFor": []}}
        assert snapshot(waiting, pool("a", gpu("x"))).holders == {}

    def test_what_is_missing_is_assumed_and_told(self):
        scene = snapshots.of([snapshots.normalized(pool("a", gpu("x")), "default")])
        assert [each.name for each in scene.nodes] == ["a"]
        own = sorted(body["metadata"]["name"] for body in classes.device_classes("gpu.nvidia.com"))
        assert sorted(scene.classes) == own
        assert scene.notes == (
            f"no DeviceClasses were given: assumed are {', '.join(own)}",
            (
                "no Nodes were given: assumed are those that the slices name, "
                "without labels and taints"
            ),
        )

    def test_a_slice_that_cannot_be_read_is_told(self):
        scene = snapshot(pool("a", gpu("x", memory="lots")))
        assert "ResourceSlice slice-a was left out" in scene.notes[0]

    def test_an_older_version_is_refused_with_the_way_to_convert_it(self):
        body = claim("mine") | {"apiVersion": "resource.k8s.io/v1beta1"}
        with pytest.raises(errors.Rejected, match=r"kubectl get resourceclaims\.v1\.resource"):
            snapshots.normalized(body, "default")

    def test_an_object_without_a_field_that_it_needs_is_refused_by_name(self):
        body = claim("mine", {"name": "gpu", "exactly": {"count": 1}})
        with pytest.raises(errors.Rejected, match=r"ResourceClaim mine is no valid.*deviceClassN"):
            snapshots.normalized(body, "default")
