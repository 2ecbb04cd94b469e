"""Changes of YAML, text by text: what is new is where a person would write it."""

import pytest

from dra_driver.adapters.console import documents, edits, nodes

CASES = {
    "a comment further to the right stays with what it is about": (
        "a:\n  b: 1\n  # of b\n# of c\n", {"a": {"b": 1}, "c": 2},
        "a:\n  b: 1\n  # of b\nc: 2\n# of c\n",
    ),
    "so do several, with empty lines between them": (
        "a:\n  b: 1\n  # of b\n\n    # still\n\n# of c\nd: 1\n", {"a": {"b": 1}, "c": 2, "d": 1},
        "a:\n  b: 1\n  # of b\n\n    # still\nc: 2\n\n# of c\nd: 1\n",
    ),
    "in lists, too": (
        "- a:\n    b: 1\n    # of b\n# of c\n- c: 1\n", [{"a": {"b": 1}}, {"m": 1}, {"c": 1}],
        "- a:\n    b: 1\n    # of b\n- m: 1\n# of c\n- c: 1\n",
    ),
    "an anchor stays where what it names becomes empty": (
        "a: &x\n  b: 1\nc: *x\n", {"a": {}, "c": {}}, "a: &x {}\nc: *x\n",
    ),
    "an anchor stays where a text becomes an object": (
        "a: &x |\n  b\nc: *x\n", {"a": {"m": 1}, "c": {"m": 1}}, "a: &x\n  m: 1\nc: *x\n",
    ),
    "an alias of another item than before is written out": (
        "- &x a\n- *x\n", [{"m": 1}, {"m": 1}], "- m: 1\n- m: 1\n",
    ),
    "an alias of what has changed otherwise is written out": (
        "a: &x {b: 1}\nc: *x\n", {"a": {"b": 2}, "c": {"b": 1}}, "a: &x {b: 2}\nc:\n  b: 1\n",
    ),
    "an alias of what is in something that has changed": (
        "a: &x {b: 1}\nc: [*x, 2]\n", {"a": {"b": 2}, "c": [{"b": 1}, 2]},
        "a: &x {b: 2}\nc: [{b: 1}, 2]\n",
    ),
    "an anchor without a value": ("a: &x\nc: *x\n", {"a": 1, "c": 1}, "a: &x 1\nc: *x\n"),
    "texts that are no comments": (
        "a:\n  b: |\n    # no\n    c\n  d: 1\n", {"a": {"d": 1}}, "a:\n  d: 1\n",
    ),
    "quotes of a document in brackets": (
        "{a: 1}\n", {"a": 1, "b": ["c", "2026-01-01"]}, '{a: 1, b: [c, "2026-01-01"]}\n',
    ),
    "quotes of JSON": ('{"a": 1}\n', {"a": 1, "b": ["c"]}, '{"a": 1, "b": ["c"]}\n'),
    "a comma behind the last part": (
        "{\n  a: 1, # one\n  b: 2, # two\n}\n", {"a": 1, "b": 2, "c": 3},
        "{\n  a: 1, # one\n  b: 2, # two\n  c: 3\n}\n",
    ),
    "no comma behind the last part": (
        "{\n  a: 1, # one\n  b: 2 # two\n}\n", {"a": 1, "b": 2, "c": 3},
        "{\n  a: 1, # one\n  b: 2, # two\n  c: 3\n}\n",
    ),
    "the last parts of JSON": (
        '{\n  "a": 1,\n  "b": 2,\n  "c": 3\n}\n', {"a": 1}, '{\n  "a": 1\n}\n',
    ),
    "parts in one line": (
        "[a, b, c, d, e, f]\n", ["b", "d", "e"], "[b, d, e]\n",
    ),
    "a text that keeps the empty lines behind it": (
        "a:\n  b: |+\n    c\n\n\nd: 1\n", {"a": {"b": "c\n\n\n"}, "d": 2},
        "a:\n  b: |+\n    c\n\n\nd: 2\n",
    ),
    "something behind such a text": (
        "a: |+\n  c\n\nd: 1\n", {"a": "c\n\n", "m": 1, "d": 1}, "a: |+\n  c\n\nm: 1\nd: 1\n",
    ),
    "empty lines behind a text that are no part of it": (
        "a: |\n  c\n\nd: 1\n", {"a": "c\n", "m": 1, "d": 1}, "a: |\n  c\nm: 1\n\nd: 1\n",
    ),
    "dashes in the column of the key": (
        "a:\n- b\n", {"a": ["b"], "c": ["d"]}, "a:\n- b\nc:\n- d\n",
    ),
    "dashes further to the right": (
        "a:\n    - b\n", {"a": ["b"], "c": ["d"]}, "a:\n    - b\nc:\n    - d\n",
    ),
    "several spaces behind a dash": (
        "-   a: 1\n    b: 1\n", [{"a": 1, "b": 1, "c": 2}, {"d": 1, "e": 1}],
        "-   a: 1\n    b: 1\n    c: 2\n-   d: 1\n    e: 1\n",
    ),
    "a comment of what goes from behind a dash": (
        "- a: 1\n  # of b\n  b: 1\n", [{"b": 1}], "-\n  # of b\n  b: 1\n",
    ),
    "what comes up behind a dash": ("- a: 1\n  b: 1\n", [{"b": 1}], "- b: 1\n"),
    "a text of several lines": (
        "a: 1\n", {"a": 1, "b": "c\nd"}, "a: 1\nb: |-\n  c\n  d\n",
    ),
    "a text that ends with empty lines": (
        "a: 1\n", {"a": 1, "b": "c\nd\n\n"}, 'a: 1\nb: "c\\nd\\n\\n"\n',
    ),
    "texts that others read as numbers, dates or truth": (
        "a: 1\n", {"a": 1, "b": "1e3", "c": "2026-01-01", "d": "yes", "e": "12:30", "f": "~x"},
        'a: 1\nb: "1e3"\nc: "2026-01-01"\nd: "yes"\ne: "12:30"\nf: "~x"\n',
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_it_is_written_where_and_as_a_person_would(what):
    text, new, wanted = CASES[what]
    assert edits.edited(text, documents.of_text(text), {0: edits.Edit(new)}).text == wanted


def test_what_is_not_what_is_meant_is_not_written(monkeypatch):
    text = "a: 1\n"
    monkeypatch.setattr(edits.drafts.Draft, "made", lambda _: "a: true\n")
    with pytest.raises(nodes.Uneditable, match="is not what is meant"):
        edits.edited(text, [{"a": 2}], {0: edits.Edit({"a": 1})})


def test_what_cannot_be_read_again_is_not_written(monkeypatch):
    monkeypatch.setattr(edits.drafts.Draft, "made", lambda _: "a: [\n")
    with pytest.raises(nodes.Uneditable, match="cannot be read again: line 2"):
        edits.edited("a: 1\n", [{"a": 1}], {0: edits.Edit({"a": 2})})


def test_names_are_each_documents_own():
    text = "a: &x {b: 1}\nc: *x\n---\nd: &x {b: 1}\ne: *x\n"
    old = documents.of_text(text)
    made = edits.edited(text, old, {0: edits.Edit({"a": {"b": 2}, "c": {"b": 1}})}).text
    assert made == "a: &x {b: 2}\nc:\n  b: 1\n---\nd: &x {b: 1}\ne: *x\n"
