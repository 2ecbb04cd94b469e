"""What a scheduler gives for converted claims, from slices as the driver publishes them."""

import dataclasses
import functools
import re

import api_cluster
import converting_scene as scene
import dra_objects
import mig_cards
import pytest

from dra_driver.logic.converting import conversion, fleet_slices
from dra_driver.logic.offering import catalog, classes, publishing
from dra_driver.model import claims, mig, nodes, shares, slices

GPU, MEMORY, PERCENT, CORES = (
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
)
BY_MEMORY, BY_FOUR = shares.Shares(), shares.Shares(4)
NODE = nodes.Node(api_cluster.NODE, {"kubernetes.io/hostname": api_cluster.NODE})
OWNER = publishing.Owner(mig_cards.DRIVER, api_cluster.NODE, "uid")
CLASSES = [claims.parse_class(body) for body in classes.device_classes(mig_cards.DRIVER)]
H100, T4 = "h100-80gb-hbm3", "t4"
ON_PARTITIONS = {"nvidia.com/vgpu-mode": "mig"}
MIB = 2**20


@functools.cache
def published(spec, kind=BY_MEMORY, *, on_demand=True, **facts):
    """The slices of a node whose cards are shared in one way, or not at all."""
    mode = mig.Mode.DYNAMIC if on_demand else mig.Mode.OFF
    cards = []
    for number, found in enumerate(mig_cards.node(spec)):
        more = {name: values[number] for name, values in facts.items()}
        card = catalog.card(dataclasses.replace(found, **more), mode)
        cards.append(dataclasses.replace(card, division=kind))
    contents = mig_cards.offer(cards)
    return sent(contents)


def sent(contents):
    """The slices that are made of these contents, in their order, as an API server names them."""
    bodies = publishing.reconcile(OWNER, publishing.contents(contents), []).create
    return tuple(
        slices.parse({**body, "metadata": {"name": f"slice-{number:03}"}})
        for number, body in enumerate(bodies)
    )


def policy(listed, **more):
    """With the fleet that these slices tell of."""
    fleet = fleet_slices.together(map(fleet_slices.of_slice, listed))
    return conversion.Policy(mig_cards.DRIVER, conversion.Door.WEBHOOK, scene.SHARED, fleet, **more)


def pending(listed, *limits, annotations=None, whole_gpus=False, **spec):
    """The claims of pods whose only container asks for that."""
    found = []
    for number, asked in enumerate(limits):
        body = scene.pod(
            scene.container(limits=asked), metadata={"annotations": annotations or {}}, **spec
        )
        made = scene.converted(body, policy(listed, whole_gpus=whole_gpus))
        [claim] = scene.specs(made).values()
        metadata = {"name": f"c{number}", "namespace": "default", "uid": f"uid-{number}"}
        found.append(claims.parse({"metadata": metadata, "spec": claim}))
    return found


def allocated(listed, *limits, **fields):
    """What each gets, as `(device, MiB, cores)`; None if there is not enough for all."""
    asked = pending(listed, *limits, **fields)
    outcome = dra_objects.allocate(asked, *listed, node=NODE, classes=CLASSES)
    if outcome.allocations is None:
        return None
    return [[_told(result) for result in one.results] for one in outcome.allocations]


def _told(result):
    consumed = result.consumed_capacity
    memory, cores = consumed.get("memory"), consumed.get("cores")
    return (
        result.device.device,
        memory.value // MIB if memory else None,
        cores.value if cores else None,
    )


def devices(found):
    return [[device for device, _, _ in results] for results in found]


def is_apart(found):
    """Whether each of two claims has a card of its own."""
    return sorted(devices(found)) == [["gpu-0"], ["gpu-1"]]


def profile(device):
    return re.sub(r"^gpu-\d+-mig-|-\d+-\d+$", "", device)


def size(listed, name):
    """MiB of a device."""
    return next(
        one.capacity["memory"].value // MIB
        for each in listed
        for one in each.devices
        if one.name == name
    )


# Shares of cards


