"""Files are understood as kubectl understands them; kubectl is asked."""

import json
import pathlib
import subprocess
import sys

import effort
import hypothesis
import hypothesis.strategies as st
import pytest

from dra_driver import errors
from dra_driver.adapters.console import documents

KUBECTL = pathlib.Path(sys.executable).with_name("kubectl")
OBJECT = "apiVersion: example.com/v1\nkind: Sample\nmetadata: {name: x}\n"

pytestmark = [
    pytest.mark.skipif(not KUBECTL.exists(), reason="kubectl is not installed"),
    pytest.mark.sampled(3),
]


def by_kubectl(path):
    """The field `data` of the object in a file; None where kubectl refuses it."""
    done = subprocess.run(
        [KUBECTL, "annotate", "--local", "-f", path, "x=y", "-o", "json"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        return None
    # It writes out the digits of large numbers of floating point.
    return json.loads(done.stdout, parse_int=number)["data"]


def number(text):
    return int(text) if -(2**63) <= int(text) < 2**63 else float(text)


def by_us(path):
    try:
        [document] = documents.load_all(path)
    except errors.Fatal:
        return None
    return document["data"]


def as_json(value):
    return json.dumps(value, sort_keys=True)


def assert_same(path, text):
    path.write_text(text, encoding="utf-8")
    found = by_us(path)
    assert as_json(found) == as_json(by_kubectl(path))
    return found


LINES = """
1:30 190:20:30.15 yes Yes no NO on Off y N true TRUE False ~ null Null NULL tRue yES 'yes' "010"
010 -010 0o10 0O17 0o9 08 0_8 00 0777 0x1F 0X1F -0x1F +0x1F 0x_1F 0x 0b11 0B11 -0b11 0b_1 0b2
1_000 1__0 _1 1_ 1e3 1E3 1e+3 1e 1e3_0 .5 -.5 +.5 .5e3 .1_0 ._5 .5_ . .. 0. 1. 1.e3 1.0 1.5 -0.0
1_0.5_0 1e999 -1e999 .1e400 1e-400 9223372036854775807 9223372036854775808 -9223372036854775808
-9223372036854775809 12345678901234567890 99999999999999999999 0xFFFFFFFFFFFFFFFFF
0x8000000000000000 2001-01-01 2001-12-14t21:59:43.10-05:00 = + +-1 1.2.3 1.30 3.10 0x1.8p3
Infinity NaN 1234567890123456789.0 9007199254740993.0 1d .inf1 ! !!str !!null
"""
SCALARS = LINES.split()


def test_scalars_are_what_kubectl_takes_them_for(tmp_path):
    text = "".join(f"  k{number}: {scalar}\n" for number, scalar in enumerate(SCALARS))
    found = assert_same(tmp_path / "file.yaml", f"{OBJECT}data:\n{text}")
    assert len(found) == len(SCALARS)
    assert [found[f"k{SCALARS.index(each)}"] for each in ("1:30", "yes", "010", "1e999")] == [
        "1:30", True, 8, "1e999"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "data: {1: a, true: b, 1.5: c, 1e3: d, 0x10: e, 2001-01-01: f, 1e6: g, 0.1: h, 1e-5: i}",
        "data: {1.23456789012: d, 1e30: f, 16777217.0: g, 123456.5: i, 100000.0: j, -0.0: k}",
        "data: {n: 1, y: 2, no: 3}",
        "data: {a: 1, a: 2}",
        "base: &b {a: 1, b: 2}\ndata: {<<: *b, b: 3}",
        "base: &b {a: 1, b: 2}\ndata: {b: 3, <<: *b}",
        "base: &b {a: 1, b: 2}\nc: &c {a: 5, z: 1}\ndata: {<<: [*b, *c]}",
        'data: {"<<": 1}',
        "data: [!!str 1, !!int '3', !!float 3, !!float '1_0', !!bool on, !!binary aGk=, ! 5]",
        "a: &x 5\nb: &x 6\ndata: [*x, *x]",
        "data:\n  a: |\n    text\n  b: >-\n    folded\n    text\n  c: 'it''s'\n  d: \"\\u00e4\\n\"",
        "data: []",
        "data: {a: , b: []}",
        # Refused by both.
        "data: {~: a}",
        "data: {[a]: b}",
        "data: {{a: b}: c}",
        "data: &a [*a]",
        "data: [*nowhere]",
        "data: {<<: 5}",
        "data: [.inf]",
        "data: [-.INF]",
        "data: [.nan]",
        "data: [!!int 1.0]",
        "data: [!!bool 5]",
        "data: ['\\ud83d\n",
        'data: ["\\ud83d\\ude00"]',
        "data: [1, 2",
        "data: a: b",
        "\tdata: 1",
    ],
)
def test_what_is_more_than_a_scalar_is_what_kubectl_takes_it_for(tmp_path, text):
    assert_same(tmp_path / "file.yaml", OBJECT + text)


@pytest.mark.parametrize(
    "value",
    ["1", "1.0", "1e3", "-0.0", "1.5", "9223372036854775808", "1e400", "NaN", '"1:30"', '"\\u00e4"',
     "true", "null", "[]", '{"a": {"b": [1, 2.0]}}', '{"a": 1, "a": 2}'],
)  # fmt: skip
def test_json_is_what_kubectl_takes_it_for(tmp_path, value):
    path = tmp_path / "file.json"
    head = '"apiVersion": "example.com/v1", "kind": "Sample", "metadata": {"name": "x"}'
    assert_same(path, f'\n {{{head}, "data": {value}}}\n')


def test_a_sign_behind_the_prefix_of_a_binary_number_is_its_sign(tmp_path):
    most = "1" * 63
    texts = ["0b+0", "0b-1", "0b_-1_0", "0b+", "-0b+1", "0B+1", "0x+1", f"0b+{most}", f"0b+{most}1"]
    lines = "".join(f"- {text}\n" for text in texts)
    found = assert_same(tmp_path / "file.yaml", f"{OBJECT}data:\n{lines}")
    numbers = [0, -1, -2, "0b+", "-0b+1", "0B+1", "0x+1", 2**63 - 1]
    assert found == [*numbers, f"0b+{most}1"]


PIECES = st.sampled_from(
    [*"0123456789+-._xobeE:~", "0x", "0b", "0o", "1_", "inf", "nan", "yes", "T"]
)


@hypothesis.settings(max_examples=effort.examples(20), deadline=None)
@hypothesis.given(st.lists(st.lists(PIECES, min_size=1, max_size=6).map("".join), min_size=50))
def test_texts_like_numbers_are_what_kubectl_takes_them_for(tmp_path_factory, scalars):
    # Others are keys, or the items of a list.
    lines = [each for each in scalars if not each.endswith(":") and each not in ("-", "?")]
    text = "".join(f"  k{number}: {scalar}\n" for number, scalar in enumerate(lines))
    path = tmp_path_factory.mktemp("yaml") / "file.yaml"
    assert_same(path, f"{OBJECT}data:\n{text or '  a: b'}")
