"""Time slices through nvidia-smi: scripts that answer as the real one, and the simulated one."""

import os
import pathlib
import subprocess

import polling
import pytest

from dra_driver import errors
from dra_driver.adapters.driver import driver_programs, driver_root
from dra_driver.adapters.nvml import nvidia_smi, nvml, nvml_errors
from dra_driver.model import sharing
from dra_driver.sim.gpus import gpu_errors, gpu_faults, gpu_state, gpus, host_nvidia_smi

pytestmark = pytest.mark.sampled(7)

UUID = "GPU-c5726ad2-d34b-8cef-760b-3ddf171d7f19"
OTHER = "GPU-9ad0d63e-9488-65b6-f430-7fef5b11e397"
TABLE = """\
+-------------------------------------+
| GPU compute policies:               |
| GPU     Name           Value        |
|=====================================|
{rows}
+-------------------------------------+
"""
ROW = "|   0   Timeslice       Default       |"


@pytest.fixture
def script(tmp_path):
    """The adapter over a shell script."""

    def made(body, *, seconds=60.0, **environment):
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        program = driver_programs.Program(path, environment)
        return nvidia_smi.NvidiaSmi(lambda: program, seconds=seconds)

    return made


@pytest.fixture
def saying(script):
    """The adapter over a program that says this and ends with this status."""

    def made(text, status=0, stream=1):
        return script(f"cat >&{stream} <<'END'\n{text}\nEND\nexit {status}")

    return made


@pytest.fixture
def machine(tmp_path):
    directory = tmp_path / "simulation"
    gpus.SimulatedNvml(directory, spec="h100-80gb-hbm3:2")
    return directory


@pytest.fixture
def simulated(machine):
    program = driver_programs.Program(host_nvidia_smi.write(machine), {})
    return nvidia_smi.NvidiaSmi(lambda: program)


def state_of(machine, index=0):
    return gpu_state.open_file(machine).read().gpus[index]


@pytest.mark.parametrize(
    ("value", "number"), [("Default", 0), ("Short", 1), ("Medium", 2), ("Long", 3)]
)
def test_the_value_in_the_table_is_a_number(saying, value, number):
    table = TABLE.format(rows=f"|   0   Timeslice       {value:<13} |")

    assert saying(table).time_slice(UUID) == number


def test_other_policies_are_passed_over(saying):
    table = TABLE.format(rows=f"|   0   Preemption      Long          |\n{ROW}")

    assert saying(table).time_slice(UUID) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        ROW,
        TABLE.format(rows=""),
        TABLE.format(rows=f"{ROW}\n{ROW}"),
        TABLE.format(rows=ROW.replace("Default  ", "Very Long")),
        TABLE.format(rows=ROW.replace("Default", "default")),
        TABLE.format(rows=ROW.replace("Timeslice", "Timesplit")),
        TABLE.format(rows=ROW).replace("compute policies", "something else  "),
    ],
)
def test_an_answer_that_is_no_such_table_is_rejected_and_shown(saying, text):
    with pytest.raises(errors.Rejected, match=r"expected a table.*Default, Short") as caught:
        saying(text).time_slice(UUID)

    assert type(caught.value) is errors.Rejected
    assert repr(f"{text}\n") in str(caught.value)


NOT_SUPPORTED = [
    ("Failed to get compute policies for GPU 0 : Not Supported", 3),
    ("Failed to retrieve compute policies for requested devices : Not Supported", 255),
    ("Setting time slice is not supported on this GPU.", 1),
    ("", 3),
    (TABLE.format(rows="|   0   Timeslice       Not Supported |"), 0),
]


@pytest.mark.parametrize(("text", "status"), NOT_SUPPORTED)
def test_a_card_without_time_slices_tells_none(saying, text, status):
    assert saying(text, status).time_slice(UUID) is None


@pytest.mark.parametrize(("text", "status"), NOT_SUPPORTED)
def test_a_card_without_time_slices_refuses_one(saying, text, status):
    with pytest.raises(nvidia_smi.NotSupported, match=f"^{UUID}: setting .*has no time slices"):
        saying(text, status).set_time_slice(UUID, 2)


