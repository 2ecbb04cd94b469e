"""The smallest changes that would make claims fit, and what agreeing devices are free."""

import pytest
from explain_scene import A, C, claim, device_class, explain, gpu, held, pool, request

from dra_driver.logic.explaining import nearest_miss

BIG = f"{C}.memory.compareTo(quantity('16Gi')) >= 0"
HOPPER = f"{A}.architecture == 'Hopper'"
NEW = f"{A}.index > 10"


def changes(*bodies):
    return [miss.change for miss in explain("claim/mine", *bodies).nearest]


def test_one_part_of_a_selector_is_dropped():
    about = explain(
        "claim/mine",
        pool("a", gpu("x", memory="15Gi", architecture="Hopper")),
        claim("mine", request(f"{BIG} && {HOPPER}")),
    )
    (miss,) = about.nearest
    assert miss.change == (
        f'drop `{BIG}` from request "gpu" (gpu.example.com/a/x: memory 15Gi < 16Gi)'
    )
    assert (miss.node, miss.devices, miss.size) == ("a", ("gpu.example.com/a/x",), 1)


def test_a_change_of_fewer_parts_comes_first():
    found = explain(
        "claim/mine",
        pool("a", gpu("x", memory="8Gi", architecture="Ampere", index=11),
             gpu("y", memory="80Gi", architecture="Hopper", index=1)),
        claim("mine", request(f"{BIG} && {HOPPER}", NEW)),
    ).nearest  # fmt: skip
    assert [(miss.size, miss.devices) for miss in found] == [
        (1, ("gpu.example.com/a/y",)),
        (2, ("gpu.example.com/a/x",)),
    ]


def test_more_than_is_enough_is_not_dropped():
    found = explain(
        "claim/mine",
        pool("a", gpu("x", memory="80Gi", architecture="Ampere"),
             gpu("y", memory="8Gi", architecture="Ampere")),
        claim("mine", request(f"{BIG} && {HOPPER}")),
    ).nearest  # fmt: skip
    assert [(miss.size, miss.devices) for miss in found] == [(1, ("gpu.example.com/a/x",))]


def test_a_part_with_an_or_keeps_its_meaning_beside_what_is_left():
    either = f"({A}.index == 9 || {A}.index == 2)"
    found = explain(
        "claim/mine",
        pool("a", gpu("x", memory="8Gi", index=9, new=False),
             gpu("y", memory="8Gi", index=2, new=True)),
        claim("mine", request(f"{either} && {A}.new && {BIG}")),
    ).nearest  # fmt: skip
    assert found[0].devices == ("gpu.example.com/a/y",)


def test_a_binding_is_not_taken_apart():
    bound = f"cel.bind(gpu, {A}, gpu.index == 1 && gpu.architecture == 'Hopper')"
    scene = pool("a", gpu("x", index=1, architecture="Ampere"))
    assert changes(scene, claim("mine", request(bound))) == []


def test_the_end_of_one_pod_frees_a_device():
    found = changes(
        pool("a", gpu("x"), gpu("y")),
        held("one", "a/x", pods=("train",)),
        held("two", "a/y"),
        claim("mine"),
    )
    assert found == [
        "free once pod train ends (claim default/one)",
        "free once claim default/two is deleted (no pod uses it)",
    ]


def test_the_end_of_several_pods_is_told_where_one_is_not_enough():
    about = explain(
        "claim/mine",
        pool("a", gpu("x"), gpu("y"), gpu("z")),
        pool("b", gpu("x")),
        held("one", "a/x", pods=("p1",)),
        held("two", "a/y", pods=("p2", "p3")),
        held("elsewhere", "b/x", pods=("p4",)),
        claim("mine", request(count=3)),
    )
    assert [miss.change for miss in about.nearest] == [
        'ask for 1 rather than 3 in request "gpu"',
        "free once pod p1 ends (claim default/one) and pods p2, p3 end (claim default/two)",
    ]
    assert [miss.size for miss in about.nearest] == [1, 2]


