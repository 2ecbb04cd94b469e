"""Who has which memory slices, from what drivers publish and schedulers allocate."""

import gpu_slices
import pytest
from gpu_slices import A100, T4, held, instance, on_demand, pod, published, snapshot, whole

from dra_driver import errors
from dra_driver.logic.picturing import fitting, occupancy


def nodes(*bodies, node=None):
    return occupancy.of(snapshot(*bodies), node).nodes


def the_gpu(*bodies):
    [node] = nodes(*bodies)
    [gpu] = node.gpus
    return gpu


def part(profile, start, minor=0, **fields):
    return gpu_slices.name(minor, profile, start, **fields)


def drawn(gpu):
    """(start, size, state, profile, claims) of each part."""
    return [
        (p.start, p.size, p.state, p.profile, [who.claim for who in p.held_by]) for p in gpu.parts
    ]


def share(device, number, **consumed):
    share_id = f"00000000-0000-4000-8000-{number:012}"
    return {"device": device, "shareID": share_id, "consumedCapacity": consumed}


# GPUs that are cut on demand


@pytest.mark.parametrize("split", [True, False])
def test_a_gpu_is_its_partitions_in_use_and_free_runs_between_them(split):
    gpu = the_gpu(
        *on_demand("n", split=split),
        held("a", part("2g.20gb", 2)),
        held("b", part("1g.10gb", 6)),
    )
    assert drawn(gpu) == [
        (0, 2, "free", "", []),
        (2, 2, "taken", "2g.20gb", ["a"]),
        (4, 2, "free", "", []),
        (6, 1, "taken", "1g.10gb", ["b"]),
        (7, 1, "free", "", []),
    ]
    assert (gpu.name, gpu.size, gpu.free) == ("gpu-0", 8, 5)
    assert gpu.uuid == gpu_slices.gpu_uuid("n", 0)
    assert gpu.product == "NVIDIA H100 80GB HBM3"


def test_what_its_driver_leaves_out_of_the_counters_is_not_free():
    # Instances that an administrator made on a card with the MIG mode dynamic.
    counters = gpu_slices.counter_set(0)
    counters["counters"] |= {f"memory-slice-{i}": {"value": "0"} for i in (0, 1, 2, 3, 6)}
    devices = [
        device
        for device in gpu_slices.partitions("n", 0)
        if device["name"] in {part("1g.10gb", start) for start in (4, 5)}
    ]
    gpu = the_gpu(*published("n", *devices, sets=(counters,)), held("a", part("1g.10gb", 4)))
    assert drawn(gpu) == [
        (0, 4, "not offered", "", []),
        (4, 1, "taken", "1g.10gb", ["a"]),
        (5, 1, "free", "", []),
        (6, 1, "not offered", "", []),
        (7, 1, "free", "", []),
    ]
    assert (gpu.size, gpu.free, gpu.fragmentation) == (8, 2, 0.5)


def test_the_whole_gpu_takes_all_its_slices():
    gpu = the_gpu(*on_demand("n"), held("a", "gpu-0"))
    assert drawn(gpu) == [(0, 8, "taken", fitting.WHOLE, ["a"])]
    assert (gpu.free, gpu.largest, gpu.is_idle) == (0, None, False)


def test_a_gpu_without_its_whole_device_is_named_after_its_partitions():
    devices = gpu_slices.partitions("n", 3, model=A100)
    sets = (gpu_slices.counter_set(3, model=A100),)
    gpu = the_gpu(*published("n", *devices, sets=sets))
    assert (gpu.name, gpu.size, gpu.largest.profile) == ("gpu-3", 8, "7g.40gb")


def test_partitions_of_one_gpu_leave_the_others_alone():
    [node] = nodes(*on_demand("n", 3), held("a", part("7g.80gb", 0, minor=1)))
    assert [(gpu.name, gpu.free, gpu.is_idle) for gpu in node.gpus] == [
        ("gpu-0", 8, True),
        ("gpu-1", 0, False),
        ("gpu-2", 8, True),
    ]


def test_gpus_are_in_the_order_of_their_numbers():
    [node] = nodes(*published("n", *[whole("n", minor, model=T4) for minor in (10, 9, 0)]))
    assert [gpu.name for gpu in node.gpus] == ["gpu-0", "gpu-9", "gpu-10"]


