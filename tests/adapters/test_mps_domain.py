"""The directory of an MPS daemon on a disk that refuses."""

import errno
import os

import disk_faults
import pytest

from dra_driver.adapters import files, mps_domain, pids, stores
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
def daemon(tmp_path):
    return mps.daemon(
        root=str(tmp_path), daemon_id="0123456789abcdef", device="GPU-0", shm_bytes=2**20,
        limits=LIMITS,
    )  # fmt: skip


@pytest.fixture
def domain(tmp_path, daemon):
    made = mps_domain.Domain(tmp_path / daemon.id)
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
def test_what_it_refuses_is_told_with_the_path_and_a_remedy(tmp_path, domain, daemon, change):
    disk = disk_faults.Disk(errno.EROFS, disk_faults.CHANGES, [tmp_path], opens="changed")
    with disk.failing(), pytest.raises(files.Unusable) as caught:
        CHANGES[change](domain, daemon)
    assert str(domain.directory) in str(caught.value)
    assert f"{os.strerror(errno.EROFS)}. Remedy: its file system is read-only" in str(caught.value)


def test_what_is_taken_away_needs_no_space(tmp_path, domain):
    disk = disk_faults.Disk(errno.ENOSPC, disk_faults.WRITES, [tmp_path], opens="new")
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
    # A supervisor of an earlier driver, which runs on, has to read it.
    assert domain.description.read_text() == text


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
