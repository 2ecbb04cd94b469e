"""Claims get the cards that their devices meant when they were published, or none."""

import identity_scene
import mig_node
import pytest

from dra_driver import errors
from dra_driver.model import prepared
from dra_driver.sim.gpus import gpu_faults, gpu_operations

H100, OTHER_H100, T4, OTHER_T4 = "gpu-0", "gpu-1", "gpu-2", "gpu-3"
FIRST, ON_OTHER = mig_node.FIRST, mig_node.OTHER_CARD


@pytest.fixture
def scene(new_node, api):
    return identity_scene.Scene(new_node, api)


def test_names_are_the_minors_where_nothing_has_ever_moved(scene):
    assert scene.offered() == dict(zip((H100, OTHER_H100, T4, OTHER_T4), scene.cards, strict=True))
    assert scene.minors() == {H100: 0, OTHER_H100: 1, T4: 2, OTHER_T4: 3}


def test_claims_keep_their_cards_when_minors_shift_between_two_boots(scene):
    prepared_one, waiting = scene.claim(H100), scene.claim(T4)
    scene.prepare(prepared_one)
    before = scene.offered()
    scene.reboot(lambda: scene.renumber(2, 3, 1, 0))
    assert scene.offered() == before
    assert scene.minors() == {H100: 3, OTHER_H100: 2, T4: 0, OTHER_T4: 1}
    scene.prepare(prepared_one)
    scene.prepare(waiting)


def test_device_nodes_are_those_of_the_minors_of_now(scene):
    ref = scene.claim(H100)
    scene.renumber(3, 2, 1, 0)
    scene.look()
    scene.prepare(ref)
    # The simulated injector names its variables after the node that a real one would inject.
    assert [text.partition("=")[0] for text in scene.node.variables(ref)] == ["SIMULATED_GPU_3"]


def test_partitions_are_cut_on_the_card_they_were_published_for(scene):
    ref, other = scene.claim(FIRST), scene.claim(ON_OTHER)
    scene.prepare(other)
    scene.reboot(lambda: scene.renumber(3, 1, 0, 2))
    scene.prepare(ref)
    scene.prepare(other)
    assert [one.gpu for one in scene.node.record(ref).partitions] == [scene.cards[0]]
    assert [one.minor for one in scene.node.record(ref).partitions] == [2]
    by_uuid = {card.uuid: card for card in scene.state()}
    cut = {uuid: len(card.gpu_instances) for uuid, card in by_uuid.items()}
    assert cut == dict(zip(scene.cards, (1, 1, 0, 0), strict=True))
    for each in (ref, other):
        scene.node.unprepare(each)
    assert scene.node.is_clean()


def test_names_hold_through_a_reload_of_the_driver_in_the_middle_of_everything(scene):
    held = scene.claim(FIRST)
    scene.prepare(held)
    gpu_faults.inject(scene.node.simulation, error=9, function="nvmlInitWithFlags")
    assert scene.look().problem is not None
    scene.renumber(1, 0, 3, 2)
    gpu_faults.clear(scene.node.simulation)
    before = dict(zip((H100, OTHER_H100, T4, OTHER_T4), scene.cards, strict=True))
    scene.look()
    assert scene.offered() == before
    assert scene.snapshot.lost == {}
    scene.prepare(scene.claim(ON_OTHER))
    scene.prepare(held)
    scene.node.unprepare(held)


@pytest.mark.parametrize("model", ["t4", "h100-80gb-hbm3"])
def test_a_card_in_another_s_place_is_another_card_whatever_its_model(scene, model):
    waiting, part, other = scene.claim(H100), scene.claim(FIRST), scene.claim(T4)
    old = scene.cards[0]
    new = []
    scene.reboot(lambda: new.append(scene.exchange(0, model)))
    for ref, device in ((waiting, H100), (part, FIRST)):
        told = scene.refused(ref)
        assert f"device {device!r} was published for NVIDIA H100 80GB HBM3 {old}" in told
        assert "Delete the pod" in told
    scene.prepare(other)
    assert scene.offered()["gpu-4"] == new[0]
    assert scene.minors()["gpu-4"] == 0
    assert H100 not in scene.offered()
    scene.prepare(scene.claim("gpu-4"))


def test_a_claim_that_was_prepared_on_a_card_that_is_gone_is_not_given_another(scene):
    ref = scene.claim(H100)
    scene.prepare(ref)
    scene.reboot(lambda: scene.exchange(0, "h100-80gb-hbm3"))
    assert scene.cards[0] in scene.refused(ref)
    scene.node.unprepare(ref)
    assert scene.node.is_clean()


