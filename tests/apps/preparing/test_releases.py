"""Calls that wait for what others give back: woken in time, and bounded in number."""

import concurrent.futures

import polling
import pytest

from dra_driver import errors
from dra_driver.adapters.system import patience
from dra_driver.apps.preparing import releases

FIRST, SECOND, THIRD = (frozenset({f"gpu-{number}"}) for number in range(3))


class Place:
    """Something to wait for, and threads that do."""

    def __init__(self, pool):
        self.pool = pool
        self.releases = releases.Releases()
        self.waiting = patience.Patience(60)

    def waiter(self, cards):
        """A call that waits for the cards, once it does."""
        before = self.releases._in_all
        seen = self.releases.seen()
        call = self.pool.submit(self.releases.wait, cards, seen, 60, self.waiting)
        polling.until(lambda: self.releases._in_all > before)
        return call


@pytest.fixture
def place():
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        made = Place(pool)
        yield made
        made.waiting.end("the test is over")


def test_who_waits_is_woken_by_its_own_cards_alone(place):
    first, second = place.waiter(FIRST), place.waiter(SECOND | THIRD)
    place.releases.tell(THIRD)
    second.result(60)
    assert not first.done()
    assert not any(told.is_set() for told in place.releases._waiters["gpu-0"])
    place.releases.tell(FIRST)
    first.result(60)


def test_what_was_given_back_before_the_wait_is_not_waited_for(place):
    seen = place.releases.seen()
    place.releases.tell(FIRST)
    place.releases.wait(FIRST, seen, 60, place.waiting)


def test_a_call_whose_caller_has_gone_waits_no_more_and_leaves_its_place(place):
    call = place.waiter(FIRST)
    place.waiting.end("gone")
    with pytest.raises(errors.Abandoned, match="gone"):
        call.result(60)
    assert (place.releases._in_all, place.releases._waiters) == (0, {})


def test_the_waiters_of_a_card_are_bounded_and_those_of_other_cards_wait(place, monkeypatch):
    monkeypatch.setattr(releases, "MOST_WAITERS", 2)
    calls = [place.waiter(FIRST) for _ in range(2)]
    with pytest.raises(releases.Full, match="2 calls wait for gpu-0 already"):
        place.releases.wait(FIRST | SECOND, {}, 60, place.waiting)
    calls.append(place.waiter(SECOND))
    place.releases.tell(FIRST | SECOND)
    for call in calls:
        call.result(60)
    calls = [place.waiter(FIRST) for _ in range(2)]
    place.releases.tell(FIRST)


def test_all_waiters_together_are_bounded(place, monkeypatch):
    monkeypatch.setattr(releases, "MOST_IN_ALL", 2)
    for cards in (FIRST, SECOND):
        place.waiter(cards)
    with pytest.raises(releases.Full, match="2 calls wait already"):
        place.releases.wait(THIRD, {}, 60, place.waiting)


def test_the_bounds_leave_room_for_calls_that_do_not_wait():
    from dra_driver.adapters.kubelet import grpc_server

    assert releases.MOST_WAITERS < releases.MOST_IN_ALL
    assert grpc_server.WORKERS["NodePrepareResources"] > releases.MOST_IN_ALL
