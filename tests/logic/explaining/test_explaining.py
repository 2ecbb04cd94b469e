"""Why claims have, would get, or cannot get devices, worked out for small clusters."""

import pytest
from explain_scene import (
    A,
    C,
    claim,
    device_class,
    explain,
    fallen,
    gpu,
    held,
    node,
    pod,
    pool,
    request,
    template,
    wanted,
)

from dra_driver.logic.explaining import explaining, node_reports

BIG = f"{C}.memory.compareTo(quantity('16Gi')) >= 0"
SAME_NUMA = {"matchAttribute": "gpu.example.com/numa"}
HOPPER = f"{A}.architecture == 'Hopper'"


class TestThatDoNotFit:
    def test_each_device_falls_at_one_hurdle_with_the_part_that_fails_and_its_value(self):
        about = explain(
            "claim/mine",
            pool(
                "a",
                gpu("small", memory="15Gi", architecture="Hopper"),
                gpu("old", memory="40Gi", architecture="Ampere"),
                gpu("neither", memory="8Gi", architecture="Turing"),
                gpu("tainted", memory="80Gi", architecture="Hopper", taint="broken"),
                gpu("used", memory="80Gi", architecture="Hopper"),
            ),
            held("theirs", "a/used", pods=("train",)),
            claim("mine", request(f"{BIG} && {HOPPER}")),
        )
        assert about.verdict == explaining.DOES_NOT_FIT
        (report,) = about.reports
        assert report.nodes == ("a",)
        assert fallen(report) == [
            (1, "not matched by selector", HOPPER),
            (1, "not matched by selector", BIG),
            (1, "not matched by selector", f"{BIG} && {HOPPER}"),
            (1, "in use", ""),
            (1, "tainted", "broken:NoSchedule"),
        ]
        groups = {group.devices: group for group in report.requests[0].groups}
        assert groups["gpu.example.com/a/small",].values == ("memory 15Gi < 16Gi",)
        assert groups["gpu.example.com/a/neither",].values == (
            'memory 8Gi < 16Gi, architecture "Turing" != "Hopper"',
        )
        assert groups["gpu.example.com/a/used",].holders == ("claim default/theirs (pod train)",)

    def test_devices_that_are_enough_for_each_request_and_not_for_all_are_told_as_such(self):
        scene = pool("a", gpu("x"), gpu("y"), gpu("z"))
        asked = claim("mine", request(name="one", count=2), request(name="two", count=2))
        (report,) = explain("claim/mine", scene, asked).reports
        together = "usable alone, but not together with the rest of the claim"
        assert fallen(report, "one") == fallen(report, "two") == [(3, together, "")]
        (report,) = explain("claim/mine", scene, claim("mine", request(count=4))).reports
        assert fallen(report) == [(3, "free", "")]

    def test_devices_of_another_class_fall_at_the_class(self):
        about = explain(
            "claim/mine",
            device_class(f"{A}.type == 'mig'"),
            pool("a", gpu("x", type="gpu"), gpu("y", type="gpu")),
            claim("mine"),
        )
        assert fallen(about.reports[0]) == [(2, "not matched by class", f"{A}.type == 'mig'")]
        assert about.reports[0].requests[0].groups[0].values == ('type "gpu" != "mig" (2x)',)

    def test_a_capacity_that_is_too_small_is_told_with_its_size(self):
        asked = request(capacity={"requests": {"memory": "16Gi"}})
        about = explain("claim/mine", pool("a", gpu("x", memory="8Gi")), claim("mine", asked))
        assert fallen(about.reports[0]) == [(1, "too small", "memory 8Gi < 16Gi")]

    def test_who_has_the_counters_that_a_partition_needs_is_told(self):
        def part(name):
            needs = [{"counterSet": "card", "counters": {"memory": {"value": "40Gi"}}}]
            return gpu(name, extra={"consumesCounters": needs})

        counters = [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]
        about = explain(
            "claim/mine",
            pool("a", part("left"), part("right"), sharedCounters=counters),
            held("theirs", "a/left", pods=("train",)),
            claim("mine"),
        )
        assert fallen(about.reports[0]) == [
            (1, "in use", ""),
            (1, "no room beside what is in use", ""),
        ]
        assert about.reports[0].requests[0].groups[1].holders == (
            "claim default/theirs (pod train)",
        )

    def test_a_device_of_another_node_in_a_pool_of_several_is_told(self):
        about = explain(
            "claim/mine",
            node("a"),
            device_class(),
            pool(
                "a",
                gpu("x", extra={"nodeName": "b"}),
                gpu("y", taint="broken", extra={"nodeName": "a"}),
                perDeviceNodeSelection=True,
                nodeName=None,
            ),
            claim("mine"),
        )
        assert fallen(about.reports[0]) == [
            (1, "not on this node", ""),
            (1, "tainted", "broken:NoSchedule"),
        ]

    def test_a_taint_counts_before_counters(self):
        needs = [{"counterSet": "card", "counters": {"memory": {"value": "40Gi"}}}]
        counters = [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]
        about = explain(
            "claim/mine",
            pool(
                "a",
                gpu("left", extra={"consumesCounters": needs}),
                gpu("right", taint="broken", extra={"consumesCounters": needs}),
                sharedCounters=counters,
            ),
            held("theirs", "a/left"),
            claim("mine"),
        )
        assert fallen(about.reports[0]) == [
            (1, "in use", ""),
            (1, "tainted", "broken:NoSchedule"),
        ]

    def test_a_pool_without_all_its_slices_is_told(self):
        about = explain("claim/mine", pool("a", gpu("x"), count=2), claim("mine"))
        (report,) = about.reports
        assert report.defects == ("pool gpu.example.com/a is incomplete: 1 of 2 slices",)
        assert report.requests[0].seen == 0

    def test_nodes_that_are_alike_are_told_together(self):
        pools = [pool(name, gpu("x", memory="8Gi")) for name in ("a", "b", "c")]
        about = explain(
            "claim/mine", *pools, pool("d", gpu("x", memory="9Gi")), claim("mine", request(BIG))
        )
        assert [report.nodes for report in about.reports] == [("a", "b", "c"), ("d",)]
        assert fallen(about.reports[0]) == [(3, "not matched by selector", BIG)]
        assert about.reports[0].requests[0].groups[0].values == ("memory 8Gi < 16Gi (3x)",)

    def test_a_node_that_does_not_take_the_pod_is_told_with_its_reason(self):
        about = explain(
            "pod/train",
            node("a", taints=[{"key": "maintenance", "effect": "NoSchedule"}]),
            pool("a", gpu("x")),
            claim("mine"),
            pod("train", claims={"gpu": "mine"}),
        )
        assert about.verdict == explaining.DOES_NOT_FIT
        reason = "node(s) had untolerated taint {maintenance}"
        assert about.reports == (node_reports.Report(("a",), reason),)
        assert [miss.change for miss in about.nearest] == [
            f"node a has the devices, but does not take the pod: {reason}"
        ]

    def test_a_node_that_takes_neither_the_pod_nor_has_devices_is_no_way_out(self):
        about = explain(
            "pod/train",
            node("a", unschedulable=True),
            pool("a", gpu("x", taint="broken")),
            claim("mine"),
            pod("train", claims={"gpu": "mine"}),
        )
        assert about.reports == (node_reports.Report(("a",), "node(s) were unschedulable"),)
        assert about.nearest == ()

    def test_claims_on_different_nodes_are_told(self):
        about = explain(
            "pod/train",
            pool("a", gpu("x")),
            pool("b", gpu("x")),
            held("one", "a/x"),
            held("other", "b/x"),
            pod("train", claims={"left": "one", "right": "other"}),
        )
        assert about.verdict == explaining.DOES_NOT_FIT
        assert {report.nodes: report.obstacle for report in about.reports} == {
            ("a",): "node(s) cannot use the devices that claim other has",
            ("b",): "node(s) cannot use the devices that claim one has",
        }

    @pytest.mark.parametrize(
        ("there", "obstacle"),
        [
            ((gpu("y"),), "node(s) cannot use the devices that claim one has"),
            ((gpu("y", taint="broken"),), ""),
        ],
    )
    def test_what_a_node_is_short_of_is_told_before_whose_devices_keep_the_pod_off(
        self, there, obstacle
    ):
        about = explain(
            "pod/train",
            pool("a", gpu("x")),
            pool("b", *there),
            held("one", "a/x"),
            claim("more"),
            pod("train", claims={"left": "one", "right": "more"}),
        )
        told = {name: report.obstacle for report in about.reports for name in report.nodes}
        assert told["b"] == obstacle

    def test_an_error_on_a_node_that_other_devices_keep_the_pod_off_stops_it(self):
        about = explain(
            "pod/train",
            pool("a", gpu("x", rank=1), gpu("y", rank=1)),
            pool("b", gpu("x")),
            held("one", "a/x"),
            claim("more", request("device.attributes['gpu.example.com'].rank == 1")),
            pod("train", claims={"left": "one", "right": "more"}),
        )
        assert about.verdict == explaining.DOES_NOT_FIT
        assert "no such key: rank" in f"{about.problem}"