def test_a_device_taint_is_tolerated():
    assert changes(pool("a", gpu("x", taint="broken")), claim("mine")) == [
        'tolerate the device taint broken:NoSchedule in request "gpu"'
    ]


def test_less_of_a_capacity_is_asked_for():
    asked = request(capacity={"requests": {"memory": "16Gi"}})
    assert changes(pool("a", gpu("x", memory="8Gi")), claim("mine", asked)) == [
        'ask for at most 8Gi of capacity memory in request "gpu" (rather than 16Gi)'
    ]


def test_another_class_is_asked_for():
    found = changes(
        device_class(f"{A}.type == 'mig'", name="mig"),
        device_class(f"{A}.type == 'gpu'"),
        pool("a", gpu("x", type="gpu")),
        claim("mine", request(of_class="mig")),
    )
    assert found == ['ask for class gpu rather than mig in request "gpu"']


def test_of_classes_with_the_same_devices_the_one_with_the_shortest_name_is_asked_for():
    found = changes(
        device_class(f"{A}.type == 'mig'", name="mig"),
        device_class(f"{A}.type == 'gpu' && !('shared' in {A})", name="alone.gpu"),
        device_class(f"{A}.type == 'gpu'"),
        device_class(f"{A}.type == 'spare'", name="spare"),
        pool("a", gpu("x", type="gpu"), gpu("y", type="spare")),
        claim("mine", request(of_class="mig")),
    )
    assert found == [
        'ask for class gpu rather than mig in request "gpu"',
        'ask for class spare rather than mig in request "gpu"',
    ]


def test_how_many_devices_agree_and_are_free_is_told_beside_dropping_the_constraint():
    about = explain(
        "claim/mine",
        pool(
            "a",
            *[gpu(f"g{index}", index=index, root=f"r{index // 4}") for index in range(8)],
            gpu("other", index=99, root="r0"),
        ),
        held("one", "a/g0", "a/g1", pods=("p1",)),
        held("two", "a/g5", "a/g6", "a/g7", pods=("p2",)),
        claim(
            "mine",
            request(f"{A}.index < 50", count=3),
            constraints=[{"matchAttribute": "gpu.example.com/root"}],
        ),
    )
    assert about.groups == (
        'node a: 2 of 4 devices with root "r0" are free; the claim needs 3 with one root',
    )
    assert [miss.change for miss in about.nearest] == [
        f'drop `{A}.index < 50` from request "gpu" (gpu.example.com/a/other: index 99 >= 50)',
        "free once pod p1 ends (claim default/one)",
        "free once pod p2 ends (claim default/two)",
        "drop matchAttribute gpu.example.com/root from claim mine",
        'ask for 2 rather than 3 in request "gpu"',
    ]


def test_where_nothing_helps_nothing_is_told():
    assert changes(pool("a"), claim("mine")) == []


