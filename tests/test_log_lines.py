"""What users of the cluster have chosen, in lines of the log."""

import io

import pytest
import structlog

from dra_driver import telemetry

LONG = "x" * 256_000
TRICKY = "\x1b]0;title\x07\u202e"
SHOWN = r"\u001b]0;title\u0007\u202e"


@pytest.fixture(params=["json", "console"])
def stream(request):
    """Where lines go, in either form."""
    stream = io.StringIO()
    telemetry.configure(level="info", log_format=request.param, stream=stream)
    yield stream
    structlog.reset_defaults()


def fail(text):
    def inner():
        raise ValueError(text)

    try:
        inner()
    except ValueError:
        telemetry.logger("x").exception("failed unexpectedly")


def test_of_a_very_long_text_a_line_has_the_beginning(stream):
    telemetry.logger("x").warning("failed", reason=LONG, many=[LONG] * 3, inner={"a": LONG})
    telemetry.logger("x").warning("listed", names=["n"] * 1000)
    assert len(stream.getvalue()) < 5 * 4096 + 2000
    assert stream.getvalue().count("more characters)") == 5
    assert "and 900 more" in stream.getvalue()


def test_a_trace_ends_with_what_happened_however_long_that_is(stream):
    fail(f"beginning {LONG}")
    assert "beginning" in stream.getvalue()
    assert len(stream.getvalue()) < 3 * 4096


def test_nothing_in_a_line_steers_the_terminal_that_it_goes_to(stream):
    with telemetry.bound(claim_name=TRICKY):
        telemetry.logger("x").warning(TRICKY, reason=TRICKY, names=[TRICKY], **{TRICKY: TRICKY})
        fail(TRICKY)
    assert set(stream.getvalue()).isdisjoint(TRICKY.replace("]0;title", ""))
    # Event, name, and what is bound, twice; the console quotes the list in Python's way.
    assert stream.getvalue().count(SHOWN) >= 7
