"""What is remembered of names, on disk and in slices, and when a name can be given anew."""

import errno

import plugin_process
import pytest
import structlog
from names_desk import HOUR, Desk, bound, gpu, site

from dra_driver import errors
from dra_driver.adapters.disk import card_names, files
from dra_driver.logic.offering import attributes
from dra_driver.model import devices

AWAY = errors.Retryable("no API server")


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path)
    yield made
    made.held.close()


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def events(log, event):
    return [line for line in log if line["event"] == event]


A, B, C = gpu("a", 0), gpu("b", 1), gpu("c", 2)

# Remembering


def test_the_api_server_is_asked_once_for_cards_that_are_new_and_never_for_others(desk):
    assert desk.see(A, B) == {"a": 0, "b": 1}
    assert desk.asked == 1
    assert desk.see(gpu("a", 1), gpu("b", 0)) == {"a": 0, "b": 1}
    assert desk.make().named(devices.Discovery((A,))).gpus[0].name == "gpu-0"
    assert desk.asked == 1
    desk.see(A, B, C)
    assert desk.asked == 2


def test_a_node_without_cards_asks_nothing_and_writes_nothing(desk):
    assert desk.see() == {}
    assert desk.asked == 0
    assert desk.on_disk() == {}


def test_a_name_is_on_disk_before_anybody_hears_of_it(desk, monkeypatch):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(card_names.CardNames, "write", full)
    assert desk.see(A, B) == {}
    assert ["No space left" in problem for problem in desk.problems] == [True, True]
    assert "GPU 0 (GPU-a) is not offered, as it has no name yet" in desk.problems[0]
    monkeypatch.undo()
    assert desk.see(A, B) == {"a": 0, "b": 1}


def test_names_that_are_known_hold_while_nothing_can_be_written_or_asked(desk, monkeypatch, log):
    desk.see(A, B)
    desk.published = AWAY
    monkeypatch.setattr(files, "write", lambda *_, **__: (_ for _ in ()).throw(OSError("full")))
    assert desk.see(gpu("b", 0)) == {"b": 1}
    assert desk.see(gpu("b", 0), C) == {"b": 1}
    [problem] = desk.problems
    assert "GPU 2 (GPU-c)" in problem
    assert len(events(log, "names of cards are not remembered for now")) == 2


def test_a_problem_is_told_once(desk, log):
    desk.published = AWAY
    for _ in range(3):
        desk.see(A)
    assert [
        line["reason"] for line in events(log, "names of cards are not remembered for now")
    ] == ["no API server"]


def test_a_card_that_is_missed_is_noted_once_and_cleared_when_it_is_back(desk):
    desk.see(A, B)
    desk.see(B)
    desk.now = "2026-11-28T11:00:00Z"
    desk.see(B)
    assert desk.on_disk()["a"].gone_since == "2026-11-28T10:00:00Z"
    desk.see(A, B)
    assert desk.on_disk()["a"].gone_since is None


def test_two_instances_that_see_new_cards_at_once_give_each_one_name(desk):
    other = desk.make()
    cards = devices.Discovery((A, B, C))
    seen = plugin_process.at_once(
        lambda: desk.names.named(cards),
        lambda: other.named(devices.Discovery((C, B, A))),
        lambda: desk.make().named(cards),
    )
    found = [{one.uuid: one.name for one in each.gpus} for each in seen]
    assert found == [{"GPU-a": "gpu-0", "GPU-b": "gpu-1", "GPU-c": "gpu-2"}] * 3


def test_a_name_that_another_instance_gives_in_the_middle_of_a_look_counts(desk):
    other = desk.make()

    def meanwhile():
        desk.ask = list
        other._ask = desk.ask
        other.named(devices.Discovery((gpu("b", 0),)))
        return []

    desk.names._ask = meanwhile
    assert desk.see(A, B) == {"a": 1, "b": 0}
    assert {uuid: one.device for uuid, one in desk.on_disk().items()} == {
        "a": "gpu-1",
        "b": "gpu-0",
    }


def test_a_name_that_another_instance_has_given_is_taken_from_disk(desk):
    desk.see(A)
    other = desk.make()
    other.named(devices.Discovery((gpu("b", 0), A)))
    assert desk.see(gpu("b", 0), A) == {"a": 0, "b": 1}


