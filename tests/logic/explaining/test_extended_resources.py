"""Pods with `nvidia.com/gpu: 1`: the claim that the scheduler makes, before and after."""

import pytest
from explain_scene import DRIVER, claim, device_class, explain, gpu, held, node, pod, pool

from dra_driver import errors
from dra_driver.logic.explaining import explaining, targets
from dra_driver.logic.picturing import snapshots
from dra_driver.logic.scheduling import extended_resources

GPU = "example.com/gpu"
SERVING = device_class(extendedResourceName=GPU)
NEEDS = (
    f"{GPU} is served by class gpu, with a claim that the scheduler makes: that needs Kubernetes "
    "1.36, or the feature gate DRAExtendedResource. Without it the pod waits with "
    f"`Insufficient {GPU}`"
)


def container(name="main", count=1, *, resource=GPU, field="limits", **fields):
    return {"name": name, "resources": {field: {resource: f"{count}", "cpu": "1"}}, **fields}


def asking(*containers, **spec):
    body = pod("train", **spec)
    body["spec"]["containers"] = list(containers) or [container()]
    return body


def offering(name, count, resource=GPU):
    return node(name) | {"status": {"allocatable": {resource: f"{count}", "cpu": "4"}}}


class TestBeforeItIsScheduled:
    def test_the_pod_is_explained_with_the_claim_that_it_would_get(self):
        about = explain("pod/train", SERVING, pool("a", gpu("x")), asking())
        assert about.verdict == explaining.FITS
        (pick,) = about.options[0].picks
        assert (pick.claim, pick.device) == (
            "default/train-extended-resources-*",
            "gpu.example.com/a/x",
        )
        assert about.notes == (f"request container-0-request-1 is {GPU} of container main", NEEDS)

    def test_it_comes_after_the_claims_that_the_pod_names(self):
        body = asking(claims={"gpu": "mine"})
        about = explain("pod/train", SERVING, pool("a", gpu("x"), gpu("y")), claim("mine"), body)
        assert [(pick.claim, pick.device) for pick in about.options[0].picks] == [
            ("default/mine", "gpu.example.com/a/x"),
            ("default/train-extended-resources-*", "gpu.example.com/a/y"),
        ]

    def test_where_it_does_not_fit_it_is_told_as_for_any_claim(self):
        scene = [SERVING, pool("a", gpu("x")), held("theirs", "a/x", pods=("other",))]
        about = explain("pod/train", *scene, asking(container(count=2)))
        assert about.verdict == explaining.DOES_NOT_FIT
        assert about.reports[0].requests[0].wanted == 2
        about = explain("pod/train", *scene, asking())
        assert [miss.change for miss in about.nearest] == [
            "free once pod other ends (claim default/theirs)"
        ]
        assert about.notes[-1].startswith("an extended resource is a class and a number")

    def test_a_manifest_with_nothing_else_is_explained(self):
        bodies = [snapshots.normalized(each, "default") for each in (SERVING, asking())]
        found = targets.in_manifest(snapshots.of(bodies), bodies)
        assert [target.title for target in found] == ["pod default/train"]

    def test_of_a_manifest_with_nothing_to_explain_it_is_told_what_no_class_serves(self):
        body = asking(container(resource="example.com/fpga"))
        bodies = [snapshots.normalized(each, "default") for each in (SERVING, body)]
        with pytest.raises(errors.Rejected) as caught:
            targets.in_manifest(snapshots.of(bodies), bodies)
        assert str(caught.value) == (
            "pod default/train: no DeviceClass serves example.com/fpga: either a device plugin has "
            "to offer that, or a class has to have it as spec.extendedResourceName: there is "
            "nothing to explain"
        )

    def test_without_classes_that_of_the_chart_is_assumed(self):
        body = snapshots.normalized(asking(container(resource="nvidia.com/gpu")), "default")
        (made,) = targets.named(snapshots.of([body]), "pod/train", "default").claims
        assert made.requests[0].alternatives[0].device_class == "gpu.nvidia.com"

    @pytest.mark.parametrize(
        ("body", "told"),
        [
            (pod("train"), "its containers ask for no extended resource"),
            (asking(container(resource="example.com/fpga")), "no DeviceClass serves example.com/f"),
        ],
    )
    def test_a_pod_that_no_claim_is_for_is_refused_with_the_reason(self, body, told):
        with pytest.raises(errors.Rejected, match=told):
            explain("pod/train", SERVING, body)

    def test_what_no_class_serves_is_told_beside_what_one_does(self):
        both = {"name": "main", "resources": {"limits": {GPU: "1", "example.com/fpga": "1"}}}
        about = explain("pod/train", SERVING, pool("a", gpu("x")), asking(both))
        assert about.verdict == explaining.FITS
        assert about.notes[1].startswith(
            "containers ask for example.com/fpga, which no DeviceClass serves"
        )


