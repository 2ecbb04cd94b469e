import dataclasses

from dra_objects import (
    DRIVER,
    GPU_CLASS,
    alternative,
    claim,
    device,
    exactly,
    first_available,
    gpus,
    share_ids,
    slice_of,
)

from dra_driver.logic.scheduling import placing, pools, scheduling, usage
from dra_driver.model import claims, nodes, slices, taints

POD = placing.Pod("default", "pod", "u", (), {}, None, (), ())
A, B, C = (nodes.Node(name) for name in ("node-a", "node-b", "node-c"))
MODEL = f'device.attributes["{DRIVER}"].model'


def view(*published, on=(A, B, C), in_use=None):
    inventory = pools.Inventory.of(published)
    used = in_use or usage.InUse()
    return scheduling.View(inventory, {"gpu": GPU_CLASS}, tuple(on), used, share_ids())


def node_slice(node, *devices):
    return slice_of(*devices, name=f"slice-{node}", pool=node, node=node)


def allocated(to, name="bound"):
    result = claims.Result("gpu", slices.DeviceId(DRIVER, to, "gpu-0"))
    given = claims.Allocation((result,), node_selector=nodes.only(to))
    return dataclasses.replace(claim(exactly(), name=name), allocation=given)


def test_the_first_node_that_fits_is_taken():
    found = scheduling.place(
        POD,
        [claim(exactly())],
        view(node_slice("node-b", *gpus(1)), node_slice("node-c", *gpus(1))),
    )
    assert isinstance(found, scheduling.Placement)
    assert found.node == "node-b"
    assert [item.results[0].device.pool for item in found.allocations] == ["node-b"]


def test_the_order_of_the_nodes_decides():
    published = [node_slice("node-b", *gpus(1)), node_slice("node-c", *gpus(1))]
    found = scheduling.place(POD, [claim(exactly())], view(*published, on=(C, B)))
    assert found.node == "node-c"


def test_a_claim_that_is_allocated_ties_the_pod_to_its_node():
    published = [node_slice("node-a", *gpus(2)), node_slice("node-b", *gpus(2))]
    bound = allocated("node-b")
    in_use = usage.InUse.of([bound.allocation])
    found = scheduling.place(
        POD, [bound, claim(exactly(), name="new")], view(*published, in_use=in_use)
    )
    assert found.node == "node-b"
    ((result,),) = (item.results for item in found.allocations)
    assert result.device == slices.DeviceId(DRIVER, "node-b", "gpu-1")


def test_an_allocation_without_a_node_selector_is_usable_everywhere():
    anywhere = dataclasses.replace(claim(exactly()), allocation=claims.Allocation(()))
    assert scheduling.place(POD, [anywhere], view()).node == "node-a"


def test_a_refusal_names_the_claims_that_tie_the_pod_to_a_node_that_does_not_take_it():
    selective = dataclasses.replace(POD, node_labels={"zone": "z"})
    labelled = nodes.Node("node-b", {"zone": "z"})
    found = scheduling.place(selective, [allocated("node-a")], view(on=(A, labelled)))
    assert found == scheduling.Refusal(
        "0/2 nodes are available: 1 node(s) cannot use the devices that the pod's claims have; "
        "1 node(s) didn't match Pod's node affinity/selector.",
        frozenset({claims.ClaimUid("uid-bound")}),
    )


def test_first_available_takes_the_node_with_the_best_alternatives():
    published = [
        node_slice("node-a", *gpus(1, model="t4")),
        node_slice("node-b", *gpus(1, model="h100")),
        node_slice("node-c", *gpus(1, model="h100")),
    ]
    wanted = first_available(
        "gpu", alternative("best", f'{MODEL} == "h100"'), alternative("good", f'{MODEL} == "t4"')
    )
    found = scheduling.place(POD, [claim(wanted)], view(*published))
    assert found.node == "node-b"
    assert found.allocations[0].results[0].request == "gpu/best"


def test_an_error_refuses_the_pod_on_every_node():
    published = [node_slice("node-a", *gpus(1)), node_slice("node-b", *gpus(1, model="h100"))]
    found = scheduling.place(POD, [claim(exactly("gpu", f'{MODEL} == "h100"'))], view(*published))
    assert isinstance(found, scheduling.Refusal)
    assert "no such key: model" in found.message
    assert not found.message.startswith("0/")


def test_what_each_node_lacks_is_told():
    published = [node_slice("node-a", *gpus(1)), node_slice("node-b", *gpus(2))]
    found = scheduling.place(POD, [claim(exactly(count=3))], view(*published, on=(A, B)))
    assert found.message == (
        '0/2 nodes are available: 2 cannot allocate request "gpu" (3 devices) of claim claim: '
        "3 devices: 3 free, which is too few."
    )


