import json
import unicodedata

import hypothesis
import hypothesis.strategies as st
import pytest

from dra_driver.model import texts

ANY = st.text(st.characters(codec=None), max_size=300)
JSON = st.recursive(
    st.none() | st.integers() | ANY, lambda inner: st.lists(inner) | st.dictionaries(ANY, inner)
)


def size(text):
    return len(text.encode("utf-8", "backslashreplace"))


def test_a_text_that_is_short_enough_stays():
    text = "ä" * 2048
    assert texts.capped(text) is text


def test_of_a_long_text_the_beginning_is_told_and_how_much_is_left_out():
    assert texts.capped("ab" * 100, 40) == "abababababababa… (185 more characters)"
    shown = texts.capped("x" * 256_000)
    assert size(shown) <= 4096
    kept, _, rest = shown.partition("…")
    assert rest == f" ({256_000 - len(kept)} more characters)"


@hypothesis.given(ANY, st.integers(64, 500))
def test_no_text_is_longer_than_allowed(text, most):
    shown = texts.capped(text, most)
    assert size(shown) <= most
    assert shown == text or shown.partition("…")[0] == text[: len(shown.partition("…")[0])]


@pytest.mark.parametrize(
    ("count", "more", "ending"),
    [(1, 0, "p0"), (10, 0, "p9"), (11, 0, "; and 1 more problem"), (3, 4, "; and 4 more problems"),
     (12, 100, "; and 102 more problems")],
)  # fmt: skip
def test_of_many_problems_the_first_are_told_and_the_others_counted(count, more, ending):
    shown = texts.joined([f"p{number}" for number in range(count)], more=more)
    assert shown.startswith("; ".join(f"p{number}" for number in range(min(count, 10))))
    assert shown.endswith(ending)


@hypothesis.given(st.lists(st.text(max_size=3).map(lambda text: text * 1000)), st.integers(0, 99))
def test_problems_leave_room_for_what_is_said_of_them(problems, more):
    shown = texts.joined(problems, more=more)
    assert size("x" * 448 + shown) <= texts.MOST_BYTES
    left = len(problems) + more - 10
    assert ("more problem" in shown) or left <= 0


def test_one_long_problem_does_not_keep_the_next_from_being_told():
    shown = texts.joined(["x" * 50_000, "second"])
    assert shown.endswith("; second")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m\x07\x9b", r"\u001b[31m\u0007\u009b"),
        ("\u202egnp\u202c.\u2066a\u2069\u200f\u061c", r"\u202egnp\u202c.\u2066a\u2069\u200f\u061c"),
        ("a\u200bb\ufeff\u2028\u2029", r"a\u200bb\ufeff\u2028\u2029"),
        ("\U000e0041\ud800", r"\udb40\udc41\ud800"),
        ("lines\n\tstay, äöü 漢字 😀 \\", "lines\n\tstay, äöü 漢字 😀 \\"),
    ],
)
def test_what_steers_a_terminal_or_turns_a_line_round_is_written_out(text, shown):
    assert texts.printable(text) == shown


@hypothesis.given(ANY)
def test_nothing_is_left_that_steers(text):
    shown = texts.printable(text)
    left = {unicodedata.category(each) for each in shown.replace("\n", "").replace("\t", "")}
    assert left.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})
    assert texts.printable(shown) == shown


@hypothesis.given(JSON)
def test_json_means_the_same_as_before(value):
    assert json.loads(texts.printable(json.dumps(value, ensure_ascii=False))) == value


def test_a_long_value_is_quoted_in_part():
    assert texts.quoted("a'b") == '"a\'b"'
    assert texts.quoted("x" * 1_000_000) == f"'{'x' * 100}'… (999900 more characters)"
    assert size(texts.quoted({"key": ["x" * 50] * 1000})) <= 200