class TestThatTheSchedulerDoesNotLookAt:
    SLICE = pool("a", gpu("x"))

    def problem(self, *bodies):
        about = explain("pod/train", self.SLICE, *bodies)
        assert (about.verdict, about.problem) == (explaining.DOES_NOT_FIT, None)
        (told,) = about.blocked
        return told

    def test_a_pod_with_a_scheduling_gate(self):
        gated = pod("train", claims={"gpu": "mine"}, schedulingGates=[{"name": "quota"}])
        assert self.problem(claim("mine"), gated) == (
            "the pod has scheduling gates (quota): it waits until they are removed"
        )

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    def test_a_pod_that_has_ended(self, phase):
        ended = pod("train", claims={"gpu": "mine"}) | {"status": {"phase": phase}}
        assert self.problem(claim("mine"), ended) == (
            f"the pod has ended ({phase}): its claims are given back, and it gets no others"
        )

    def test_a_pod_that_is_being_deleted(self):
        leaving = pod("train", claims={"gpu": "mine"})
        leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        assert self.problem(claim("mine"), leaving) == (
            "the pod is being deleted: it gets no devices any more"
        )

    def test_a_pod_that_was_bound_by_hand(self):
        bound = pod("train", templates={"gpu": "t"}, nodeName="a")
        assert self.problem(template("t"), bound) == (
            "the pod was bound to node a by hand (spec.nodeName), past the scheduler, which gives "
            "devices: take that out of the pod, and write a nodeSelector in its place"
        )

    def test_a_claim_alone_that_is_being_deleted(self):
        leaving = claim("mine")
        leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        about = explain("claim/mine", self.SLICE, leaving)
        assert about.verdict == explaining.DOES_NOT_FIT
        assert about.blocked[0].startswith("claim default/mine is being deleted")

    def test_a_claim_that_is_being_deleted(self):
        leaving = claim("mine")
        leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        told = self.problem(leaving, pod("train", claims={"gpu": "mine"}))
        assert told.startswith("claim default/mine is being deleted")

    def test_a_claim_of_another_pod_in_the_place_of_its_own(self):
        made = pod("train", templates={"gpu": "t"})
        made["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "mine"}]}
        told = self.problem(claim("mine"), template("t"), made)
        assert told.startswith("claim default/mine was not made for this pod")

    def test_a_claim_that_is_in_use_by_as_many_pods_as_may(self):
        full = held("mine", "a/x", pods=tuple(f"p{index}" for index in range(256)))
        told = self.problem(full, pod("train", claims={"gpu": "mine"}))
        assert told.startswith("claim default/mine is in use by 256 pods")


class TestThatFit:
    def test_every_node_that_fits_is_told_and_the_first_choice_with_its_reason(self):
        about = explain(
            "claim/mine",
            pool("b", gpu("x", memory="80Gi")),
            pool("a", gpu("small", memory="8Gi"), gpu("used", memory="80Gi"),
                 gpu("good", memory="80Gi"), gpu("later", memory="80Gi")),
            held("theirs", "a/used", pods=("train",)),
            claim("mine", request(BIG)),
        )  # fmt: skip
        assert about.verdict == explaining.FITS
        assert [(o.node, o.first, [p.device for p in o.picks]) for o in about.options] == [
            ("a", True, ["gpu.example.com/a/good"]),
            ("b", False, ["gpu.example.com/b/x"]),
        ]
        (pick,) = about.options[0].picks
        assert [(group.hurdle, group.devices) for group in pick.before] == [
            ("not matched by selector", ("gpu.example.com/a/small",)),
            ("in use", ("gpu.example.com/a/used",)),
        ]

    def test_a_free_device_that_the_constraint_rules_out_is_told(self):
        about = explain(
            "claim/mine",
            pool("a", gpu("x", numa=0), gpu("y", numa=1), gpu("z", numa=1)),
            claim("mine", request(count=2), constraints=[SAME_NUMA]),
        )
        first, second = about.options[0].picks
        assert [first.device, second.device] == ["gpu.example.com/a/y", "gpu.example.com/a/z"]
        assert [group.devices for group in first.before] == [("gpu.example.com/a/x",)]
        # Not y: the same claim has it.
        assert [group.devices for group in second.before] == [("gpu.example.com/a/x",)]
        assert "not together" in first.before[0].hurdle

    def test_the_node_that_meets_preferences_best_is_the_first_choice(self):
        asked = {
            "name": "gpu",
            "firstAvailable": [
                {"name": "big", **wanted(BIG)},
                {"name": "any", **wanted()},
            ],
        }
        about = explain(
            "claim/mine",
            pool("a", gpu("x", memory="8Gi")),
            pool("b", gpu("x", memory="80Gi")),
            claim("mine", asked),
        )
        assert [(o.node, [p.request for p in o.picks]) for o in about.options] == [
            ("b", ["gpu/big"]),
            ("a", ["gpu/any"]),
        ]

    def test_why_what_is_preferred_is_not_to_be_had_is_told(self):
        asked = {
            "name": "gpu",
            "firstAvailable": [{"name": "big", **wanted(BIG)}, {"name": "any", **wanted()}],
        }
        about = explain("claim/mine", pool("a", gpu("x", memory="8Gi")), claim("mine", asked))
        ((name, (group,)),) = about.options[0].picks[0].preferred
        assert (name, group.count, group.reason) == ("gpu/big", 1, BIG)

    def test_a_toleration_that_does_not_keep_the_pod_is_told(self):
        broken = gpu("x", extra={"taints": [{"key": "broken", "effect": "NoExecute"}]})
        tolerations = [{"key": "broken", "operator": "Exists"}]
        about = explain(
            "claim/mine", pool("a", broken), claim("mine", request(tolerations=tolerations))
        )
        assert about.verdict == explaining.FITS
        assert about.notes == (
            (
                'request "gpu" tolerates the device taint broken:NoExecute without `effect: '
                "NoExecute`: pods start on such a device, and are ended at once"
            ),
        )
        tolerations[0]["effect"] = "NoExecute"
        about = explain(
            "claim/mine", pool("a", broken), claim("mine", request(tolerations=tolerations))
        )
        assert (about.verdict, about.notes) == (explaining.FITS, ())

    def test_the_node_with_the_fewest_running_pods_comes_first(self):
        about = explain(
            "claim/mine",
            pool("a", gpu("x")),
            pool("b", gpu("x")),
            pod("busy", nodeName="a"),
            *[pod(name, nodeName="b") | {"status": {"phase": "Failed"}} for name in ("p", "q")],
            claim("mine"),
        )
        assert [option.node for option in about.options] == ["b", "a"]

    def test_all_claims_of_a_pod_are_tried_together(self):
        one_each = {"left": "t", "right": "t"}
        both = [template("t"), pod("train", templates=one_each)]
        assert explain("pod/train", pool("a", gpu("x")), *both).verdict == explaining.DOES_NOT_FIT
        about = explain("pod/train", pool("a", gpu("x"), gpu("y")), *both)
        assert [(pick.claim, pick.device) for pick in about.options[0].picks] == [
            ("default/train-left-*", "gpu.example.com/a/x"),
            ("default/train-right-*", "gpu.example.com/a/y"),
        ]
