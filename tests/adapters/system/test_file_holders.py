"""Which processes have a file or a device node open."""

import os
import pathlib
import subprocess
import sys

import pytest

from dra_driver.adapters.system import file_holders, processes

PROC = pathlib.Path("/proc")
PROGRAM = "import sys; held = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


@pytest.fixture
def holder(tmp_path):
    """A process that has a file open, and the file."""
    path = tmp_path / "nvidia0"
    path.write_text("")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "open\n"
        yield process, path
        process.stdin.close()


def test_who_has_a_file_open_is_found_until_it_ends(holder):
    process, path = holder
    assert file_holders.pids(PROC, [path]) == [process.pid]
    process.stdin.close()
    process.wait(60)
    assert file_holders.pids(PROC, [path]) == []


def test_who_has_it_open_by_the_name_of_a_link_is_found(holder, tmp_path):
    process, path = holder
    link = tmp_path / "link"
    link.symlink_to(path)
    assert file_holders.pids(PROC, [link, path]) == [process.pid]


def test_a_device_node_is_known_by_its_numbers_whatever_its_name():
    null = pathlib.Path("/dev/null")
    with null.open() as _held:
        assert os.getpid() in file_holders.pids(PROC, [null])
    assert os.getpid() not in file_holders.pids(PROC, [pathlib.Path("/dev/full")])


def test_what_is_not_there_nobody_has_open(tmp_path):
    assert file_holders.pids(PROC, [tmp_path / "absent"]) == []
    assert file_holders.pids(PROC, []) == []


def test_a_process_is_found_by_what_is_in_its_command_line(holder):
    process, path = holder
    known = processes.Processes(PROC)
    assert known.running(str(path), "held = open") == [process.pid]
    assert known.running(str(path), "something else") == []