def test_two_equal_cards_that_changed_places_keep_their_claims(scene):
    first, second = scene.claim(T4), scene.claim(OTHER_T4)
    scene.prepare(first)
    scene.reboot(lambda: scene.renumber(0, 1, 3, 2))
    scene.prepare(first)
    scene.prepare(second)


def test_a_card_that_comes_back_is_what_it_was_before(scene):
    ref = scene.claim(H100)
    away = []
    scene.reboot(
        lambda: away.append(gpu_operations.remove_card(scene.node.simulation, scene.cards[0]))
    )
    assert scene.minors() == {OTHER_H100: 0, T4: 1, OTHER_T4: 2}
    scene.refused(ref)
    scene.reboot(lambda: gpu_operations.insert_card(scene.node.simulation, away[0]))
    scene.prepare(ref)
    assert scene.minors() == {H100: 0, OTHER_H100: 1, T4: 2, OTHER_T4: 3}


def test_a_card_that_fell_off_the_bus_while_the_driver_runs_may_come_back(scene):
    ref = scene.claim(H100)
    gpu_faults.remove(scene.node.simulation, scene.cards[0])
    scene.look()
    with pytest.raises(errors.Retryable, match="does not exist on this node"):
        scene.node.prepare(ref, 0)
    gpu_faults.clear(scene.node.simulation)
    scene.prepare(ref)


def test_a_card_that_does_not_answer_is_not_taken_for_one_that_is_gone(scene):
    ref = scene.claim(H100)
    scene.reboot(
        lambda: gpu_faults.inject(
            scene.node.simulation, error=15, uuid=scene.cards[0], function="nvmlDeviceGetName"
        )
    )
    with pytest.raises(errors.Retryable):
        scene.node.prepare(ref, 0)
    gpu_faults.clear(scene.node.simulation)
    scene.prepare(ref)


def test_a_held_card_that_is_gone_keeps_its_name_from_the_card_in_its_place(scene):
    ref = scene.claim(H100)
    scene.prepare(ref)
    new = scene.exchange(0, "t4")
    # That another card has its minor number does not mean that it is there.
    assert scene.look().lost[H100].gpu.uuid == scene.cards[0]
    devices = {device.name: device for device in scene.api.published}
    assert devices[H100].attributes["uuid"] == scene.cards[0]
    assert devices[H100].extra["taints"][0]["key"] == f"{mig_node.DRIVER}/gpu-lost"
    assert devices["gpu-4"].attributes["uuid"] == new
    assert "taints" not in devices["gpu-4"].extra


# What is remembered is lost, or was never there


def forget(scene):
    for path in scene.names_on_disk().iterdir():
        path.unlink()


def test_lost_names_are_taken_from_what_is_published(scene):
    waiting, part = scene.claim(T4), scene.claim(FIRST)
    names = scene.remembered()
    forget(scene)
    scene.reboot(lambda: scene.renumber(3, 2, 1, 0))
    assert scene.remembered() == names
    scene.prepare(waiting)
    scene.prepare(part)


def test_names_are_those_that_an_older_driver_has_published_at_the_first_start(scene):
    # An older driver published by minors, and remembered nothing.
    forget(scene)
    before = scene.api.published
    scene.restart()
    assert scene.api.published == before


def test_where_nothing_is_published_any_more_records_tell_of_names(scene):
    ref, part = scene.claim(T4), scene.claim(FIRST)
    for each in (ref, part):
        scene.prepare(each)

    def lose():
        forget(scene)
        scene.wiped()
        scene.renumber(3, 2, 1, 0)

    scene.reboot(lose)
    scene.prepare(ref)
    scene.prepare(part)
    # Of the others nobody tells, so they are named after what they are now, as far as that is free.
    assert scene.offered() == {
        H100: scene.cards[0], T4: scene.cards[2], "gpu-1": scene.cards[3], "gpu-3": scene.cards[1],
    }  # fmt: skip


def test_the_partitions_of_an_older_driver_s_records_tell_of_names_too(scene):
    part = scene.claim(ON_OTHER)
    scene.prepare(part)
    record = scene.node.record(part).model_copy(update={"gpus": {}})
    scene.node.store.records.write(record)

    def lose():
        forget(scene)
        scene.wiped()
        scene.renumber(1, 0, 2, 3)

    scene.reboot(lose)
    scene.prepare(part)