@pytest.mark.parametrize(
    ("text", "status", "kind", "remedy"),
    [
        ("No devices were found", 6, nvml_errors.GpuGone, "no such GPU"),
        ("GPU is lost. Reboot the system", 15, nvml_errors.GpuGone, "reset the GPU"),
        ("Failed: Insufficient Permissions", 4, errors.Rejected, "as root"),
        ('Option "compute-policy" is not recognized.', 2, errors.Rejected, "newer driver"),
        ("Function Not Found", 13, errors.Rejected, "newer driver"),
        ("couldn't communicate with the NVIDIA driver", 9, errors.Retryable, "ended with 9"),
        ("Unknown Error", 255, errors.Retryable, "ended with 255"),
    ],
)
@pytest.mark.parametrize("stream", [1, 2])
def test_failures_say_what_was_done_and_what_the_program_said(
    saying, text, status, kind, remedy, stream
):
    adapter = saying(text, status, stream)

    for call in (adapter.time_slice, lambda uuid: adapter.set_time_slice(uuid, 1)):
        with pytest.raises(kind) as caught:
            call(UUID)

        assert type(caught.value) is kind
        assert str(caught.value).startswith(f"{UUID}: ")
        assert text in str(caught.value)
        assert remedy in str(caught.value)


def test_a_program_that_is_not_there_yet_may_come(tmp_path):
    layout = driver_root.Layout(driver_root.Root("/run/nvidia/driver", tmp_path))

    def found():
        return driver_programs.find(layout, nvidia_smi.PROGRAM, library=nvidia_smi.LIBRARY)

    with pytest.raises(errors.Retryable, match=f"below '{tmp_path}'"):
        nvidia_smi.NvidiaSmi(found).time_slice(UUID)


def test_a_program_that_has_just_gone_may_come_back(tmp_path):
    gone = driver_programs.Program(tmp_path / "gone", {})

    with pytest.raises(errors.Retryable, match=f"{tmp_path}/gone cannot be run"):
        nvidia_smi.NvidiaSmi(lambda: gone).time_slice(UUID)


def test_a_program_that_may_not_be_run_is_rejected(tmp_path):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
    program = driver_programs.Program(tmp_path / "nvidia-smi", {})

    with pytest.raises(errors.Rejected, match=r"nvidia-smi cannot be run: .*Permission denied"):
        nvidia_smi.NvidiaSmi(lambda: program).time_slice(UUID)


@pytest.fixture
def time_begins(monkeypatch):
    """Has the time of a program begin when it has written a line to a file."""
    communicate = subprocess.Popen.communicate

    def begin(path):
        def later(*arguments, **options):
            polling.until(lambda: path.exists() and path.read_text().endswith("\n"))
            return communicate(*arguments, **options)

        monkeypatch.setattr(subprocess.Popen, "communicate", later)

    return begin


def test_a_program_that_hangs_is_given_up_and_nothing_of_it_is_left(script, tmp_path, time_begins):
    pids = tmp_path / "pids"
    time_begins(pids)
    adapter = script(f"sleep 600 &\necho $$ $! >{pids}\nwait", seconds=0.5)

    with pytest.raises(errors.Retryable, match=r"did not end within 0\.5 s.*Xid"):
        adapter.time_slice(UUID)

    polling.until(lambda: not any(is_running(pid) for pid in pids.read_text().split()))


def test_a_child_that_keeps_the_output_open_does_not_hold_it_up(script, tmp_path, time_begins):
    pid = tmp_path / "pid"
    time_begins(pid)
    adapter = script(f"sleep 600 &\necho $! >{pid}", seconds=0.5)

    with pytest.raises(errors.Retryable, match="did not end"):
        adapter.time_slice(UUID)

    polling.until(lambda: not is_running(pid.read_text().strip()))


