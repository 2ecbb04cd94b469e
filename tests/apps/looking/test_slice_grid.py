"""A GPU as a row of text, at any width."""

import pytest

from dra_driver.apps.looking import slice_grid
from dra_driver.logic.picturing import fitting, occupancy, occupants

KEYS = {("ns", "a"): "a", ("ns", "b"): "b", ("ns", "long"): "zz"}


def who(claim="a", *pods):
    return occupants.Occupant(
        namespace="ns",
        claim=claim,
        request="gpu",
        share_id="",
        admin_access=False,
        consumed={},
        pods=tuple(occupants.Pod(pod, "") for pod in pods),
        mig_uuid="",
        conditions={},
    )


def taken(start, size, profile, *claims):
    return occupancy.Part(start, size, occupancy.TAKEN, "device", profile, "", claims)


def free(start, size, profile=""):
    return occupancy.Part(start, size, occupancy.FREE, profile and "device", profile)


def nothing(start, size):
    return occupancy.Part(start, size, occupancy.NOT_OFFERED)


def drawn(*parts, unit=5):
    gpu = occupancy.Gpu("gpu-0", "GPU-1", "X", "d", 8, 0, None, 0.0, parts)
    return "".join(text for text, _ in slice_grid.cell(gpu, KEYS, unit).parts)


def test_each_memory_slice_has_its_columns():
    row = drawn(taken(0, 2, "2g.20gb", who()), free(2, 3), nothing(5, 1), free(6, 2))
    assert row == "|a 2g.20gb|····:····:····|----|····:····|"
    assert len(row) == 8 * 5 + 1
    assert slice_grid.head(8, 5) == " 0    1    2    3    4    5    6    7"


@pytest.mark.parametrize(
    ("unit", "inside"),
    [
        (3, "a "),
        (4, "a  "),
        (5, "a 1g"),
        (9, "a 1g    "),
        (10, "a 1g.10gb"),
        (14, "a 1g.10gb    "),
        (15, "a 1g.10gb tra…"),
        (20, "a 1g.10gb training "),
    ],
)
def test_there_is_as_much_of_key_profile_and_pod_as_there_is_room_for(unit, inside):
    assert drawn(taken(0, 1, "1g.10gb", who("a", "training")), unit=unit) == f"|{inside}|"


def test_a_short_name_is_shown_where_a_long_one_is_not():
    assert drawn(taken(0, 1, "1g.10gb", who("a", "x")), unit=12) == "|a 1g.10gb x|"


def test_a_claim_without_pods_shows_its_own_name():
    assert drawn(taken(0, 8, fitting.WHOLE, who("long")), unit=3) == f"|{'zz long':23}|"


def test_a_long_key_is_never_cut():
    assert drawn(taken(0, 1, "1g.10gb", who("long")), unit=4) == "|zz |"


def test_all_that_share_a_device_are_in_its_place():
    both = taken(0, 2, fitting.WHOLE, who("a", "p"), who("b", "q"), who("a", "p"))
    assert drawn(both, unit=6) == "|a,b p, q   |"
    assert drawn(taken(0, 1, "1g.10gb", who("a"), who("b"), who("long")), unit=5) == "|a,b…|"
    assert drawn(taken(0, 1, "1g.10gb", who("long"), who("a")), unit=3) == "|… |"


def test_a_free_instance_that_exists_shows_its_profile():
    assert drawn(free(0, 1, "1g.5gb"), free(1, 2, "2g.10gb")) == "|1g··|2g.10gb··|"


def test_what_overlaps_is_in_a_line_of_its_own():
    parts = [taken(0, 4, "4g.40gb", who()), taken(1, 1, "1g.10gb", who("b")), free(4, 4),
             taken(3, 1, "1g.10gb", who("b"))]  # fmt: skip
    assert drawn(*parts).splitlines() == [
        "|a 4g.40gb a        |····:····:····:····|",
        "     |b 1g|    |b 1g|",
    ]


def test_parts_have_the_style_of_their_state():
    gpu = occupancy.Gpu("gpu-0", "GPU-1", "X", "d", 2, 0, None, 0.0, (free(0, 1), nothing(1, 1)))
    assert slice_grid.cell(gpu, {}, 3).parts == (
        ("|", ""), ("··", "green"), ("|", ""), ("--", "dim"), ("|", ""),
    )  # fmt: skip
