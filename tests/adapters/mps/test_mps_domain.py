"""The directory of an MPS daemon on a disk that refuses."""

import errno
import json
import os
import pathlib
import shutil
import tempfile

import disk_faults
import pytest

from dra_driver import errors
from dra_driver.adapters.disk import files, stores
from dra_driver.adapters.mps import mps_domain
from dra_driver.adapters.system import pids
from dra_driver.model import mps

LIMITS = mps.Limits(30)
OLD = """{
 "version": 1,
 "daemon": {
  "id": "0123456789abcdef",
  "device": "GPU-0",
  "directory": "DIRECTORY",
  "shm_bytes": 1048576,
  "limits": {
   "thread_percentage": 30,
   "memory_bytes": null,
   "memory_by_device": []
  }
 }
}
"""


@pytest.fixture
def root():
    """A short path: those of sockets in it are limited."""
    made = pathlib.Path(tempfile.mkdtemp(prefix="mps-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def daemon(root):
    return mps.daemon(
        root=str(root), daemon_id="0123456789abcdef", device="GPU-0", shm_bytes=2**20,
        limits=LIMITS,
    )  # fmt: skip


@pytest.fixture
def domain(root, daemon):
    made = mps_domain.Domain(root / daemon.id)
    made.create(daemon, shm=False)
    made.say_ready(pids.Process(1, 2), LIMITS)
    return made


CHANGES = {
    "create": lambda domain, daemon: domain.create(daemon, shm=False),
    "describe": lambda domain, daemon: domain.describe(daemon),
    "retire": lambda domain, _: domain.retire(),
    "say ready": lambda domain, _: domain.say_ready(pids.Process(1, 2), LIMITS),
    "say not ready": lambda domain, _: domain.say_not_ready(),
    "supervise": lambda domain, _: domain.supervised().__enter__(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_it_refuses_is_told_with_the_path_and_a_remedy(root, domain, daemon, change):
    disk = disk_faults.Disk(errno.EROFS, disk_faults.CHANGES, [root], opens="changed")
    with disk.failing(), pytest.raises(files.Unusable) as caught:
        CHANGES[change](domain, daemon)
    assert str(domain.directory) in str(caught.value)
    assert f"{os.strerror(errno.EROFS)}. Remedy: its file system is read-only" in str(caught.value)


def test_what_is_taken_away_needs_no_space(root, domain):
    disk = disk_faults.Disk(errno.ENOSPC, disk_faults.WRITES, [root], opens="new")
    with disk.failing():
        domain.retire()
        domain.say_not_ready()
        assert domain.read() is None
        assert domain.ready() is None
        domain.remove()
    assert not domain.directory.exists()


def test_a_description_that_an_earlier_driver_wrote_is_read_and_written_as_it_was(domain, daemon):
    text = OLD.replace("DIRECTORY", str(domain.directory))
    domain.description.write_text(text)
    assert domain.read() == daemon
    domain.describe(daemon)
    # A supervisor of an earlier driver, which runs on, has to read it: to that the limits of each
    # device were optional, and all else was not.
    assert json.loads(domain.description.read_text()) == without_limits_by_device(text)


def without_limits_by_device(text):
    document = json.loads(text)
    del document["daemon"]["limits"]["memory_by_device"]
    return document


def test_what_is_put_there_while_it_is_removed_goes_too(domain, monkeypatch):
    """As by the last words of a container that the kubelet starts once more."""
    rmdir, late = os.rmdir, ["log", "log", domain.directory.name]

    def removing(path, **options):
        if pathlib.Path(path).name in late[:1]:
            at = {**options, "dir_fd": os.open(path, os.O_RDONLY, **options)}
            os.close(os.open("late", os.O_CREAT, dir_fd=at["dir_fd"]))
            os.close(at["dir_fd"])
            late.pop(0)
        rmdir(path, **options)

    monkeypatch.setattr(os, "rmdir", removing)
    domain.remove()
    assert late == []
    assert not domain.directory.exists()


def test_what_cannot_be_removed_is_told_and_can_be_tried_again(domain, monkeypatch):
    def refusing(path, **_options):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)

    with monkeypatch.context() as context:
        context.setattr(os, "rmdir", refusing)
        with pytest.raises(errors.Retryable, match=r"cannot be removed: .*not empty"):
            domain.remove()
    domain.remove()
    assert not domain.directory.exists()


@pytest.mark.parametrize(
    "content", [b"", b"\xff damaged", b"{}", OLD.replace("1", "2", 1).encode(), OLD.encode()]
)
def test_a_damaged_description_is_told_with_its_path_and_kept_aside(domain, content):
    domain.description.write_bytes(content)
    with pytest.raises(stores.Damaged) as caught:
        domain.read()
    assert str(caught.value).startswith(f"{domain.description}: ")
    copy = domain.keep_aside()
    assert copy == domain.description.with_name("daemon.json.damaged-0")
    assert copy.read_bytes() == content
