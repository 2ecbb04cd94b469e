"""What a container gets for CDI names, and the runtime that only pretends to run."""

import json
import subprocess
import threading

import pytest

from dra_driver import errors
from dra_driver.sim.cluster import runtime
from dra_driver.sim.gpus import gpus

KIND = "k8s.gpu.nvidia.com/claim"


@pytest.fixture
def write(tmp_path):
    """Writes a spec: its common edits, and the edits of its devices."""

    def write(name, *, common=None, kind=KIND, **devices):
        spec = {
            "cdiVersion": "0.5.0",
            "kind": kind,
            "devices": [
                {"name": key.replace("_", "-"), "containerEdits": edits}
                for key, edits in devices.items()
            ],
        }
        if common is not None:
            spec["containerEdits"] = common
        (tmp_path / name).write_text(json.dumps(spec))

    return write


def mount(inside, outside):
    return {"containerPath": inside, "hostPath": outside}


def resolve(directory, *names):
    return runtime.resolve(directory, [f"{KIND}={name}" for name in names])


# resolve


def test_a_device_brings_its_edits_and_those_common_to_its_spec(tmp_path, write):
    write(
        "a.json",
        common={"env": ["ALL=1"], "deviceNodes": [{"path": "/dev/nvidiactl"}]},
        gpu_0={"env": ["B=2", "A=x=y"], "deviceNodes": [{"path": "/dev/nvidia0"}]},
        gpu_1={"env": ["NOT=mine"]},
    )
    assert resolve(tmp_path, "gpu-0") == runtime.View(
        env={"A": "x=y", "ALL": "1", "B": "2"},
        device_nodes=("/dev/nvidiactl", "/dev/nvidia0"),
        mounts=(),
        output=(),
    )


def test_a_device_that_is_named_twice_is_injected_once(tmp_path, write):
    write(
        "a.json",
        common={"mounts": [mount("/usr/bin/nvidia-smi", "/host/smi")]},
        gpu_0={"env": ["A=1"], "deviceNodes": [{"path": "/dev/nvidia0"}]},
    )
    assert resolve(tmp_path, "gpu-0", "gpu-0") == resolve(tmp_path, "gpu-0")
    assert resolve(tmp_path, "gpu-0", "gpu-0").device_nodes == ("/dev/nvidia0",)


def test_of_two_values_the_later_device_wins(tmp_path, write):
    write("a.json", gpu_0={"env": ["A=first"], "mounts": [mount("/x", "/host/first")]})
    write("b.json", gpu_1={"env": ["A=second"], "mounts": [mount("/x", "/host/second")]})
    forth, back = resolve(tmp_path, "gpu-0", "gpu-1"), resolve(tmp_path, "gpu-1", "gpu-0")
    assert (forth.env, forth.mounts) == ({"A": "second"}, (("/host/second", "/x"),))
    assert (back.env, back.mounts) == ({"A": "first"}, (("/host/first", "/x"),))


def test_common_edits_do_not_come_back_with_the_second_device_of_a_spec(tmp_path, write):
    write("a.json", common={"env": ["A=common"]}, gpu_0={"env": ["A=own"]}, gpu_1={})
    assert resolve(tmp_path, "gpu-0", "gpu-1").env == {"A": "own"}


def test_devices_of_several_specs_come_together(tmp_path, write):
    write("a.json", gpu_0={"env": ["A=1"]})
    write("b.json", gpu_1={"env": ["B=1"]})
    assert resolve(tmp_path, "gpu-0", "gpu-1").env == {"A": "1", "B": "1"}


@pytest.mark.parametrize(
    "name", [f"{KIND}=gpu-9", "other.vendor/claim=gpu-0", "gpu-0", f"{KIND}=", ""]
)
def test_a_name_that_no_spec_has_is_refused(tmp_path, write, name):
    write("a.json", gpu_0={})
    with pytest.raises(errors.Rejected) as refusal:
        runtime.resolve(tmp_path, [name])
    assert str(refusal.value) == (
        f"CDI device {name!r}: unresolvable, 0 specs in {tmp_path} have it"
    )


