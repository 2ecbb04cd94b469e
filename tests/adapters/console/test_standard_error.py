import contextlib
import pathlib
import sys
import threading

import pytest

from dra_driver.adapters.console import standard_error

TRICKY = "\x1b]0;title\x07\u202e"
SHOWN = r"\u001b]0;title\u0007\u202e"


def test_what_is_said_is_printable_and_keeps_its_lines(capsys):
    standard_error.say(f"dra-driver: {TRICKY}\n  more")
    assert capsys.readouterr().err == f"dra-driver: {SHOWN}\n  more\n"


def test_what_is_said_is_not_endless(capsys):
    standard_error.say("x" * 1_000_000)
    said = capsys.readouterr().err
    assert len(said) < 17_000
    assert said.endswith("more characters)\n")


def test_a_trace_is_printable_and_ends_with_what_happened(capsys):
    try:
        int(TRICKY + "x" * 1_000_000)
    except ValueError as error:
        standard_error.trace(error)
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):\n")
    assert "ValueError: invalid literal for int() with base 10: " in said.splitlines()[-1]
    assert "\x1b" not in said
    assert len(said) < 5_000


def test_what_ends_a_thread_is_told_there_too(capsys):
    def fail():
        raise ValueError(TRICKY)

    with standard_error.of_threads():
        for work in (fail, sys.exit):
            thread = threading.Thread(target=work, name="worker")
            thread.start()
            thread.join(60)
    said = capsys.readouterr().err.splitlines()
    assert (said[0], said[-1]) == ("in thread worker:", f"ValueError: {SHOWN}")
    assert said.count("in thread worker:") == 1


@pytest.fixture
def full_disk():
    # What could not be written stays in the stream's buffer, and closing tries it again.
    with (
        contextlib.suppress(OSError),
        pathlib.Path("/dev/full").open("w", encoding="utf-8", buffering=1) as stream,
    ):
        yield stream


def test_what_cannot_be_written_is_no_second_error(full_disk, monkeypatch):
    with monkeypatch.context() as during:
        during.setattr(sys, "stderr", full_disk)
        standard_error.say("lost")
    with pytest.raises(OSError, match="No space left"):
        full_disk.flush()
