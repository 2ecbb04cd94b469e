from fractions import Fraction

import mig_profiles

from dra_driver.logic.offering import fragmentation, placements
from dra_driver.model import mig

H100 = mig_profiles.of_model("h100-80gb-hbm3")
NAMES = {profile.id: profile.name for profile in H100}
TABLE = placements.table(H100)


def spot(profile_id, start, size):
    return mig.Spot(profile_id, mig.Placement(start, size))


def destroyed(one, *taken):
    """Shares of the places of each kind; the whole GPU is None."""
    costs = fragmentation.costs(TABLE, tuple(sorted(taken)))[one]
    kinds = (*(NAMES[kind] for kind in fragmentation.kinds(TABLE)), None)
    unit = fragmentation.costs(TABLE, ())[spot(0, 0, 8)][-1]
    return {kind: Fraction(cost, unit) for kind, cost in zip(kinds, costs, strict=True) if cost}


def test_a_partition_destroys_its_share_of_all_places_that_it_overlaps():
    assert destroyed(spot(19, 6, 1)) == {
        "1g.10gb": Fraction(1, 7),
        "1g.10gb+me": Fraction(1, 7),
        "1g.20gb": Fraction(1, 4),
        "3g.40gb": Fraction(1, 2),
        "7g.80gb": 1,
        None: 1,
    }


def test_what_is_spoilt_already_costs_less():
    assert destroyed(spot(19, 6, 1), spot(19, 5, 1)) == {
        "1g.10gb": Fraction(1, 7),
        "1g.10gb+me": Fraction(1, 7),
        "1g.20gb": Fraction(1, 4),
        "3g.40gb": Fraction(1, 2) / 4,
        "7g.80gb": Fraction(1, 4),
        None: Fraction(1, 4),
    }
    third = destroyed(spot(19, 6, 1), spot(19, 5, 1), spot(19, 0, 1))
    assert third["7g.80gb"] == Fraction(1, 9)
    assert third["3g.40gb"] == Fraction(1, 8)


def test_a_profile_that_a_gpu_has_once_is_lost_everywhere():
    assert destroyed(spot(20, 6, 1))["1g.10gb+me"] == 1


def test_an_instance_of_an_unknown_profile_is_in_the_way_like_any_other():
    unknown = spot(99, 0, 4)
    assert destroyed(spot(19, 6, 1), unknown)["7g.80gb"] == Fraction(1, 4)
    assert destroyed(spot(19, 6, 1), unknown)["3g.40gb"] == Fraction(1, 2)


def test_only_what_can_be_created_has_a_cost():
    assert set(fragmentation.costs(TABLE, (spot(5, 0, 4),))) == set(
        placements.remaining(H100, [spot(5, 0, 4)])
    )
