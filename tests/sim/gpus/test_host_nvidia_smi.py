"""The stand-in for nvidia-smi of a node, run as the program that it is."""

import subprocess

import pytest

from dra_driver import settings
from dra_driver.sim.gpus import (
    gpu_errors,
    gpu_faults,
    gpu_models,
    gpu_operations,
    gpu_state,
    gpus,
    hardware,
    host_nvidia_smi,
)

pytestmark = pytest.mark.sampled(11)

TABLE = """\
+-------------------------------------+
| GPU compute policies:               |
| GPU     Name           Value        |
|=====================================|
|   0   Timeslice       Default       |
+-------------------------------------+
"""


@pytest.fixture
def machine(tmp_path):
    gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:1,v100-16gb-sxm2:1")
    return tmp_path


@pytest.fixture
def nvidia_smi(machine):
    program = host_nvidia_smi.write(machine)

    def run(*arguments):
        done = subprocess.run(
            [program, *arguments],
            env={},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout

    return run


def cards(machine):
    return gpu_state.open_file(machine).read().gpus


def without_time_slices(machine, index):
    with gpu_state.open_file(machine).edit() as state:
        state.gpus[index].time_slice_supported = False


def test_the_table_is_that_of_the_real_one(nvidia_smi, machine):
    for name in ("0", cards(machine)[0].uuid, cards(machine)[0].pci_address):
        assert nvidia_smi("compute-policy", "-i", name, "-l") == (0, TABLE)
    assert nvidia_smi("compute-policy", "--id=0", "--list") == (0, TABLE)


def test_without_an_id_every_card_has_a_row(nvidia_smi):
    # As with driver 580.159.04 on two H200: a line under each.
    rule = "+-------------------------------------+\n"
    rows = "".join(f"|   {n}   Timeslice       Default       |\n{rule}" for n in (0, 1))

    status, output = nvidia_smi("compute-policy", "-l")

    assert status == 0
    assert rows in output


@pytest.mark.parametrize(
    ("number", "name"), [(0, "Default"), (1, "Short"), (2, "Medium"), (3, "Long")]
)
def test_a_time_slice_is_set_kept_and_shown(nvidia_smi, machine, number, name):
    set_ = nvidia_smi(
        "compute-policy", "-i", cards(machine)[1].uuid, "--set-timeslice", str(number)
    )

    assert set_ == (0, f"Successfully set timeslice policy with value {name} for GPU 1\n")
    assert [card.time_slice for card in cards(machine)] == [0, number]
    _status, output = nvidia_smi("compute-policy", "-i", "1", "-l")
    assert f"|   1   Timeslice       {name:<13} |\n" in output


@pytest.mark.parametrize("number", ["4", "9", "-1", "short", ""])
def test_another_number_is_an_invalid_argument(nvidia_smi, machine, number):
    assert nvidia_smi("compute-policy", "-i", "0", "--set-timeslice", number) == (
        2,
        (
            "Failed to set timeslice policy with value Unknown for GPU 0 : Invalid Argument\n"
            "Failed to set timeslice for requested devices : Invalid Argument\n"
        ),
    )
    assert cards(machine)[0].time_slice == 0


def test_a_card_without_time_slices_says_so(nvidia_smi, machine):
    without_time_slices(machine, 1)

    assert nvidia_smi("compute-policy", "-i", "1", "-l") == (
        3,
        (
            "Failed to get compute policies for GPU 1 : Not Supported\n"
            "Failed to retrieve compute policies for requested devices : Not Supported\n"
        ),
    )
    assert nvidia_smi("compute-policy", "-i", "1", "--set-timeslice", "3") == (
        3,
        (
            "Failed to set timeslice policy with value Long for GPU 1 : Not Supported\n"
            "Failed to set timeslice for requested devices : Not Supported\n"
        ),
    )
    assert cards(machine)[1].time_slice == 0


def test_cards_before_volta_have_none(machine, monkeypatch, capsys):
    older = gpu_models.load("v100-16gb-sxm2").model_copy(update={"compute_capability": (6, 1)})
    monkeypatch.setattr(gpu_models, "load", lambda _name: older)

    status = host_nvidia_smi.main(machine, ["compute-policy", "-i", "1", "-l"])

    assert status == 3
    assert "GPU 1 : Not Supported" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["7", "GPU-00000000-0000-0000-0000-000000000000", "0000:ff:00.0"])
def test_a_card_that_is_not_there_is_not_found(nvidia_smi, name):
    assert nvidia_smi("compute-policy", "-i", name, "-l") == (6, "No devices were found\n")


def test_faults_of_simulated_gpus_are_met(nvidia_smi, machine):
    uuid = cards(machine)[0].uuid
    gpu_faults.inject(machine, uuid=uuid, error=gpu_errors.CODES["NVML_ERROR_GPU_IS_LOST"])
    status, output = nvidia_smi("compute-policy", "-i", uuid, "--set-timeslice", "1")
    assert (status, "GPU is lost" in output) == (15, True)

    gpu_faults.clear(machine)
    gpu_faults.inject(
        machine,
        function="nvmlInitWithFlags",
        error=gpu_errors.CODES["NVML_ERROR_DRIVER_NOT_LOADED"],
    )
    status, output = nvidia_smi("compute-policy", "-i", uuid, "-l")
    assert (status, "Driver Not Loaded" in output) == (9, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compute-policy", "--nonsense"], 'Option "--nonsense" is not recognized.\n'),
        (["compute-policy", "-i"], 'Option "-i" is not recognized.\n'),
        (["compute-policy"], "One, and only one, compute-policy command allowed at a time\n"),
        (
            ["compute-policy", "-l", "--set-timeslice", "1"],
            "One, and only one, compute-policy command allowed at a time\n",
        ),
    ],
)
def test_wrong_options_are_refused(nvidia_smi, arguments, said):
    assert nvidia_smi(*arguments) == (2, said)


@pytest.mark.parametrize("arguments", [[], ["-L"]])
def test_what_it_cannot_do_it_says(nvidia_smi, arguments):
    status, output = nvidia_smi(*arguments)

    assert status == 2
    assert "the GPUs are simulated; available is compute-policy, and --gpu-reset" in output


def test_help_names_the_time_slices(nvidia_smi):
    status, output = nvidia_smi("compute-policy", "-h")

    assert status == 0
    assert "0=DEFAULT, 1=SHORT, 2=MEDIUM, 3=LONG" in output


def test_a_reboot_forgets_time_slices(nvidia_smi, machine):
    nvidia_smi("compute-policy", "-i", "0", "--set-timeslice", "3")

    gpu_operations.reboot(machine)

    assert cards(machine)[0].time_slice == 0


def test_a_simulated_node_has_it_for_its_agent(tmp_path):
    config = settings.KubeletPlugin(
        node_name="here", simulate_gpus="t4:1", simulation_dir=tmp_path / "simulation"
    )
    found = hardware.simulated(config)
    [card] = cards(tmp_path / "simulation")

    found.nvidia_smi.set_time_slice(card.uuid, 2)

    assert found.nvidia_smi.time_slice(card.uuid) == 2
    assert cards(tmp_path / "simulation")[0].time_slice == 2
