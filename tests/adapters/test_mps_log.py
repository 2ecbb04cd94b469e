"""What a daemon said last, as a message has it."""

import pytest

from dra_driver.adapters import mps_log


@pytest.fixture
def path(tmp_path):
    return tmp_path / "control.log"


def test_the_last_lines_are_told_as_one_without_their_times(path):
    path.write_text(
        "[2026-11-28 17:00:00.000 Control 12] one\n"
        "[2026-11-28 17:00:00.000 Control 12] two\n\n"
        "three\n"
        "[2026-11-28 17:00:00.000 Other 12] four\n"
    )
    assert mps_log.Log(path).last_words() == "its log ends with: two | three | four"


def test_what_an_earlier_daemon_said_is_not_told_of_this_one(path):
    path.write_text("earlier\n")
    log = mps_log.Log(path)
    with log.open() as output:
        assert log.last_words() == "its log ends with: nothing"
        output.write(b"this one\n")
    assert log.last_words() == "its log ends with: this one"


def test_of_a_log_that_was_cut_short_meanwhile_the_end_is_told(path):
    path.write_text("earlier\n" * 100)
    log = mps_log.Log(path)
    log.open().close()
    path.write_text("after\n")
    assert log.last_words() == "its log ends with: after"


def test_what_is_no_text_or_too_much_of_it_does_not_get_into_messages(path):
    path.write_bytes(b"\x00\x1b[2J\xff" + b"x" * 9000 + b"end\n")
    words = mps_log.Log(path).last_words()
    assert words.startswith("its log ends with: …xxx")
    assert words.endswith("xend")
    assert len(words) < 500
    path.write_bytes(b"\x1b[2J\x00\n")
    assert mps_log.Log(path).last_words() == "its log ends with: ?[2J?"


def test_without_a_file_that_is_told(path):
    assert mps_log.Log(path).last_words().startswith("its log cannot be read: [Errno 2]")