def is_running(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in {"Z", "X"}


def test_the_program_gets_its_own_variables_and_no_others(script, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBE_TOKEN", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    seen = tmp_path / "environ"
    adapter = script(f"cat /proc/$$/environ >{seen}\nexit 3", LD_LIBRARY_PATH="/root/lib")

    adapter.time_slice(UUID)

    assert seen.read_bytes() == b"LD_LIBRARY_PATH=/root/lib\0"


def test_the_program_reads_nothing_of_ours(script, tmp_path):
    """Standard input of this process is one that would never end."""
    reader, writer = os.pipe()
    saved = os.dup(0)
    os.dup2(reader, 0)
    try:
        assert script("read line && exit 1\nexit 3").time_slice(UUID) is None
    finally:
        os.dup2(saved, 0)
        for descriptor in (saved, reader, writer):
            os.close(descriptor)


@pytest.mark.parametrize("uuid", ["-h", "0", "", "MIG-1", f"{UUID},1", f"{UUID}\n", "GPU-1 GPU-2"])
def test_what_is_no_uuid_of_one_whole_gpu_reaches_no_program(script, tmp_path, uuid):
    adapter = script(f"touch {tmp_path}/ran\nexit 3")

    for call in (adapter.time_slice, lambda uuid: adapter.set_time_slice(uuid, 1)):
        with pytest.raises(errors.Rejected, match="expected the UUID of a whole GPU"):
            call(uuid)

    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("number", [-1, 4])
def test_there_are_four_time_slices(simulated, machine, number):
    with pytest.raises(errors.Rejected, match=rf"time slice {number}: it is one of 0 \(Default\)"):
        simulated.set_time_slice(state_of(machine).uuid, number)


@pytest.mark.parametrize("interval", sharing.Interval)
def test_a_time_slice_is_set_on_that_card_alone_and_read_back(simulated, machine, interval):
    uuids = [state_of(machine, index).uuid for index in (0, 1)]

    simulated.set_time_slice(uuids[1], interval.number)

    assert state_of(machine, 1).time_slice == interval.number
    assert [simulated.time_slice(uuid) for uuid in uuids] == [0, interval.number]


def test_a_time_slice_that_does_not_stay_is_an_error(saying):
    with pytest.raises(errors.Retryable, match=r"now it is 0.*persistence mode"):
        saying(TABLE.format(rows=ROW)).set_time_slice(UUID, 3)


def test_a_simulated_card_that_is_lost_is_gone(simulated, machine):
    uuid = state_of(machine).uuid
    gpu_faults.inject(machine, uuid=uuid, error=gpu_errors.CODES["NVML_ERROR_GPU_IS_LOST"])

    with pytest.raises(nvml_errors.GpuGone, match=uuid):
        simulated.set_time_slice(uuid, 1)


needs_a_gpu = pytest.mark.skipif(
    not pathlib.Path("/dev/nvidiactl").exists(), reason="no NVIDIA driver on this machine"
)


@pytest.mark.gpu
@needs_a_gpu
def test_a_real_card_tells_its_time_slice():
    here = driver_root.Layout(driver_root.Root("/", pathlib.Path("/")))
    real = nvidia_smi.NvidiaSmi(
        lambda: driver_programs.find(here, nvidia_smi.PROGRAM, library=nvidia_smi.LIBRARY)
    )

    for gpu in nvml.Nvml().discover().gpus:
        assert real.time_slice(gpu.uuid) in {0, 1, 2, 3}
    with pytest.raises(nvml_errors.GpuGone):
        real.time_slice("GPU-00000000-0000-0000-0000-000000000000")


def test_cards_that_all_have_time_slices_are_one_question(script, tmp_path):
    rows = f"{ROW}\n+-------------------------------------+\n{ROW.replace('   0 ', '   1 ')}"
    count = tmp_path / "count"
    smi = script(f"echo >>{count}\ncat <<'END'\n{TABLE.format(rows=rows)}\nEND")
    assert smi.with_time_slices([UUID, OTHER]) == {UUID, OTHER}
    assert count.read_text() == "\n"


def test_where_a_card_has_none_each_is_asked(simulated, machine):
    first, second = (gpu.uuid for gpu in gpu_state.open_file(machine).read().gpus)
    assert simulated.with_time_slices([first, second]) == {first, second}
    with gpu_state.open_file(machine).edit() as state:
        state.gpus[0].time_slice_supported = False
    assert simulated.with_time_slices([first, second]) == {second}
    assert host_nvidia_smi.with_time_slices(machine, [first, second]) == [second]


def test_what_fails_is_no_answer(saying):
    with pytest.raises(errors.Rejected, match="as root"):
        saying("Insufficient Permissions", 4).with_time_slices([UUID])
