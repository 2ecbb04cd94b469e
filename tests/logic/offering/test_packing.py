import hypothesis
import mig_profiles
import pytest
from hypothesis import strategies

from dra_driver.logic.offering import fragmentation, packing, placements
from dra_driver.model import mig

H100 = mig_profiles.of_model("h100-80gb-hbm3")
A100 = mig_profiles.of_model("a100-40gb-sxm4")
ONE, THREE, FOUR = 19, 9, 5
TWO_GPUS = (("gpu-0", H100), ("gpu-1", H100))


def spot(profile_id, start):
    sizes = {ONE: 1, 14: 2, THREE: 4, FOUR: 4, 0: 8}
    return mig.Spot(profile_id, mig.Placement(start, sizes[profile_id]))


def places(policy, profile, gpus=TWO_GPUS, taken=None):
    """`GPU:start` of the partitions of a profile, in order."""
    found = packing.members(policy, gpus, taken or {}, profile)
    return [f"{key.removeprefix('gpu-')}:{spot.placement.start}" for key, spot in found]


@strategies.composite
def nodes(draw):
    """Up to three GPUs with what is taken of each."""
    models = [mig_profiles.of_model(name) for name in mig_profiles.CAPABLE]
    chosen = draw(strategies.lists(strategies.sampled_from(models), min_size=1, max_size=3))
    gpus = [(f"gpu-{number}", profiles) for number, profiles in enumerate(chosen)]
    taken = {}
    for key, profiles in gpus:
        held = []
        wanted = strategies.sampled_from(mig_profiles.spots(profiles))
        for one in draw(strategies.lists(wanted, max_size=5)):
            if placements.admits(profiles, held, one):
                held.append(one)
        taken[key] = {None} if draw(strategies.integers(0, 5)) == 0 else set(held)
    return gpus, taken


def test_profiles_come_smallest_first_and_whole_gpus_last():
    groups = packing.order("pack", TWO_GPUS, {})
    assert [group.profile for group in groups] == [
        "1g.10gb",
        "1g.10gb+me",
        "1g.20gb",
        "2g.20gb",
        "3g.40gb",
        "4g.40gb",
        "7g.80gb",
        None,
    ]


@pytest.mark.parametrize("policy", ["pack", "spread", "adaptive"])
def test_whole_gpus_come_from_the_other_end(policy):
    assert packing.order(policy, TWO_GPUS, {})[-1].members == (("gpu-1", None), ("gpu-0", None))


def test_pack_fills_a_gpu_from_the_places_that_spoil_least():
    assert places("pack", "1g.10gb")[:8] == [f"0:{start}" for start in (6, 5, 4, 3, 2, 1, 0)] + [
        "1:6"
    ]
    assert places("pack", "3g.40gb") == ["0:4", "0:0", "1:4", "1:0"]
    assert places("pack", "2g.20gb")[:3] == ["0:4", "0:2", "0:0"]


def test_spread_takes_from_all_gpus_in_turn():
    assert places("spread", "1g.10gb")[:4] == ["0:6", "1:6", "0:5", "1:5"]
    assert places("spread", "3g.40gb") == ["0:4", "1:4", "0:0", "1:0"]


def test_adaptive_fills_up_what_is_spoilt_already():
    taken = {"gpu-1": {spot(ONE, 0)}}
    assert places("adaptive", "1g.10gb", taken=taken)[0].startswith("1:")
    assert places("adaptive", "4g.40gb", taken=taken)[0] == "0:0"
    assert places("adaptive", "3g.40gb", taken=taken)[0] == "1:4"


def test_adaptive_lists_what_can_be_had_before_what_cannot():
    taken = {"gpu-0": {spot(FOUR, 0)}, "gpu-1": {None}}
    found = places("adaptive", "1g.10gb", taken=taken)
    assert sorted(found[:3]) == ["0:4", "0:5", "0:6"]
    assert found[3:7] == ["0:3", "0:2", "0:1", "0:0"]
    assert len(found) == 14


@pytest.mark.parametrize(
    ("in_use", "expected"), [({spot(FOUR, 0)}, "1:6"), ({None}, "0:3")], ids=["4g", "whole GPUs"]
)
def test_adaptive_spares_the_kind_that_is_in_use(in_use, expected):
    gpus = [(f"gpu-{number}", H100) for number in range(4)]
    upper = {spot(ONE, start) for start in (4, 5, 6)}
    taken = {"gpu-0": upper, "gpu-2": upper | {spot(FOUR, 0)}}
    taken["gpu-3"] = in_use if None in in_use else in_use | upper
    assert places("adaptive", "1g.10gb", gpus, taken)[0] == expected


