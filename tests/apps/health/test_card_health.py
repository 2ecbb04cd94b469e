"""What is known of the health of cards, over events, looks, restarts and boots."""

import dataclasses

import disk_faults
import pytest
from health_scene import FINE, XID, Scene
from hypothesis import example, given
from hypothesis import strategies as st

from dra_driver.adapters.disk import health_records
from dra_driver.apps.health import book, card_health
from dra_driver.apps.offering import inventory
from dra_driver.logic.health import recovery
from dra_driver.model import devices, health

RESET = dataclasses.replace(FINE, recovery=1)


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


def test_an_event_counts_at_once_and_is_published(scene):
    scene.xid(79)
    assert scene.said() == {"gpu-0 xid=79"}
    assert scene.told == [{"gpu-0 xid=79"}]
    assert scene.published == [{"gpu-0 xid=79"}]


def test_a_restart_neither_loses_what_counts_nor_renews_its_time(scene):
    scene.xid(79)
    before = scene.since()
    scene.clock.go(100)
    scene.start("boot-1")
    assert scene.since() == before == {"xid=79": "2026-11-30T10:00:00Z"}
    assert scene.health.settled == scene.health.view


def test_a_hold_goes_on_over_a_restart(scene):
    scene.facts_of[scene.gpus[0].uuid] = RESET
    scene.look()
    scene.facts_of[scene.gpus[0].uuid] = FINE
    assert scene.look(10) == {"gpu-0 recovery=reset"}
    scene.clock.go(20)
    scene.start("boot-1")
    assert scene.look(9) == {"gpu-0 recovery=reset"}
    assert scene.look(1) == set()


def test_a_boot_clears_what_the_hardware_does_not_repeat(scene):
    scene.facts_of[scene.gpus[0].uuid] = RESET
    scene.xid(79)
    scene.look()
    since = scene.since()["recovery=reset"]
    scene.clock.seconds = 5.0
    scene.start("boot-2")
    assert scene.said() == {"gpu-0 recovery=reset"}
    scene.look(5)
    assert scene.since() == {"recovery=reset": since}
    scene.facts_of[scene.gpus[0].uuid] = FINE
    scene.start("boot-3")
    assert scene.look() == set()


def test_a_card_that_was_exchanged_before_a_boot_is_forgotten_once_the_others_are_seen(scene):
    scene.facts_of[scene.gpus[1].uuid] = dataclasses.replace(FINE, recovery=2)
    assert scene.look() == {"gpu-1 recovery=reboot"}
    scene.start("boot-2")
    scene.inventory.snapshot = inventory.Snapshot(scene.cards[:1], failures=("does not answer",))
    assert scene.look() == {"gpu-1 recovery=reboot"}
    scene.inventory.snapshot = inventory.Snapshot(problem="the driver is not loaded yet")
    assert scene.look() == {"gpu-1 recovery=reboot"}
    scene.inventory.snapshot = inventory.Snapshot(scene.cards[:1])
    assert scene.look() == set()


def test_a_card_that_is_away_without_a_boot_is_not_forgotten(scene):
    scene.facts_of[scene.gpus[1].uuid] = RESET
    scene.look()
    scene.start("boot-1")
    scene.inventory.snapshot = inventory.Snapshot(scene.cards[:1])
    assert scene.look(1000) == {"gpu-1 recovery=reset"}


def test_that_something_was_there_before_a_boot_is_known_until_it_is_found_again(scene):
    scene.facts_of[scene.gpus[0].uuid] = RESET
    scene.look()
    scene.start("boot-2")
    scene.start("boot-2")
    assert [one.before_boot for one in scene.health.view.conditions] == [True]
    assert not recovery.wanted(scene.health.view)
    scene.look()
    assert [one.before_boot for one in scene.health.view.conditions] == [False]
    assert recovery.wanted(scene.health.view) == {scene.gpus[0].uuid}


def test_a_clock_whose_date_jumps_neither_lifts_nor_keeps_a_taint(scene):
    scene.facts_of[scene.gpus[0].uuid] = RESET
    scene.look()
    scene.facts_of[scene.gpus[0].uuid] = FINE
    scene.look(1)
    scene.clock.text = "2031-01-01T00:00:00Z"
    scene.health.look()
    assert scene.said() == {"gpu-0 recovery=reset"}
    scene.clock.seconds += 30
    scene.clock.text = "1999-01-01T00:00:00Z"
    scene.health.look()
    assert scene.said() == set()


