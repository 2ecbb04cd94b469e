"""Relative links of the documents lead to files and headings that exist."""

import collections
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *(ROOT / "crds").glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "demo").glob("**/README.md"),
    }
)
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^()\s]+)\)")


def links(page):
    text = _CODE.sub("", _FENCE.sub("", page.read_text("utf-8")))
    return [target for target in _LINK.findall(text) if not re.match(r"[a-z]+:", target)]


def anchors(page):
    """Of the headings, as GitHub makes them; a second one of a name gets a number."""
    text = _FENCE.sub("", page.read_text("utf-8"))
    made, names = [], collections.Counter()
    for heading in re.findall(r"^#{1,6} (.*)$", text, re.MULTILINE):
        shown = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).replace("`", "").strip().lower()
        name = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        made.append(f"{name}-{names[name]}" if names[name] else name)
        names[name] += 1
    return made


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_relative_link_leads_to_something(page):
    for target in links(page):
        path, _, anchor = target.partition("#")
        found = page.parent / path if path else page
        assert found.exists(), f"{target}: no such file"
        if anchor:
            assert anchor in anchors(found), f"{target}: no such heading"


def test_links_are_found_and_what_only_looks_like_one_is_not(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "[a](b.md#c-d) `[x](y)` <https://z> [w](https://w)\n```\n[p](q)\n```\n[e](#f)\n"
    )
    assert links(page) == ["b.md#c-d", "#f"]


def test_anchors_are_those_of_github(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# If it's `so`, what?\n```\n# no\n```\n## MIG on it\n## A\n## A\n## A\n")
    assert anchors(page) == ["if-its-so-what", "mig-on-it", "a", "a-1", "a-2"]


def test_every_document_is_linked_from_the_readme():
    reached = {(ROOT / target.partition("#")[0]).resolve() for target in links(ROOT / "README.md")}
    missing = {path.name for path in (ROOT / "docs").glob("*.md")} - {p.name for p in reached}
    assert missing == set()