def test_adaptive_spares_empty_gpus_while_nothing_is_in_use():
    assert places("adaptive", "3g.40gb") == ["0:4", "0:0", "1:4", "1:0"]


def test_the_second_of_adaptive_is_the_first_once_the_first_is_taken():
    order = list(packing.members("adaptive", [("gpu-0", H100)], {}, "1g.10gb"))
    assert [one.placement.start for _, one in order] == [6, 5, 4, 3, 2, 1, 0]
    taken = {"gpu-0": {one for _, one in order[:2]}}
    following = packing.members("adaptive", [("gpu-0", H100)], taken, "1g.10gb")
    assert next(following) == order[2]


@hypothesis.given(nodes())
def test_the_first_of_adaptive_destroys_no_more_than_any_other(node):
    gpus, taken = node
    fitting = packing.fitting(gpus, taken)
    known = {gpu.key: gpu for gpu in packing._known(gpus, taken)}

    def destroyed(member):
        gpu = known[member[0]]
        cost = fragmentation.costs(gpu.table, gpu.taken)[member[1]]
        return sum(amount * weight for amount, weight in zip(cost, gpu.weights, strict=True))

    for group in packing.order("adaptive", gpus, taken)[:-1]:
        possible = [member for member in group.members if member in fitting]
        assert group.members[: len(possible)] == tuple(possible)
        if possible:
            assert destroyed(possible[0]) == min(map(destroyed, possible))


@hypothesis.given(nodes(), strategies.sampled_from(["pack", "spread", "adaptive"]))
def test_every_device_is_listed_once_and_always_in_the_same_order(node, policy):
    gpus, taken = node
    groups = packing.order(policy, gpus, taken)
    listed = [member for group in groups for member in group.members]
    assert len(listed) == len(set(listed))
    partitions = {(key, one) for key, profiles in gpus for one in mig_profiles.spots(profiles)}
    assert set(listed) == partitions | {(key, None) for key, _ in gpus}
    other = {key: sorted(held, key=str, reverse=True) for key, held in reversed(taken.items())}
    assert packing.order(policy, gpus, other) == groups


@hypothesis.given(nodes())
def test_what_fits_is_what_the_placements_admit(node):
    gpus, taken = node
    expected = set()
    for key, profiles in gpus:
        held = taken[key]
        if not held:
            expected.add((key, None))
        if None not in held:
            expected |= {(key, one) for one in placements.remaining(profiles, held)}
    assert packing.fitting(gpus, taken) == expected


def test_gpus_of_several_models_share_the_profiles_of_one_name():
    mixed = (("gpu-0", A100), ("gpu-1", H100), ("gpu-2", ()))
    groups = {group.profile: group.members for group in packing.order("pack", mixed, {})}
    assert {key for key, _ in groups["1g.5gb"]} == {"gpu-0"}
    assert {key for key, _ in groups["1g.10gb"]} == {"gpu-0", "gpu-1"}
    assert groups[None] == (("gpu-2", None), ("gpu-1", None), ("gpu-0", None))


def test_a_node_without_gpus_has_no_groups():
    assert packing.order("adaptive", (), {}) == []


def test_an_instance_that_no_profile_lists_is_worked_around():
    taken = {"gpu-0": {mig.Spot(99, mig.Placement(0, 4))}}
    found = places("adaptive", "1g.10gb", (("gpu-0", H100),), taken)
    assert sorted(found[:3]) == ["0:4", "0:5", "0:6"]


@pytest.mark.parametrize(
    ("published", "desired", "fitting", "expected"),
    [
        ("abc", "cab", "ab", "abc"),
        ("abc", "bac", "ab", "bac"),
        ("abc", "bac", "", "abc"),
        ("abc", "ab", "ab", "ab"),
        ("ab", "abc", "ab", "abc"),
    ],
    ids=[
        "those that fit are in the same order",
        "those that fit are not",
        "nothing fits",
        "one is gone",
        "one is new",
    ],
)
def test_a_published_order_stays_if_it_is_as_good(published, desired, fitting, expected):
    assert packing.settle(published, desired, fitting) == expected
