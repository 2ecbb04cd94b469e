import collections
import itertools

import hypothesis
import mig_profiles
import pytest
from hypothesis import strategies

from dra_driver.logic.offering import placements
from dra_driver.model import mig

A100 = mig_profiles.of_model("a100-40gb-sxm4")
H100 = mig_profiles.of_model("h100-80gb-hbm3")


def spot(profile_id, start, size):
    return mig.Spot(profile_id, mig.Placement(start, size))


def naive(profiles, taken):
    """Looks at pairs, counts instances, adds up engines: without counters."""
    known = {profile.id: profile for profile in profiles}
    if any(
        one.placement.overlaps(other.placement) for one, other in itertools.combinations(taken, 2)
    ):
        return False
    counts = collections.Counter(one.profile_id for one in taken)
    if any(count > known[profile_id].instances for profile_id, count in counts.items()):
        return False
    return all(
        sum(getattr(known[one.profile_id], name) for one in taken)
        <= max(getattr(profile, name) * profile.instances for profile in profiles)
        for name in (*mig_profiles.ENGINES, "memory_mib")
    )


def by_counters(profiles, taken):
    """What the scheduler does: adds up what devices consume."""
    known = {profile.id: profile for profile in profiles}
    used = collections.Counter()
    for one in taken:
        used.update(placements.consumption(profiles, known[one.profile_id], one.placement))
    limits = placements.limits(profiles)
    return all(amount <= limits[name] for name, amount in used.items())


@strategies.composite
def gpus_with_spots(draw):
    profiles = draw(
        mig_profiles.tables()
        | strategies.sampled_from([mig_profiles.of_model(name) for name in mig_profiles.CAPABLE])
    )
    spots = strategies.sampled_from(mig_profiles.spots(profiles))
    return profiles, draw(strategies.lists(spots, max_size=8))


@hypothesis.given(gpus_with_spots())
def test_what_the_counters_admit_is_what_fits_and_what_a_naive_model_admits(case):
    profiles, wanted = case
    taken = []
    for one in wanted:
        expected = naive(profiles, [*taken, one])
        assert placements.admits(profiles, taken, one) == expected
        assert by_counters(profiles, [*taken, one]) == expected
        if expected:
            taken.append(one)
    assert set(placements.remaining(profiles, taken)) == {
        one for one in mig_profiles.spots(profiles) if naive(profiles, [*taken, one])
    }


@hypothesis.given(gpus_with_spots(), strategies.randoms(use_true_random=False))
def test_the_order_in_which_partitions_are_made_does_not_matter(case, dice):
    profiles, wanted = case
    shuffled = dice.sample(wanted, len(wanted))
    assert placements.fits(profiles, wanted) == placements.fits(profiles, shuffled)
    assert placements.fits(profiles, wanted) == naive(profiles, wanted)


def test_an_a100_has_the_19_layouts_of_nvidias_table():
    profiles = mig_profiles.of_model("a100-40gb-sxm4", indices=range(5))
    names = {profile.id: profile.name.partition(".")[0] for profile in profiles}
    layouts = placements.maximal_layouts(profiles)
    assert len(layouts) == 19
    found = {tuple(names[one.profile_id] for one in layout) for layout in layouts}
    assert ("7g",) in found
    assert ("4g", "3g") in found
    assert ("1g",) * 7 in found
    assert ("2g", "2g", "1g", "1g", "1g") in found
    assert ("1g",) * 5 + ("2g",) not in found


def test_the_counters_of_an_h100_are_the_most_that_a_profile_takes():
    slices = {f"memory-slice-{number}": 1 for number in range(8)}
    assert placements.limits(H100) == {
        "multiprocessors": 132,
        "copy-engines": 8,
        "decoders": 7,
        "jpeg-engines": 7,
        "ofa-engines": 1,
        "memory": 81152,
        **slices,
    }


def test_a_partition_takes_its_memory_slices_and_nothing_that_it_has_none_of():
    (two,) = (profile for profile in A100 if profile.name == "2g.10gb")
    assert placements.consumption(A100, two, mig.Placement(4, 2)) == {
        "multiprocessors": 28,
        "copy-engines": 2,
        "decoders": 1,
        "memory": 9856,
        "memory-slice-4": 1,
        "memory-slice-5": 1,
    }


def test_a_gpu_without_profiles_has_no_counters_and_no_partitions():
    assert placements.limits(()) == {}
    assert placements.remaining((), ()) == ()
    assert placements.maximal_layouts(()) == frozenset()


def test_instances_are_counted_only_where_nothing_else_limits_them():
    places = [(0, 1), (1, 1), (2, 1)]
    limited = mig_profiles.profile("1g.5gb+gfx", 30, instances=2, placements=places)
    alike = mig_profiles.profile("1g.5gb-gfx", 31, instances=1, placements=places)
    free = mig_profiles.profile("1g.5gb", 19, instances=3, placements=places)
    profiles = (limited, alike, free)
    limits = placements.limits(profiles)
    counted = {name: most for name, most in limits.items() if name.startswith("instances-")}
    assert counted == {"instances-1g5gb-gfx-30": 2, "instances-1g5gb-gfx-31": 1}
    assert not placements.fits(profiles, [spot(31, 0, 1), spot(31, 1, 1)])
    assert placements.fits(profiles, [spot(31, 0, 1), spot(30, 1, 1), spot(30, 2, 1)])


def test_places_that_overlap_are_not_counted_apart():
    places = [(0, 2), (1, 2), (2, 2)]
    two = mig_profiles.profile("2g.10gb", 14, instances=2, memory_mib=0, placements=places)
    assert set(placements.limits((two,))) == {f"memory-slice-{n}" for n in range(4)}


def test_a_gpu_has_what_all_instances_of_a_profile_take():
    large = mig_profiles.profile("7g.80gb", 0, instances=1, decoders=5, placements=[(0, 2)])
    small = mig_profiles.profile(
        "1g.10gb", 19, instances=3, decoders=2, placements=[(0, 1), (1, 1)]
    )
    assert placements.limits((large, small))["decoders"] == 6


def test_an_instance_of_a_profile_that_the_gpu_does_not_list_takes_its_place():
    unknown = spot(99, 0, 4)
    assert spot(0, 0, 8) not in placements.remaining(H100, [unknown])
    assert spot(9, 4, 4) in placements.remaining(H100, [unknown])
    assert placements.fits(H100, [spot(99, 8, 4)])


@pytest.mark.parametrize("name", mig_profiles.CAPABLE)
def test_counter_names_and_their_number_are_what_the_api_allows(name):
    limits = placements.limits(mig_profiles.of_model(name))
    assert len(limits) <= 32
    assert all(len(counter) <= 63 and counter.replace("-", "").isalnum() for counter in limits)
