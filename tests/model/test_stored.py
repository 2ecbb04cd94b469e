import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.model import stored

CONTENT = {"gpu": "GPU-1", "since": 7}
TEXT = """{
 "card": {
  "gpu": "GPU-1",
  "since": 7
 },
 "checksum": "sha256:516c4fb4d7185f1f246f9f527864329237bacb7385b03d75f64582876a028c81",
 "version": 3
}
"""


def test_the_text_has_a_version_and_a_checksum_and_is_stable():
    assert stored.encode("card", 3, CONTENT) == TEXT
    assert stored.encode("card", 3, dict(reversed(CONTENT.items()))) == TEXT
    assert stored.decode(TEXT, "card", {1, 2, 3}) == CONTENT


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a card (JSONDecodeError: "),
        (TEXT[:40], "not a card (JSONDecodeError: "),
        ("null", "not a card (TypeError: "),
        ("[]", "not a card (TypeError: "),
        ("{}", "not a card (KeyError: 'version')"),
        ("[" * 100_000, "not a card (RecursionError: "),
        (TEXT.replace("card", "ledger"), "not a card (KeyError: 'card')"),
        (TEXT.replace("checksum", "sum"), "not a card (KeyError: 'checksum')"),
        (TEXT.replace("GPU-1", "GPU-2"), "checksum 'sha256:516c4fb4"),
        (
            TEXT.replace(": 3", ": 4"),
            "version 4 is not one that this driver reads (3 or less): was",
        ),
        (TEXT.replace(": 3", ": []"), "version [] is not one that this driver reads"),
        (TEXT.replace(": 3", ': "3"'), "version '3' is not one that this driver reads"),
        (
            json.dumps({"version": 3, "checksum": stored.checksum([1]), "card": [1]}),
            "content is not a card: it is a list",
        ),
    ],
)
def test_what_is_damaged_or_of_a_newer_driver_is_refused_with_the_reason(text, reason):
    with pytest.raises(errors.Rejected) as caught:
        stored.decode(text, "card", {3})
    assert str(caught.value).startswith(reason)


def test_a_file_of_a_driver_that_wrote_no_checksum_is_read_where_that_is_allowed():
    text = json.dumps({"version": 1, "card": CONTENT})
    assert stored.decode(text, "card", {1}, needs_checksum=False) == CONTENT
    with pytest.raises(errors.Rejected, match="checksum"):
        stored.decode(text, "card", {1})
    damaged = TEXT.replace("GPU-1", "GPU-2")
    with pytest.raises(errors.Rejected, match="does not match the content"):
        stored.decode(damaged, "card", {3}, needs_checksum=False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON), st.integers(1, 9))
def test_any_content_is_read_back_equal(content, version):
    assert stored.decode(stored.encode("card", version, content), "card", {version}) == content
