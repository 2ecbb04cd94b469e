"""What a scheduler gives for converted claims, from slices as the driver publishes them."""

import dataclasses

import converted_cards as cards
import mig_cards
import pytest

from dra_driver.logic.offering import catalog
from dra_driver.model import mig

GPU, MEMORY, PERCENT, CORES = (
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
)

# Shares of cards


@pytest.mark.parametrize("parts", [2, 3, 4, 5, 7, 10])
def test_equal_parts_fit_on_one_card(parts):
    listed = cards.published(f"{cards.H100}:1")
    part = {GPU: 1, PERCENT: 100 // parts}
    found = cards.allocated(listed, *[part] * parts)
    assert cards.devices(found) == [["gpu-0"]] * parts
    assert cards.allocated(listed, *[part] * (100 // (100 // parts) + 1)) is None


def test_two_halves_are_each_half_of_the_card():
    listed = cards.published(f"{cards.H100}:1")
    half = cards.size(listed, "gpu-0") // 2
    assert cards.allocated(listed, {PERCENT: 50}, {PERCENT: 50}) == [[("gpu-0", half, 50)]] * 2


def test_halves_of_an_odd_number_of_mib_fit():
    """81559 MiB: rounded up, the second half would be one MiB too much."""
    listed = cards.published(f"{cards.H100}:1", memory_bytes=(81559 * cards.MIB,))
    assert cards.allocated(listed, {PERCENT: 50}, {PERCENT: 50}) == [[("gpu-0", 40779, 50)]] * 2


def test_kai_s_thirds_fit_on_one_card():
    listed = cards.published(f"{cards.H100}:1")
    annotations = {"gpu-fraction": "0.333"}
    assert (
        cards.devices(cards.allocated(listed, {}, {}, {}, annotations=annotations))
        == [["gpu-0"]] * 3
    )


def test_amounts_whose_cores_follow_fill_a_card():
    listed = cards.published(f"{cards.H100}:1")
    quarter = {GPU: 1, MEMORY: cards.size(listed, "gpu-0") // 4}
    found = cards.allocated(listed, *[quarter] * 4)
    assert cards.devices(found) == [["gpu-0"]] * 4
    assert cards.allocated(listed, *[quarter] * 5) is None


@pytest.mark.parametrize("count", [1, 2, 3])
def test_shares_of_one_container_are_of_as_many_cards(count):
    listed = cards.published(f"{cards.H100}:3")
    for asked in ({MEMORY: 1024, CORES: 5}, {PERCENT: 10}, {"nvidia.com/gpu.shared": count}):
        limits = asked if "nvidia.com/gpu.shared" in asked else {GPU: count, **asked}
        [found] = cards.devices(cards.allocated(listed, limits))
        assert len(found) == len({*found}) == count
        assert {*found} <= {"gpu-0", "gpu-1", "gpu-2"}


def test_more_shares_than_cards_are_not_given():
    listed = cards.published(f"{cards.H100}:2")
    assert cards.allocated(listed, {GPU: 3, MEMORY: 1, CORES: 1}) is None


def test_a_card_with_all_cores_taken_has_no_room():
    listed = cards.published(f"{cards.H100}:2")
    alone, small = {GPU: 1, MEMORY: 1024, CORES: 100}, {GPU: 1, MEMORY: 1024, CORES: 1}
    assert cards.is_apart(cards.allocated(listed, alone, small))
    assert cards.is_apart(cards.allocated(listed, alone, alone))
    assert cards.allocated(listed, alone, alone, small) is None


def test_cores_without_memory_take_all_memory():
    listed = cards.published(f"{cards.H100}:1")
    all_of_it = cards.size(listed, "gpu-0")
    assert cards.allocated(listed, {GPU: 1, CORES: 30}) == [[("gpu-0", all_of_it, 30)]]
    assert cards.allocated(listed, {GPU: 1, CORES: 30}, {GPU: 1, MEMORY: 1, CORES: 1}) is None


def test_a_whole_card_is_beside_no_share():
    listed = cards.published(f"{cards.H100}:2")
    whole, share = {GPU: 1, CORES: 0}, {GPU: 1, MEMORY: 1024}
    assert cards.is_apart(cards.allocated(listed, share, whole))
    assert cards.is_apart(cards.allocated(listed, whole, share))
    assert cards.allocated(listed, whole, whole, share) is None


def test_a_whole_card_is_had_where_cards_are_not_shared():
    listed = cards.published(f"{cards.H100}:2", None)
    for two in ({GPU: 2}, {"tencent.com/vcuda-core": 200}):
        [found] = cards.devices(cards.allocated(listed, two, whole_gpus=True))
        assert sorted(found) == ["gpu-0", "gpu-1"]
    assert cards.allocated(listed, {GPU: 1, MEMORY: 1024, CORES: 1}) is None


def test_a_numbered_share_is_no_whole_card():
    listed = cards.published(f"{cards.H100}:1", cards.BY_FOUR)
    assert cards.allocated(listed, {GPU: 1, CORES: 0}) is None
    four = [{"nvidia.com/gpu.shared": 1}] * 4
    assert cards.devices(cards.allocated(listed, *four)) == [["gpu-0"]] * 4
    assert cards.allocated(listed, *four, four[0]) is None


def test_ten_replicas_fit_on_a_card():
    listed = cards.published(f"{cards.H100}:1")
    ten = [{"nvidia.com/gpu.shared": 1}] * 10
    assert cards.devices(cards.allocated(listed, *ten)) == [["gpu-0"]] * 10
    assert cards.allocated(listed, *ten, ten[0]) is None


# Shares and partitions


def test_partitions_are_shared_too_and_come_before_the_cards():
    found = [one for each in cards.published(f"{cards.H100}:1") for one in each.devices]
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
    listed = cards.published(f"{cards.H100}:1")
    assert cards.devices(cards.allocated(listed, asked, annotations=annotations)) == [["gpu-0"]]


def test_without_cards_that_are_shared_there_is_no_share():
    on = mig_cards.gpu(cards.H100, mig_on=True)
    there = mig_cards.instance(on, "7g.80gb", 0)
    cut = catalog.card(dataclasses.replace(on, instances=(there,)), mig.Mode.STATIC)
    contents = mig_cards.offer([dataclasses.replace(cut, division=cards.BY_MEMORY)])
    listed = cards.sent(contents)
    assert cards.allocated(listed, {GPU: 1, MEMORY: 1024, CORES: 5}) is None
    [found] = cards.devices(cards.allocated(listed, {"nvidia.com/mig-7g.80gb": 1}))
    assert [cards.profile(name) for name in found] == ["7g80gb"]


@pytest.mark.parametrize(
    ("mib", "expected"),
    [(1, "1g10gb"), (9000, "1g10gb"), (12000, "1g20gb"), (30000, "3g40gb"), (60000, "7g80gb")],
)
def test_the_mode_of_partitions_gives_the_smallest_that_fits(mib, expected):
    listed = cards.published(f"{cards.H100}:1", None)
    asked = {GPU: 1, MEMORY: mib}
    [[found]] = cards.devices(cards.allocated(listed, asked, annotations=cards.ON_PARTITIONS))
    assert cards.profile(found) == expected
    assert cards.size(listed, found) >= mib


def test_all_of_a_card_as_a_partition_is_its_largest():
    listed = cards.published(f"{cards.H100}:1", None)
    for asked in ({GPU: 1}, {GPU: 1, PERCENT: 100}):
        [[found]] = cards.devices(cards.allocated(listed, asked, annotations=cards.ON_PARTITIONS))
        assert cards.profile(found) == "7g80gb"


def test_partitions_of_one_container_may_be_of_one_card():
    listed = cards.published(f"{cards.H100}:1", None)
    [found] = cards.devices(cards.allocated(listed, {"nvidia.com/mig-1g.10gb": 7}))
    assert {cards.profile(name) for name in found} == {"1g10gb"}
    assert len({*found}) == 7
    assert cards.allocated(listed, {"nvidia.com/mig-1g.10gb": 8}) is None
    [found] = cards.devices(
        cards.allocated(listed, {GPU: 2, MEMORY: 9000}, annotations=cards.ON_PARTITIONS)
    )
    assert len({*found}) == 2


def test_a_profile_with_media_extensions_is_that_profile():
    listed = cards.published(f"{cards.H100}:1", None)
    [[found]] = cards.devices(cards.allocated(listed, {"nvidia.com/mig-1g.10gb.me": 1}))
    assert cards.profile(found) == "1g10gb-me"


def test_a_share_of_a_partition_is_of_its_profile():
    listed = cards.published(f"{cards.H100}:1")
    found = cards.allocated(listed, *[{"nvidia.com/mig-3g.40gb.shared": 1}] * 10)
    assert {cards.profile(name) for [name] in cards.devices(found)} == {"3g40gb"}
    assert len({name for [name] in cards.devices(found)}) == 1


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
    listed = cards.published(f"{cards.H100}:3")
    known = uuids(listed)
    wanted = {"nvidia.com/use-gpuuuid": known[card]}
    assert cards.devices(cards.allocated(listed, SHARE, annotations=wanted)) == [[card]]
    others = ",".join(uuid for name, uuid in known.items() if name != card)
    unwanted = {"nvidia.com/nouse-gpuuuid": others}
    assert cards.devices(cards.allocated(listed, SHARE, annotations=unwanted)) == [[card]]
    assert cards.allocated(listed, {**SHARE, GPU: 2}, annotations=wanted) is None


@pytest.mark.parametrize("card", ["gpu-0", "gpu-1"])
def test_only_a_partition_of_a_card_of_the_list_is_given(card):
    listed = cards.published(f"{cards.H100}:2", None)
    wanted = {**cards.ON_PARTITIONS, "nvidia.com/use-gpuuuid": uuids(listed)[card]}
    [[found]] = cards.devices(cards.allocated(listed, {GPU: 1, MEMORY: 9000}, annotations=wanted))
    assert found.startswith(f"{card}-mig-")


MIXED = f"{cards.T4}:1,{cards.H100}:1"


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
    listed = cards.published(MIXED)
    [[found]] = cards.devices(cards.allocated(listed, SHARE, annotations=annotations))
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
    listed = cards.published(MIXED)
    label = {"nvidia.com/gpu.product": products(listed)[name].replace(" ", "-")}
    assert cards.devices(cards.allocated(listed, SHARE, nodeSelector=label)) == [[name]]


def test_cards_of_one_numa_node_are_given_or_none():
    bound = {"nvidia.com/numa-bind": "true"}
    apart = cards.published(f"{cards.H100}:2", numa_node=(0, 1))
    assert cards.allocated(apart, {**SHARE, GPU: 2}, annotations=bound) is None
    assert cards.allocated(apart, {**SHARE, GPU: 2}) is not None
    listed = cards.published(f"{cards.H100}:3", numa_node=(0, 1, 1))
    [found] = cards.devices(cards.allocated(listed, {**SHARE, GPU: 2}, annotations=bound))
    assert sorted(found) == ["gpu-1", "gpu-2"]


# Cards of two sizes


def test_a_percentage_is_of_the_card_that_is_given():
    listed = cards.published(MIXED)
    small, large = cards.size(listed, "gpu-0"), cards.size(listed, "gpu-1")
    assert small < large
    halves = [{GPU: 1, PERCENT: 50}] * 4
    assert cards.allocated(listed, *halves) == [
        [("gpu-0", small // 2, 50)],
        [("gpu-0", small // 2, 50)],
        [("gpu-1", large // 2, 50)],
        [("gpu-1", large // 2, 50)],
    ]
    assert cards.allocated(listed, *halves, {GPU: 1, PERCENT: 1}) is None


def test_cores_follow_the_memory_of_the_card_that_is_given():
    listed = cards.published(MIXED)
    asked = {GPU: 1, MEMORY: 7000}
    small, large = cards.size(listed, "gpu-0"), cards.size(listed, "gpu-1")
    assert cards.allocated(listed, asked, asked, asked) == [
        [("gpu-0", 7000, 700_000 // small)],
        [("gpu-0", 7000, 700_000 // small)],
        [("gpu-1", 7000, 700_000 // large)],
    ]


def test_memory_that_only_the_larger_card_has_is_of_that():
    listed = cards.published(MIXED)
    assert cards.devices(cards.allocated(listed, {GPU: 1, MEMORY: 20000})) == [["gpu-1"]]
    whole = {"tencent.com/vcuda-core": 100, "tencent.com/vcuda-memory": 100}
    assert cards.devices(cards.allocated(listed, whole)) == [["gpu-1"]]
