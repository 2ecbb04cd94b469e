"""The stand-in for `nvidia-smi --gpu-reset`."""

import pytest

from dra_driver.sim.gpus import gpu_operations, gpu_state, gpus, host_gpu_reset, host_nvidia_smi


@pytest.fixture
def library(tmp_path):
    return gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:1,v100-16gb-sxm2:2")


@pytest.fixture
def run(tmp_path, library, capsys):
    def run(*arguments):
        status = host_nvidia_smi.main(tmp_path, arguments)
        return status, capsys.readouterr().out

    return run


@pytest.fixture
def cards(tmp_path, library):
    """The cards, with persistence mode off."""
    with gpu_state.open_file(tmp_path).edit() as state:
        for card in state.gpus:
            card.persistence_mode = False
    return gpu_state.open_file(tmp_path).read().gpus


def resets(directory):
    return [card.resets for card in gpu_state.open_file(directory).read().gpus]


def test_a_card_is_reset_and_named_by_its_place(run, cards, tmp_path):
    assert run("--gpu-reset", "-i", cards[0].uuid) == (
        0,
        "GPU 00000000:04:00.0 was successfully reset.\nAll done.\n",
    )
    assert resets(tmp_path) == [1, 0, 0]
    assert run("-r", "-i", "0")[0] == 0
    assert resets(tmp_path) == [2, 0, 0]


def test_without_an_id_all_are_reset(run, cards, tmp_path):
    status, text = run("-r")
    assert (status, resets(tmp_path)) == (0, [1, 1, 1])
    assert text.count("was successfully reset.\n") == 3


def test_its_instances_are_gone_and_mig_mode_stays(run, cards, tmp_path):
    gpu_operations.create_instance(tmp_path, cards[0].uuid, "1g.10gb", 0)
    assert run("-r", "-i", "0")[0] == 0
    card = gpu_state.open_file(tmp_path).read().gpus[0]
    assert (card.gpu_instances, card.mig_enabled) == ([], True)


def refused(run, tmp_path, *ids):
    status, text = run("-r", "-i", ",".join(ids))
    assert status == 255
    assert text.startswith("The following GPUs could not be reset:\n  GPU 00000000:04:00.0: ")
    assert resets(tmp_path) == [0, 0, 0]
    return text


def test_a_card_that_a_session_has_open_is_in_use(run, cards, tmp_path, library):
    library.nvmlInit()
    text = refused(run, tmp_path, "0")
    assert "In use by another client\n\n1 device is currently being used" in text
    library.nvmlShutdown()
    assert run("-r", "-i", "0")[0] == 0


def test_a_card_with_a_process_is_in_use(run, cards, tmp_path):
    gpu_operations.start_process(tmp_path, cards[0].uuid, 4711)
    assert "In use by another client" in refused(run, tmp_path, "0")


def test_persistence_mode_is_a_client(run, library, tmp_path):
    text = refused(run, tmp_path, "0", "1")
    assert "2 devices are currently being used" in text


def test_before_ampere_connected_cards_are_reset_together_only(run, cards, tmp_path):
    gpu_operations.link(tmp_path, cards[1].uuid, cards[2].uuid)
    status, text = run("-r", "-i", "1")
    assert (status, text.strip().splitlines()[-1]) == (255, "2")
    assert "NVLink connected GPUs must be reset together" in text
    assert run("-r", "-i", "1,2")[0] == 0
    assert resets(tmp_path) == [0, 1, 1]


def test_faults_are_met_until_they_are_taken_back(run, cards, tmp_path):
    host_gpu_reset.inject(tmp_path, host_gpu_reset.Fault(fails="Unknown Error"))
    assert "GPU 00000000:04:00.0: Unknown Error\n" in refused(run, tmp_path, "0")
    host_gpu_reset.inject(tmp_path, host_gpu_reset.Fault(is_idle=True))
    assert run("-r", "-i", "0")[0] == 0
    assert resets(tmp_path) == [0, 0, 0]
    host_gpu_reset.inject(tmp_path, host_gpu_reset.Fault(loses=True))
    assert run("-r", "-i", "0")[0] == 0
    assert run("-r", "-i", cards[0].uuid) == (6, "No devices were found\n")


def test_wrong_options_and_cards_are_refused(run, cards, tmp_path):
    assert run("-r", "--all") == (2, 'Option "--all" is not recognized.\n')
    assert run("-r", "-i", "7") == (6, "No devices were found\n")
    assert resets(tmp_path) == [0, 0, 0]