def test_each_gpu_has_the_size_of_its_own_counters():
    small = gpu_slices.counter_set(1, model=A100)
    for index in range(4, 8):
        del small["counters"][f"memory-slice-{index}"]
    devices = [
        *gpu_slices.partitions("n", 0, model=A100),
        *(d for d in gpu_slices.partitions("n", 1, model=A100) if d["name"].endswith("1g5gb-19-0")),
    ]
    sets = (gpu_slices.counter_set(0, model=A100), small)
    [node] = nodes(*published("n", *devices, sets=sets))
    assert [(gpu.size, gpu.free) for gpu in node.gpus] == [(8, 8), (4, 4)]


def test_partitions_that_overlap_are_all_listed():
    gpu = the_gpu(*on_demand("n"), held("a", part("4g.40gb", 0)), held("b", part("1g.10gb", 1)))
    assert drawn(gpu) == [
        (0, 4, "taken", "4g.40gb", ["a"]),
        (1, 1, "taken", "1g.10gb", ["b"]),
        (4, 4, "free", "", []),
    ]
    assert gpu.free == 4


# GPUs without counters


def test_a_gpu_without_counters_is_one_block():
    gpu = the_gpu(*published("n", whole("n", 0, model=T4)))
    assert drawn(gpu) == [(0, 1, "free", fitting.WHOLE, [])]
    assert gpu.largest == fitting.Fit(fitting.WHOLE, 1, (0,))
    gpu = the_gpu(*published("n", whole("n", 0, model=T4)), held("a", "gpu-0"))
    assert drawn(gpu) == [(0, 1, "taken", fitting.WHOLE, ["a"])]


def test_instances_that_exist_are_shown_free_or_taken_and_gaps_are_not_offered():
    devices = [
        instance("n", 0, "3g.20gb", 4, model=A100),
        instance("n", 0, "1g.5gb", 1, model=A100),
    ]
    gpu = the_gpu(*published("n", *devices), held("a", part("1g.5gb", 1, model=A100)))
    assert drawn(gpu) == [
        (0, 1, "not offered", "", []),
        (1, 1, "taken", "1g.5gb", ["a"]),
        (2, 2, "not offered", "", []),
        (4, 4, "free", "3g.20gb", []),
    ]
    assert (gpu.name, gpu.size, gpu.free) == ("gpu-0", 8, 4)
    assert gpu.parts[1].mig_uuid.startswith("MIG-")
    assert gpu.largest == fitting.Fit("3g.20gb", 4, (4,))


@pytest.mark.parametrize("domain", ["", "gpu.nvidia.com/"])
def test_capacities_tell_the_place_of_an_instance(domain):
    device = instance("n", 0, "2g.10gb", 2, model=A100)
    del device["attributes"]["placementStart"]
    device["capacity"] = {f"{domain}{key}": each for key, each in device["capacity"].items()}
    assert drawn(the_gpu(*published("n", device)))[1] == (2, 2, "free", "2g.10gb", [])


def test_without_capacities_the_attributes_tell_the_place():
    device = instance("n", 0, "2g.10gb", 2, model=A100)
    del device["capacity"]
    assert drawn(the_gpu(*published("n", device)))[1] == (2, 2, "free", "2g.10gb", [])


def test_attributes_may_be_written_with_the_domain_of_the_driver():
    device = whole("n", 0, model=T4)
    attributes = device["attributes"].items()
    device["attributes"] = {f"gpu.nvidia.com/{key}": value for key, value in attributes}
    assert the_gpu(*published("n", device)).product == "Tesla T4"


# Who


def test_an_occupant_is_a_claim_with_its_pods_and_their_phases():
    claim = held("a", part("1g.10gb", 0), pods=("one", "two", "three"))
    gone = pod("three")
    gone["metadata"]["uid"] = "of another pod of that name"
    gpu = the_gpu(*on_demand("n"), claim, pod("one"), pod("two", "Pending"), gone)
    [who] = gpu.parts[0].held_by
    assert (who.namespace, who.claim, who.request) == ("default", "a", "gpu")
    assert [(each.name, each.phase) for each in who.pods] == [
        ("one", "Running"),
        ("two", "Pending"),
        ("three", ""),
    ]


