"""What a daemon said: kept within bounds, and its end as a message has it."""

import errno
import os
import re
import threading

import disk_faults
import polling
import pytest

from dra_driver.adapters.mps import mps_log

MUCH = 3 * mps_log.MOST_BYTES
MOST, READ = 300_000, 65_536
LINES = [b"%099d\n" % number for number in range(15_000)]
FREELY = {"rate": MUCH, "burst": MUCH}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "control.log"


@pytest.fixture
def log(path):
    made = mps_log.Log(path)
    yield made
    made.close()


def said(log, *texts):
    """A daemon that has written this, and ended."""
    with log.open() as output:
        log.follow()
        for text in texts:
            output.write(text)
    return log


def kept(path):
    return b"".join(
        one.read_bytes() for one in (path.with_name("control.log.1"), path) if one.exists()
    )


def test_the_last_lines_are_told_as_one_without_their_times(path):
    path.write_text(
        "[2026-11-28 17:00:00.000 Control 12] one\n"
        "[2026-11-28 17:00:00.000 Control 12] two\n\n"
        "three\n"
        "[2026-11-28 17:00:00.000 Other 12] four\n"
    )
    assert mps_log.last_words(path) == "its log ends with: two | three | four"


def test_what_a_daemon_writes_is_kept_after_what_was_there(log, path):
    path.write_text("earlier\n")
    said(log, b"one\n", b"two\n").close()
    assert path.read_text() == "earlier\none\ntwo\n"


def test_what_an_earlier_daemon_said_is_not_told_of_this_one(log):
    said(log, b"earlier\n")
    with log.open() as output:
        assert log.last_words() == "its log ends with: nothing"
        log.follow()
        output.write(b"this one\n")
    assert log.last_words() == "its log ends with: this one"


def test_the_last_words_are_whole_the_moment_a_daemon_has_ended(log):
    with log.open() as output:
        output.write(b"no such device\n")
    # Nothing follows what it writes yet.
    assert log.last_words() == "its log ends with: no such device"


def test_one_that_is_hung_and_has_the_log_open_holds_nobody_up(log, path):
    with log.open() as output:
        log.follow()
        output.write(b"said\n")
        log.close()
        assert "mps-log" not in [thread.name for thread in threading.enumerate()]
    assert path.read_text() == "said\n"


def test_a_large_log_makes_way_for_another_and_the_one_before_it_is_kept(path):
    log = mps_log.Log(path, most=MOST, **FREELY)
    said(log, *LINES).close()
    sizes = [one.stat().st_size for one in (path, path.with_name("control.log.1"))]
    assert max(sizes) <= MOST + READ
    assert kept(path).endswith(b"".join(LINES[-3000:]))


def test_what_comes_too_fast_is_dropped_and_told(path):
    log = mps_log.Log(path, rate=0, burst=1000)
    with log.open() as output:
        log.follow()
        output.write(b"x" * 5000)
        polling.until(lambda: path.exists() and path.stat().st_size == 1000)
    log.close()
    note = b"[... 4000 bytes were too much, and are not kept ...]\n"
    assert kept(path) == b"x" * 1000 + note
    assert log.last_words().endswith("x")


def test_how_much_was_dropped_is_told_once_there_is_room_again(path):
    log = mps_log.Log(path, rate=1e6, burst=1000)
    with log.open() as output:
        output.write(b"x" * 5000)
        log.last_words()
        log.follow()

        def tells():
            output.write(b".\n")
            return b"not kept" in kept(path)

        polling.until(tells)
    log.close()
    found = re.findall(
        rb"\[\.\.\. (\d+) bytes were too much, and are not kept \.\.\.\]\n", kept(path)
    )
    assert kept(path).count(b"x") + sum(map(int, found)) >= 5000


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_refuses_costs_the_file_and_neither_the_daemon_nor_its_last_words(
    log, path, number
):
    disk = disk_faults.Disk(number, disk_faults.CHANGES, [path.parent], opens="changed")
    with disk.failing():
        said(log, b"lost\n" * 1000)
        assert log.last_words() == "its log ends with: lost | lost | lost"
    log.close()


def test_a_log_that_cannot_be_put_aside_is_cut_short(path):
    path.with_name("control.log.1").mkdir()
    log = mps_log.Log(path, most=MOST, **FREELY)
    said(log, *LINES).close()
    assert path.stat().st_size <= MOST + READ
    assert path.read_bytes().endswith(LINES[-1])


def test_what_is_no_text_or_too_much_of_it_does_not_get_into_messages(path):
    path.write_bytes(b"\x00\x1b[2J\xff" + b"x" * 9000 + b"end\n")
    words = mps_log.last_words(path)
    assert words.startswith("its log ends with: …xxx")
    assert words.endswith("xend")
    assert len(words) < 500
    path.write_bytes(b"\x1b[2J\x00\n")
    assert mps_log.last_words(path) == "its log ends with: ?[2J?"


def test_without_a_file_that_is_told(path):
    assert mps_log.last_words(path).startswith("its log cannot be read: [Errno 2]")


def test_output_that_goes_elsewhere_is_left_alone(path):
    path.write_bytes(b"x" * 2000)
    before = os.fstat(2)
    mps_log.bound_output(path, most=1000)
    assert path.stat().st_size == 2000
    assert os.path.samestat(os.fstat(2), before)
