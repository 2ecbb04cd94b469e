"""When a new order of partitions is published."""

import dataclasses
import threading
import types

import mig_node
import pytest

from dra_driver import errors
from dra_driver.apps.offering import offers, withdrawing
from dra_driver.logic.health import conditions, meaning
from dra_driver.logic.offering import publishing
from dra_driver.model import health
from dra_driver.sim.gpus import gpu_operations

SPLIT = publishing.Form(publishing.Layout.SPLIT)
PLAIN = publishing.Form(publishing.Layout.PLAIN)


class Scene:
    def __init__(self, node, seconds, **options):
        self.node, self.now, self.reminded = node, 1000.0, []
        self.offers = offers.Offers(
            node.gpus,
            node.store.records,
            driver_name=mig_node.DRIVER,
            policy="adaptive",
            seconds=seconds,
            later=lambda: self.reminded.append(self.now),
            **options,
        )
        self.published = []

    def publish(self, form=SPLIT):
        """The names in publishing order; what is wanted is published."""
        contents = self.offers.wanted(self.published, form)
        self.published = [device for content in contents for device in content.devices]
        return [device.name for device in self.published]

    def smallest(self):
        return [name for name in self.publish() if "-mig-1g10gb-19-" in name]


@pytest.fixture
def scene(node, monkeypatch):
    made = []

    def make(seconds):
        made.append(Scene(node, seconds))
        clock = types.SimpleNamespace(monotonic=lambda: made[-1].now)
        monkeypatch.setattr(offers, "time", clock)
        return made[-1]

    yield make
    for each in made:
        each.offers.stop()


def test_nothing_is_wanted_until_the_gpus_have_been_looked_at(node, monkeypatch):
    monkeypatch.setattr(node.gpus, "wait_first", lambda _seconds: False)
    assert Scene(node, 1).offers.wanted([], SPLIT) is None


def test_nothing_is_wanted_while_what_is_published_may_be_all_that_tells_of_a_name(
    node, new_node, api
):
    before = Scene(node, 1)
    before.publish()
    for path in (node.root / "names").iterdir():
        path.unlink()
    api.published = errors.Retryable("no API server")
    after = Scene(new_node(), 1)
    assert len(after.node.gpus.snapshot.nameless) == 2
    assert after.offers.wanted(before.published, SPLIT) is None
    api.published = before.published
    after.node.gpus.look()
    after.published = before.published
    assert after.publish() == [device.name for device in before.published]


def test_a_card_that_was_never_published_keeps_nothing_else_from_being(node, api):
    made = Scene(node, 1)
    before = made.publish()
    gone = [name for name in before if name.startswith("gpu-0")]
    gpu_operations.exchange(node.simulation, node.uuid(), "t4")
    api.published = errors.Retryable("no API server")
    assert node.gpus.look().nameless
    assert set(made.publish()) == set(before) - set(gone)
    api.published = made.published
    node.gpus.look()
    assert set(made.publish()) == set(before) - set(gone) | {"gpu-2"}


def test_a_new_order_comes_at_once_and_the_next_one_after_a_while(scene, node, api):
    made = scene(3600)
    orders = [made.smallest()]
    for device in ("gpu-0-mig-1g10gb-19-0", "gpu-1-mig-1g10gb-19-0"):
        node.prepare(api.make(device))
        orders.append(made.smallest())
    assert orders[1] != orders[0]
    assert orders[2] == orders[1]
    made.now += 3599
    assert made.smallest() == orders[1]
    made.now += 1
    last = made.smallest()
    assert last != orders[1]
    assert sorted(last) == sorted(orders[0])


def test_an_order_that_has_to_wait_is_asked_for_again(scene, node, api):
    made = scene(0.01)
    made.smallest()
    for device in ("gpu-0-mig-1g10gb-19-0", "gpu-1-mig-1g10gb-19-0"):
        node.prepare(api.make(device))
        made.smallest()
    assert made.offers._timer is not None
    made.offers._timer.join(60)
    assert made.reminded == [made.now]


def test_an_order_that_has_to_wait_is_asked_for_though_the_last_reminder_is_not_over(
    scene, node, api
):
    made = scene(0.01)
    inside, leave = threading.Event(), threading.Event()
    made.offers._later = lambda: (inside.set(), leave.wait(60))
    devices = [f"gpu-{card}-mig-1g10gb-19-{start}" for start in (0, 6) for card in (0, 1)]
    made.smallest()
    for device in devices[:2]:
        node.prepare(api.make(device))
        made.smallest()
    first = made.offers._timer
    assert inside.wait(60)
    made.now += 0.01
    made.smallest()
    for device in devices[2:]:
        node.prepare(api.make(device))
        made.smallest()
    assert made.offers._timer is not first
    leave.set()
    first.join(60)


def test_without_a_pause_every_new_order_comes_at_once(scene, node, api):
    made = scene(0)
    seen = [made.smallest()]
    for device in ("gpu-0-mig-1g10gb-19-0", "gpu-1-mig-1g10gb-19-0"):
        node.prepare(api.make(device))
        seen.append(made.smallest())
    assert len({tuple(order) for order in seen}) == 3