def test_a_gpu_that_is_lost_is_told_and_well_again_after_its_hold(scene):
    scene.lose(1)
    assert scene.look() == {"gpu-1 gpu-lost="}
    scene.find()
    assert scene.look(1) == {"gpu-1 gpu-lost="}
    assert scene.look(30) == set()


def test_a_driver_that_does_not_answer_is_told_of_each_gpu_that_was_there(scene):
    gone = {name: offer for card in scene.cards for name, offer in card.offers.items()}
    scene.inventory.snapshot = inventory.Snapshot((), gone, problem="it is not loaded")
    assert scene.look() == {"gpu-0 driver=", "gpu-1 driver="}
    scene.find()
    scene.look(1)
    assert scene.look(30) == set()


def test_one_look_without_an_answer_changes_nothing(scene):
    scene.facts_of[scene.gpus[0].uuid] = RESET
    scene.look()
    scene.problem = "NVML does not answer"
    assert scene.look(1000) == {"gpu-0 recovery=reset"}


def test_a_gpu_that_nobody_listens_to_is_said_so_until_somebody_does(scene):
    uuid = scene.gpus[0].uuid
    scene.health.unwatched({uuid: "Not Supported"})
    scene.health.think()
    assert scene.said() == {"gpu-0 unmonitored="}
    [one] = scene.health.view.of(devices.Offer(scene.gpus[0]))
    assert one.finding.effect == "None"
    assert one.finding.message.endswith("so that errors are seen late: Not Supported")
    scene.health.unwatched({})
    scene.health.think()
    scene.clock.go(30)
    scene.health.think()
    assert scene.said() == set()


def test_that_nobody_has_listened_yet_after_a_start_is_not_that_somebody_does(scene):
    uuid = scene.gpus[0].uuid
    scene.health.unwatched({uuid: "Not Supported"})
    scene.health.think()
    scene.start("boot-1")
    scene.health.think()
    scene.clock.go(1000)
    scene.health.unwatched({uuid: "Not Supported"})
    scene.health.think()
    [one] = scene.health.view.conditions
    assert (one.returns, one.since) == (0, "2026-11-30T10:00:00Z")


def test_an_application_xid_goes_with_the_claim_that_had_the_card(scene):
    scene.claim("a")
    scene.claim("b", number=1)
    scene.xid(31)
    [one] = scene.health.view.conditions
    assert one.claims == ("a",)
    scene.clock.go(5000)
    scene.health.think()
    assert scene.said() == {"gpu-0 xid=31"}
    scene.claims.remove("a")
    scene.health.think()
    assert scene.said() == set()


def test_an_application_xid_that_comes_again_after_its_claim_is_told_though_nobody_has_the_card(
    scene,
):
    scene.claim("a")
    scene.xid(31)
    scene.claims.remove("a")
    scene.xid(31)
    [one] = scene.health.view.conditions
    assert one.claims == ()
    scene.health.think()
    scene.clock.go(30)
    scene.health.think()
    assert scene.said() == set()


def test_a_reset_ends_what_was_to_last_until_then_after_the_hold(scene):
    scene.facts_of[scene.gpus[0].uuid] = health.Facts()
    scene.xid(48)
    assert scene.look(1000) == {"gpu-0 xid=48"}
    scene.health.was_reset(scene.gpus[0].uuid)
    assert scene.look(29) == {"gpu-0 xid=48"}
    assert scene.look(1) == set()


def test_a_driver_that_was_loaded_anew_ends_it_too_though_the_plugin_did_not_run_meanwhile(scene):
    scene.facts_of[scene.gpus[0].uuid] = health.Facts()
    scene.xid(48)
    scene.look()
    scene.start("boot-1")
    assert scene.look(1000) == {"gpu-0 xid=48"}
    scene.load = ""
    assert scene.look(10) == {"gpu-0 xid=48"}
    scene.load = "2"
    scene.start("boot-1")
    assert scene.look(1) == {"gpu-0 xid=48"}
    assert scene.look(30) == set()


