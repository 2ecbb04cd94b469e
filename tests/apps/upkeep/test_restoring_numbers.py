"""Cards that are numbered anew while claims are prepared: specs name the nodes that are theirs."""

import identity_scene
import mig_node
import pytest
import structlog

from dra_driver.sim.gpus import gpu_faults, gpu_operations

MOVED = "cards have other numbers; CDI spec made anew"
REMOVED = "CDI spec names nodes of other cards; removed"
STILL = "CDI spec of a claim is gone, and cannot be written for now; its containers cannot start"


@pytest.fixture
def scene(new_node, api):
    """Three T4, and an H100."""
    return identity_scene.Scene(new_node, api, gpus="t4:3,h100-80gb-hbm3:1")


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def events(log, event):
    return [line["claim"] for line in log if line["event"] == event]


def variables(scene, ref):
    """The numbers of the nodes that containers are given, as the simulation has them."""
    return sorted(text.partition("=")[0] for text in scene.node.variables(ref))


def specs(scene):
    found = scene.node.cdi.iterdir()
    return {path.name: path.read_text() for path in found if path.name[:4] == "k8s."}


def held(scene, *devices):
    ref = scene.claim(*devices)
    scene.prepare(ref)
    return ref


def test_specs_follow_the_numbers_of_their_cards_and_nothing_else_is_written(scene, log):
    moved, still = held(scene, "gpu-0", "gpu-2"), held(scene, "gpu-1")
    before = specs(scene)
    scene.node.restorer.look()
    assert specs(scene) == before
    scene.renumber(2, 1, 0, 3)
    scene.look()
    scene.node.restorer.look()
    assert variables(scene, moved) == ["SIMULATED_GPU_0", "SIMULATED_GPU_2"]
    assert scene.given(moved) == scene.meant[moved.uid]
    assert scene.node.record(moved).minors == {"gpu-0": 2, "gpu-2": 0}
    assert variables(scene, still) == ["SIMULATED_GPU_1"]
    assert (events(log, MOVED), events(log, REMOVED)) == ([str(moved)], [str(moved)])
    after = specs(scene)
    scene.node.restorer.look()
    assert specs(scene) == after
    assert events(log, MOVED) == [str(moved)]
    scene.prepare(moved)
    assert specs(scene) == after


def test_a_number_that_nobody_else_has_is_followed_without_a_gap(scene, log):
    ref = held(scene, "gpu-2")
    # A card before it is gone.
    gpu_operations.remove_card(scene.node.simulation, scene.cards[0])
    scene.look()
    scene.node.restorer.look()
    assert variables(scene, ref) == ["SIMULATED_GPU_1"]
    assert scene.node.record(ref).minors == {"gpu-2": 1}


def test_what_was_numbered_anew_while_the_driver_was_away_is_found_at_its_start(scene):
    ref = held(scene, "gpu-0")
    scene.renumber(1, 0, 2, 3)
    scene.restart()
    scene.node.restorer.look()
    assert variables(scene, ref) == ["SIMULATED_GPU_1"]
    assert scene.given(ref) == scene.meant[ref.uid]


def test_the_spec_of_a_card_that_is_gone_goes_when_its_node_is_another_card_s(scene, log):
    ref = held(scene, "gpu-0")
    away = gpu_operations.remove_card(scene.node.simulation, scene.cards[0])
    scene.look()
    for _ in range(2):
        scene.node.restorer.look()
    assert specs(scene) == {}
    assert (events(log, REMOVED), events(log, STILL)) == ([str(ref)], [str(ref)])
    # With its card the claim has its spec again.
    gpu_operations.insert_card(scene.node.simulation, away)
    scene.look()
    scene.node.restorer.look()
    assert variables(scene, ref) == ["SIMULATED_GPU_0"]
    scene.node.unprepare(ref)
    assert scene.node.is_clean()


def test_the_spec_of_a_card_that_is_gone_stays_while_its_node_is_nobody_s(scene):
    ref = held(scene, "gpu-3")
    before = specs(scene)
    gpu_faults.remove(scene.node.simulation, scene.cards[3])
    scene.look()
    scene.node.restorer.look()
    assert specs(scene) == before
    assert ref.uid in str(before)


def test_while_no_card_can_be_seen_nothing_is_changed(scene):
    held(scene, "gpu-0")
    before = specs(scene)
    gpu_faults.inject(scene.node.simulation, error=9, function="nvmlInitWithFlags")
    scene.renumber(1, 0, 2, 3)
    scene.look()
    scene.node.restorer.look()
    assert specs(scene) == before


def test_a_claim_that_is_given_back_meanwhile_gets_no_spec(scene, monkeypatch):
    ref = held(scene, "gpu-0")
    scene.renumber(1, 0, 2, 3)
    scene.look()
    restorer = scene.node.restorer
    original = restorer._restore

    def late(record):
        scene.node.store.records.remove(record.uid)
        scene.node.cdi.joinpath(f"k8s.{mig_node.DRIVER}-claim_{ref.uid}.json").unlink()
        original(record)

    monkeypatch.setattr(restorer, "_restore", late)
    restorer.look()
    assert specs(scene) == {}
    assert scene.node.record(ref) is None


def test_a_partition_of_which_only_the_name_is_known_is_not_made_up_for_with_its_card(scene, log):
    ref = held(scene, "gpu-3-mig-1g10gb-19-6")
    record = scene.node.record(ref).model_copy(update={"partitions": ()})
    scene.node.store.records.write(record)
    for path in scene.node.cdi.iterdir():
        path.unlink()
    scene.node.restorer.look()
    assert specs(scene) == {}
    [line] = [line for line in log if line["event"] == STILL]
    assert "nothing but its name is known" in line["reason"]


def test_a_claim_whose_name_is_of_another_card_now_gets_no_spec_with_that_card(scene, log):
    ref = held(scene, "gpu-0")
    record = scene.node.record(ref)
    scene.node.store.records.write(record.model_copy(update={"gpus": {"gpu-0": scene.cards[1]}}))
    for path in scene.node.cdi.iterdir():
        path.unlink()
    scene.node.restorer.look()
    assert specs(scene) == {}
    [line] = [line for line in log if line["event"] == STILL]
    assert f"is on {scene.cards[0]} now, and was prepared on {scene.cards[1]}" in line["reason"]