class TestTwoChangesAtOnce:
    def test_are_told_where_no_single_one_helps(self):
        about = explain(
            "claim/mine",
            pool("a", gpu("x", memory="8Gi", taint="broken")),
            claim("mine", request(BIG)),
        )
        (miss,) = about.nearest
        assert miss.change == (
            f'drop `{BIG}` from request "gpu" (gpu.example.com/a/x: memory 8Gi < 16Gi), and '
            'tolerate the device taint broken:NoSchedule in request "gpu"'
        )
        assert (miss.devices, miss.size, miss.together) == (("gpu.example.com/a/x",), 2, 2)

    def test_are_not_looked_for_where_one_is_enough(self):
        found = explain(
            "claim/mine",
            pool("a", gpu("x", memory="8Gi", taint="broken"), gpu("y", memory="8Gi")),
            claim("mine", request(BIG)),
        ).nearest
        assert [miss.together for miss in found] == [1]

    def test_may_concern_two_requests(self):
        found = changes(
            device_class(f"{A}.type == 'mig'", name="mig"),
            device_class(f"{A}.type == 'gpu'"),
            pool("a", gpu("x", type="gpu"), gpu("y", type="gpu")),
            claim("mine", request(name="one", of_class="mig"), request(name="two", of_class="mig")),
        )
        assert found == [
            (
                'ask for class gpu rather than mig in request "one", and '
                'ask for class gpu rather than mig in request "two"'
            )
        ]

    def test_may_be_two_taints_of_one_device(self):
        broken = gpu("x", taint="broken")
        broken["taints"].append({"key": "leaving", "effect": "NoExecute"})
        assert changes(pool("a", broken), claim("mine")) == [
            (
                'tolerate the device taint broken:NoSchedule in request "gpu", and '
                'tolerate the device taint leaving:NoExecute in request "gpu", with its effect '
                "written out"
            )
        ]

    def test_give_up_as_few_devices_as_they_can(self):
        found = changes(
            pool("a", *[gpu(f"g{i}", memory="8Gi") for i in range(3)]),
            claim("mine", request(BIG, count=5)),
        )
        assert found == [
            (
                f'drop `{BIG}` from request "gpu" (gpu.example.com/a/g0: memory 8Gi < 16Gi), and '
                'ask for 3 rather than 5 in request "gpu"'
            )
        ]

    def test_that_keep_more_come_first(self):
        found = explain(
            "claim/mine",
            device_class(f"{A}.type == 'gpu'"),
            device_class(f"{A}.type == 'mig'", name="mig"),
            pool("a", gpu("y", type="gpu", memory="8Gi", architecture="Ampere")),
            pool("b", gpu("x", type="mig", memory="80Gi", architecture="Hopper", taint="broken")),
            held("theirs", "a/y", pods=("train",)),
            claim("mine", request(BIG, HOPPER)),
        ).nearest
        assert [(miss.size, miss.devices) for miss in found] == [
            (2, ("gpu.example.com/b/x",)),
            (3, ("gpu.example.com/a/y",)),
        ]

    def test_that_use_up_the_trials_are_not_all_tried_and_that_is_told(self, monkeypatch):
        monkeypatch.setattr(nearest_miss, "MAX_PAIR_TRIALS", 0)
        about = explain(
            "claim/mine",
            pool("a", gpu("x", memory="8Gi", taint="broken")),
            claim("mine", request(BIG)),
        )
        assert about.nearest == ()
        assert about.notes == (
            "not every change, or pair of changes, was tried: there are too many",
        )


def test_how_many_different_values_there_are_is_told_for_a_distinct_attribute():
    about = explain(
        "claim/mine",
        pool("a", gpu("x", root="r0"), gpu("y", root="r0"), gpu("z", root="r1")),
        held("theirs", "a/z"),
        claim(
            "mine",
            request(count=3),
            constraints=[{"distinctAttribute": "gpu.example.com/root"}],
        ),
    )
    assert about.groups == (
        (
            "node a: free devices have 1 different values of root, 2 with those in use; "
            "the claim needs 3"
        ),
    )


def test_a_version_in_which_devices_agree_is_told_as_it_is_written():
    old = gpu("x")
    old["attributes"] = {"capability": {"version": "9.0.0"}}
    about = explain(
        "claim/mine",
        pool("a", old),
        claim(
            "mine",
            request(count=2),
            constraints=[{"matchAttribute": "gpu.example.com/capability"}],
        ),
    )
    assert about.groups == (
        (
            'node a: 1 of 1 devices with capability "9.0.0" are free; '
            "the claim needs 2 with one capability"
        ),
    )


def test_of_a_claim_with_many_pods_some_are_named():
    pods = tuple(f"p{index}" for index in range(256))
    found = changes(pool("a", gpu("x")), held("theirs", "a/x", pods=pods), claim("mine"))
    assert found == ["free once pods p0, p1, p2, p3 and 252 more end (claim default/theirs)"]


