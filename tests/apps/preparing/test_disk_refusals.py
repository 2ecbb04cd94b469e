"""What becomes of prepares and unprepares when the disk refuses, from each step on."""

import contextlib
import errno
import os
import subprocess
import types

import disk_faults
import effort
import mig_node
import pytest
import sharing_claims
import sharing_node

from dra_driver import errors
from dra_driver.adapters.disk import files
from dra_driver.apps.preparing import preparing

pytestmark = pytest.mark.sampled(13)

GPU, PARTITION = sharing_claims.GPU, sharing_claims.PARTITION
LIMITED = sharing_claims.mps_gpu(defaultActiveThreadPercentage=30)
FOLDERS = ("claims", "cdi", "gpus", "mps", "locks")

FAULTS = {
    "full": (errno.ENOSPC, disk_faults.WRITES, "new"),
    "read-only": (errno.EROFS, disk_faults.CHANGES, "changed"),
    "failing": (errno.EIO, (*disk_faults.CHANGES, *disk_faults.READS), "all"),
    "too many files": (errno.EMFILE, disk_faults.DESCRIPTORS, "all"),
}
CLAIMS = {
    "whole GPU": ([GPU], []),
    "partition": ([PARTITION], []),
    "time slice": ([GPU], [sharing_claims.time_slicing("Long")]),
    "daemon": ([GPU], [LIMITED]),
}
EACH = [
    (claim, fault)
    for claim in CLAIMS
    for fault in FAULTS
    # A daemon takes its time.
    if claim != "daemon" or fault == "full"
]


@pytest.fixture
def make_disk(host):
    def make(name):
        code, functions, opens = FAULTS[name]
        return disk_faults.Disk(code, functions, [host.root / one for one in FOLDERS], opens=opens)

    return make


@pytest.fixture
def at_once(monkeypatch):
    """Inside the block nothing is waited for."""

    @contextlib.contextmanager
    def without_waiting():
        with monkeypatch.context() as patch:
            patch.setattr(preparing, "LOOK_AGAIN", mig_node.SECONDS * 2)
            yield

    return without_waiting


@pytest.mark.deep
@pytest.mark.parametrize(("claim", "fault"), EACH)
def test_a_prepare_is_answered_with_the_path_and_a_remedy_and_leaves_nothing(
    host, users, make_disk, at_once, claim, fault
):
    devices, configs = CLAIMS[claim]
    disk = make_disk(fault)
    ref = users.give(*devices, configs=configs)
    for first in effort.steps():
        with at_once(), disk.failing(first):
            try:
                host.prepare(ref)
            except errors.DriverError as error:
                told = str(error)
            else:
                told = None
        if told is not None:
            assert str(host.root) in told, disk.steps
            assert os.strerror(FAULTS[fault][0]) in told
            assert "Remedy: " in told
        host.unprepare(ref)
        assert host.is_clean(), disk.steps
        if not disk.has_failed:
            break
    assert first > 1


# Undo on a full disk


HELD = {
    **CLAIMS,
    "two partitions": ([PARTITION, "gpu-1-mig-2g20gb-14-2"], []),
    "daemon of a partition": ([PARTITION], [sharing_claims.mps_mig()]),
}


@pytest.mark.parametrize("claim", HELD)
def test_an_unprepare_works_on_a_full_disk(host, users, make_disk, claim):
    devices, configs = HELD[claim]
    ref = users.give(*devices, configs=configs)
    host.prepare(ref)
    with make_disk("full").failing():
        host.unprepare(ref)
    assert host.is_clean()


def test_an_unprepare_beside_another_claim_of_the_same_gpu_works_on_a_full_disk(
    host, users, make_disk
):
    first, second = users.give(PARTITION), users.give(mig_node.SECOND)
    host.prepare(first)
    kept = host.files()
    host.prepare(second)
    with make_disk("full").failing():
        host.unprepare(second)
        assert host.files() == kept
        host.unprepare(first)
    assert host.is_clean()


def test_shares_are_given_back_on_a_full_disk(new_host, users, make_disk):
    host = new_host(shares=sharing_node.BY_MEMORY)
    first, second = users.share(memory=10, cores=20), users.share(memory=30, cores=40)
    for ref in (first, second):
        host.prepare(ref)
    client = host.connect(first)
    with make_disk("full").failing():
        host.unprepare(second)
        assert client.is_usable()
        client.close()
        host.unprepare(first)
    assert host.is_clean()


@pytest.mark.parametrize("claim", HELD)
def test_a_claim_whose_files_are_all_damaged_is_unprepared_on_a_full_disk(
    host, users, make_disk, claim
):
    devices, configs = HELD[claim]
    ref = users.give(*devices, configs=configs)
    host.prepare(ref)
    for folder in ("claims", "gpus"):
        for path in (host.root / folder).iterdir():
            path.write_bytes(b"\xff damaged")
    for path in host.mps.glob("*/daemon.json"):
        path.write_bytes(b"\xff damaged")
    with make_disk("full").failing():
        host.unprepare(ref)
        # What the spec does not tell of is looked after every minute.
        host.orphans.settle()
    assert host.is_clean()


def test_what_is_left_over_is_cleared_away_on_a_full_disk(host, new_host, users, make_disk):
    ref, lost = users.give(PARTITION), users.give(sharing_claims.OTHER_GPU, configs=[LIMITED])
    host.prepare(ref)
    kept = host.files()
    host.prepare(lost)
    users.delete(lost)
    host.store.records.path(lost.uid).write_text("damaged")
    (host.cdi / host.cdi_name(lost)).unlink()
    (host.root / "claims" / ".0-gone.json.new").write_text("half")
    with make_disk("full").failing():
        again = new_host().start()
        again.orphans.settle()
        assert again.files() == kept
        again.unprepare(ref)
    assert again.is_clean()


@pytest.fixture
def full_disk(host):
    """The directories of the node on a file system without any space, where that can be had."""
    mounted = []
    for name in FOLDERS[:4]:
        folder = host.root / name
        folder.mkdir(exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)],
            check=False, capture_output=True, timeout=60,
        )  # fmt: skip
        if done.returncode != 0:
            pytest.skip(f"mounting is not allowed here: {done.stderr.decode()}")
        mounted.append(folder)

    def fill():
        for folder in mounted:
            with (folder / "filling").open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(b"x" * 4096):
                    pass

    def empty():
        for folder in mounted:
            (folder / "filling").unlink(missing_ok=True)

    yield types.SimpleNamespace(fill=fill, empty=empty)
    host._kill_all()
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=60)


@pytest.mark.parametrize("claim", HELD)
def test_on_a_disk_that_is_really_full_nothing_is_prepared_and_everything_unprepared(
    host, users, full_disk, at_once, claim
):
    devices, configs = HELD[claim]
    ref = users.give(*devices, configs=configs)
    host.prepare(ref)
    full_disk.fill()
    host.unprepare(ref)
    full_disk.empty()
    assert host.is_clean()
    full_disk.fill()
    with at_once(), pytest.raises(files.Exhausted, match=r"No space left on device\. Remedy: free"):
        host.prepare(ref)
    full_disk.empty()
    assert host.is_clean()
