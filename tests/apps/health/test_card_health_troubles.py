"""What keeps the health of cards from being known, and what is lost by it: nothing that counts."""

import dataclasses

import disk_faults
import polling
import pytest
from health_scene import FINE, XID, Scene
from structlog import testing

from dra_driver.adapters.disk import files
from dra_driver.apps.health import book, card_health
from dra_driver.logic.health import attributing, meaning
from dra_driver.model import health

RESET = dataclasses.replace(FINE, recovery=1)


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


def test_a_disk_that_keeps_refusing_is_told_once_a_minute(scene):
    full = disk_faults.Disk(28, disk_faults.WRITES, [scene.directory / "health"], opens="new")
    with full.failing(), testing.capture_logs() as lines:
        for number in range(100):
            scene.xid(1000 + number)
        assert len(_refused(lines)) == 1
        scene.clock.go(book.TOLD_AGAIN)
        scene.xid(79)
        assert len(_refused(lines)) == 2


def _refused(lines):
    return [line for line in lines if line["event"] == "health is not kept"]


def test_an_event_is_told_though_nobody_can_read_who_has_what(scene, monkeypatch):
    scene.claim("a")
    scene.xid(31)
    with monkeypatch.context() as broken:
        broken.setattr(scene.claims, "contents", _unreadable)
        scene.clock.go(1000)
        scene.xid(79)
        assert scene.said() == {"gpu-0 xid=31", "gpu-0 xid=79"}
    [of_claim] = [one for one in scene.health.view.conditions if one.finding.value == "31"]
    assert of_claim.claims == ("a",)


def _unreadable():
    raise files.Unusable("Input/output error")


def test_a_claim_whose_record_is_damaged_has_not_ended(scene):
    scene.claim("a")
    scene.xid(31)
    (scene.directory / "claims" / "a.json").write_text("no JSON")
    scene.health.think()
    assert scene.said() == {"gpu-0 xid=31"}


def test_an_event_that_nobody_can_make_anything_of_takes_no_other_with_it(scene, monkeypatch):
    usual = attributing.of

    def of(event, *rest):
        if event.data == 31:
            raise RuntimeError("a defect")
        return usual(event, *rest)

    monkeypatch.setattr(attributing, "of", of)
    for number in (31, 79):
        scene.health.heard(health.Event(XID, scene.gpus[0].uuid, number))
    scene.health.think()
    assert scene.said() == {"gpu-0 xid=79"}


def test_gpus_that_are_seen_before_the_disk_is_read_replace_nothing_there(scene):
    scene.xid(79)
    scene.lose(0)
    scene.start("boot-1", load=False)
    scene.health.changed()
    scene.health.book.load()
    scene.health.changed()
    assert scene.said() == {"gpu-0 xid=79", "gpu-0 gpu-lost="}


def test_that_a_gpu_is_away_is_published_at_once_though_something_else_was_but_now(scene):
    scene.xid(63)
    scene.lose(1)
    scene.health.changed()
    assert scene.published[-1] == {"gpu-0 xid=63", "gpu-1 gpu-lost="}


def test_a_load_of_the_driver_that_was_not_known_before_says_nothing(scene):
    scene.facts_of[scene.gpus[0].uuid] = health.Facts()
    scene.load = ""
    scene.xid(48)
    scene.look()
    scene.start("boot-1")
    scene.load = "1"
    scene.look()
    assert scene.look(1000) == {"gpu-0 xid=48"}


def test_the_threads_follow_an_event_and_its_end_without_waiting_for_their_interval(tmp_path):
    scene = Scene(tmp_path, policy=meaning.Policy(hold=0.2), clock=card_health.now, interval=1e6)
    uuid = scene.gpus[0].uuid
    scene.health.start()
    try:
        polling.until(lambda: scene.looks, what="a first look")
        scene.facts_of[uuid] = RESET
        scene.health.heard(health.Event(XID, uuid, 63))
        both = {"gpu-0 xid=63", "gpu-0 recovery=reset"}
        polling.until(lambda: scene.said(scene.health.settled) == both, what="what the look finds")
        scene.facts_of[uuid] = FINE
        scene.health.was_reset(uuid)
        polling.until(lambda: not scene.health.settled.conditions, what="the end of the hold")
    finally:
        scene.health.stop()


def test_what_a_look_finds_right_after_an_event_is_published_without_another_one(scene):
    uuid = scene.gpus[0].uuid
    scene.facts_of[uuid] = RESET
    scene.xid(63)
    woken = []
    scene.health._thinker.wake = lambda: woken.append(True)
    scene.look(card_health.SOON)
    assert scene.said(scene.health.settled) == {"gpu-0 xid=63"}
    assert woken
    scene.clock.go(book.PACE)
    scene.health.think()
    assert scene.published[-1] == {"gpu-0 xid=63", "gpu-0 recovery=reset"}
    woken.clear()
    scene.look(10)
    assert not woken


def test_a_fault_inside_a_daemon_that_withdraws_the_card_is_the_cards(tmp_path):
    scene = Scene(tmp_path, policy=meaning.Policy((health.parse_effect("xid=94:NoSchedule"),)))
    scene.claim("a", mps=("red",))
    scene.faulted = ("red",)
    scene.xid(31)
    scene.xid(94)
    assert scene.since() == {"xid=94": "2026-11-30T10:00:00Z"}
    assert [one.finding.value for one in scene.health.view.of_claim("a")] == ["31"]


def test_a_card_that_a_look_does_not_come_back_from_is_told_of_while_it_hangs(scene):
    said = []

    def hangs(gpu):
        if gpu == scene.gpus[1].uuid:
            for seconds in (card_health.HUNG - 1, 1):
                scene.clock.go(seconds)
                scene.health.think()
                said.append(scene.said())

    scene.during = hangs
    scene.look()
    assert said == [set(), {"gpu-1 driver="}]
    [hung] = scene.health.view.conditions
    assert "has not come back for 30 s" in hung.finding.message
    scene.during = lambda _: None
    assert scene.look() == {"gpu-1 driver="}
    assert scene.look(scene.policy.hold) == set()
    # What comes back in time is never told.
    scene.clock.go(card_health.HUNG)
    scene.health.think()
    assert scene.said() == set()


def test_a_look_that_fails_is_no_look_that_hangs(scene):
    scene.during = _fails
    with pytest.raises(RuntimeError):
        scene.look()
    scene.clock.go(card_health.HUNG)
    scene.health.think()
    assert scene.said() == set()


def _fails(_gpu):
    raise RuntimeError("a defect")