@pytest.mark.parametrize("content", ["damaged", "", "\x00"])
def test_damage_of_one_name_is_damage_of_one_card(desk, log, content):
    desk.see(A, B)
    path = desk.directory / "names" / "GPU-b.json"
    path.write_text(content)
    desk.names = desk.make()
    assert desk.see(gpu("b", 0), gpu("a", 1)) == {"a": 0, "b": 1}
    [line] = events(log, "name of a card cannot be read; it is looked up in what is published")
    assert line["gpu"] == "GPU-b"
    assert path.with_name("GPU-b.json.damaged-0").read_text() == content


def test_the_name_of_a_newer_driver_is_looked_up_too(desk):
    desk.see(A, B)
    path = desk.directory / "names" / "GPU-b.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    desk.names = desk.make()
    assert desk.see(gpu("b", 0), gpu("a", 1)) == {"a": 0, "b": 1}


def test_a_copy_of_a_name_is_no_name(desk):
    desk.see(A)
    folder = desk.directory / "names"
    (folder / "GPU-b.json").write_text((folder / "GPU-a.json").read_text())
    desk.names = desk.make()
    assert desk.see(gpu("b", 0), gpu("a", 1)) == {"a": 0, "b": 1}


def test_of_two_cards_with_one_name_one_gets_another(desk, log):
    desk.see(A, B)
    store = card_names.CardNames(desk.directory / "names")
    store.write(desk.on_disk()["b"].model_copy(update={"device": "gpu-0"}))
    desk.names, desk.published = desk.make(), []
    assert desk.see(A, B) == {"a": 0, "b": 1}
    assert events(log, "two cards have one name")
    assert {one.device for one in desk.on_disk().values()} == {"gpu-0", "gpu-1"}


def test_what_a_killed_driver_had_begun_to_write_is_no_name(desk):
    desk.see(A)
    (desk.directory / "names" / ".GPU-b.json.new").write_text("{")
    assert desk.see(gpu("b", 0), A) == {"a": 0, "b": 1}
    assert not (desk.directory / "names" / ".GPU-b.json.new").exists()


# Taking back


def gone(desk):
    """The first of two cards is gone, and what is published says so."""
    desk.see(A, B)
    desk.see(B)


def test_a_name_is_given_anew_after_an_hour_if_no_claim_means_it(desk):
    gone(desk)
    assert not desk.needs_view_after(0)
    assert not desk.needs_view_after(HOUR - 1)
    assert desk.see(gpu("new", 0), B)["new"] == 2
    assert desk.needs_view_after(1)
    desk.names.remove(frozenset({"gpu-1", "gpu-2-mig-1g5gb-19-0"}))
    assert sorted(desk.on_disk()) == ["b", "new"]
    # One that has a name keeps it; the next one is as it would have been.
    assert desk.see(gpu("new", 0), B, gpu("next", 3)) == {"new": 2, "b": 1, "next": 3}
    assert desk.see(gpu("last", 0), B)["last"] == 0


@pytest.mark.parametrize("device", ["gpu-0", "gpu-0-mig-1g5gb-19-0"])
def test_a_name_that_a_claim_of_the_cluster_means_is_kept(desk, device):
    gone(desk)
    desk.needs_view_after(0)
    assert desk.needs_view_after(HOUR)
    desk.names.remove(frozenset({device}))
    assert desk.see(gpu("new", 0), B)["new"] == 2
    # Another list is not worth its price for a while.
    assert not desk.needs_view_after(HOUR - 1)
    assert desk.needs_view_after(1)
    desk.names.remove(frozenset())
    assert desk.see(gpu("new", 0), B, gpu("next", 0))["next"] == 0


def test_a_name_that_a_claim_has_here_is_kept_and_no_list_is_taken_for_it(desk):
    gone(desk)
    desk.holds("gpu-0-mig-1g5gb-19-0")
    desk.needs_view_after(0)
    assert not desk.needs_view_after(HOUR)
    desk.known.remove("uid-1")
    assert not desk.needs_view_after(1)
    assert desk.needs_view_after(HOUR)


def test_a_claim_that_is_prepared_after_the_list_keeps_the_name(desk):
    gone(desk)
    desk.needs_view_after(0)
    assert desk.needs_view_after(HOUR)
    desk.holds("gpu-0")
    desk.names.remove(frozenset())
    assert "a" in desk.on_disk()


def test_nothing_is_taken_back_while_it_is_not_known_what_claims_have(desk):
    gone(desk)
    (desk.directory / "claims" / "uid-9.json").write_text("damaged")
    desk.needs_view_after(0)
    assert not desk.needs_view_after(HOUR)


