"""Files of several documents: some change, some go, some are new, and the others stay."""

import effort
import hypothesis
import yaml_styles
from hypothesis import strategies

from dra_driver.adapters.console import documents, edits

EXAMPLES = hypothesis.settings(max_examples=effort.examples(200))
NEW = {"kind": "New", "spec": {"a": ["b", {"c": 1}]}}
BEFORE = strategies.sampled_from(((), (NEW,), (NEW, {"kind": "Second"})))


class _Stream:
    """A text of documents, drawn; `parts` are the lines of each, without its marker."""

    def __init__(self, draw):
        self.old, self.parts, lines = [], [], []
        heading = draw(strategies.sampled_from(([], ["# Licence", ""], ["# about it"])))
        for number in range(draw(strategies.integers(1, 4))):
            value = draw(strategies.one_of(strategies.none(), yaml_styles.OBJECTS))
            part = (
                [f"# note in {number}"] if value is None else yaml_styles.Writer(draw).lines(value)
            )
            marker = draw(strategies.sampled_from(("---", "--- # of it", "---  ")))
            is_first = number == 0
            if value is None or not is_first or draw(strategies.booleans()):
                lines += [*(heading if is_first else []), marker]
            elif is_first:
                lines += heading
            lines += draw(strategies.sampled_from(([], [f"# head {number}"])))
            self.old.append(value)
            self.parts.append(part)
            lines += part
            if draw(strategies.sampled_from((False, False, False, True))):
                lines.append("...")
                lines += draw(strategies.sampled_from(([], ["# between"])))
        self.newline = draw(strategies.sampled_from(("\n", "\n", "\r\n")))
        self.text = self.newline.join(lines) + draw(strategies.sampled_from((self.newline, "")))


@strategies.composite
def _cases(draw):
    """A stream, and what is to become of its documents."""
    stream = _Stream(draw)
    changes = {}
    for number, value in enumerate(stream.old):
        if value is None or not draw(strategies.booleans()):
            continue
        body = draw(strategies.sampled_from((value, value, {**value, "added": [1]}, None)))
        before = () if body is None else draw(BEFORE)
        changes[number] = edits.Edit(body, before)
    return stream, changes


@EXAMPLES
@hypothesis.given(_cases())
def test_documents_that_do_not_change_stay_and_all_others_are_what_is_meant(case):
    stream, changes = case
    # A last line that has no end is a part of what a block of text says.
    hypothesis.assume(documents.of_text(stream.text) == stream.old)
    made = edits.edited(stream.text, stream.old, changes).text
    found = [each for each in documents.of_text(made) if each is not None]
    wanted = []
    for number, value in enumerate(stream.old):
        edit = changes.get(number, edits.Edit(value))
        wanted += [*edit.before, *([edit.body] if edit.body is not None else [])]
    assert found == wanted
    assert "\n" not in made.replace(stream.newline, "")
    for number, part in enumerate(stream.parts):
        edit = changes.get(number)
        if edit is None or edit.body == stream.old[number]:
            assert stream.newline.join(part) in made


@EXAMPLES
@hypothesis.given(_cases())
def test_what_is_new_in_a_stream_is_found_again_and_asks_for_nothing_more(case):
    stream, changes = case
    hypothesis.assume(documents.of_text(stream.text) == stream.old)
    made = edits.edited(stream.text, stream.old, changes).text
    again = documents.of_text(made.removeprefix("\ufeff"))
    kept = {number: edits.Edit(each) for number, each in enumerate(again) if each is not None}
    assert edits.edited(made, again, kept).text == made