def test_without_counters_there_are_whole_gpus_alone_and_that_is_said_once(scene, capsys):
    made = scene(0)
    assert made.publish(PLAIN) == ["gpu-0", "gpu-1"]
    assert made.publish(PLAIN) == ["gpu-0", "gpu-1"]
    assert capsys.readouterr().out.count("partitions are not offered") == 2
    assert len(made.publish(SPLIT)) > 2
    made.publish(PLAIN)
    assert capsys.readouterr().out.count("partitions are not offered") == 2


def test_while_a_record_cannot_be_read_nothing_that_is_published_goes(scene, node, api, lose):
    made = scene(0)
    ref, name = api.make(mig_node.OTHER_CARD), mig_node.OTHER_CARD
    node.prepare(ref)
    before = set(made.publish())
    path = node.root / "claims" / f"{ref.uid}.json"
    text = path.read_text()
    path.write_text("damaged")
    lose(1)
    node.gpus.look()
    assert set(made.publish()) == before
    path.write_text(text)
    assert name in set(made.publish()) < before


def test_records_that_cannot_be_read_at_all_are_no_reason_to_publish_less(scene, node, monkeypatch):
    made = scene(0)

    def gone():
        raise FileNotFoundError("claims")

    monkeypatch.setattr(node.store.records, "contents", gone)
    with pytest.raises(errors.Retryable, match="the records of claims cannot be read: claims"):
        made.publish()


def published_well(node):
    scene = Scene(node, 0)
    scene.publish()
    return scene.published


def test_while_a_record_cannot_be_read_nothing_that_is_sick_is_left_out_either(node, api):
    gpu = node.gpus.snapshot.cards[0].gpu.uuid
    finding = meaning.lost(gpu, meaning.Policy())
    sick = conditions.View((health.Condition(finding, "2026-11-30T10:00:00Z"),))
    scene = Scene(node, 0, health=lambda: sick)
    untainted = dataclasses.replace(SPLIT, taints=False)
    scene.published = published_well(node)
    (node.root / "claims" / "uid-1.json").write_text("damaged")
    assert "gpu-0" in scene.publish(untainted)
    (node.root / "claims" / "uid-1.json").unlink()
    assert "gpu-0" not in scene.publish(untainted)


def sick_and_asked(node, name="gpu-0"):
    """A scene in which the first card is withdrawn, and what is asked of the API server."""
    finding = meaning.lost(node.gpus.snapshot.cards[0].gpu.uuid, meaning.Policy())
    sick = conditions.View((health.Condition(finding, "2026-11-30T10:00:00Z"),))
    asked = []
    scene = Scene(node, 0, health=lambda: sick, allocated=lambda: asked.append(1) or (name,))
    scene.published = published_well(node)
    return scene, asked


def test_where_taints_are_taken_nobody_is_asked_about_a_sick_card_that_is_there(node):
    scene, asked = sick_and_asked(node)
    assert "gpu-0" in scene.publish(SPLIT)
    assert asked == []


def test_it_is_asked_again_who_has_what_without_anybody_waking_it(node, monkeypatch):
    scene, asked = sick_and_asked(node)
    monkeypatch.setattr(withdrawing.Withdrawing, "wait", 0.01)
    assert "gpu-0" in scene.publish(dataclasses.replace(SPLIT, taints=False))
    assert asked == [1]
    scene.offers._timer.join(60)
    assert scene.reminded


def test_an_earlier_reminder_takes_the_place_of_a_later_one_and_not_the_other_way_round(scene):
    made = scene(0)
    made.offers._remind(3600)
    late = made.offers._timer
    made.offers._remind(5)
    soon = made.offers._timer
    made.offers._remind(60)
    assert made.offers._timer is soon is not late
    assert late.finished.is_set()
    assert soon.interval == 5


@pytest.mark.parametrize("device", [mig_node.FIRST, "gpu-1"])
def test_what_a_prepared_claim_has_and_nothing_offers_is_listed_by_its_record(
    scene, node, api, device
):
    made = scene(0)
    node.prepare(api.make(device))
    node.gpus.look()
    seen = node.gpus.snapshot
    ruled_out = tuple(dataclasses.replace(card, offers={}, counters={}) for card in seen.cards)
    snapshot = dataclasses.replace(seen, cards=ruled_out)
    made.offers._gpus = types.SimpleNamespace(wait_first=lambda _: True, snapshot=snapshot)
    assert made.publish() == [device]
    again = made.published
    made.publish()
    assert made.published == again


def test_what_a_claim_only_looks_at_goes_with_its_card(scene, node, api, lose):
    made = scene(0)
    ref = api.make(mig_node.OTHER_CARD)
    node.prepare(ref)
    [record] = node.store.records.contents().records.values()
    looks = [one.model_copy(update={"admin_access": True}) for one in record.devices]
    node.store.records.write(record.model_copy(update={"devices": tuple(looks)}))
    assert mig_node.OTHER_CARD in made.publish()
    lose(1)
    node.gpus.look()
    assert mig_node.OTHER_CARD not in made.publish()