def test_what_helps_on_one_of_two_nodes_that_look_alike_so_far_is_told():
    """Both devices fall at the selector; only of one is that all."""
    found = explain(
        "claim/mine",
        pool("a", gpu("x", memory="8Gi", taint="broken")),
        pool("b", gpu("x", memory="8Gi")),
        claim("mine", request(BIG)),
    )
    assert [report.nodes for report in found.reports] == [("a", "b")]
    assert [(miss.node, miss.together) for miss in found.nearest] == [("b", 1)]


def test_a_lost_gpu_is_not_to_be_tolerated():
    lost = gpu("x", taint="gpu.example.com/gpu-lost")
    assert changes(pool("a", lost), claim("mine")) == []


def test_fewer_than_all_are_asked_for():
    found = changes(
        pool("a", gpu("x"), gpu("y"), gpu("z")),
        held("theirs", "a/x"),
        claim("mine", request(allocationMode="All")),
    )
    assert found == [
        "free once claim default/theirs is deleted (no pod uses it)",
        'ask for 2 rather than All in request "gpu"',
    ]


def test_a_capacity_that_no_device_has_is_not_to_be_had_in_a_smaller_amount():
    asked = request(capacity={"requests": {"cores": "3"}})
    assert changes(pool("a", gpu("x", memory="8Gi")), claim("mine", asked)) == [
        'ask for nothing of capacity cores in request "gpu"'
    ]


def test_a_class_of_another_driver_is_no_way_out():
    found = changes(
        device_class("device.driver == 'nic.example.com'", name="nic"),
        device_class(f"device.driver == 'gpu.example.com' && {A}.type == 'mig'", name="mig"),
        device_class(f"device.driver == 'gpu.example.com' && {A}.type == 'gpu'"),
        pool("a", gpu("x", type="gpu")),
        pool("b", {"name": "n"}, driver="nic.example.com"),
        claim("mine", request(of_class="mig")),
    )
    assert found == ['ask for class gpu rather than mig in request "gpu"']


class TestShares:
    SCENE = pool("a", gpu("x", memory="80Gi", extra={"allowMultipleAllocations": True}))

    def theirs(self, memory):
        body = held("theirs", "a/x", pods=("train",))
        (result,) = body["status"]["allocation"]["devices"]["results"]
        result |= {"shareID": "s", "consumedCapacity": {"memory": memory}}
        return body

    def told(self, **fields):
        (free, *others) = changes(self.SCENE, self.theirs("50Gi"), claim("mine", request(**fields)))
        assert free == "free once pod train ends (claim default/theirs)"
        return others

    def test_as_much_as_is_left_is_asked_for(self):
        assert self.told(capacity={"requests": {"memory": "40Gi"}}) == [
            'ask for at most 30Gi of capacity memory in request "gpu" (rather than 40Gi)'
        ]

    def test_a_request_without_an_amount_is_told_for_what_it_stands(self):
        assert self.told() == [
            (
                'ask for at most 30Gi of capacity memory in request "gpu" (without an amount it '
                "asks for 80Gi)"
            )
        ]

    def test_of_a_device_of_which_nothing_is_left_no_amount_helps(self):
        found = changes(self.SCENE, self.theirs("80Gi"), claim("mine"))
        assert found == ["free once pod train ends (claim default/theirs)"]

    def test_several_of_one_card_are_asked_for_by_several_requests(self):
        amount = {"requests": {"memory": "10Gi"}}
        about = explain("claim/mine", self.SCENE, claim("mine", request(count=2, capacity=amount)))
        assert about.reasons == (
            (
                'request "gpu" asks for 2 devices, and gets one share of a device at most: for 2 '
                "shares write 2 requests, of one each"
            ),
        )
        each = [request(name=name, capacity=amount) for name in ("one", "two")]
        assert explain("claim/mine", self.SCENE, claim("mine", *each)).verdict == "fits"

    @pytest.mark.parametrize("count", [2, 3])
    def test_of_whole_cards_that_is_not_the_reason(self, count):
        scene = [pool("a", gpu("x"), gpu("y")), held("theirs", "a/x")]
        assert explain("claim/mine", *scene, claim("mine", request(count=count))).reasons == ()
