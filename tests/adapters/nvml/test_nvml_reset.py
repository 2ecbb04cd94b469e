"""What is asked and set around a reset of a GPU."""

import pytest

from dra_driver import errors
from dra_driver.adapters.nvml import nvml, nvml_errors, nvml_reset
from dra_driver.sim.gpus import gpu_faults, gpu_operations, gpu_state, gpus


@pytest.fixture
def library(tmp_path):
    return gpus.SimulatedNvml(tmp_path, spec="v100-16gb-sxm2:3")


@pytest.fixture
def asked(library):
    return nvml_reset.ResetNvml(nvml.Nvml(library))


@pytest.fixture
def cards(tmp_path, library):
    return gpu_state.open_file(tmp_path).read().gpus


def test_persistence_mode_is_read_and_switched(asked, cards, tmp_path):
    uuid = cards[1].uuid
    assert asked.persistence(uuid) is True
    asked.set_persistence(uuid, on=False)
    assert asked.persistence(uuid) is False
    found = gpu_state.open_file(tmp_path).read().gpus
    assert [card.persistence_mode for card in found] == [True, False, True]


def test_a_mode_that_is_there_is_not_set_again(asked, cards, tmp_path):
    gpu_faults.inject(tmp_path, function="nvmlDeviceSetPersistenceMode", error=4)
    asked.set_persistence(cards[0].uuid, on=True)
    with pytest.raises(errors.Rejected, match="run the plugin as root"):
        asked.set_persistence(cards[0].uuid, on=False)


def test_a_card_without_persistence_mode_has_none(asked, cards, tmp_path):
    gpu_faults.inject(tmp_path, function="nvmlDeviceGetPersistenceMode", error=3)
    assert asked.persistence(cards[0].uuid) is None


def test_links_lead_to_the_cards_that_are_connected(asked, cards, tmp_path):
    first, second, alone = (card.uuid for card in cards)
    assert asked.linked(first) == frozenset()
    gpu_operations.link(tmp_path, first, second)
    assert asked.linked(first) == {cards[1].pci_address}
    assert asked.linked(second) == {cards[0].pci_address}
    assert asked.linked(alone) == frozenset()


def test_an_error_is_no_answer(asked, cards, tmp_path):
    gpu_faults.inject(tmp_path, function="nvmlDeviceGetNvLinkRemotePciInfo", error=999)
    with pytest.raises(errors.Retryable, match="reading what its NVLinks lead to"):
        asked.linked(cards[0].uuid)


def test_a_card_that_is_not_there_is_gone(asked):
    with pytest.raises(nvml_errors.GpuGone):
        asked.persistence("GPU-00000000-0000-0000-0000-000000000000")