def test_what_is_no_pod_is_named_with_its_kind():
    claim = held("a", "gpu-0")
    claim["status"]["reservedFor"] = [{"resource": "jobs", "name": "x", "uid": "1"}]
    [who] = the_gpu(*published("n", whole("n", 0)), claim).parts[0].held_by
    assert [each.name for each in who.pods] == ["jobs/x"]


def test_all_that_share_a_device_are_listed_with_what_they_consume():
    gpu = the_gpu(
        *published("n", whole("n", 0, model=T4) | {"allowMultipleAllocations": True}),
        held("a", share("gpu-0", 1, memory="4Gi"), share("gpu-0", 2, memory="1Gi")),
        held("b", share("gpu-0", 3)),
    )
    [block] = gpu.parts
    assert [(who.claim, who.share_id[-1], who.consumed) for who in block.held_by] == [
        ("a", "1", {"memory": "4Gi"}),
        ("a", "2", {"memory": "1Gi"}),
        ("b", "3", {}),
    ]
    assert gpu.largest is None


def test_admin_access_takes_nothing():
    watching = held("monitor", {"device": "gpu-0", "adminAccess": True})
    other = held("other", {"device": part("1g.10gb", 0), "adminAccess": True})
    gpu = the_gpu(*on_demand("n"), watching, other, held("a", part("1g.10gb", 0)))
    assert gpu.free == 7
    assert sorted(who.claim for who in gpu.watchers) == ["monitor", "other"]
    assert [who.claim for p in gpu.parts for who in p.held_by] == ["a"]


def test_what_the_driver_reports_of_a_partition_is_shown():
    device = part("1g.10gb", 0)
    ready = {"type": "Ready", "status": "True"}
    told = {"gi": {"int": 7}, "parentUUID": {"string": "GPU-1"}, "uuid": {"string": "MIG-1"}}
    reported = {"device": device, "data": told, "conditions": [ready]}
    other = {"device": part("1g.10gb", 1), "data": {"uuid": "MIG-2"}}
    gpu = the_gpu(*on_demand("n"), held("a", device, reported=(other, reported)))
    [who] = gpu.parts[0].held_by
    assert (gpu.parts[0].mig_uuid, who.mig_uuid) == ("MIG-1", "MIG-1")
    assert who.conditions == {"Ready": "True"}


def test_each_share_has_its_own_report():
    shares = [share("gpu-0", number) for number in (1, 2)]
    reported = tuple(
        {"device": "gpu-0", "shareID": item["shareID"], "data": {"x": f"MIG-{number}"}}
        for number, item in enumerate(shares)
    )
    claim = held("a", *shares, reported=reported)
    gpu = the_gpu(*published("n", whole("n", 0, model=T4)), claim)
    assert [who.mig_uuid for who in gpu.parts[0].held_by] == ["MIG-0", "MIG-1"]


# Nodes


def test_nodes_are_in_the_order_of_their_names_with_their_sums():
    found = occupancy.of(
        snapshot(
            *published("b", *[whole("b", minor, model=T4) for minor in range(3)]),
            *on_demand("a", 2),
            held("x", "gpu-1", node="b"),
            held("y", part("1g.10gb", 0), node="a"),
        )
    )
    assert [node.name for node in found.nodes] == ["a", "b"]
    a, b = (node.totals for node in found.nodes)
    assert a == occupancy.Totals(2, 1, 16, 15, fitting.WHOLE, 0.2)
    assert b == occupancy.Totals(3, 2, 0, 0, fitting.WHOLE, 0.0)
    assert found.totals == occupancy.Totals(5, 3, 16, 15, fitting.WHOLE, 0.2)


def test_the_largest_fit_of_a_node_is_that_of_its_best_gpu():
    taken = [held("x", part("1g.10gb", 0)), held("y", part("4g.40gb", 0, minor=1)),
             held("z", part("2g.20gb", 4, minor=1))]  # fmt: skip
    [node] = nodes(*on_demand("n", 2), *taken)
    assert node.totals == occupancy.Totals(2, 0, 16, 9, "3g.40gb", 0.3333)


