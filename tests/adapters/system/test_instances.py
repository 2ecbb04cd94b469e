import contextlib
import fcntl
import os
import signal
import subprocess
import sys

import polling
import pytest

from dra_driver.adapters.disk import files
from dra_driver.adapters.system import instances

INSTANCE = """
import pathlib, sys
from dra_driver.adapters.system import instances
made = instances.Instances(pathlib.Path(sys.argv[1]))
print("started", flush=True)
for question in sys.stdin:
    print(made.is_newest() if question == "?\\n" else made.clear_dead(), flush=True)
made.close()
"""

DEAD = f"instance-{9 * 10**18:020d}-1"
"""The file of an instance that nobody has locked, with a time far ahead."""


class Process:
    """An instance in a process of its own."""

    def __init__(self, directory):
        self._process = subprocess.Popen(
            [sys.executable, "-c", INSTANCE, str(directory)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout.readline() == "started\n"

    def is_newest(self):
        self._process.stdin.write("?\n")
        self._process.stdin.flush()
        return {"True\n": True, "False\n": False}[self._process.stdout.readline()]

    def clears(self):
        self._process.stdin.write("clear\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "None\n"

    def kill(self):
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(60)

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


@pytest.fixture
def start(tmp_path):
    made = []

    def starting():
        made.append(Process(tmp_path))
        return made[-1]

    yield starting
    for process in made:
        process.end()


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_lone_instance_is_the_newest(tmp_path):
    alone = instances.Instances(tmp_path)
    assert alone.is_newest()
    assert len(names(tmp_path)) == 1
    alone.close()
    assert names(tmp_path) == []


def test_the_instance_that_started_last_is_the_newest(start):
    old, new = start(), start()
    assert (old.is_newest(), new.is_newest()) == (False, True)


def test_the_older_instance_is_the_newest_again_when_the_newer_one_leaves(start, tmp_path):
    old, new = start(), start()
    assert not old.is_newest()
    new.end()
    assert old.is_newest()
    assert len(names(tmp_path)) == 1


def test_the_older_instance_is_the_newest_again_when_the_newer_one_is_killed(start, tmp_path):
    old, new, newest = start(), start(), start()
    newest.kill()
    assert (old.is_newest(), new.is_newest()) == (False, True)
    new.kill()
    assert polling.until(old.is_newest)


def test_an_instance_that_leaves_does_not_matter_to_a_newer_one(start):
    old, new = start(), start()
    old.kill()
    assert new.is_newest()


def test_files_of_dead_instances_are_cleared_away_and_others_stay(start, tmp_path):
    (tmp_path / "claims").mkdir()
    (tmp_path / "locks").touch()
    (tmp_path / DEAD).touch()
    assert start().is_newest()
    assert not (tmp_path / DEAD).exists()
    assert {"claims", "locks"} <= set(names(tmp_path))
    assert len(names(tmp_path)) == 3


def test_files_of_instances_that_were_killed_do_not_pile_up(start, tmp_path):
    for _ in range(5):
        start().kill()
    survivor = start()
    polling.until(lambda: survivor.clears() or len(names(tmp_path)) == 1)
    older, newer = survivor, start()
    newer.kill()
    polling.until(lambda: older.clears() or len(names(tmp_path)) == 1)
    assert older.is_newest()


def test_a_live_instance_that_is_older_or_newer_is_not_cleared_away(start, tmp_path):
    older, middle, newer = start(), start(), start()
    for each in (older, middle, newer):
        each.clears()
    assert len(names(tmp_path)) == 3
    assert [each.is_newest() for each in (older, middle, newer)] == [False, False, True]


def test_what_died_at_birth_is_cleared_away_unless_it_may_still_be_born(tmp_path):
    mine = instances.Instances(tmp_path)
    dead, unborn = tmp_path / f".{DEAD}", tmp_path / f".{DEAD}2"
    dead.touch()
    os.utime(dead, (0, 0))
    unborn.touch()
    mine.clear_dead()
    assert not dead.exists()
    assert unborn.exists()
    mine.close()


def test_what_the_disk_refuses_is_told_with_the_path(tmp_path):
    with pytest.raises(files.Unusable, match=r"absent/instance-.* cannot be made: No such file"):
        instances.Instances(tmp_path / "absent")


def test_instances_of_one_process_know_each_other(tmp_path):
    old, new = instances.Instances(tmp_path), instances.Instances(tmp_path)
    assert (old.is_newest(), new.is_newest()) == (False, True)
    new.close()
    assert old.is_newest()
    old.close()


def test_two_that_look_at_a_dead_instance_at_once_do_not_take_each_other_for_it(
    tmp_path, monkeypatch
):
    mine = instances.Instances(tmp_path)
    flock, asked = fcntl.flock, []

    def noted(descriptor, operation):
        asked.append(operation)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", noted)
    dead = tmp_path / DEAD
    dead.touch()
    assert mine.is_newest()
    dead.touch()
    with dead.open("r+") as file:
        # What another instance does that looks just now.
        flock(file, asked[-1])
        assert mine.is_newest()
    mine.close()


def test_an_instance_is_locked_before_others_can_see_it(tmp_path, monkeypatch):
    flock, seen = fcntl.flock, []

    def noted(descriptor, operation):
        if operation == fcntl.LOCK_EX:
            seen.append(list(tmp_path.glob("instance-*")))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", noted)
    mine = instances.Instances(tmp_path)
    assert seen == [[]]
    assert len(names(tmp_path)) == 1
    mine.close()


def test_others_see_whether_an_instance_is_alive_and_clear_nothing_away(start, tmp_path):
    assert not instances.any_alive(tmp_path / "absent")
    (tmp_path / DEAD).touch()
    assert not instances.any_alive(tmp_path)
    started = start()
    assert instances.any_alive(tmp_path)
    started.kill()
    assert polling.until(lambda: not instances.any_alive(tmp_path))
    # Its own file stays, for one that is an instance.
    assert len(names(tmp_path)) == 1