def test_when_a_card_was_reset_is_known_after_a_restart_and_not_after_a_boot(scene):
    uuid = scene.gpus[0].uuid
    scene.health.book.note_reset(uuid)
    scene.start("boot-1")
    assert scene.health.book.resets(uuid) == (1000.0,)
    scene.start("boot-2")
    assert scene.health.book.resets(uuid) == ()


def test_a_thousand_events_are_published_in_a_row_and_the_last_state_is_right(scene):
    for number in range(1000):
        scene.xid(1000 + number % 50)
        scene.clock.go(0.001)
    scene.clock.go(book.PACE)
    scene.health.think()
    assert len(scene.published) <= 3
    assert scene.published[-1] == scene.said() == {f"gpu-0 xid={1000 + n}" for n in range(50)}


def test_events_that_nobody_could_think_about_yet_fill_no_memory(scene):
    for number in range(10 * card_health.MOST_WAITING):
        scene.health.heard(health.Event(XID, scene.gpus[0].uuid, number))
    assert len(scene.health._waiting) == card_health.MOST_WAITING


def test_what_the_disk_refuses_is_told_all_the_same_and_written_later(scene):
    full = disk_faults.Disk(28, disk_faults.WRITES, [scene.directory / "health"], opens="new")
    with full.failing():
        scene.xid(79)
    assert full.steps
    assert scene.said() == {"gpu-0 xid=79"}
    scene.look()
    scene.start("boot-1")
    assert scene.said() == {"gpu-0 xid=79"}


def test_a_damaged_file_is_kept_aside_and_only_its_card_forgets(scene):
    scene.xid(79)
    scene.xid(48, gpu=1)
    path = scene.directory / "health" / f"{scene.gpus[0].uuid}.json"
    path.write_text("no JSON")
    scene.start("boot-1")
    assert scene.said() == {"gpu-1 xid=48"}
    kept = [one.read_text() for one in path.parent.iterdir() if one.name != path.name]
    assert "no JSON" in kept


def test_the_older_of_two_instances_writes_nothing(scene):
    scene.may_write = False
    scene.xid(79)
    assert scene.said() == {"gpu-0 xid=79"}
    assert not health_records.opened(scene.directory / "health").contents().records


_EVENTS = st.one_of(
    st.tuples(st.just("xid"), st.sampled_from([31, 48, 63, 79, 1234])),
    st.tuples(st.just("facts"), st.sampled_from([FINE, RESET, health.Facts(is_lost=True)])),
    st.tuples(st.just("claim"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("end"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("restart"), st.just(None)),
    st.tuples(st.just("boot"), st.just(None)),
    st.tuples(st.just("wait"), st.sampled_from([1, 31, 100])),
)


@given(st.lists(_EVENTS, max_size=25))
@example([("claim", "a"), ("xid", 31), ("facts", FINE), ("end", "a"), ("xid", 31)])
def test_every_taint_has_a_cause_and_ends_with_it_over_restarts_boots_and_claims(
    tmp_path_factory, steps
):
    scene = Scene(tmp_path_factory.mktemp("health"), spec="h100-80gb-hbm3:1")
    uuid, boots = scene.gpus[0].uuid, 1
    live, hit = set(), set()
    for step, what in steps:
        since, news = scene.since(), set()
        match step:
            case "xid":
                scene.xid(what)
                assert f"gpu-0 xid={what}" in scene.said()
                if what == 31 and hit and not hit & live:
                    # What hit claims that have ended is over: it is another one.
                    news, hit = {"xid=31"}, set()
                hit = hit | live if what == 31 else hit
            case "facts":
                scene.facts_of[uuid] = what
                scene.look()
            case "claim":
                scene.claim(what)
                live.add(what)
            case "end":
                scene.claims.remove(what)
                live.discard(what)
            case "restart":
                scene.start(scene.boot)
                assert scene.since() == since
            case "boot":
                boots += 1
                scene.start(f"boot-{boots}")
                assert not any(cause.startswith("xid") for cause in scene.since())
            case "wait":
                scene.look(what)
        for cause in since.keys() & scene.since().keys() - news:
            assert scene.since()[cause] == since[cause] or step == "wait"
    for uid in ("a", "b"):
        scene.claims.remove(uid)
    scene.facts_of[uuid] = FINE
    scene.health.think()
    scene.look(1)
    scene.look(3600)
    scene.health.think()
    assert scene.said() == set()
