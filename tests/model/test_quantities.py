import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.model import quantities

# Source of the forms: `CanonicalizeBytes` and the package comment of apimachinery's quantity.go.
CANONICAL = [
    ("0", "0"),
    ("0.000", "0"),
    ("0Gi", "0"),
    ("1Gi", "1Gi"),
    ("1024Mi", "1Gi"),
    ("1536Mi", "1536Mi"),
    ("1.5Gi", "1536Mi"),
    ("0.5Gi", "512Mi"),
    ("1000Ki", "1000Ki"),
    ("80Gi", "80Gi"),
    ("1Ei", "1Ei"),
    ("0.5", "500m"),
    (".5", "500m"),
    ("5.", "5"),
    ("+5", "5"),
    ("1.5", "1500m"),
    ("100m", "100m"),
    ("1000m", "1"),
    ("1000", "1k"),
    ("1024", "1024"),
    ("1.2345", "1234500u"),
    ("12E", "12E"),
    ("18446744073709551616", "18446744073709551616"),
    ("1e3", "1e3"),
    ("1E3", "1e3"),
    ("1e4", "10e3"),
    ("1e1", "10"),
    ("1e-3", "1e-3"),
    ("-100m", "-100m"),
    ("-1.5Gi", "-1536Mi"),
    ("-2e6", "-2e6"),
]

WITHOUT_A_BINARY_FORM = [
    ("0.5Ki", "512"),
    ("1000.0009765625Ki", "1024001"),
    ("0.3Ki", "307200m"),
    ("1.0001Ki", "1024102400u"),
    ("-0.5Ki", "-512"),
]

FINER_THAN_NANO = [
    ("0.1n", "1n"),
    ("0.9n", "1n"),
    ("1.1n", "2n"),
    ("-0.1n", "-1n"),
    ("-1.1n", "-2n"),
    ("1e-12", "1e-9"),
]

BEYOND_INT64 = [
    ("8Ei", "9223372036854775807"),
    ("-8Ei", "-9223372036854775807"),
    ("1000E", "1e21"),
    ("1e21", "1e21"),
    ("12000e18", "12e21"),
]


@pytest.mark.parametrize(("text", "canonical"), CANONICAL)
def test_a_quantity_is_written_in_its_canonical_form(text, canonical):
    assert str(quantities.parse(text)) == canonical


@pytest.mark.parametrize(("text", "canonical"), WITHOUT_A_BINARY_FORM)
def test_a_binary_amount_that_is_small_or_not_whole_is_written_with_decimal_suffixes(
    text, canonical
):
    assert str(quantities.parse(text)) == canonical


@pytest.mark.parametrize(("text", "canonical"), FINER_THAN_NANO)
def test_an_amount_finer_than_nano_is_rounded_away_from_zero(text, canonical):
    assert str(quantities.parse(text)) == canonical


@pytest.mark.parametrize(("text", "canonical"), BEYOND_INT64)
def test_amounts_beyond_int64_are_capped_where_binary_and_kept_where_decimal(text, canonical):
    assert str(quantities.parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "value"),
    [("1Gi", 2**30), ("2", 2), ("1.5", 2), ("100m", 1), ("1n", 1), ("0", 0), ("-1.5", -2),
     ("-100m", -1), ("1e3", 1000), ("1.0001Ki", 1025)],
)  # fmt: skip
def test_the_integer_value_is_rounded_away_from_zero(text, value):
    assert quantities.parse(text).value == value


def test_equal_amounts_are_equal_however_they_are_written():
    same = [quantities.parse(text) for text in ("1Ki", "1024", "1024000m", "1.024e3")]
    assert all(left == right for left, right in itertools.product(same, same))
    assert len(set(same)) == 1
    assert quantities.parse("1Ki") != 1024


