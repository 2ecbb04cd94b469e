"""nvidia-persistenced of a driver root, told by the nvidia-smi that is in it."""

import pathlib

import pytest

from dra_driver.adapters.driver import persistence_daemon

GPU = "GPU-5f3c2a10-0000-4000-8000-000000000001"


@pytest.fixture
def root(tmp_path):
    """A driver root with the daemon's socket."""
    made = tmp_path / "root"
    socket = made / persistence_daemon.SOCKET
    socket.parent.mkdir(parents=True)
    socket.touch()
    return made


@pytest.fixture
def chroot(tmp_path):
    """Stands in for chroot(8), which takes root: it notes what it is called with."""

    def make(ends="exit 0"):
        script = tmp_path / "chroot"
        notes = f'echo "$PATH" > {tmp_path}/path; echo "$@" >> {tmp_path}/told'
        script.write_text(f"#!/bin/sh\n{notes}\n{ends}\n")
        script.chmod(0o755)
        return script

    return make


def told(tmp_path):
    path = tmp_path / "told"
    return path.read_text().splitlines() if path.exists() else []


def test_it_is_told_by_the_program_in_its_own_root(root, chroot, tmp_path):
    daemon = persistence_daemon.PersistenceDaemon(root, chroot=chroot())
    assert daemon.tell(GPU, on=False) is None
    assert daemon.tell(GPU, on=True) is None
    assert told(tmp_path) == [
        f"{root} nvidia-smi -i {GPU} -pm 0",
        f"{root} nvidia-smi -i {GPU} -pm 1",
    ]
    assert "/usr/bin" in (tmp_path / "path").read_text()


def test_what_it_says_is_told(root, chroot):
    daemon = persistence_daemon.PersistenceDaemon(root, chroot=chroot("echo no rights; exit 4"))
    assert daemon.tell(GPU, on=False) == f"nvidia-smi -pm 0 in {root}: no rights"


def test_a_program_that_cannot_be_run_is_told(root, tmp_path):
    daemon = persistence_daemon.PersistenceDaemon(root, chroot=tmp_path / "nothing")
    assert "No such file" in daemon.tell(GPU, on=False)


def test_one_that_does_not_come_back_is_told(root, chroot, monkeypatch):
    monkeypatch.setattr(persistence_daemon, "SECONDS", 0.1)
    daemon = persistence_daemon.PersistenceDaemon(root, chroot=chroot("sleep 60"))
    assert "timed out" in daemon.tell(GPU, on=False)


def test_where_there_is_none_nobody_is_told(tmp_path, chroot):
    daemon = persistence_daemon.PersistenceDaemon(tmp_path, chroot=chroot())
    assert daemon.tell(GPU, on=False) is None
    assert told(tmp_path) == []


def test_where_nvml_reaches_it_nobody_else_tells_it():
    assert not persistence_daemon.PersistenceDaemon(pathlib.Path("/")).is_apart
