"""Whatever YAML is written like: what is edited is what is meant, and the rest stays as it was."""

import copy
import json

import effort
import hypothesis
import yaml_styles
from hypothesis import strategies

from dra_driver.adapters.console import documents, edits, nodes

EXAMPLES = hypothesis.settings(max_examples=effort.examples(200))


def _changed(draw, value, depth=0):
    """Another value that has much in common with it."""
    how = draw(strategies.sampled_from(("inside", "inside", "inside", "drop", "add", "other")))
    if how == "other" or not isinstance(value, dict | list) or not value:
        return draw(yaml_styles.VALUES) if depth else draw(yaml_styles.OBJECTS)
    changed = copy.deepcopy(value)
    keys = list(changed) if isinstance(changed, dict) else list(range(len(changed)))
    if how == "inside":
        key = draw(strategies.sampled_from(keys))
        changed[key] = _changed(draw, changed[key], depth + 1)
    elif how == "drop":
        for key in keys[:: draw(strategies.integers(1, 3))][::-1]:
            del changed[key]
    elif isinstance(changed, dict):
        changed |= draw(yaml_styles.OBJECTS)
    else:
        at = draw(strategies.integers(0, len(changed)))
        changed[at:at] = draw(strategies.lists(yaml_styles.VALUES, min_size=1, max_size=2))
    return changed if changed or depth else {"a": 1}


@strategies.composite
def _cases(draw):
    """An object, another one, and the first as YAML: lines."""
    old = draw(yaml_styles.OBJECTS)
    new = _changed(draw, old)
    for _ in range(draw(strategies.integers(0, 2))):
        new = _changed(draw, new)
    return old, new, yaml_styles.Writer(draw).lines(old)


@strategies.composite
def _named_cases(draw):
    """The same, with anchors and aliases."""
    old = draw(yaml_styles.OBJECTS)
    new = _changed(draw, old)
    return old, new, yaml_styles.Writer(draw, names=True).lines(old)


def _edited(text, old, new):
    try:
        return edits.edited(text, [old], {0: edits.Edit(new)})
    except nodes.Uneditable as error:
        # Lists right in lists, which Kubernetes' objects do not have.
        if "two lists begin in one line" not in str(error):
            raise
        hypothesis.reject()


@EXAMPLES
@hypothesis.given(_cases())
def test_what_is_edited_is_what_is_meant_and_no_comment_is_lost(case):
    old, new, lines = case
    text = "\n".join(lines) + "\n"
    assert documents.of_text(text) == [old]
    made = _edited(text, old, new)
    assert documents.of_text(made.text) == [new]
    assert made.notes == ()
    kept = [line.strip() for line in made.text.splitlines()]
    assert all(line.strip() in kept for line in lines if line.strip().startswith("# note"))


@EXAMPLES
@hypothesis.given(_cases())
def test_entries_that_do_not_change_stay_byte_for_byte(case):
    old, new, lines = case
    text = "\n".join(lines) + "\n"
    made = _edited(text, old, new).text
    starts = [place for place, line in enumerate(lines) if line[:1] not in ("", " ", "#", "-")]
    for start, end, name in zip(starts, [*starts[1:], len(lines)], old, strict=True):
        if name in new and json.dumps(new[name]) == json.dumps(old[name]):
            assert _plain(lines[start:end]) in _plain(made.splitlines())


@EXAMPLES
@hypothesis.given(_named_cases())
def test_with_anchors_and_aliases_it_is_what_is_meant_or_nothing(case):
    old, new, lines = case
    text = "\n".join(lines) + "\n"
    assert documents.of_text(text) == [old]
    try:
        made = edits.edited(text, [old], {0: edits.Edit(new)}).text
    except nodes.Uneditable:
        return
    assert documents.of_text(made) == [new]


def _plain(lines):
    """Without empty lines and comments, which others may come between."""
    return "\n".join(line for line in lines if line.strip()[:1] not in ("", "#"))


@EXAMPLES
@hypothesis.given(_cases())
def test_what_does_not_change_is_not_touched(case):
    old, _, lines = case
    text = "\n".join(lines)
    assert edits.edited(text, [old], {0: edits.Edit(copy.deepcopy(old))}).text == text


@EXAMPLES
@hypothesis.given(_cases(), strategies.booleans())
def test_ends_of_lines_stay_what_they_are(case, is_ended):
    old, new, lines = case
    text = "\r\n".join(lines) + ("\r\n" if is_ended else "")
    hypothesis.assume(len(lines) > 1 and documents.of_text(text) == [old])
    try:
        made = edits.edited(text, [old], {0: edits.Edit(new)}).text
    except nodes.Uneditable:
        hypothesis.reject()
    assert "\n" not in made.replace("\r\n", "")
    assert made.endswith("\r\n") or not is_ended


@EXAMPLES
@hypothesis.given(yaml_styles.OBJECTS, strategies.data(),
                  strategies.sampled_from((None, 1, 2, 4, "\t")))  # fmt: skip
def test_json_stays_json_with_its_indentation(old, data, indent):
    new = _changed(data.draw, old)
    text = json.dumps(old, indent=indent, ensure_ascii=False) + "\n"
    made = edits.edited(text, [old], {0: edits.Edit(new)}).text
    assert json.loads(made) == new
    if "{}" not in text and "[]" not in text:
        wanted = json.dumps(json.loads(made), indent=indent, ensure_ascii=False)
        assert made.split() == wanted.split()
        assert {_indent(line) for line in made.splitlines()} <= {
            _indent(line) for line in wanted.splitlines()
        }


def _indent(line):
    return line[: len(line) - len(line.lstrip())]
