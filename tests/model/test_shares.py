import pytest

from dra_driver import errors
from dra_driver.model import shares


@pytest.mark.parametrize(("text", "count"), [("memory", None), ("1", 1), ("4", 4), ("100", 100)])
def test_a_division_is_by_memory_or_into_so_many(text, count):
    assert shares.parse_count(text) == count


@pytest.mark.parametrize("text", ["", "0", "101", "-1", "1.5", "off", "Memory", "four", "4 "])
def test_what_is_neither_is_refused_with_what_is_allowed(text):
    with pytest.raises(errors.Rejected) as caught:
        shares.parse_count(text)
    assert str(caught.value) == f"{text!r}: allowed are off, memory, and a number from 1 to 100"


def test_shares_are_by_memory_and_held_to_by_mps_unless_said_otherwise():
    assert shares.Shares() == shares.Shares(None, shares.Enforcement("MPS"))
    assert str(shares.Enforcement.NONE) == "None"
