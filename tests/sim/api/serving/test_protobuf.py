import base64
import contextlib

import hypothesis
import pytest
from hypothesis import strategies as st

from dra_driver.sim.api.kinds import problems
from dra_driver.sim.api.serving import protobuf


def varint(value):
    head, rest = value & 0x7F, value >> 7
    return bytes([head | 0x80]) + varint(rest) if rest else bytes([head])


def field(number, value):
    if isinstance(value, bool | int):
        return varint(number << 3) + varint(int(value))
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(kind, raw, version="v1"):
    kind = field(1, version) + field(2, kind)
    return b"k8s\x00" + field(1, kind) + field(2, raw) + field(4, "application/json")


def entry(key, value):
    return field(1, key) + field(2, value)


def test_a_config_map_is_read():
    metadata = (
        field(1, "settings")
        + field(2, "")
        + field(8, b"")
        + field(11, entry("a", "b"))
        + field(11, entry("c", ""))
        + field(14, "example.com/a")
    )
    raw = (
        field(1, metadata)
        + field(2, entry("x", "ü" * 128))
        + field(3, entry("y", b"\x00"))
        + field(4, value=True)
    )

    assert protobuf.loads(envelope("ConfigMap", raw)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "settings",
            "labels": {"a": "b", "c": ""},
            "finalizers": ["example.com/a"],
        },
        "data": {"x": "ü" * 128},
        "binaryData": {"y": base64.b64encode(b"\x00").decode()},
        "immutable": True,
    }


def test_unknown_fields_of_any_form_are_skipped():
    fixed = bytes([99 << 3 & 0x7F | 0x80 | 5, 99 >> 4]) + b"1234"
    double = bytes([99 << 3 & 0x7F | 0x80 | 1, 99 >> 4]) + b"12345678"
    raw = field(1, field(1, "team")) + field(99, 7) + fixed + double

    assert protobuf.loads(envelope("Namespace", raw))["metadata"] == {"name": "team"}


def test_another_kind_is_refused_with_advice():
    with pytest.raises(problems.ApiError, match="Pod is only accepted as JSON") as caught:
        protobuf.loads(envelope("Pod", b""))

    assert caught.value.problem.code == 415


@hypothesis.given(st.binary(max_size=30))
def test_any_bytes_are_an_object_or_refused(data):
    for body in (data, envelope("ConfigMap", data), b"k8s\x00" + data):
        with contextlib.suppress(problems.ApiError):
            assert protobuf.loads(body)["kind"] in ("ConfigMap", "Namespace")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"k8s\x00\xff",
        b"k8s\x00\x0a\x7f",
        b"k8s\x00\x0b",
        b"k8s\x00\x08\x01",
        envelope("ConfigMap", b"\x0a\x7f"),
        envelope("ConfigMap", field(1, field(1, b"\xff"))),
    ],
)
def test_bytes_that_are_no_message_are_refused(body):
    with pytest.raises(problems.ApiError) as caught:
        protobuf.loads(body)

    assert caught.value.problem.code == 400
