import itertools
import pathlib

import pytest

from dra_driver import errors
from dra_driver.adapters.console import documents


@pytest.fixture
def path(tmp_path):
    return tmp_path / "manifest.yaml"


def test_documents_are_read_in_order_without_empty_ones(path):
    path.write_text("---\na: 1\n---\n# nothing\n---\n- b\n- ü\n---\n", encoding="utf-8")
    assert documents.load_all(path) == [{"a": 1}, ["b", "ü"]]


def test_the_single_document_is_read(path):
    path.write_text("nodeName: node-1\nrescanSeconds: 2.5\n")
    assert documents.load_one(path) == {"nodeName": "node-1", "rescanSeconds": 2.5}


@pytest.mark.parametrize("text", ["", "# a comment\n", "---\n"])
def test_an_empty_file_is_none(path, text):
    path.write_text(text)
    assert documents.load_one(path) is None
    assert documents.load_all(path) == []


def test_two_documents_are_one_too_many(path):
    path.write_text("a: 1\n---\nb: 2\n")
    with pytest.raises(errors.Fatal) as caught:
        documents.load_one(path)
    assert str(caught.value) == f"{path}: one YAML document is expected, it has 2"


def test_an_absent_file_is_told_by_name(path):
    with pytest.raises(errors.Fatal) as caught:
        documents.load_all(path)
    assert str(caught.value) == (
        f"{path} cannot be read: [Errno 2] No such file or directory: '{path}'"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a: [1\n", "',' or ']'"),
        (b"a: \xff\xfe\n", "codec can't decode byte 0xff"),
        (b"!!python/object/apply:os.getcwd []\n", "the tag !!python/object/apply:os.getcwd is not"),
        (b"a: !mine 5\n", "line 1: the tag !mine is not known here: leave it out"),
        (b"a: \x07\n", "control characters are not allowed"),
        (b"a: 1\n[b]: 2\n", "an object or a list is no key: write a text"),
        (b"a: 1\n~: 2\n", "line 2: null is no key: write it in quotes"),
        (b"a: .inf\n", "line 1: .inf: JSON has no such number; a text is written in quotes"),
        (b"a: 1\nb: *c\n", "line 2: alias *c: there is no &c before it"),
        (b"a: &b\n  c: *b\n", "line 2: alias *b: it stands inside of what &b names"),
        (b"a: {<<: 1}\n", "<< takes an object, or a list of objects"),
        (b'{"a": ' + b"9" * 5000 + b"}", "the number is too large"),
    ],
)
def test_what_is_no_yaml_is_refused_with_file_and_reason(path, content, reason):
    path.write_bytes(content)
    with pytest.raises(errors.Fatal) as caught:
        documents.load_all(path)
    assert str(caught.value).startswith(f"{path} cannot be read: ")
    assert reason in str(caught.value)


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
    for before, name in itertools.pairwise("abcdefghi")
)
"""400 million values in 400 bytes."""


@pytest.mark.parametrize(
    "text",
    [BOMB, BOMB.replace("&", "!!seq &"), "d: 1\n---\n" + BOMB],
    ids=["plain", "tags", "second"],
)
@pytest.mark.parametrize("load", [documents.load_one, documents.load_all])
def test_what_aliases_stand_for_is_counted_before_it_is_made(path, text, load):
    path.write_text(text)
    with pytest.raises(errors.Fatal) as caught:
        load(path)
    assert str(caught.value).endswith(
        ": aliases stand for more than 100000 values: write them out, in several files if need be"
    )


def test_many_documents_have_no_more_aliases_than_one(path):
    path.write_text("---\n".join("a: &a [1, 2, 3, 4]\nb: [*a, *a]\n" for _ in range(10_001)))
    with pytest.raises(errors.Fatal, match="aliases stand for more than 100000 values"):
        documents.load_all(path)