def test_a_name_that_two_specs_have_is_refused_for_all_engines_do(tmp_path, write):
    write("a.json", gpu_0={"env": ["A=1"]})
    write("b.json", gpu_0={"env": ["A=2"]})
    with pytest.raises(errors.Rejected, match="2 specs"):
        resolve(tmp_path, "gpu-0")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"devices": {}}', "\u00e9\x00"])
def test_a_broken_spec_is_no_obstacle_for_other_claims(tmp_path, write, text):
    write("b.json", gpu_0={"env": ["A=1"]})
    (tmp_path / "a.json").write_text(text)
    assert resolve(tmp_path, "gpu-0").env == {"A": "1"}


def test_what_is_still_being_written_is_not_read(tmp_path, write):
    write(".a.json.new", gpu_0={})
    with pytest.raises(errors.Rejected, match="unresolvable"):
        resolve(tmp_path, "gpu-0")


def test_no_names_give_nothing(tmp_path):
    assert runtime.resolve(tmp_path, []) == runtime.View({}, (), (), ())


# Containers that are not run


def container(*names, **env):
    return runtime.Container("uid", "main", (), env, tuple(f"{KIND}={name}" for name in names))


def start(directory, asked):
    return runtime.PretendedRuntime(directory).start(asked, lambda: None)


@pytest.fixture
def with_nvidia_smi(write):
    smi = mount("/usr/bin/nvidia-smi", str(gpus.NVIDIA_SMI))
    write(
        "a.json",
        common={"mounts": [smi]},
        gpu_1={"env": ["SIMULATED_GPU_1=Tesla T4|GPU-1"]},
        gpu_3={"env": ["SIMULATED_GPU_3=NVIDIA H100 80GB HBM3|GPU-3"]},
    )


def test_the_output_is_that_of_nvidia_smi_with_the_variables_of_the_devices(
    tmp_path, with_nvidia_smi
):
    running = start(tmp_path, container("gpu-3", "gpu-1"))
    assert running.view().output == (
        "GPU 0: Tesla T4 (UUID: GPU-1)",
        "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-3)",
    )


def test_a_variable_of_the_pod_does_not_override_that_of_a_device(tmp_path, with_nvidia_smi):
    running = start(tmp_path, container("gpu-1", SIMULATED_GPU_1="No|GPU-no"))
    assert running.view().output == ("GPU 0: Tesla T4 (UUID: GPU-1)",)
    assert running.view().env == {"SIMULATED_GPU_1": "Tesla T4|GPU-1"}


def test_variables_of_this_process_do_not_reach_the_container(
    tmp_path, with_nvidia_smi, monkeypatch
):
    monkeypatch.setenv("SIMULATED_GPU_0", "Leaked|GPU-0")
    assert start(tmp_path, container("gpu-1")).view().output == ("GPU 0: Tesla T4 (UUID: GPU-1)",)


def test_without_nvidia_smi_there_is_no_output(tmp_path, write):
    write("a.json", gpu_0={"env": ["A=1"]})
    assert start(tmp_path, container("gpu-0")).view() == runtime.View({"A": "1"}, (), (), ())


def asked(*command):
    return runtime.Container("uid", "main", command, {}, ())


@pytest.mark.parametrize("command", [("sleep", "0.05"), ("sh", "-c", "nvidia-smi -L; sleep 0.05")])
def test_a_container_that_ends_with_a_sleep_ends_by_itself_with_status_0(tmp_path, command):
    ended = threading.Event()
    running = runtime.PretendedRuntime(tmp_path).start(asked(*command), ended.set)
    assert ended.wait(60)
    assert running.status() == 0
    running.stop()
    assert running.status() == 0


def test_a_container_that_is_stopped_before_its_end_does_not_end_by_itself(tmp_path):
    ended = threading.Event()
    running = runtime.PretendedRuntime(tmp_path).start(asked("sleep", "600"), ended.set)
    assert running.status() is None
    running.stop()
    running._timer.join(60)
    assert not running._timer.is_alive()
    assert running.status() is None
    assert not ended.is_set()


