"""What resets, boots and reloads of the driver do for the health of simulated cards."""

import pytest

from dra_driver import errors
from dra_driver.sim.gpus import (
    gpu_faults,
    gpu_health_state,
    gpu_models,
    gpu_operations,
    gpu_state,
    gpus,
)

SICK = {
    "recovery": 4,
    "remap_pending": True,
    "remap_failed": True,
    "retired_pages": 3,
    "retirement_pending": True,
    "uncorrectable": 2,
    "uncorrectable_ever": 9,
    "thermal": True,
    "power_brake": True,
    "bad_fabric": True,
    "links_down": [1, 2],
}
LASTING = {"remap_failed": True, "retired_pages": 3, "uncorrectable_ever": 9}
"""What no reset mends."""


@pytest.fixture
def cards(tmp_path):
    """The UUIDs of two cards with everything that can be wrong."""
    gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:2")
    found = [card.uuid for card in gpu_state.open_file(tmp_path).read().gpus]
    with gpu_health_state.open_file(tmp_path).edit() as health:
        for uuid in found:
            health.cards[uuid] = gpu_health_state.Health(**SICK)
    return found


def health_of(directory, uuid):
    """What differs from a card that is well."""
    found = gpu_health_state.open_file(directory).read().cards[uuid]
    return found.model_dump(exclude_defaults=True)


def test_everything_is_wrong_with_a_card_that_is_as_sick_as_can_be():
    assert gpu_health_state.Health(**SICK).model_dump(exclude_defaults=True) == SICK
    assert SICK.keys() == gpu_health_state.Health.model_fields.keys()


def test_a_reset_mends_one_card_as_far_as_a_reset_can(cards, tmp_path):
    gpu_operations.reset(tmp_path, cards[0])
    assert health_of(tmp_path, cards[0]) == LASTING
    assert health_of(tmp_path, cards[1]) == SICK


def test_a_reset_of_a_card_that_is_well_leaves_it_well(cards, tmp_path):
    with gpu_health_state.open_file(tmp_path).edit() as health:
        health.cards.clear()
    gpu_operations.reset(tmp_path, cards[0])
    assert health_of(tmp_path, cards[0]) == {}


@pytest.mark.parametrize("users", [True, False])
def test_a_reset_that_is_refused_mends_nothing(cards, tmp_path, users):
    if users:
        with gpu_state.open_file(tmp_path).edit() as state:
            state.gpus[0].processes.append(gpu_state.Process(pid=7, used_memory_bytes=1))
    else:
        gpu_faults.lose(tmp_path, cards[0])
    with pytest.raises(errors.Retryable if users else errors.Rejected):
        gpu_operations.reset(tmp_path, cards[0])
    assert health_of(tmp_path, cards[0]) == SICK


def test_a_boot_mends_all_cards_so_and_brings_lost_ones_back(cards, tmp_path):
    gpu_faults.lose(tmp_path, cards[1])
    gpu_operations.reboot(tmp_path)
    assert [health_of(tmp_path, uuid) for uuid in cards] == [LASTING, LASTING]
    assert gpu_faults.lost(tmp_path) == frozenset()


def test_a_driver_that_is_loaded_counts_errors_anew_and_mends_nothing(cards, tmp_path):
    gpu_operations.unload_driver(tmp_path)
    assert health_of(tmp_path, cards[0]) == SICK
    gpu_operations.load_driver(tmp_path)
    left = {name: value for name, value in SICK.items() if name != "uncorrectable"}
    assert [health_of(tmp_path, uuid) for uuid in cards] == [left, left]


@pytest.mark.parametrize(
    ("architecture", "nvlinks", "has_one"),
    [(9, 18, True), (7, 12, False), (9, 0, False), (8, 0, False)],
)
def test_cards_since_hopper_that_have_nvlinks_are_in_a_fabric(architecture, nvlinks, has_one):
    facts = {"architecture": architecture, "nvlinks": nvlinks}
    model = gpu_models.load("h100-80gb-hbm3").model_copy(update=facts)
    assert gpu_health_state.has_fabric(model) is has_one