@pytest.mark.parametrize("parts", [2, 3, 4, 5, 7, 10])
def test_equal_parts_fit_on_one_card(parts):
    listed = published(f"{H100}:1")
    part = {GPU: 1, PERCENT: 100 // parts}
    found = allocated(listed, *[part] * parts)
    assert devices(found) == [["gpu-0"]] * parts
    assert allocated(listed, *[part] * (100 // (100 // parts) + 1)) is None


def test_two_halves_are_each_half_of_the_card():
    listed = published(f"{H100}:1")
    half = size(listed, "gpu-0") // 2
    assert allocated(listed, {PERCENT: 50}, {PERCENT: 50}) == [[("gpu-0", half, 50)]] * 2


def test_halves_of_an_odd_number_of_mib_fit():
    """81559 MiB: rounded up, the second half would be one MiB too much."""
    listed = published(f"{H100}:1", memory_bytes=(81559 * MIB,))
    assert allocated(listed, {PERCENT: 50}, {PERCENT: 50}) == [[("gpu-0", 40779, 50)]] * 2


def test_kai_s_thirds_fit_on_one_card():
    listed = published(f"{H100}:1")
    annotations = {"gpu-fraction": "0.333"}
    assert devices(allocated(listed, {}, {}, {}, annotations=annotations)) == [["gpu-0"]] * 3


def test_amounts_whose_cores_follow_fill_a_card():
    listed = published(f"{H100}:1")
    quarter = {GPU: 1, MEMORY: size(listed, "gpu-0") // 4}
    found = allocated(listed, *[quarter] * 4)
    assert devices(found) == [["gpu-0"]] * 4
    assert allocated(listed, *[quarter] * 5) is None


@pytest.mark.parametrize("count", [1, 2, 3])
def test_shares_of_one_container_are_of_as_many_cards(count):
    listed = published(f"{H100}:3")
    for asked in ({MEMORY: 1024, CORES: 5}, {PERCENT: 10}, {"nvidia.com/gpu.shared": count}):
        limits = asked if "nvidia.com/gpu.shared" in asked else {GPU: count, **asked}
        [found] = devices(allocated(listed, limits))
        assert len(found) == len({*found}) == count
        assert {*found} <= {"gpu-0", "gpu-1", "gpu-2"}


def test_more_shares_than_cards_are_not_given():
    listed = published(f"{H100}:2")
    assert allocated(listed, {GPU: 3, MEMORY: 1, CORES: 1}) is None


def test_a_card_with_all_cores_taken_has_no_room():
    listed = published(f"{H100}:2")
    alone, small = {GPU: 1, MEMORY: 1024, CORES: 100}, {GPU: 1, MEMORY: 1024, CORES: 1}
    assert is_apart(allocated(listed, alone, small))
    assert is_apart(allocated(listed, alone, alone))
    assert allocated(listed, alone, alone, small) is None


def test_cores_without_memory_take_all_memory():
    listed = published(f"{H100}:1")
    all_of_it = size(listed, "gpu-0")
    assert allocated(listed, {GPU: 1, CORES: 30}) == [[("gpu-0", all_of_it, 30)]]
    assert allocated(listed, {GPU: 1, CORES: 30}, {GPU: 1, MEMORY: 1, CORES: 1}) is None


def test_a_whole_card_is_beside_no_share():
    listed = published(f"{H100}:2")
    whole, share = {GPU: 1, CORES: 0}, {GPU: 1, MEMORY: 1024}
    assert is_apart(allocated(listed, share, whole))
    assert is_apart(allocated(listed, whole, share))
    assert allocated(listed, whole, whole, share) is None


def test_a_whole_card_is_had_where_cards_are_not_shared():
    listed = published(f"{H100}:2", None)
    for two in ({GPU: 2}, {"tencent.com/vcuda-core": 200}):
        [found] = devices(allocated(listed, two, whole_gpus=True))
        assert sorted(found) == ["gpu-0", "gpu-1"]
    assert allocated(listed, {GPU: 1, MEMORY: 1024, CORES: 1}) is None


def test_a_numbered_share_is_no_whole_card():
    listed = published(f"{H100}:1", BY_FOUR)
    assert allocated(listed, {GPU: 1, CORES: 0}) is None
    four = [{"nvidia.com/gpu.shared": 1}] * 4
    assert devices(allocated(listed, *four)) == [["gpu-0"]] * 4
    assert allocated(listed, *four, four[0]) is None


def test_ten_replicas_fit_on_a_card():
    listed = published(f"{H100}:1")
    ten = [{"nvidia.com/gpu.shared": 1}] * 10
    assert devices(allocated(listed, *ten)) == [["gpu-0"]] * 10
    assert allocated(listed, *ten, ten[0]) is None


# Shares and partitions


def test_partitions_are_shared_too_and_come_before_the_cards():
    found = [one for each in published(f"{H100}:1") for one in each.devices]
    assert [one.attributes["type"] for one in found][:2] == ["mig", "mig"]
    assert [one.attributes["type"] for one in found][-1] == "gpu"
    assert all(one.extra["allowMultipleAllocations"] is True for one in found)


@pytest.mark.parametrize(
    ("asked", "annotations"),
    [
        ({GPU: 1, MEMORY: 1024, CORES: 5}, {}),
        ({GPU: 1, CORES: 5}, {}),
        ({GPU: 1, PERCENT: 5}, {}),
        ({GPU: 1, CORES: 0}, {}),
        ({"nvidia.com/gpu.shared": 1}, {}),
        ({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 1024}, {}),
        ({"tencent.com/vcuda-core": 5, "tencent.com/vcuda-memory": 4}, {}),
        ({"tencent.com/vcuda-core": 100}, {}),
        ({"aliyun.com/gpu-mem": 1}, {}),
        ({}, {"gpu-memory": "1024"}),
        ({}, {"gpu-fraction": "0.05"}),
    ],
    ids=[
        "memory and cores",
        "cores",
        "a part",
        "all of it",
        "a replica",
        "Volcano's",
        "Tencent's",
        "Tencent's whole",
        "Aliyun's",
        "KAI's memory",
        "KAI's part",
    ],
)
def test_a_share_of_a_card_is_never_one_of_a_partition(asked, annotations):
    listed = published(f"{H100}:1")
    assert devices(allocated(listed, asked, annotations=annotations)) == [["gpu-0"]]


def test_without_cards_that_are_shared_there_is_no_share():
    on = mig_cards.gpu(H100, mig_on=True)
    there = mig_cards.instance(on, "7g.80gb", 0)
    cut = catalog.card(dataclasses.replace(on, instances=(there,)), mig.Mode.STATIC)
    contents = mig_cards.offer([dataclasses.replace(cut, division=BY_MEMORY)])
    listed = sent(contents)
    assert allocated(listed, {GPU: 1, MEMORY: 1024, CORES: 5}) is None
    [found] = devices(allocated(listed, {"nvidia.com/mig-7g.80gb": 1}))
    assert [profile(name) for name in found] == ["7g80gb"]


@pytest.mark.parametrize(
    ("mib", "expected"),
    [(1, "1g10gb"), (9000, "1g10gb"), (12000, "1g20gb"), (30000, "3g40gb"), (60000, "7g80gb")],
)
def test_the_mode_of_partitions_gives_the_smallest_that_fits(mib, expected):
    listed = published(f"{H100}:1", None)
    asked = {GPU: 1, MEMORY: mib}
    [[found]] = devices(allocated(listed, asked, annotations=ON_PARTITIONS))
    assert profile(found) == expected
    assert size(listed, found) >= mib


def test_all_of_a_card_as_a_partition_is_its_largest():
    listed = published(f"{H100}:1", None)
    for asked in ({GPU: 1}, {GPU: 1, PERCENT: 100}):
        [[found]] = devices(allocated(listed, asked, annotations=ON_PARTITIONS))
        assert profile(found) == "7g80gb"


def test_partitions_of_one_container_may_be_of_one_card():
    listed = published(f"{H100}:1", None)
    [found] = devices(allocated(listed, {"nvidia.com/mig-1g.10gb": 7}))
    assert {profile(name) for name in found} == {"1g10gb"}
    assert len({*found}) == 7
    assert allocated(listed, {"nvidia.com/mig-1g.10gb": 8}) is None
    [found] = devices(allocated(listed, {GPU: 2, MEMORY: 9000}, annotations=ON_PARTITIONS))
    assert len({*found}) == 2


def test_a_profile_with_media_extensions_is_that_profile():
    listed = published(f"{H100}:1", None)
    [[found]] = devices(allocated(listed, {"nvidia.com/mig-1g.10gb.me": 1}))
    assert profile(found) == "1g10gb-me"


def test_a_share_of_a_partition_is_of_its_profile():
    listed = published(f"{H100}:1")
    found = allocated(listed, *[{"nvidia.com/mig-3g.40gb.shared": 1}] * 10)
    assert {profile(name) for [name] in devices(found)} == {"3g40gb"}
    assert len({name for [name] in devices(found)}) == 1


# Lists and labels


def uuids(listed):
    return {
        one.name: one.attributes["uuid"]
        for each in listed
        for one in each.devices
        if one.attributes["type"] == "gpu"
    }


SHARE = {GPU: 1, MEMORY: 1024, CORES: 5}


@pytest.mark.parametrize("card", ["gpu-0", "gpu-1", "gpu-2"])
def test_only_a_card_of_the_list_is_given(card):
    listed = published(f"{H100}:3")
    known = uuids(listed)
    wanted = {"nvidia.com/use-gpuuuid": known[card]}
    assert devices(allocated(listed, SHARE, annotations=wanted)) == [[card]]
    others = ",".join(uuid for name, uuid in known.items() if name != card)
    unwanted = {"nvidia.com/nouse-gpuuuid": others}
    assert devices(allocated(listed, SHARE, annotations=unwanted)) == [[card]]
    assert allocated(listed, {**SHARE, GPU: 2}, annotations=wanted) is None


@pytest.mark.parametrize("card", ["gpu-0", "gpu-1"])
def test_only_a_partition_of_a_card_of_the_list_is_given(card):
    listed = published(f"{H100}:2", None)
    wanted = {**ON_PARTITIONS, "nvidia.com/use-gpuuuid": uuids(listed)[card]}
    [[found]] = devices(allocated(listed, {GPU: 1, MEMORY: 9000}, annotations=wanted))
    assert found.startswith(f"{card}-mig-")


MIXED = f"{T4}:1,{H100}:1"


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"nvidia.com/use-gputype": "h100"}, "H100"),
        ({"nvidia.com/use-gputype": "A100,TESLA"}, "T4"),
        ({"nvidia.com/nouse-gputype": "t4"}, "H100"),
        ({"nvidia.com/nouse-gputype": "V100,h100"}, "T4"),
    ],
    ids=["one type", "one of two types", "not a type", "none of two types"],
)
def test_only_a_card_of_a_type_is_given(annotations, expected):
    listed = published(MIXED)
    [[found]] = devices(allocated(listed, SHARE, annotations=annotations))
    assert expected in products(listed)[found]


