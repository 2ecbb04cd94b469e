"""What is nested too deeply is left out of YAML, whatever stands beside it and in it."""

import dataclasses
import io

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.adapters.console import documents, yaml_depth

DEEP = {
    "block": "- " * 3000 + "x",
    "flow": "[" * 3000 + "]" * 3000,
    "flow objects": "{a: " * 3000 + "1" + "}" * 3000,
    "anchored": "&a " + "[" * 3000 + "]" * 3000,
    "within quotes": "[" * 3000 + "'it''s ]', \"\\\"]\", it's, a#b]" + "]" * 2999,
    "within a comment": "[" * 3000 + "# ] it's \"\n" + "]" * 3000,
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "saved.yaml"


@pytest.fixture(autouse=True)
def only_fast(monkeypatch):
    """The scanner that is written in Python takes a time that grows with the square of the depth.

    It is one of the classes that its loader is made of.
    """
    monkeypatch.setattr(
        yaml.SafeLoader, "fetch_more_tokens", lambda _: pytest.fail("the slow scanner is at work")
    )


@pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP)
@pytest.mark.parametrize(
    ("before", "after"),
    [("a: 1\nd:\n  ", "\nb: 2\n"), ("a: 1\nl:\n- x\n- ", "\n- z\nb: 2\n"),
     ("a: 1\nd: {x: 1, y:\n  ", "}\n# none\n\nb: 2\n"), ("a: 1\n---\nd:\n  ", "\n---\nb: 2\n")],
    ids=["value", "item", "in brackets", "document"],
)  # fmt: skip
def test_all_that_stands_beside_it_is_read(path, deep, before, after):
    if "{" in before and deep is DEEP["block"]:
        pytest.skip("in brackets nothing is nested by indentation")
    path.write_text(before + deep + after)
    found = {}
    for document in documents.load_all(path, cuts=True):
        found |= document
    assert (found["a"], found["b"]) == (1, 2)
    assert "l" not in found or (found["l"][0], found["l"][2:]) == ("x", ["z"])


def test_what_is_wrong_behind_it_is_told_with_its_line(path):
    path.write_text("a:\n  " + DEEP["within a comment"].replace("# ]", "\n\n#") + "\nb: [1\n]]\n")
    with pytest.raises(documents.errors.Fatal, match="line 7, column 2"):
        documents.load_all(path, cuts=True)


def test_a_file_is_scanned_once_however_much_of_it_is_too_deep():
    steps = []

    def scan(stream):
        for step in documents._steps(stream):
            steps.append(step)
            yield step

    deep = "".join(f"- {kind}\n" for kind in (DEEP["block"], DEEP["flow"]))
    text = f"a: {{b: [1]}}\n{deep}" * 50
    cut = yaml_depth.shallow(text, 100, scan)
    assert len(cut) < 50 * 1000
    # 100 levels and what stands above them, of each; a scanner of its own for what is behind.
    assert len(steps) < 50 * 2 * 150


@pytest.mark.parametrize("text", ["", "a", "[", "{a: [", "- " * 300, "a: 'b", "\x00", "[" * 3000])
def test_what_is_no_yaml_or_has_no_end_is_left_to_the_reader(text):
    cut = yaml_depth.shallow(text, 300, documents._steps)
    assert cut == text


SCALARS = st.sampled_from(
    ["", "x", "it's", '"', "a: b", "- x", "[", "}]", "# no", "a #b", "two\nlines\n\n  [more", "é😀",
     "long " * 30, "~", "'", "\\", "\t", "&a", "? ", ": ", "x" * 80]
)  # fmt: skip
VALUES = st.recursive(
    SCALARS | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3),
    max_leaves=20,
)


def read_with_cuts(text):
    return list(documents._built(text, cuts=True, loader=documents._FAST))


@given(
    st.lists(VALUES, min_size=1, max_size=3),
    st.sampled_from([None, False, True]),
    st.sampled_from([20, 80, 10_000]),
    st.integers(1, 4),
)
def test_nothing_is_read_otherwise_than_by_one_who_goes_as_deep(values, flow, width, most):
    text = yaml.dump_all(values, default_flow_style=flow, width=width, allow_unicode=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "MOST_DEPTH", most)
        cut = yaml_depth.shallow(text, most, documents._steps)
        shallow, whole = map(read_with_cuts, (cut, text))
    assert shallow == whole
    assert text.count("\n") == cut.count("\n")


def test_the_scanner_tells_what_it_meets_and_where_it_ends():
    steps = map(dataclasses.astuple, documents._steps(io.StringIO("a:\n  - [1, {b: 2}]\nc: 3\n")))
    kinds = yaml_depth.Kind
    assert list(steps) == [
        (kinds.INDENTED, 0, 0),
        (kinds.INDENTED, 5, 2),
        (kinds.OPENED, 7, 4),
        (kinds.OPENED, 11, 8),
        (kinds.CLOSED, 16, 13),
        (kinds.CLOSED, 17, 14),
        (kinds.DEDENTED, 19, 0),
        (kinds.DEDENTED, 24, 0),
    ]