def test_the_hour_begins_when_the_name_is_published_no_more(desk):
    desk.see(A, B)
    still = desk.published
    desk.see(B)
    desk.published = still
    for _ in range(3):
        assert not desk.needs_view_after(HOUR)
    desk.see(B)
    assert not desk.needs_view_after(0)
    desk.published = AWAY
    assert not desk.needs_view_after(HOUR)
    desk.published = [attributes.device(B)]
    assert desk.needs_view_after(0)


def test_a_card_that_was_back_meanwhile_is_missed_for_an_hour_anew(desk):
    gone(desk)
    desk.needs_view_after(0)
    desk.time += HOUR - 1
    desk.see(A, B)
    desk.see(B)
    assert not desk.needs_view_after(1)
    assert not desk.needs_view_after(HOUR - 1)
    assert desk.needs_view_after(1)


def test_a_card_that_is_back_when_its_name_is_to_be_taken_keeps_it(desk):
    gone(desk)
    desk.needs_view_after(0)
    assert desk.needs_view_after(HOUR)
    # Another instance sees it first.
    desk.make().named(devices.Discovery((A, B)))
    desk.names.remove(frozenset())
    assert desk.see(A, B) == {"a": 0, "b": 1}


def test_a_node_on_which_no_card_is_gone_asks_for_nothing(desk):
    desk.see(A, B)
    before = desk.asked
    assert not desk.needs_view_after(HOUR)
    assert desk.asked == before


def test_a_name_that_cannot_be_taken_back_is_kept_for_now(desk, log, monkeypatch):
    gone(desk)
    desk.needs_view_after(0)
    assert desk.needs_view_after(HOUR)
    monkeypatch.setattr(files, "remove", lambda _: (_ for _ in ()).throw(OSError("read-only")))
    desk.names.remove(frozenset())
    monkeypatch.undo()
    assert events(log, "name is kept for now")
    assert desk.see(gpu("new", 0), B)["new"] == 2
    assert desk.needs_view_after(0)


# Cards that another driver has


def sites_of(*gpus, boot="boot-1"):
    return {one.uuid: site(int(one.pci_address[5:7], 16), boot) for one in gpus}


def test_a_card_keeps_its_name_and_is_written_of_once_when_nvml_tells_who_it_is(desk, log):
    here = bound(3)
    desk.see(A, here, where=sites_of(A, here))
    assert desk.on_disk()[here.uuid].device == "gpu-1"
    now = gpu("c", 3)
    assert desk.see(A, now, where=sites_of(A, now)) == {"a": 0, "c": 1}
    assert sorted(desk.on_disk()) == ["a", "c"]
    assert desk.asked == 1
    written = len(events(log, "name of a card"))
    desk.see(A, now, where=sites_of(A, now))
    assert len(events(log, "name of a card")) == written


def test_what_stood_for_a_card_goes_also_after_a_driver_that_was_killed_in_between(desk, log):
    here, now = bound(3), gpu("c", 3)
    desk.see(here, where=sites_of(here))
    store = card_names.CardNames(desk.directory / "names")
    store.write(desk.on_disk()[here.uuid].model_copy(update={"gpu": now.uuid, "site": site(3)}))
    desk.names = desk.make()
    assert desk.see(now, where=sites_of(now)) == {"c": 0}
    assert sorted(desk.on_disk()) == ["c"]
    assert not events(log, "two cards have one name")


def test_places_are_written_again_in_another_boot_and_else_not(desk, log):
    desk.see(A, where=sites_of(A))
    assert desk.on_disk()["a"].site == site(0)
    desk.see(A, where=sites_of(A))
    assert len(events(log, "name of a card")) == 1
    desk.see(A, where=sites_of(A, boot="boot-2"))
    assert desk.on_disk()["a"].site == site(0, "boot-2")


def test_a_card_that_has_no_name_yet_is_told_of_by_its_place(desk):
    desk.published = AWAY
    desk.see(bound(3), where=sites_of(bound(3)))
    assert desk.problems == [
        "the GPU at 0000:03:00.0 is not offered, as it has no name yet: no API server"
    ]


def test_an_older_driver_takes_a_card_that_is_bound_for_one_that_is_gone(desk):
    """It knows nothing of sites, and writes what it knows."""
    here = bound(3)
    desk.see(A, here, where=sites_of(A, here))
    desk.see(A)
    assert desk.on_disk()[here.uuid].gone_since is not None
    # The newer one, again, finds the card by what stands for it.
    desk.names = desk.make()
    desk.see(A, here, where=sites_of(A, here))
    assert desk.on_disk()[here.uuid].gone_since is None
    assert desk.on_disk()[here.uuid].device == "gpu-1"
