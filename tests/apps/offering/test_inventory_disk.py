"""What is offered while the disk does not tell what this driver has done to the GPUs."""

import dataclasses
import errno
import os

import disk_faults
import mig_node
import pytest
import structlog

from dra_driver.adapters.disk import files
from dra_driver.apps.offering import inventory
from dra_driver.sim.gpus import gpu_faults

FIRST = mig_node.FIRST


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


@pytest.fixture
def cut(node, api):
    """A node with a GPU that is cut for a claim, as it was looked at then."""
    node.prepare(api.make(FIRST))
    node.gpus.look()
    return node


def refusing(node, code):
    functions = (*disk_faults.READS, *disk_faults.DESCRIPTORS)
    return disk_faults.Disk(code, functions, [node.root / "gpus"], opens="all").failing()


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.EACCES], ids=errno.errorcode.get)
def test_nothing_that_was_offered_changes_while_ledgers_cannot_be_listed(cut, log, code):
    before = cut.gpus.snapshot
    with refusing(cut, code):
        cut.gpus.look()
    assert cut.gpus.snapshot == before
    [line] = [line for line in log if line["event"] == "GPUs cannot be looked at for now"]
    assert os.strerror(code) in line["reason"]
    cut.gpus.look()
    assert cut.gpus.snapshot == before


def test_a_first_look_without_ledgers_is_none(cut, new_node, monkeypatch):
    """What is published is from an earlier process, and would be withdrawn."""
    monkeypatch.setattr(inventory, "LOOK_AGAIN", 3600.0)
    disk = disk_faults.Disk(errno.EMFILE, disk_faults.DESCRIPTORS, [cut.root / "gpus"], opens="all")
    with disk.failing():
        again = new_node()
    assert not again.gpus.wait_first(0)
    again.gpus.look()
    assert FIRST in again.gpus.snapshot.offered


def test_without_ledgers_for_longer_nothing_is_offered_and_it_is_said_why(cut, new_node):
    disk = disk_faults.Disk(errno.EMFILE, disk_faults.DESCRIPTORS, [cut.root / "gpus"], opens="all")
    with disk.failing():
        again = new_node()
    assert again.gpus.snapshot.cards == ()
    assert "cannot be listed" in again.gpus.snapshot.problem
    again.gpus.look()
    assert FIRST in again.gpus.snapshot.offered


def test_locks_that_cannot_be_looked_at_change_nothing_of_what_is_offered(cut, log):
    before = cut.gpus.snapshot

    def refuse(_name):
        raise files.Exhausted("locks cannot be opened: Too many open files")

    looking = dataclasses.replace(cut.gpus._looking_at, is_busy=refuse)
    cut.gpus._looking_at = looking
    gpu_faults.inject(
        cut.simulation, error=999, function="nvmlDeviceGetCudaComputeCapability", uuid=cut.uuid(0)
    )
    cut.gpus.look()
    assert cut.gpus.snapshot == before
    assert "Too many open files" in log[-1]["reason"]


def test_a_page_that_cannot_be_read_takes_nothing_out_of_what_is_offered(cut):
    before = cut.gpus.snapshot
    for path in (cut.root / "gpus").iterdir():
        path.write_bytes(b"\xff damaged")
    cut.gpus.look()
    assert cut.gpus.snapshot == before


def test_a_file_of_an_earlier_driver_that_cannot_be_read_stays_a_matter_of_its_gpu(cut):
    before = cut.gpus.snapshot
    (cut.root / "gpus" / f"{cut.uuid(1)}.json").write_bytes(b"\xff damaged")
    cut.gpus.look()
    assert cut.gpus.snapshot == before
