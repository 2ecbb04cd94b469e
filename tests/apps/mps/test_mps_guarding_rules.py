"""Whom the guard of a daemon cuts off, and when: by a clock that a test turns."""

import errno
import pathlib

import pytest

from dra_driver.adapters.mps import mps_guard
from dra_driver.apps.mps import mps_guarding

TIMES = mps_guarding.Times()
ONE, OTHER = mps_guard.Connection(9, 100, 41, 65534), mps_guard.Connection(18, 101, 42, 1000)


class Daemon:
    """What the kernel tells of one, and a clock."""

    def __init__(self):
        self.now, self.waits_on, self.cut, self.refuses = 1000.0, [], [], None

    def waited_on(self, _pid, _path):
        if self.refuses is not None:
            raise OSError(self.refuses, "refused")
        return tuple(self.waits_on)

    def end(self, _pid, one):
        self.cut.append(one)
        self.waits_on.remove(one)
        return True


@pytest.fixture
def daemon(monkeypatch):
    made = Daemon()
    monkeypatch.setattr(mps_guarding.mps_guard, "waited_on", made.waited_on)
    monkeypatch.setattr(mps_guarding.mps_guard, "cut", made.end)
    monkeypatch.setattr(mps_guarding.time, "monotonic", lambda: made.now)
    return made


@pytest.fixture
def guard(daemon):
    made = mps_guarding.Guard(TIMES)
    made.follow(7, pathlib.Path("/d/control"))
    return made


def asked(guard, daemon, seconds):
    """An answer is waited for that long; whether anybody was cut off meanwhile."""
    end, before = daemon.now + seconds, len(daemon.cut)
    while daemon.now < end:
        guard.look()
        guard.cut()
        daemon.now += 0.02
    return len(daemon.cut) > before


def test_a_client_may_be_silent_for_some_seconds_and_no_more(guard, daemon):
    daemon.waits_on = [ONE]
    assert not asked(guard, daemon, TIMES.silent - 0.1)
    assert asked(guard, daemon, 0.2)
    assert daemon.cut == [ONE]


def test_the_time_of_each_client_is_its_own(guard, daemon):
    daemon.waits_on = [ONE]
    asked(guard, daemon, TIMES.silent - 0.1)
    daemon.waits_on = [OTHER]
    assert not asked(guard, daemon, TIMES.silent - 0.1)


def test_while_the_daemon_answers_nobody_is_cut_off_however_long_they_are_silent(guard, daemon):
    daemon.waits_on = [ONE]
    for _ in range(5):
        assert not asked(guard, daemon, TIMES.silent - 0.1)
        guard.answered()


def test_after_a_cut_the_next_ones_may_be_silent_for_a_moment_only(guard, daemon):
    daemon.waits_on = [ONE]
    asked(guard, daemon, TIMES.silent + 0.1)
    assert guard.between == TIMES.strict_between
    daemon.waits_on = [OTHER]
    assert not asked(guard, daemon, TIMES.strict_silent - 0.04)
    assert asked(guard, daemon, 0.1)


def test_some_time_after_the_last_cut_clients_are_trusted_again(guard, daemon):
    daemon.waits_on = [ONE]
    asked(guard, daemon, TIMES.silent + 0.1)
    guard.answered()
    daemon.now += TIMES.strict
    daemon.waits_on = [OTHER]
    assert not asked(guard, daemon, TIMES.silent - 0.1)
    assert guard.between == TIMES.between


def test_a_queue_of_silent_clients_as_long_as_the_daemon_has_one_passes_soon(guard, daemon):
    for number in range(129):
        daemon.waits_on = [mps_guard.Connection(9, number, 41, 65534)]
        while daemon.waits_on:
            asked(guard, daemon, 0.02)
        assert guard.unanswered < TIMES.patience
    assert daemon.now - 1000.0 < TIMES.strict


def test_a_daemon_that_many_keep_from_answering_is_told_of_although_each_is_cut_off(guard, daemon):
    daemon.waits_on = [ONE]
    asked(guard, daemon, TIMES.silent + 0.1)
    guard.answered()
    seen = []
    for number in range(100):
        daemon.waits_on = [mps_guard.Connection(9, number, 43, 1000)]
        asked(guard, daemon, TIMES.strict_silent + 0.04)
        seen.append(guard.problem)
    # It goes on all the time, and so it is not started again.
    assert guard.unanswered < 1
    assert seen[0] == ""
    assert seen[-1] == "it does not answer: process 43 of user 1000 has connected, and says nothing"


def test_a_silent_client_is_told_of_soon_and_a_slow_daemon_later(guard, daemon):
    asked(guard, daemon, TIMES.slow - 0.1)
    assert guard.problem == ""
    asked(guard, daemon, 0.2)
    assert guard.problem == "it has not answered for 10 s"
    guard.answered()
    daemon.waits_on = [ONE]
    asked(guard, daemon, TIMES.late - 0.1)
    assert guard.problem == ""
    asked(guard, daemon, 0.2)
    assert guard.problem == (
        "it does not answer: process 41 of user 65534 has connected, and says nothing"
    )


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.EACCES])
def test_where_the_kernel_refuses_nobody_is_cut_off_and_the_time_runs(guard, daemon, number):
    daemon.waits_on, daemon.refuses = [ONE], number
    assert not asked(guard, daemon, TIMES.patience)
    assert guard.unanswered >= TIMES.patience - 0.1
    assert guard.problem == "it has not answered for 10 s"