def test_while_nobody_tells_what_is_published_cards_without_a_name_are_not_offered(scene):
    ref = scene.claim(T4)
    published = scene.api.published
    forget(scene)

    def lose():
        scene.api.published = errors.Retryable("no API server")
        scene.renumber(3, 2, 1, 0)

    scene.reboot(lose)
    assert scene.snapshot.nameless
    assert scene.snapshot.offered == {}
    told = " ".join(scene.snapshot.failures)
    assert f"({scene.cards[0]}) is not offered, as it has no name yet: no API server" in told
    with pytest.raises(errors.Retryable):
        scene.node.prepare(ref, 0)
    assert scene.remembered() == {}
    scene.api.published = published
    scene.prepare(ref)


def test_a_card_that_is_new_while_the_api_server_is_away_keeps_nobody_else_from_being_prepared(
    scene,
):
    ref = scene.claim(T4)
    published = scene.api.published
    new = scene.exchange(0, "t4")
    scene.api.published = errors.Retryable("no API server")
    scene.node.gpus.look()
    assert {card.name for card in scene.snapshot.cards} == {OTHER_H100, T4, OTHER_T4}
    scene.prepare(ref)
    scene.api.published = published
    scene.look()
    assert scene.offered()["gpu-4"] == new


def test_a_damaged_name_is_set_aside_told_and_looked_up_again(scene):
    names = scene.remembered()
    path = scene.names_on_disk() / f"{scene.cards[2]}.json"
    path.write_text("damaged")
    scene.reboot(lambda: scene.renumber(3, 2, 1, 0))
    assert scene.remembered() == names
    assert path.with_name(f"{path.name}.damaged-0").read_text() == "damaged"
    scene.restart()
    assert not path.with_name(f"{path.name}.damaged-1").exists()


def test_names_that_are_lost_while_the_driver_runs_are_written_again(scene):
    names = scene.remembered()
    forget(scene)
    (scene.names_on_disk() / f"{scene.cards[0]}.json").write_text("damaged")
    # Nobody has to tell: the driver that runs knows them.
    scene.api.published = errors.Retryable("no API server")
    scene.renumber(3, 2, 1, 0)
    scene.node.gpus.look()
    assert scene.remembered() == names
    assert {card.name: card.gpu.uuid for card in scene.snapshot.cards} == {
        name: uuid for uuid, name in names.items()
    }


def test_a_claim_that_has_another_card_than_its_name_is_now_is_refused_and_can_be_undone(scene):
    part = scene.claim(FIRST)
    scene.prepare(part)
    # Everything is lost that tells of names, and somebody has written others.
    store = scene.node.names._store
    found = store.contents().records
    first, second = (found[uuid] for uuid in scene.cards[:2])
    store.write(first.model_copy(update={"device": second.device}))
    store.write(second.model_copy(update={"device": first.device}))
    scene.restart()
    with pytest.raises(errors.Rejected) as caught:
        scene.node.prepare(part)
    assert str(caught.value).startswith(
        f"claim {part}: device {FIRST!r} was prepared on {scene.cards[0]}, which is gpu-1 now; "
        f"gpu-0 is NVIDIA H100 80GB HBM3 {scene.cards[1]}. Delete the pod"
    )
    assert scene.given(part) == {scene.cards[0]}
    scene.node.unprepare(part)
    assert scene.node.is_clean()


def test_a_record_of_an_older_driver_is_prepared_again_and_learns_its_card(scene):
    ref = scene.claim(T4)
    scene.prepare(ref)
    old = scene.node.record(ref).model_copy(
        update={"gpus": {}, "minors": {}, "parts": {}, "described": None}
    )
    scene.node.store.records.write(old)
    assert '"more"' not in (scene.node.root / "claims" / f"{ref.uid}.json").read_text()
    scene.restart()
    scene.prepare(ref)
    learned = {"gpus": {T4: scene.cards[2]}, "minors": {T4: 2}}
    assert scene.node.record(ref) == old.model_copy(update=learned)
    scene.node.store.records.write(old)
    scene.node.unprepare(ref)
    assert scene.node.is_clean()


def test_a_record_that_is_rebuilt_knows_the_cards(scene):
    ref = scene.claim(T4, FIRST)
    scene.prepare(ref)
    (scene.node.root / "claims" / f"{ref.uid}.json").write_text("damaged")
    scene.renumber(3, 2, 1, 0)
    scene.restart()
    record = scene.node.record(ref)
    assert record.rebuilt
    assert record.gpus == {T4: scene.cards[2], H100: scene.cards[0]}
    assert record.phase is prepared.Phase.COMPLETED
    scene.prepare(ref)
