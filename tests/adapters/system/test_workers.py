"""Threads that work until they are told to end."""

import threading

import polling
import pytest

from dra_driver.adapters.system import workers

NEVER = 3600.0


class Work:
    """A loop that tells each of its rounds, and does in a round what it is told to."""

    def __init__(self, seconds=NEVER, during=lambda: None, **options):
        self.worker = workers.Worker("work", self.run, **options)
        self.rounds = threading.Semaphore(0)
        self.seconds, self.during = seconds, during

    def run(self):
        while not self.worker.is_ending():
            self.worker.heed()
            self.during()
            self.rounds.release()
            self.worker.rest(self.seconds)

    def wait_round(self):
        assert self.rounds.acquire(timeout=60)


@pytest.fixture
def new():
    made = []

    def new_work(*args, **options):
        made.append(Work(*args, **options))
        return made[-1]

    yield new_work
    for work in made:
        work.worker.end()


def test_a_worker_that_is_woken_works_once_more(new):
    work = new()
    work.worker.start()
    work.wait_round()
    assert not work.rounds.acquire(blocking=False)
    work.worker.wake()
    work.wait_round()


def test_who_wakes_a_worker_while_it_works_is_not_missed(new):
    work = new()
    wakes = [work.worker.wake]
    work.during = lambda: [wakes.pop()() for _ in wakes[:1]]
    work.worker.start()
    work.wait_round()
    work.wait_round()


def test_a_worker_works_again_when_its_time_has_come(new):
    work = new(0.001)
    work.worker.start()
    for _ in range(3):
        work.wait_round()


def test_a_worker_that_rests_ends_at_once_and_one_that_never_began_too(new):
    work, idle = new(), new()
    work.worker.start()
    work.wait_round()
    work.worker.end()
    assert not work.worker.is_alive
    idle.worker.end()
    assert not idle.worker.is_alive


def test_an_end_at_the_moment_of_a_look_is_not_slept_through(new, monkeypatch):
    work = new(end_seconds=0)
    heed = work.worker.heed

    def ended_meanwhile():
        work.worker.end()
        heed()

    monkeypatch.setattr(work.worker, "heed", ended_meanwhile)
    work.worker.start()
    polling.until(lambda: not work.worker.is_alive)


def test_a_pause_is_ended_by_the_end_alone(new):
    paused = []
    work = new()

    def during():
        work.worker.wake()
        paused.append(work.worker.pause(0.001))
        if len(paused) == 2:
            paused.append(work.worker.pause(NEVER))

    work.during = during
    work.worker.start()
    work.wait_round()
    polling.until(lambda: len(paused) == 2)
    work.worker.end()
    assert paused == [False, False, True]


def test_what_the_work_waits_for_besides_is_released_before_its_end_is_waited_for(new):
    gate = threading.Event()
    work = new(during=gate.wait)
    work.worker.start()
    work.worker.end(gate.set)
    assert not work.worker.is_alive


def test_work_that_ends_its_own_worker_does_not_wait_for_itself(new):
    work = new()
    work.during = work.worker.end
    work.worker.start()
    work.wait_round()
    polling.until(lambda: not work.worker.is_alive)


def test_work_that_hangs_is_not_waited_for_longer_than_that(new):
    gate = threading.Event()
    work = new(during=gate.wait, end_seconds=0.01)
    work.worker.start()
    work.worker.end()
    assert work.worker.is_alive
    gate.set()
