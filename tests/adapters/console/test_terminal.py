"""Tables, blocks and progress, in a pipe and on a terminal."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import termios

import pytest

from dra_driver.adapters.console import terminal

TABLE = terminal.Table(
    "Pods",
    ("POD", "PHASE"),
    (("default/train", ("Running", "green")), ("default/other-pod", ("Failed", "bold red"))),
)
BLOCK = terminal.Block((("default/train", "bold"), ": ", ("Running", "green")), ("one", "  two"))
SGR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def output(capsys):
    """What was written since it was last asked: standard output, standard error."""

    def output():
        captured = capsys.readouterr()
        return captured.out, captured.err

    return output


# In a pipe


def test_a_table_is_plain_text(output):
    terminal.Terminal().table(TABLE)
    out, err = output()
    assert out.splitlines() == [
        "Pods",
        "POD                 PHASE",
        "---------------------------",
        "default/train       Running",
        "default/other-pod   Failed",
        "",
    ]
    assert err == ""


def test_a_long_cell_is_folded_and_loses_nothing(output):
    text = "a long reason " * 40
    terminal.Terminal().table(terminal.Table("T", ("A", "B"), (("pod", text),)))
    lines = output()[0].splitlines()
    assert max(map(len, lines)) <= terminal.PIPE_WIDTH
    assert " ".join(" ".join(lines[3:]).replace("pod", "").split()) == text.strip()


def test_a_block_is_a_title_and_lines_that_are_not_broken(output):
    long = "GPU 0: " + "x" * 300
    terminal.Terminal().block(BLOCK)
    terminal.Terminal().block(terminal.Block(("t",), (long,)))
    assert output()[0] == f"default/train: Running\n  one\n    two\nt\n  {long}\n"


TRICKY = "[red]x[/red] [/] :smile: \\[b] quote\\"


def test_text_that_looks_like_markup_is_printed_as_it_is(output):
    shown = terminal.Terminal()
    shown.say(TRICKY)
    shown.table(terminal.Table(TRICKY, (TRICKY,), ((TRICKY,), ((TRICKY, "green"),))))
    shown.block(terminal.Block((TRICKY, (TRICKY, "bold")), (TRICKY,)))
    shown.step(TRICKY)
    with shown.progress(TRICKY) as progress:
        progress.update(TRICKY)
    out, err = output()
    lines = out.splitlines()
    assert [lines[0], lines[1], lines[2], lines[4], lines[5]] == [TRICKY] * 5
    assert lines[7:] == [TRICKY * 2, f"  {TRICKY}"]
    assert err.splitlines() == [TRICKY, TRICKY]


def test_what_a_user_wrote_cannot_steer_the_terminal_of_who_reads_it(output):
    """An expression of a claim may have any characters."""
    text = "\x1b]0;title\x07\x1b[2J\r\x9b2J\x7f\ud800\u202e"
    shown = r"\u001b]0;title\u0007\u001b[2J\r\u009b2J\u007f\ud800\u202e"
    written = terminal.Terminal()
    written.table(terminal.Table(text, ("A",), ((text,), ((text, "red"),))))
    written.block(terminal.Block((text, (text, "bold")), (text,)))
    written.say(text)
    written.step(text)
    with written.progress(text):
        out, err = output()
    assert (out.count(shown), err.count(shown)) == (7, 2)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", out + err)


def test_of_a_very_long_text_the_beginning_is_shown_and_of_json_all(output):
    text = "x" * 300_000
    written = terminal.Terminal()
    written.say(text)
    written.step(text)
    written.block(terminal.Block((text,), (text,)))
    out, err = output()
    assert all(len(line.encode()) <= 4100 for line in (out + err).splitlines())
    assert (out.count("more characters)"), err.count("more characters)")) == (3, 1)
    written.table(terminal.Table("T", ("A",), ((text,),)))
    assert 4000 < output()[0].count("x") < 4096
    body = json.dumps([text, "\u202e\x1b"], ensure_ascii=False)
    written.document(body)
    assert json.loads(output()[0]) == json.loads(body)


def test_parts_of_a_cell_are_printed_one_after_the_other(output):
    spans = terminal.Spans((("|", ""), ("[red]", "green"), ("\n|", "")))
    terminal.Terminal().table(terminal.Table("T", ("A", "B"), ((spans, "b"),)))
    assert output()[0].splitlines()[3:] == ["|[red]   b", "|", ""]


def test_the_width_is_that_of_a_pipe():
    assert terminal.Terminal().width == terminal.PIPE_WIDTH


def test_a_result_is_one_line_however_long_it_is(output):
    terminal.Terminal().say("x " * 300)
    assert output() == ("x " * 300 + "\n", "")


def test_progress_goes_to_standard_error_and_is_said_once(output):
    shown = terminal.Terminal()
    shown.step("first")
    with shown.progress("second") as progress:
        progress.update("not seen")
    assert output() == ("", "first\nsecond\n")


# On a terminal

SCRIPT = """
import sys
from dra_driver.adapters.console import terminal
shown = terminal.Terminal()
with shown.progress("starting [x] :smile:") as progress:
    progress.update("waiting [y] :smile:")
shown.table(terminal.Table("Pods", ("POD", "NAME"), (("p" * 60, ("n" * 60, "green")),)))
shown.table(terminal.Table("Parts", ("A",), ((terminal.Spans((("x", "cyan"), ("y", ""))),),)))
shown.say(f"width {shown.width}")
shown.block(terminal.Block((("title", "bold"),), ("l" * 100,)))
"""


def on_terminal(columns):
    """What the script writes to a terminal of that width."""
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (40, columns))
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={"TERM": "xterm-256color", "PATH": os.environ["PATH"]},
    )
    os.close(follower)
    written = b""
    while select.select([leader], [], [], 60)[0]:
        try:
            part = os.read(leader, 65536)
        except OSError:  # How Linux says that the other end is closed.
            break
        if not part:
            break
        written += part
    os.close(leader)
    assert process.wait(60) == 0, written
    return written.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colours_and_progress_that_changes_in_place():
    written = on_terminal(80)
    assert "\x1b[32m" in written
    assert "\x1b[36mx\x1b[0my" in written
    assert "waiting [y] :smile:" in written
    assert "\x1b[2K" in written


@pytest.mark.parametrize("columns", [80, 120])
def test_a_table_fits_the_terminal_and_a_block_can_be_copied_from_it(columns):
    written = SGR.sub("", on_terminal(columns).rpartition("\x1b[2K")[2])
    lines = written.splitlines()
    table = lines[lines.index("Pods") + 1 : lines.index("Parts") - 1]
    assert f"width {columns}" in lines
    assert max(map(len, table)) <= columns
    assert "".join(table).count("p") == 60
    assert "".join(table).count("n") == 60
    assert lines[-1] == f"  {'l' * 100}"
