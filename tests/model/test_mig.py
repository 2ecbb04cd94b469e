import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model import mig

PLACES = st.builds(mig.Placement, st.integers(0, 7), st.integers(1, 8))


@given(PLACES, PLACES)
def test_placements_overlap_where_they_have_a_memory_slice_in_common(one, other):
    covered = [set(range(place.start, place.start + place.size)) for place in (one, other)]
    assert one.overlaps(other) is bool(covered[0] & covered[1])
    assert one.overlaps(other) is other.overlaps(one)


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ((0, 4), (4, 4), False),
        ((0, 4), (3, 1), True),
        ((0, 8), (7, 1), True),
        ((2, 2), (2, 2), True),
    ],
)
def test_neighbours_do_not_overlap(one, other, overlap):
    assert mig.Placement(*one).overlaps(mig.Placement(*other)) is overlap


def test_a_placement_is_written_as_nvidia_smi_does():
    assert str(mig.Placement(4, 2)) == "4:2"


def test_modes_are_called_as_in_the_settings():
    assert [str(mode) for mode in mig.Mode] == ["dynamic", "static", "off"]