def products(listed):
    return {
        one.name: one.attributes["productName"]
        for each in listed
        for one in each.devices
        if one.attributes["type"] == "gpu"
    }


@pytest.mark.parametrize("name", ["gpu-0", "gpu-1"])
def test_only_a_card_with_the_label_s_product_is_given(name):
    listed = published(MIXED)
    label = {"nvidia.com/gpu.product": products(listed)[name].replace(" ", "-")}
    assert devices(allocated(listed, SHARE, nodeSelector=label)) == [[name]]


def test_cards_of_one_numa_node_are_given_or_none():
    bound = {"nvidia.com/numa-bind": "true"}
    apart = published(f"{H100}:2", numa_node=(0, 1))
    assert allocated(apart, {**SHARE, GPU: 2}, annotations=bound) is None
    assert allocated(apart, {**SHARE, GPU: 2}) is not None
    listed = published(f"{H100}:3", numa_node=(0, 1, 1))
    [found] = devices(allocated(listed, {**SHARE, GPU: 2}, annotations=bound))
    assert sorted(found) == ["gpu-1", "gpu-2"]


# Cards of two sizes


def test_a_percentage_is_of_the_card_that_is_given():
    listed = published(MIXED)
    small, large = size(listed, "gpu-0"), size(listed, "gpu-1")
    assert small < large
    halves = [{GPU: 1, PERCENT: 50}] * 4
    assert allocated(listed, *halves) == [
        [("gpu-0", small // 2, 50)],
        [("gpu-0", small // 2, 50)],
        [("gpu-1", large // 2, 50)],
        [("gpu-1", large // 2, 50)],
    ]
    assert allocated(listed, *halves, {GPU: 1, PERCENT: 1}) is None


def test_cores_follow_the_memory_of_the_card_that_is_given():
    listed = published(MIXED)
    asked = {GPU: 1, MEMORY: 7000}
    small, large = size(listed, "gpu-0"), size(listed, "gpu-1")
    assert allocated(listed, asked, asked, asked) == [
        [("gpu-0", 7000, 700_000 // small)],
        [("gpu-0", 7000, 700_000 // small)],
        [("gpu-1", 7000, 700_000 // large)],
    ]


def test_memory_that_only_the_larger_card_has_is_of_that():
    listed = published(MIXED)
    assert devices(allocated(listed, {GPU: 1, MEMORY: 20000})) == [["gpu-1"]]
    whole = {"tencent.com/vcuda-core": 100, "tencent.com/vcuda-memory": 100}
    assert devices(allocated(listed, whole)) == [["gpu-1"]]