def test_quantities_are_ordered_by_amount():
    texts = ["-1Gi", "-1", "0", "1n", "100m", "1", "1k", "1Ki", "1M", "1Mi", "80G", "80Gi"]
    parsed = [quantities.parse(text) for text in reversed(texts)]
    assert [str(quantity) for quantity in sorted(parsed)] == texts
    assert quantities.parse("1k") < quantities.parse("1Ki") <= quantities.parse("1024")
    assert quantities.parse("80Gi") >= quantities.parse("80G")


def test_bytes_are_written_with_binary_suffixes():
    assert str(quantities.of_bytes(80 * 2**30)) == "80Gi"
    assert str(quantities.of_bytes(85520809984)) == "81559Mi"
    assert str(quantities.of_bytes(1000)) == "1k"


@pytest.mark.parametrize(
    "text",
    ["", " ", "Gi", "abc", "1 Gi", " 1", "1\n", "1GiB", "1KI", "1ki", "1.2.3", "--1", "+-1", "1e",
     "1e1.5", "1e+", "0x10", "1,5", "NaN", "inf", ".", "-", "\u0661Gi"],
)  # fmt: skip
def test_a_text_that_is_no_quantity_is_refused_by_name(text):
    with pytest.raises(errors.Rejected) as caught:
        quantities.parse(text)
    assert str(caught.value) == (
        f"quantity {text!r} is not a number with an optional suffix: "
        "write for example 16Gi, 500m, 2 or 1e3"
    )


@pytest.mark.parametrize("text", ["1e1000000000", "1e-1000000000", "9" * 5000, "0." + "1" * 5000])
def test_a_text_that_would_take_long_to_compute_is_refused(text):
    with pytest.raises(errors.Rejected):
        quantities.parse(text)


SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
            "e3", "E-6", "e+9", "e1", "e20"]  # fmt: skip
TEXTS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**20),
    st.one_of(st.just(""), st.integers(0, 10**12).map(".{}".format)),
    st.sampled_from(SUFFIXES),
)


@given(TEXTS)
def test_what_is_written_is_read_as_the_same_amount_and_written_alike(text):
    quantity = quantities.parse(text)
    assert quantities.parse(str(quantity)) == quantity
    assert str(quantities.parse(str(quantity))) == str(quantity)
    assert "." not in str(quantity)


@given(TEXTS, TEXTS)
def test_order_is_that_of_the_amounts(left, right):
    first, second = quantities.parse(left), quantities.parse(right)
    assert (first < second) == (first.amount < second.amount)
    assert (first == second) == (first.amount == second.amount)
    assert first.value >= first.amount or first.amount < 0


@given(st.integers(-(10**30), 10**30), st.sampled_from(quantities.Format))
def test_a_whole_number_survives_in_every_format(number, form):
    quantity = quantities.Quantity(Fraction(number), form)
    capped = form is quantities.Format.BINARY_SI and abs(number) > 2**63 - 1
    read = quantities.parse(str(quantity))
    assert read == quantity or (capped and abs(read.amount) == 2**63 - 1)


@pytest.mark.parametrize(
    "text",
    ["nan", "NaN", "inf", "-inf", "Infinity", "1e9999", "1e999999999", "1E-999999999", "1e+1000",
     "9" * 65, "0." + "0" * 70 + "1", "1" * 10_000_000, "0x10", "1_000", "\u0661Gi", "\uff11Gi",
     "1e", "1Zi", "1e1e1", " 1", "1 Gi", "1\n", ""],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_what_is_no_number_or_costs_more_than_it_says_is_refused_at_once(text):
    with pytest.raises(errors.Rejected) as caught:
        quantities.parse(text)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "text", ["1e999", "-1e999", "1e-999", "9" * 64, "9" * 60 + "Ei", "." + "9" * 63]
)
def test_the_largest_and_smallest_that_are_read_can_be_computed_with(text):
    found = quantities.parse(text)
    assert quantities.parse(str(found)) == found or len(str(found)) > 64
    assert found.value.bit_length() < 4096