class TestNodesWithADevicePlugin:
    def test_serve_the_pod_without_a_claim(self):
        about = explain("pod/train", SERVING, offering("a", 1), asking())
        assert about.verdict == explaining.FITS
        assert [(each.node, each.picks, each.served) for each in about.options] == [
            ("a", (), (GPU,))
        ]

    def test_that_has_ended_there_leave_it_to_the_claim(self):
        about = explain("pod/train", SERVING, offering("a", 0), pool("a", gpu("x")), asking())
        assert [(len(each.picks), each.served) for each in about.options] == [(1, ())]

    def test_whose_resource_is_in_use_are_told_with_how_much(self):
        other = asking(container(count=2), nodeName="a") | {"status": {"phase": "Running"}}
        ended = asking(container(count=4), nodeName="a") | {"status": {"phase": "Failed"}}
        by_claim = asking(container(count=4), nodeName="a") | {
            "status": {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings":
                [{"containerName": "main", "resourceName": GPU, "requestName": "r"}]}}
        }  # fmt: skip
        for index, body in enumerate((other, ended, by_claim)):
            body["metadata"] = {"name": f"p{index}"}
        scene = [SERVING, offering("a", 3), other, ended, by_claim]
        about = explain("pod/train", *scene, asking(container(count=2)))
        assert about.verdict == explaining.DOES_NOT_FIT
        assert [report.obstacle for report in about.reports] == [
            f"Insufficient {GPU}: its device plugin offers 3, pods have 2, the pod needs 2"
        ]
        assert explain("pod/train", *scene, asking()).verdict == explaining.FITS

    def test_without_a_resource_that_no_class_serves_are_told(self):
        both = {"name": "main", "resources": {"limits": {GPU: "1", "example.com/fpga": "1"}}}
        about = explain("pod/train", SERVING, offering("a", 0), pool("a", gpu("x")), asking(both))
        assert [report.obstacle for report in about.reports] == [
            "Insufficient example.com/fpga: no device plugin there offers it"
        ]

    def test_without_devices_for_the_rest_of_the_pod_are_told(self):
        body = asking(claims={"gpu": "mine"})
        about = explain("pod/train", SERVING, offering("a", 1), claim("mine"), body)
        assert [report.obstacle for report in about.reports] == [
            f"{GPU} from its device plugin, and no devices else"
        ]


class TestAfterItIsScheduled:
    def scene(self):
        made = held("train-extended-resources-x7k2q", "a/x", pods=("train",))
        made["metadata"]["annotations"] = {extended_resources.ANNOTATION: "true"}
        body = asking(nodeName="a")
        body["status"] = {
            "phase": "Running",
            "extendedResourceClaimStatus": {
                "resourceClaimName": "train-extended-resources-x7k2q",
                "requestMappings": [
                    {"containerName": "main", "resourceName": GPU,
                     "requestName": "container-0-request-1"},
                ],
            },
        }  # fmt: skip
        return made, body

    def test_the_claim_that_was_made_is_told_with_its_device(self):
        made, body = self.scene()
        about = explain("pod/train", SERVING, pool("a", gpu("x")), made, body)
        assert about.verdict == explaining.ALLOCATED
        assert [(each.claim, each.device) for each in about.allocated] == [
            ("default/train-extended-resources-x7k2q", f"{DRIVER}/a/x")
        ]
        assert about.notes == (f"request container-0-request-1 is {GPU} of container main",)

    def test_it_is_found_by_its_owner_before_the_pod_names_it(self):
        made, body = self.scene()
        del body["status"], body["spec"]["nodeName"]
        body["metadata"]["uid"] = "u"
        made["metadata"]["ownerReferences"] = [{"uid": "u"}]
        about = explain("pod/train", SERVING, pool("a", gpu("x")), made, body)
        assert (about.verdict, len(about.allocated)) == (explaining.ALLOCATED, 1)

    def test_one_that_is_gone_is_told(self):
        _, body = self.scene()
        about = explain("pod/train", SERVING, pool("a", gpu("x")), body)
        assert about.notes == (
            (
                "claim train-extended-resources-x7k2q, which was made for its extended resources, "
                "does not exist any more"
            ),
        )

    def test_what_a_device_plugin_gave_is_told_as_such(self):
        about = explain("pod/train", SERVING, pool("a", gpu("x")), asking(nodeName="a"))
        assert about.verdict == explaining.ALLOCATED
        assert about.notes == (
            f"{GPU} comes from a device plugin of its node: no claim was made for it",
        )
