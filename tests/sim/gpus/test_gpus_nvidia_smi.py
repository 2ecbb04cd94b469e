import shutil
import subprocess

import pytest

from dra_driver.sim.gpus import gpus

SHELLS = {
    "sh": ["sh"],
    "busybox": ["busybox", "sh"],
}
H100 = "NVIDIA H100 80GB HBM3|GPU-c5726ad2-d34b-8cef-760b-3ddf171d7f19"
T4 = "Tesla T4|GPU-8a6ee75c-5f91-4cbc-6cb5-5274aef3eed0"
MIG_3G = f"{H100}|3g.40gb|MIG-c42101f0-a1fa-5b68-8908-7c5c887f28bd"
MIG_1G_ME = f"{H100}|1g.10gb+me|MIG-20301a31-77fa-59ec-b0b8-7ef543821f29"
H100_LISTED = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-c5726ad2-d34b-8cef-760b-3ddf171d7f19)\n"


@pytest.fixture(params=sorted(SHELLS))
def nvidia_smi(request):
    """Runs the stand-in with these GPUs, and without any program of the system in reach."""
    shell, *arguments = SHELLS[request.param]
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell}")

    def run(*options, **environment):
        return subprocess.run(
            [found, *arguments, str(gpus.NVIDIA_SMI), *options],
            env={"PATH": "/nowhere", **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_gpus_are_listed_as_the_real_one_lists_them(nvidia_smi):
    done = nvidia_smi("-L", SIMULATED_GPU_0=H100)

    assert done.stdout == H100_LISTED
    assert (done.returncode, done.stderr) == (0, "")


def test_gpus_are_numbered_by_their_place_in_the_order_of_minor_numbers(nvidia_smi):
    done = nvidia_smi("--list-gpus", SIMULATED_GPU_10=H100, SIMULATED_GPU_9=T4, SIMULATED_GPU_63=T4)

    assert [line.partition(" (")[0] for line in done.stdout.splitlines()] == [
        "GPU 0: Tesla T4",
        "GPU 1: NVIDIA H100 80GB HBM3",
        "GPU 2: Tesla T4",
    ]


@pytest.mark.parametrize("whole", [{}, {"SIMULATED_GPU_2": H100}])
def test_mig_devices_are_listed_below_their_gpu_by_gpu_instance(nvidia_smi, whole):
    done = nvidia_smi("-L", SIMULATED_MIG_2_13=MIG_1G_ME, SIMULATED_MIG_2_1=MIG_3G, **whole)

    assert done.stdout == (
        H100_LISTED
        + "  MIG 3g.40gb     Device  0: (UUID: MIG-c42101f0-a1fa-5b68-8908-7c5c887f28bd)\n"
        "  MIG 1g.10gb+me  Device  1: (UUID: MIG-20301a31-77fa-59ec-b0b8-7ef543821f29)\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_mig_devices_are_numbered_on_each_gpu_by_itself(nvidia_smi):
    done = nvidia_smi(
        "-L",
        SIMULATED_MIG_0_0=MIG_3G,
        SIMULATED_GPU_1=T4,
        SIMULATED_MIG_63_14=MIG_1G_ME,
        SIMULATED_MIG_63_2=MIG_3G,
    )

    assert [line.partition(" (")[0] for line in done.stdout.splitlines()] == [
        "GPU 0: NVIDIA H100 80GB HBM3",
        "  MIG 3g.40gb     Device  0:",
        "GPU 1: Tesla T4",
        "GPU 2: NVIDIA H100 80GB HBM3",
        "  MIG 3g.40gb     Device  0:",
        "  MIG 1g.10gb+me  Device  1:",
    ]


def test_the_table_has_mig_devices_too(nvidia_smi):
    done = nvidia_smi(SIMULATED_MIG_0_9=MIG_1G_ME)

    shown = [" ".join(line.strip("| ").split()) for line in done.stdout.splitlines()]
    assert shown[-3:-1] == [
        "0 NVIDIA H100 80GB HBM3 GPU-c5726ad2-d34b-8cef-760b-3ddf171d7f19",
        "MIG 1g.10gb+me Device 0 MIG-20301a31-77fa-59ec-b0b8-7ef543821f29",
    ]
    assert len({len(line) for line in done.stdout.splitlines()}) == 1


def test_a_container_without_gpus_is_told_so(nvidia_smi):
    done = nvidia_smi("-L")

    assert (done.stdout, done.returncode) == ("No devices found.\n", 6)
    assert (nvidia_smi().stdout, nvidia_smi().returncode) == ("No devices were found\n", 6)


def test_variables_of_others_are_no_gpus(nvidia_smi):
    done = nvidia_smi(
        "-L", SIMULATED_GPU_X=T4, SIMULATED_GPU_64=T4, MY_SIMULATED_GPU_0=T4,
        SIMULATED_MIG_0=MIG_3G, SIMULATED_MIG_0_32=MIG_3G)  # fmt: skip

    assert done.returncode == 6


def test_what_a_variable_holds_is_never_run(nvidia_smi):
    text = "$(echo owned)`echo owned`;echo owned"
    done = nvidia_smi("-L", SIMULATED_MIG_0_1=f"{text}|GPU-%s\\n|{text}|MIG-%s\\n")

    assert done.stdout == (
        f"GPU 0: {text} (UUID: GPU-%s\\n)\n  MIG {text}  Device  0: (UUID: MIG-%s\\n)\n"
    )


def test_the_table_says_that_the_gpus_are_simulated(nvidia_smi):
    done = nvidia_smi(SIMULATED_GPU_0=H100, SIMULATED_GPU_1=T4)

    assert done.returncode == 0
    assert "These GPUs are simulated" in done.stdout
    assert "|   1  Tesla T4 " in done.stdout
    assert "GPU-8a6ee75c-5f91-4cbc-6cb5-5274aef3eed0" in done.stdout
    assert len({len(line) for line in done.stdout.splitlines()}) == 1


@pytest.mark.parametrize("options", [["-q"], ["-L", "-i", "0"], ["--query-gpu=name"]])
def test_an_option_it_does_not_have_is_refused(nvidia_smi, options):
    done = nvidia_smi(*options, SIMULATED_GPU_0=H100)

    assert (done.returncode, done.stdout) == (2, "")
    assert " ".join(options) in done.stderr
    assert "available is -L" in done.stderr


def test_it_says_what_it_can_do(nvidia_smi):
    done = nvidia_smi("--help")

    assert done.returncode == 0
    assert "--list-gpus" in done.stdout


def test_it_can_be_run_as_it_is_mounted():
    assert gpus.NVIDIA_SMI.stat().st_mode & 0o111 == 0o111
    assert gpus.NVIDIA_SMI.read_text(encoding="utf-8").startswith("#!/bin/sh\n")