def test_a_gpu_that_is_idle_as_a_whole_is_a_larger_fit_than_any_partition():
    devices = [*gpu_slices.partitions("n", 0), whole("n", 1, model=T4)]
    sets = (gpu_slices.counter_set(0),)
    [node] = nodes(*published("n", *devices, sets=sets), held("a", part("1g.10gb", 0)))
    assert node.gpus[0].largest.profile == "3g.40gb"
    assert node.totals.largest == fitting.WHOLE


def test_a_node_alone_can_be_asked_for():
    bodies = [*on_demand("a"), *on_demand("b"), held("lost", "gpu-0", node="c")]
    found = occupancy.of(snapshot(*bodies), "b")
    assert [node.name for node in found.nodes] == ["b"]
    assert (found.totals.gpus, found.notes) == (1, ())


def test_a_node_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(errors.Rejected, match="node 'c' publishes no GPUs; nodes that do: a, b"):
        nodes(*on_demand("b"), *on_demand("a"), node="c")
    with pytest.raises(errors.Rejected, match="nodes that do: none"):
        nodes(node="c")


def test_a_pool_of_this_driver_without_gpus_is_shown_and_other_devices_are_not():
    nic = published("net", {"name": "nic-0", "attributes": {"type": {"string": "nic"}}})
    nic[0]["spec"]["driver"] = "nic.example.com"
    [node] = nodes(*published("empty"), *nic)
    assert (node.name, node.gpus) == ("empty", ())


# What is wrong


def test_an_incomplete_pool_is_noted_and_its_claims_are_not_called_lost():
    [first, _] = on_demand("n")
    [node] = nodes(first, held("a", "gpu-0"))
    assert node.notes == ("pool gpu.nvidia.com/n cannot be used: incomplete: 1 of 2 slices",)


def test_nothing_fits_in_a_pool_that_is_invalid():
    [node] = nodes(*published("n", whole("n", 0, model=T4), whole("n", 0, model=T4)))
    assert node.notes == (
        "pool gpu.nvidia.com/n cannot be used: invalid: device 'gpu-0' is listed twice",
    )
    assert node.gpus[0].largest is None


def test_a_device_that_is_allocated_and_not_published_is_noted():
    [node] = nodes(*on_demand("n"), held("a", "gpu-7", pods=("p",)))
    assert node.notes == ("gpu-7 is allocated and not published: claim default/a (pod p)",)


def test_devices_of_a_pool_that_is_gone_are_noted():
    found = occupancy.of(snapshot(*on_demand("n"), held("a", "gpu-0", node="gone")))
    [note] = found.notes
    assert note.startswith("gpu.nvidia.com/gone/gpu-0 is allocated, and there is no such pool: ")
    assert note.endswith("claim default/a (reserved for no pod)")


def test_claims_of_other_drivers_are_none_of_it():
    result = {"device": "nic-0", "driver": "nic.example.com", "pool": "n"}
    found = occupancy.of(snapshot(*on_demand("n"), held("a", result)))
    assert found.notes == ()
    assert found.nodes[0].notes == ()


def test_a_slice_that_cannot_be_read_is_noted():
    bodies = on_demand("n")
    bodies[1]["spec"]["devices"][0]["attributes"]["list"] = {"strings": []}
    found = occupancy.of(snapshot(*bodies))
    [note] = found.notes
    assert note.startswith("ResourceSlice 1-n was left out, so its pool is incomplete: device ")


def test_a_device_that_two_claims_have_as_a_whole_is_noted():
    [node] = nodes(*on_demand("n"), held("a", "gpu-0", pods=("p",)), held("b", "gpu-0"))
    assert node.notes == (
        (
            "gpu-0 is allocated to claims that exclude each other: claim default/a (pod p), claim "
            "default/b (reserved for no pod). Delete the pods of all but one"
        ),
    )


def test_shares_exclude_nobody_but_who_has_the_whole_device():
    watcher = held("w", {"device": "gpu-0", "adminAccess": True})
    shares = [
        held(name, share("gpu-0", number), pods=(f"of-{name}",))
        for number, name in enumerate(("a", "b"))
    ]
    assert nodes(*on_demand("n"), *shares, watcher)[0].notes == ()
    [node] = nodes(*on_demand("n"), shares[0], held("c", "gpu-0"), watcher)
    assert node.notes[0].startswith(
        "gpu-0 is allocated to claims that exclude each other: claim default/a (pod of-a), claim "
        "default/c (reserved for no pod)."
    )
