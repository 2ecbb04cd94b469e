"""The log in which simulated cards tell events: many write and read it, and it stays small."""

import subprocess
import sys

import pytest

from dra_driver.sim.gpus import gpu_event_log

CARD = "GPU-0"


class Log:
    """One log, and a reader of it."""

    def __init__(self, directory):
        self.directory = directory
        self.reader = gpu_event_log.Reader(directory)

    def tell(self, *numbers):
        told = [gpu_event_log.Told(CARD, 8, number) for number in numbers]
        gpu_event_log.tell(self.directory, *told)

    def heard(self, reader=None):
        """The data of all events that are there."""
        reader = reader or self.reader
        reader.listen(lambda _: True)
        return [event.data for event in iter(reader.next, None)]


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path)


def test_nothing_is_there_before_something_is_told(log):
    assert log.heard() == []


def test_an_event_is_read_as_it_was_told(log, tmp_path):
    told = gpu_event_log.Told(CARD, 0x8000, 2**40, gi=3, ci=0)
    gpu_event_log.tell(tmp_path, told)
    log.reader.listen(lambda _: True)
    assert (log.reader.next(), log.reader.next()) == (told, None)


def test_several_are_told_at_once_in_their_order(log):
    log.tell(3, 1, 2)
    assert log.heard() == [3, 1, 2]


def test_only_what_is_wanted_is_kept(log):
    log.tell(1, 2, 3)
    log.reader.listen(lambda event: event.data == 2)
    assert log.heard() == [2]


def test_a_reader_begins_with_what_is_told_after_it_came(log):
    log.tell(1)
    late = gpu_event_log.Reader(log.directory)
    log.tell(2)
    assert (log.heard(late), log.heard()) == ([2], [1, 2])


TELL = """
import pathlib, sys
from dra_driver.sim.gpus import gpu_event_log
print(flush=True)
sys.stdin.read()
for number in range(100):
    gpu_event_log.tell(pathlib.Path(sys.argv[1]), gpu_event_log.Told(sys.argv[2], 8, number))
"""


def test_what_several_processes_tell_is_all_heard(log, tmp_path):
    command = [sys.executable, "-c", TELL, str(tmp_path), CARD]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    tellers = [subprocess.Popen(command, **pipes) for _ in range(3)]
    for teller in tellers:
        teller.stdout.readline()
    # All begin once all are there.
    for teller in tellers:
        teller.stdin.close()
    for teller in tellers:
        assert teller.wait(timeout=60) == 0
        teller.stdout.close()
    assert sorted(log.heard()) == sorted([*range(100)] * 3)


def test_a_long_history_is_cut_and_goes_on_to_be_heard(log, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_event_log, "ROOM", 2000)
    for number in range(200):
        log.tell(number)
        assert log.heard() == [number]
        assert (tmp_path / gpu_event_log.FILE).stat().st_size <= 2000


def test_who_has_not_read_when_it_is_cut_gets_the_newer_half(log, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_event_log, "ROOM", 2000)
    sizes, told = [0, 1], 0
    while sizes[-1] > sizes[-2]:
        log.tell(told)
        told += 1
        sizes.append((tmp_path / gpu_event_log.FILE).stat().st_size)
    heard = log.heard()
    assert heard == [*range(told - len(heard), told)]
    assert told / 3 < len(heard) < told


def test_of_more_than_a_reader_can_hold_the_oldest_go(log, monkeypatch):
    monkeypatch.setattr(gpu_event_log, "WAITING", 3)
    log.reader = gpu_event_log.Reader(log.directory)
    for number in range(5):
        log.tell(number)
    assert log.heard() == [2, 3, 4]


def test_a_line_is_heard_once_it_is_whole(log, tmp_path):
    log.tell(1, 2)
    path = tmp_path / gpu_event_log.FILE
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    assert log.heard() == [1]
    with path.open("ab") as file:
        file.write(whole[-10:])
    assert log.heard() == [2]


def test_a_log_that_is_shorter_than_what_was_read_is_read_from_its_start(log, tmp_path):
    """A file that is cut may get the inode of one that was cut before."""
    log.tell(1, 2, 3)
    path = tmp_path / gpu_event_log.FILE
    assert log.heard() == [1, 2, 3]
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[-1])
    log.tell(4)
    assert log.heard() == [4]
