import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.model import versions

# The order that semver.org gives in section 11, and one step more at each end.
ASCENDING = [
    "0.9.9", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2",
    "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "2.0.0", "2.1.0", "2.1.1", "10.0.0",
]  # fmt: skip


def test_precedence_is_that_of_the_specification():
    parsed = [versions.parse(text) for text in ASCENDING]
    parsed.reverse()
    assert [str(version) for version in sorted(parsed)] == ASCENDING
    assert all(left < right for left, right in itertools.pairwise(sorted(parsed)))


@pytest.mark.parametrize("text", [*ASCENDING, "1.2.3-rc.1+build.5", "1.0.0+0", "1.0.0--1"])
def test_a_version_is_written_as_it_was_read(text):
    assert str(versions.parse(text)) == text


def test_build_metadata_is_ignored_by_equality_and_hash():
    left, right = versions.parse("1.0.0+a"), versions.parse("1.0.0+b")
    assert left == right
    assert hash(left) == hash(right)
    assert left != versions.parse("1.0.0-a")
    assert left != "1.0.0"


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.0", "v1.0.0", "01.0.0", "1.00.0", "1.0.0-01", "1.0.0-", "1.0.0+", "1.0.0.0",
     "1.0.0 ", "a.b.c", "1.0.0-a..b", "18446744073709551616.0.0", f"1.{'9' * 5000}.0",
     f"1.0.0-{'9' * 5000}"],
)  # fmt: skip
def test_a_text_that_is_no_semantic_version_is_refused_by_name(text):
    with pytest.raises(errors.Rejected) as caught:
        versions.parse(text)
    assert repr(text[:100]) in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "normal"),
    [("v1", "1.0.0"), ("1.2", "1.2.0"), ("v01.002.3", "1.2.3"), (" 1.0.0 ", "1.0.0"),
     ("0", "0.0.0"), ("1.0.0-rc.1", "1.0.0-rc.1"), ("v1.0.0+b", "1.0.0+b"), ("1.0-rc", "1.0-rc")],
)  # fmt: skip
def test_normalize_strips_the_v_and_leading_zeros_and_adds_what_is_missing(text, normal):
    assert versions.normalize(text) == normal


@given(st.tuples(*[st.integers(0, 99)] * 3), st.tuples(*[st.integers(0, 99)] * 3))
def test_versions_without_prerelease_compare_like_their_numbers(left, right):
    first, second = (versions.parse("{}.{}.{}".format(*numbers)) for numbers in (left, right))
    assert (first < second, first == second) == (left < right, left == right)
