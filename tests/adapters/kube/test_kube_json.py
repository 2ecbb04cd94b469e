"""What users may have put into objects, as an API server sends it."""

import contextlib
import json

import pytest
import raw_http

from dra_driver.adapters.kube import kube, kube_json


def nested(levels):
    return b'{"deep": ' + b'[{"a": "]}\\"["}, ' * levels + b"1" + b"]" * levels + b', "other": 1}'


def depth(value):
    levels = 0
    while isinstance(value, list):
        value, levels = value[-1], levels + 1
    return levels


def test_what_is_nested_too_deep_for_python_leaves_the_rest_to_be_read():
    read = kube_json.read(nested(200_000))
    assert read["other"] == 1
    assert depth(read["deep"]) == kube_json.DEEPEST - 1
    assert read["deep"][0] == {"a": ']}"['}


def test_what_is_nested_less_is_read_whole():
    assert kube_json.read(nested(150)) == json.loads(nested(150))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'"a\xffb"', "a\ufffdb"),
        (rb'"\ud800"', "\ufffd"),
        (rb'"\uDC00\ud83d\ude00\uD83D"', "\ufffd\U0001f600\ufffd"),
        (rb'"\\ud800"', r"\ud800"),
        (rb'"\\\ud800\n"', "\\\ufffd\n"),
        ('"größe 😀"'.encode(), "größe 😀"),
    ],
)
def test_texts_can_be_written_as_utf_8_again(data, text):
    read = kube_json.read(data)
    assert read == text
    assert read.encode().decode() == text


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 200_000, b'{"a": "\xff}'])
def test_what_is_no_json_is_told(data):
    with pytest.raises(ValueError, match="line 1 column"):
        kube_json.read(data)


@pytest.fixture
def answered(raw_client):
    """A client whose next request is answered with these bytes."""
    with contextlib.ExitStack() as ends:

        def make(body):
            return raw_client(ends.enter_context(raw_http.serving(raw_http.response(body))).port)

        yield make


def test_a_claim_with_such_parameters_is_in_no_list_s_way(answered):
    items = b'{"items": [%s, {"name": "\xff"}], "metadata": {"resourceVersion": "1"}}'
    [first, second], _ = answered(items % nested(5000)).list(kube.CLAIMS)
    assert first["other"] == 1
    assert second == {"name": "\ufffd"}


def test_an_event_of_a_watch_may_have_them_too(answered):
    client = answered(b'{"type": "ADDED", "object": %s}\n' % nested(5000))
    [(kind, read)] = client.watch(kube.CLAIMS, resource_version="1")
    assert (kind, read["other"]) == ("ADDED", 1)


def test_a_text_without_an_end_is_searched_once():
    """The quotes in it are not the beginnings of others, each of which would have no end either."""
    text = '"' + r"\"[" * 1000
    assert [token.span() for token in kube_json._TOKEN.finditer(text)] == [(0, len(text))]
    assert kube_json.shallow(text + "[" * 200) == text + "[" * 200
