"""Processes are told apart from later ones with the same number."""

import dataclasses
import os
import signal
import subprocess

import pytest

from dra_driver.adapters.system import pids


@pytest.fixture
def child():
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_found_and_is_alive(child):
    found = pids.find(child.pid)

    assert found is not None
    assert found.pid == child.pid
    assert pids.is_alive(found)


def test_a_child_descends_from_its_parents_and_nobody_from_a_stranger(child):
    assert pids.descends(child.pid, child.pid)
    assert pids.descends(child.pid, os.getpid())
    assert pids.descends(child.pid, os.getppid())
    assert not pids.descends(os.getpid(), child.pid)
    # That of a process which cannot be seen from here.
    assert not pids.descends(0, os.getpid())


def test_a_process_with_spaces_and_parentheses_in_its_name_is_found(tmp_path):
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "600"])
    try:
        found = pids.find(process.pid)
        assert found is not None
        assert found.start_time > 1000
    finally:
        process.kill()
        process.wait()


def test_one_that_has_ended_is_not_found_even_before_its_parent_hears_of_it(child):
    found = pids.find(child.pid)
    assert found is not None
    assert pids.send(found, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert pids.find(child.pid) is None
    assert not pids.is_alive(found)


def test_another_process_with_the_same_number_gets_no_signal(child):
    found = pids.find(child.pid)
    assert found is not None
    earlier = dataclasses.replace(found, start_time=found.start_time - 1)

    assert not pids.is_alive(earlier)
    assert not pids.send(earlier, signal.SIGKILL)
    assert pids.wait(earlier, 0)
    assert child.poll() is None


def test_waiting_ends_with_the_process(child):
    found = pids.find(child.pid)
    assert found is not None
    assert not pids.wait(found, 0)

    child.send_signal(signal.SIGTERM)

    assert pids.wait(found, 60)
    child.wait()
    assert pids.wait(found, 0)
    assert not pids.send(found, signal.SIGTERM)
