import threading
import time

from dra_driver.sim.cluster import work_queue


def test_keys_come_in_the_order_in_which_they_were_put_and_once():
    queue = work_queue.WorkQueue()
    for key in "abab":
        queue.put(key)
    queue.put("c")
    assert [queue.get() for _ in range(3)] == ["a", "b", "c"]


def test_a_key_that_is_put_while_it_is_looked_at_comes_again():
    queue = work_queue.WorkQueue()
    queue.put("a")
    assert queue.get() == "a"
    queue.put("a")
    assert queue.get() == "a"


def test_a_failed_key_comes_back_by_itself_each_time_later(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    queue = work_queue.WorkQueue()
    delays = []
    for _ in range(9):
        queue.failed("a")
        delays.append(queue._later["a"] - now)
        now += 20
        assert queue.get() == "a"
    assert [round(delay, 3) for delay in delays] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    queue.succeeded("a")
    queue.failed("a")
    assert round(queue._later["a"] - now, 3) == 0.1


def test_a_key_that_is_put_for_later_comes_at_the_earliest_time_that_was_said(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    queue = work_queue.WorkQueue()
    for seconds in (30, 10, 20):
        queue.put_in("a", seconds)
    queue.put_in("b", 0)
    assert queue.get() == "b"
    now += 10
    assert queue.get() == "a"
    queue.put("a")
    queue.put_in("a", 5)
    assert queue.get() == "a"
    assert queue._later == {}


def test_a_failed_key_is_waited_for():
    queue = work_queue.WorkQueue()
    queue.failed("a")
    assert queue.get() == "a"


def test_a_failed_key_that_is_put_comes_at_once_and_only_once():
    queue = work_queue.WorkQueue()
    queue.failed("a")
    queue.put("a")
    assert queue.get() == "a"
    assert queue._later == {}


def test_closing_wakes_whoever_waits():
    queue = work_queue.WorkQueue()
    got = []
    waiting = threading.Thread(target=lambda: got.append(queue.get()))
    waiting.start()
    queue.close()
    waiting.join(timeout=60)
    assert got == [None]
    assert queue.closed


def test_keys_of_a_higher_rank_come_first_and_of_equals_the_first():
    ranks = {"a": 0, "b": 5, "c": 0, "d": 5}
    queue = work_queue.WorkQueue(ranks.__getitem__)
    for key in "abcd":
        queue.put(key)
    assert [queue.get() for _ in range(4)] == ["b", "d", "a", "c"]
    assert queue._ready == {}