def test_a_container_without_an_end_runs_until_it_is_stopped(tmp_path):
    ended = threading.Event()
    running = runtime.PretendedRuntime(tmp_path).start(asked("python", "train.py"), ended.set)
    assert running.status() is None
    running.stop()
    assert running.status() is None
    assert not ended.is_set()


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("nvidia-smi", "-L"), 0),
        (("/usr/bin/nvidia-smi",), 0),
        (("sh", "-c", "nvidia-smi -L; echo done"), 0),
        (("true",), 0),
        (("false",), 1),
        (("bash", "-c", "nvidia-smi && exit 3"), 3),
        (("sh", "-c", "exit 256"), 0),
    ],
)
def test_a_command_that_is_done_at_once_ends_at_once(tmp_path, command, status):
    ended = threading.Event()
    running = runtime.PretendedRuntime(tmp_path).start(asked(*command), ended.set)
    assert ended.wait(60)
    assert running.status() == status


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("python", "train.py"),
        ("sleep", "infinity"),
        ("sh", "-c", "exit"),
        ("sh", "-c", "exit later"),
        ("sh", "-c", "exit 3; python train.py"),
        ("sh", "-c", "nvidia-smi; sleep 9999 & wait"),
    ],
)
def test_of_other_commands_no_end_is_known(command):
    assert runtime.end_of(command) is None


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        (("sleep", "5"), 5),
        (("/usr/bin/sleep", "0.5"), 0.5),
        (("sleep", "2m"), 120),
        (("sh", "-c", "sleep 5"), 5),
        (("bash", "-c", "nvidia-smi -L; sleep 5"), 5),
        (("sh", "-c", "nvidia-smi -L && sleep 5;\n"), 5),
        (("sh", "-c", "nvidia-smi -L\n/bin/sleep '5'\n"), 5),
    ],
)
def test_a_command_that_ends_with_a_sleep_takes_that_long(command, seconds):
    assert runtime.sleep_seconds(command) == seconds


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("nvidia-smi", "-L"),
        ("sleep",),
        ("sleep", "infinity"),
        ("sleep", "1000000"),
        ("sleep", "1d"),
        ("sleep", "5", "6"),
        ("echo", "sleep", "5"),
        ("sh", "-c"),
        ("sh", "-c", ""),
        ("sh", "-c", "sleep 5; nvidia-smi"),
        ("sh", "-c", "nvidia-smi -L; sleep infinity"),
        ("sh", "-c", "echo sleep 5"),
        ("sh", "-c", "sleep '5"),
        ("sh", "sleep", "5"),
    ],
)
def test_other_commands_have_no_end_of_their_own(command):
    assert runtime.sleep_seconds(command) is None


def test_a_container_with_an_unknown_device_does_not_start(tmp_path):
    with pytest.raises(errors.Rejected, match="unresolvable"):
        start(tmp_path, container("gpu-0"))


def test_a_container_whose_environment_is_impossible_does_not_start(tmp_path, with_nvidia_smi):
    with pytest.raises(errors.Retryable, match="null byte"):
        start(tmp_path, container("gpu-1", SIMULATED_GPU_9="a\0b"))


def test_no_variable_of_a_pod_but_those_of_devices_reaches_a_shell(
    tmp_path, with_nvidia_smi, monkeypatch
):
    environments = []
    run = subprocess.run

    def noting(command, **options):
        environments.append(options["env"])
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", noting)
    touched = tmp_path / "touched"
    script = tmp_path / "script.sh"
    script.write_text(f"touch {touched}\n")
    tricks = {
        "ENV": str(script), "BASH_ENV": str(script), "PATH": str(tmp_path), "IFS": "I",
        "LD_PRELOAD": str(script), "LD_LIBRARY_PATH": str(tmp_path), "PS4": f"$(touch {touched})",
        "SHELLOPTS": "xtrace", "BASH_FUNC_echo%%": f"() {{ touch {touched}; }}",
        "SIMULATED_": "x", "SIMULATED_x": "x", "SIMULATED_GPU_2\n": "x",
        "SIMULATED_GPU_5": f"$(touch {touched})|`touch {touched}`",
    }  # fmt: skip
    shown = start(tmp_path, container("gpu-1", **tricks)).view().output
    assert shown == (
        "GPU 0: Tesla T4 (UUID: GPU-1)",
        f"GPU 1: $(touch {touched}) (UUID: `touch {touched}`)",
    )
    assert [set(each) for each in environments] == [{"SIMULATED_GPU_1", "SIMULATED_GPU_5"}]
    assert not touched.exists()
