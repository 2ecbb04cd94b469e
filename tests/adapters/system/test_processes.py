import os
import pathlib
import threading

import pytest

from dra_driver.adapters.system import processes

UID = "1c0f5a3e-9b1d-4c5e-8a77-0123456789ab"
UNDERSCORES = UID.replace("-", "_")
STATIC = "0123456789abcdef0123456789abcdef"
CONTAINER = "f" * 64
SYSTEMD = "/kubepods.slice/kubepods-burstable.slice"
NESTED = "containerd.service/kubepods"


@pytest.fixture
def proc(tmp_path):
    def write(pid=4711, **files):
        directory = tmp_path / str(pid)
        directory.mkdir()
        for name, content in files.items():
            (directory / name).write_bytes(content.encode(errors="surrogateescape"))
        return processes.Processes(tmp_path).describe(pid)

    return write


@pytest.mark.parametrize(
    "cgroup",
    [
        # systemd driver, cgroup v2: containerd, CRI-O, a guaranteed pod
        f"0::{SYSTEMD}/kubepods-burstable-pod{UNDERSCORES}.slice/cri-containerd-{CONTAINER}.scope",
        f"0::{SYSTEMD}/kubepods-besteffort-pod{UNDERSCORES}.slice/crio-{CONTAINER}.scope/container",
        f"0::/kubepods.slice/kubepods-pod{UNDERSCORES}.slice/cri-containerd-{CONTAINER}.scope",
        # cgroupfs driver, cgroup v2 and v1
        f"0::/kubepods/burstable/pod{UID}/{CONTAINER}",
        f"0::/kubepods/pod{UID}",
        f"9:cpu,cpuacct:/\n8:memory:/kubepods/besteffort/pod{UID}/{CONTAINER}\n0::/system.slice",
        f"8:memory:/kubepods/besteffort/pod{UID}\n0::/",
        # systemd driver, cgroup v1
        f"2:pids:/\n1:name=systemd:{SYSTEMD}/kubepods-pod{UNDERSCORES}.slice/docker-{CONTAINER}.scope",
        # containerd below its own service
        f"4:devices:/system.slice/{NESTED}-burstable-pod{UNDERSCORES}.slice:cri-containerd:{CONTAINER}",
        # kind
        f"0::/kubelet.slice/kubelet-kubepods-burstable-pod{UNDERSCORES}.slice/crio-{CONTAINER}.scope",
        # as another container sees it, from a cgroup namespace of its own
        f"0::/../../kubepods-besteffort-pod{UNDERSCORES}.slice/cri-containerd-{CONTAINER}.scope",
        f"0::/../../pod{UID}/{CONTAINER}",
        # a pod in a pod: the node's kubelet knows the outer one
        f"0::/kubepods/burstable/pod{UID}/{CONTAINER}/kubepods/pod{UID.replace('1c', '2d')}/x",
    ],
)
def test_the_pod_is_told_by_the_cgroup(proc, cgroup):
    assert proc(comm="python3\n", cgroup=f"{cgroup}\n") == processes.Process(4711, "python3", UID)


def test_a_static_pod_has_digits_only(proc):
    cgroup = f"0::/kubepods.slice/kubepods-burstable-pod{STATIC}.slice/crio-{CONTAINER}.scope\n"
    assert proc(cgroup=cgroup).pod_uid == STATIC


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/",
        "0::/user.slice/user-0.slice/session-1.scope",
        f"0::/machine.slice/libpod-{CONTAINER}.scope",
        f"0::/system.slice/docker-{CONTAINER}.scope",
        "0::/kubepods.slice/kubepods-burstable.slice",
        f"0::/machine.slice/libpod_pod_{CONTAINER}.slice",
        f"0::/my/pod{UID}0/x",
        f"0::/my/pod{UID}-x.slice",
        f"0::/my/tripod{UID}/x",
    ],
)
def test_other_cgroups_are_no_pods(proc, cgroup):
    assert proc(comm="python3\n", cgroup=f"{cgroup}\n") == processes.Process(4711, "python3")


def test_a_process_without_a_name_is_called_after_its_program(proc):
    assert proc(comm="\n", cmdline="/usr/bin/python3\0-m\0x").command == "python3"


@pytest.mark.parametrize("files", [{"cmdline": "train\0"}, {"comm": "", "cmdline": "./train"}])
def test_a_program_is_named_without_its_path(proc, files):
    assert proc(**files).command == "train"


def test_a_name_cannot_control_a_terminal(proc):
    assert proc(comm="a\x1b[2Jb\nc\udcff\n").command == "a[2Jbc\ufffd"


def test_of_a_process_that_is_not_visible_only_the_number_is_known():
    beyond = 2**22 + 1  # the kernel numbers no process so high
    assert processes.Processes(pathlib.Path("/proc")).describe(beyond) == processes.Process(beyond)


def test_this_process_is_found():
    found = processes.Processes(pathlib.Path("/proc")).describe(os.getpid())
    comm = pathlib.Path("/proc/self/comm").read_text(encoding="utf-8").strip()
    assert (found.pid, found.command) == (os.getpid(), comm)


@pytest.mark.parametrize(
    ("process", "text"),
    [
        (processes.Process(4711, "python3", UID), f"python3 (pid 4711, pod {UID})"),
        (processes.Process(4711, "python3"), "python3 (pid 4711)"),
        (processes.Process(4711, None, UID), f"pid 4711, pod {UID}"),
        (processes.Process(4711), "pid 4711"),
    ],
)
def test_a_process_reads_as_in_messages(process, text):
    assert str(process) == text


def status(uid, *pids):
    numbers = "\t".join(map(str, pids))
    return f"Name:\tpython3\nUid:\t{uid}\t0\t0\t0\nNSpid:\t{numbers}\n"


def test_processes_are_found_by_what_is_in_their_command_lines(proc, tmp_path):
    proc(7, status=status(0, 7), cmdline="write\0there\0")
    proc(8, status=status(0, 8), cmdline="write\0elsewhere\0")
    proc("self", status=status(0, 1), cmdline="plugin\0")

    assert processes.Processes(tmp_path).running("write", "there") == [7]
    assert processes.Processes(tmp_path).running("write") == [7, 8]


@pytest.mark.parametrize("facts", [status(0, 9, 1), status(1000, 9), status(65536, 9, 2, 1), ""])
def test_a_process_of_a_pod_does_not_pass_for_one_of_ours(proc, tmp_path, facts):
    proc("self", status=status(0, 1))
    proc(9, status=facts, cmdline="write\0there\0")

    assert processes.Processes(tmp_path).running("write", "there") == []


def test_the_command_line_of_a_process_of_a_pod_is_not_read_as_that_may_hang(proc, tmp_path):
    proc("self", status=status(0, 1))
    proc(9, status=status(0, 9, 1))
    os.mkfifo(tmp_path / "9/cmdline")
    found = []
    looker = threading.Thread(
        target=lambda: found.append(processes.Processes(tmp_path).running("write")), daemon=True
    )
    looker.start()

    looker.join(10)

    assert found == [[]]


def test_where_this_process_is_not_in_procfs_all_count(proc, tmp_path):
    proc(9, status=status(0, 9, 1), cmdline="write\0there\0")

    assert processes.Processes(tmp_path).running("write", "there") == [9]