def test_merged_objects_are_counted_too(path):
    lines = [
        f"k{number}: &k{number} {{<<: *k{number - 1}, a{number}: 1}}" for number in range(1, 500)
    ]
    path.write_text("\n".join(["k0: &k0 {a: 1}", *lines]))
    with pytest.raises(errors.Fatal, match="aliases stand for more than 100000 values"):
        documents.load_all(path)


def test_aliases_are_understood_and_each_is_a_value_of_its_own(path):
    path.write_text("a: &a {b: [1]}\nc: *a\nd: [*a]\n")
    [found] = documents.load_all(path)
    assert found == {"a": {"b": [1]}, "c": {"b": [1]}, "d": [{"b": [1]}]}
    found["a"]["b"].append(2)
    assert (found["c"], found["d"]) == ({"b": [1]}, [{"b": [1]}])


@pytest.mark.parametrize(
    "deep",
    [lambda depth: "[" * depth + "]" * depth,
     lambda depth: "{a: " * depth + "1" + "}" * depth,
     lambda depth: "- " * depth + "1",
     lambda depth: '{"a": ' * depth + "1" + "}" * depth,
     lambda depth: '{"a": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}"],
)  # fmt: skip
def test_what_is_nested_too_deeply_is_refused(path, deep):
    path.write_text(deep(100))
    assert len(documents.load_all(path)) == 1
    for depth in (101, 2000, 200_000):
        path.write_text(deep(depth))
        with pytest.raises(errors.Fatal, match="more than 100 objects and lists are inside each"):
            documents.load_all(path)


def depth(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth, inner), default=0) if isinstance(value, dict | list) else 0


@pytest.mark.parametrize(
    "deep",
    ["a: " + "[" * 900 + "1" + "]" * 900 + "\nb: 2\n",
     "a:\n" + "".join(" " * number + "k:\n" for number in range(1, 2000)) + "b: 2\n",
     '{"a": ' + '{"x": 1, "k": ' * 2000 + "1" + "}" * 2000 + ', "b": 2}'],
    ids=["flow", "block", "json"],
)  # fmt: skip
def test_of_saved_objects_what_is_nested_too_deeply_is_left_out_alone(path, deep):
    path.write_text(deep)
    with pytest.raises(errors.Fatal, match="more than 100 objects and lists"):
        documents.load_all(path)
    [found] = documents.load_all(path, cuts=True)
    assert found["b"] == 2
    assert depth(found) == 100


def test_depth_counts_through_aliases(path):
    within = {"a": "1", "b": "*a", "c": "*b"}
    lists = "".join(f"- &{name} {'[' * 40}{inner}{']' * 40}\n" for name, inner in within.items())
    path.write_text(lists)
    with pytest.raises(errors.Fatal, match="line 3: more than 100 objects and lists are inside"):
        documents.load_all(path)


def test_a_settings_file_has_an_end(path):
    path.write_text("a: 1\n" + "#" * 2**20)
    with pytest.raises(errors.Fatal, match="it has more than the 1048576 bytes that are allowed"):
        documents.load_one(path)
    assert documents.load_all(path) == [{"a": 1}]
    with pytest.raises(errors.Fatal, match="it has more than the 1048576 bytes that are allowed"):
        documents.load_one(pathlib.Path("/dev/zero"))


def test_documents_of_json_may_follow_each_other(path):
    path.write_text('\n{"a": 1} {"b": "yes"}\n\n{"c": 1.0}\n')
    assert documents.load_all(path) == [{"a": 1}, {"b": "yes"}, {"c": 1}]


def test_documents_of_json_are_read_where_they_stand():
    """A copy of what follows, for each of them, is as much work as the square of their number."""

    class Text(str):
        __slots__ = ()

        def __getitem__(self, key):
            pytest.fail(f"a part of it is copied: {key}")

    assert list(documents._of_json(Text(' {"a": 1}\n{}\t\n {"b": []} '))) == [
        {"a": 1},
        {},
        {"b": []},
    ]


def test_a_byte_order_mark_is_no_part_of_the_text(path):
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert documents.load_one(path) == {"a": 1}
