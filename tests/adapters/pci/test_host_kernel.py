"""Files are written by real processes; one that hangs is left behind, and found."""

import errno
import os
import pathlib
import threading

import polling
import pytest

from dra_driver.adapters.pci import host_kernel, pci_kernel

PROC = pathlib.Path("/proc")
ADDRESS = f"{os.getpid() & 0xFFFF:04x}:41:00.0"
"""Of this process: others may run these tests on the same machine at the same time."""
OTHER = ADDRESS.replace(":41:", ":42:")
SHORT = 0.2
AMPLE = 60.0


@pytest.fixture
def kernel():
    return host_kernel.HostKernel(pathlib.Path("/"), PROC)


def state(pid):
    """The state of a process as proc(5) has it; None once nobody knows of it."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def test_the_text_is_written_and_nothing_else(kernel, tmp_path):
    path = tmp_path / "bind"
    path.write_text("")

    kernel.write(path, f"{ADDRESS}\n", AMPLE)

    assert path.read_text() == f"{ADDRESS}\n"
    assert kernel.hanging(ADDRESS) == ()


def test_a_text_is_no_code_and_no_option(kernel, tmp_path):
    path = tmp_path / "bind"
    path.write_text("")

    for text in ("-c", "'; import os; os.abort()", "$(reboot)", "ünd"):
        path.write_text("")
        kernel.write(path, text, AMPLE)
        assert path.read_text() == text


def test_a_file_that_is_not_there_is_not_made(kernel, tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        kernel.write(tmp_path / "bind", ADDRESS, AMPLE)

    assert caught.value.filename == str(tmp_path / "bind")
    assert not (tmp_path / "bind").exists()


@pytest.mark.parametrize(
    ("path", "code"),
    [("/dev/full", errno.ENOSPC), ("/", errno.EISDIR), ("/dev/null/x", errno.ENOTDIR)],
)
def test_what_the_kernel_says_is_told(kernel, path, code):
    with pytest.raises(OSError) as caught:
        kernel.write(pathlib.Path(path), ADDRESS, AMPLE)

    assert caught.value.errno == code


def test_a_process_that_does_not_come_to_it_is_an_error(kernel, tmp_path, monkeypatch):
    monkeypatch.setattr(host_kernel, "_SCRIPT", "raise SystemExit(3)")

    with pytest.raises(OSError, match="ended with 3"):
        kernel.write(tmp_path, ADDRESS, AMPLE)


def test_a_write_that_hangs_is_left_behind_and_found_until_it_is_done(kernel, tmp_path):
    path = tmp_path / "unbind"
    os.mkfifo(path)

    with pytest.raises(pci_kernel.Hung, match=rf"'{ADDRESS}' to {path} did not end within 0\.2 s"):
        kernel.write(path, ADDRESS, SHORT)

    [pid] = kernel.hanging(ADDRESS)
    assert kernel.hanging(OTHER) == ()
    # By who comes after us, too; and no signal to our group is for it.
    assert host_kernel.HostKernel(tmp_path, PROC).hanging(ADDRESS) == (pid,)
    assert os.getsid(pid) == pid
    # It knows none of our secrets, however long it stays.
    assert (PROC / str(pid) / "environ").read_bytes() == b""
    with path.open() as reader:
        assert reader.read() == ADDRESS
    polling.until(lambda: state(pid) in {None, "Z"})
    assert kernel.hanging(ADDRESS) == ()
    assert state(pid) is None


def test_what_is_not_asked_for_again_is_no_zombie_after_the_next_write(kernel, tmp_path):
    fifo, file = tmp_path / "unbind", tmp_path / "bind"
    os.mkfifo(fifo)
    file.write_text("")
    with pytest.raises(pci_kernel.Hung):
        kernel.write(fifo, ADDRESS, SHORT)
    [pid] = kernel.hanging(ADDRESS)
    assert fifo.read_text() == ADDRESS
    polling.until(lambda: state(pid) in {None, "Z"})

    kernel.write(file, ADDRESS, AMPLE)

    assert state(pid) is None


def test_one_that_hangs_does_not_hold_up_others(kernel, tmp_path):
    fifo, file = tmp_path / "unbind", tmp_path / "bind"
    os.mkfifo(fifo)
    file.write_text("")
    told = []

    def hang():
        try:
            kernel.write(fifo, ADDRESS, AMPLE)
        finally:
            told.append("ended")

    thread = threading.Thread(target=hang, daemon=True)
    thread.start()
    polling.until(lambda: kernel.hanging(ADDRESS))

    kernel.write(file, OTHER, AMPLE)

    assert file.read_text() == OTHER
    assert told == []
    assert fifo.read_text() == ADDRESS
    thread.join(AMPLE)
    assert told == ["ended"]


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Programs that are there in place of those of the host; the lines that they were run with."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setattr(host_kernel, "_ENVIRONMENT", {"PATH": f"{folder}:/usr/bin:/bin"})
    monkeypatch.setenv("PATH", str(folder))
    calls = tmp_path / "calls"

    def write(name, then):
        path = folder / name
        path.write_text(f'#!/bin/sh\necho "$0 $*" >> {calls}\n{then}\n')
        path.chmod(0o755)
        return lambda: calls.read_text().replace(f"{folder}/", "").splitlines()

    return write


def test_a_module_is_loaded_by_the_programs_of_this_root(kernel, programs):
    calls = programs("modprobe", "exit 0")

    kernel.load("vfio_pci", AMPLE)

    assert calls() == ["modprobe vfio_pci"]


def test_a_module_is_loaded_by_the_programs_of_the_host(programs, tmp_path):
    calls = programs("chroot", "exit 0")

    host_kernel.HostKernel(tmp_path, PROC).load("nvgrace-gpu-vfio-pci", AMPLE)

    assert calls() == [f"chroot {tmp_path} modprobe nvgrace-gpu-vfio-pci"]


def test_a_module_that_cannot_be_loaded_is_told_with_what_was_said(kernel, programs):
    programs("modprobe", "echo modprobe: FATAL: Module vfio_pci not found. >&2; exit 1")

    with pytest.raises(
        pci_kernel.Refused,
        match=r"kernel module 'vfio_pci': modprobe vfio_pci ended with 1 and said: modprobe: "
        r"FATAL: Module vfio_pci not found\.: install the module",
    ):
        kernel.load("vfio_pci", AMPLE)


def test_a_module_that_does_not_come_is_told(kernel, programs):
    programs("modprobe", "sleep 60")

    with pytest.raises(pci_kernel.Hung, match=r"modprobe vfio_pci did not end within 0\.2 s"):
        kernel.load("vfio_pci", SHORT)


def test_without_a_modprobe_that_is_told(kernel, tmp_path, monkeypatch):
    monkeypatch.setattr(host_kernel, "_ENVIRONMENT", {"PATH": str(tmp_path)})

    with pytest.raises(pci_kernel.Refused, match=r"modprobe vfio_pci cannot be run: .*modprobe"):
        kernel.load("vfio_pci", AMPLE)


@pytest.mark.parametrize("module", ["-r", "--config=/x", "", "a b", "../x", "vfio_pci\n"])
def test_what_is_no_module_is_not_looked_for(kernel, programs, module):
    calls = programs("modprobe", "exit 0")

    with pytest.raises(pci_kernel.Refused, match="a name has to match"):
        kernel.load(module, AMPLE)

    with pytest.raises(FileNotFoundError):
        calls()