class TestAnErrorOnANode:
    """An error on any node stops the pod, though another node fits."""

    UNSAFE = f'device.attributes["{DRIVER}"].index < 1'

    def test_of_an_expression(self):
        published = [node_slice("node-a", *gpus(1)), node_slice("node-b", device("nameless"))]
        found = scheduling.place(POD, [claim(exactly("gpu", self.UNSAFE))], view(*published))
        assert isinstance(found, scheduling.Refusal)
        assert "no such key: index" in found.message

    def test_of_an_expression_that_no_search_there_would_come_to(self):
        published = [
            node_slice("node-a", *gpus(1)),
            node_slice("node-b", *gpus(1), device("nameless")),
        ]
        found = scheduling.place(POD, [claim(exactly("gpu", self.UNSAFE))], view(*published))
        assert found.node == "node-a"

    def test_of_a_device_in_use_is_none(self):
        nameless = slices.DeviceId(DRIVER, "node-b", "nameless")
        in_use = usage.InUse.of([claims.Allocation((claims.Result("r", nameless),))])
        published = [node_slice("node-a", *gpus(1)), node_slice("node-b", device("nameless"))]
        pending = [claim(exactly("gpu", self.UNSAFE))]
        assert scheduling.place(POD, pending, view(*published, in_use=in_use)).node == "node-a"

    def test_of_all_with_an_incomplete_pool(self):
        half = slice_of(device("half"), name="half", pool="node-b", node="node-b", count=2)
        found = scheduling.place(
            POD,
            [claim(exactly(all_devices=True))],
            view(node_slice("node-a", *gpus(1)), half),
        )
        assert "pool gpu.example.com/node-b is incomplete: 1 of 2 slices" in found.message

    def test_of_all_with_more_devices_than_a_claim_may_have(self):
        published = [node_slice("node-a", *gpus(1)), node_slice("node-b", *gpus(33))]
        found = scheduling.place(POD, [claim(exactly(all_devices=True))], view(*published))
        assert "asks for 33 devices; allowed are 32" in found.message

    def test_on_a_node_that_the_pod_may_not_run_on_is_none(self):
        published = [node_slice("node-a", *gpus(1)), node_slice("node-b", device("nameless"))]
        tainted = nodes.Node("node-b", taints=(taints.Taint("no", effect="NoSchedule"),))
        pending = [claim(exactly("gpu", self.UNSAFE))]
        found = scheduling.place(POD, pending, view(*published, on=(A, tainted)))
        assert found.node == "node-a"

    def test_on_a_node_that_the_devices_of_another_claim_tie_the_pod_away_from(self):
        published = [node_slice("node-a", *gpus(2)), node_slice("node-b", device("nameless"))]
        bound = allocated("node-a")
        in_use = usage.InUse.of([bound.allocation])
        pending = [bound, claim(exactly("gpu", self.UNSAFE), name="new")]
        found = scheduling.place(POD, pending, view(*published, in_use=in_use))
        assert "no such key: index" in found.message

    def test_after_as_many_nodes_fit_as_the_scheduler_looks_for_is_none(self):
        fleet = [nodes.Node(f"node-{number:03}") for number in range(251)]
        published = [node_slice(node.name, *gpus(1)) for node in fleet[:-1]]
        published.append(node_slice(fleet[-1].name, device("nameless")))
        pending = [claim(exactly("gpu", self.UNSAFE))]
        assert scheduling.place(POD, pending, view(*published, on=fleet)).node == "node-000"
        # Of these 99 fit; where others only might, they do not count.
        few = [*fleet[:99], fleet[-1]]
        found = scheduling.place(POD, pending, view(*published, on=few))
        assert "no such key: index" in found.message

    def test_nodes_that_do_not_fit_are_not_among_those(self):
        fleet = [nodes.Node(f"node-{number:03}") for number in range(120)]
        published = [node_slice("node-000", *gpus(1)), node_slice("node-119", device("nameless"))]
        pending = [claim(exactly("gpu", self.UNSAFE))]
        found = scheduling.place(POD, pending, view(*published, on=fleet))
        assert "no such key: index" in found.message


class TestAClaimThatTiesThePod:
    def test_is_given_back_only_if_a_node_has_what_the_others_ask_for(self):
        bound, more = allocated("node-a"), claim(exactly(count=2), name="more")
        in_use = usage.InUse.of([bound.allocation])
        few = view(node_slice("node-a", *gpus(1)), node_slice("node-b", *gpus(1)), in_use=in_use)
        found = scheduling.place(POD, [bound, more], few)
        assert found.blocking == frozenset()
        assert "cannot use the devices that the pod's claims have" not in found.message

        many = view(node_slice("node-a", *gpus(1)), node_slice("node-b", *gpus(2)), in_use=in_use)
        found = scheduling.place(POD, [bound, more], many)
        assert found.blocking == {bound.ref.uid}
        assert "1 node(s) cannot use the devices that the pod's claims have" in found.message


def test_a_pool_of_another_node_that_is_invalid_is_told():
    counters = {"sharedCounters": [{"name": "s", "counters": {"c": {"value": "1"}}}]}
    consuming = {"consumesCounters": [{"counterSet": "s", "counters": {"d": {"value": "1"}}}]}
    published = [
        slice_of(name="counters", pool="node-b", node="node-b", count=2, extra=counters),
        slice_of(device("x", extra=consuming), name="x", pool="node-b", node="node-b", count=2),
    ]
    found = scheduling.place(POD, [claim(exactly())], view(*published, on=(A,)))
    told = "pool gpu.example.com/node-b is invalid: device 'x' uses unknown counter s/d"
    assert told in found.message
