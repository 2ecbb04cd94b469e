"""Daemons that do not start, get ready, change or end as they should."""

import pytest
import sharing_claims
import sharing_node

from dra_driver import errors
from dra_driver.adapters.mps import mps_control
from dra_driver.adapters.system import mounts
from dra_driver.apps.effects import sharing
from dra_driver.apps.preparing import preparing
from dra_driver.sim.gpus import mps_program

pytestmark = pytest.mark.sampled(11)

GPU, PARTITION = sharing_claims.GPU, sharing_claims.PARTITION
LIMITED = sharing_claims.mps_gpu(
    defaultActiveThreadPercentage=30, defaultPinnedDeviceMemoryLimit="4Gi"
)
LIMITED_PARTITION = sharing_claims.mps_mig(defaultActiveThreadPercentage=50)


@pytest.fixture(autouse=True)
def has_its_time_to_undo(monkeypatch):
    """However busy this machine is: what a failed prepare leaves, the next call would undo."""
    monkeypatch.setattr(preparing, "LAST_SECONDS", 60.0)


def install(host, script):
    """Put a script in place of the control program, or before it as `$real`."""
    path = host.simulation / "driver/usr/bin" / mps_control.PROGRAM
    mps_program.install(host.simulation / "real")
    real = host.simulation / "real/usr/bin" / mps_control.PROGRAM
    path.write_text(f'#!/bin/sh\nreal="{real}"\n{script}\n', encoding="utf-8")


def test_a_daemon_whose_program_is_missing_is_told_of_and_leaves_nothing(host, users):
    (host.simulation / "driver/usr/bin" / mps_control.PROGRAM).unlink()
    with pytest.raises(errors.Retryable, match=mps_control.PROGRAM):
        host.prepare(users.give(GPU, configs=[LIMITED]), seconds=3)
    assert host.is_clean()


def test_a_program_that_appears_during_the_call_is_used(host, users, monkeypatch):
    (host.simulation / "driver/usr/bin" / mps_control.PROGRAM).unlink()
    start = host.launcher.start

    def starting(daemon):
        try:
            start(daemon)
        finally:
            mps_program.install(host.simulation / "driver")

    monkeypatch.setattr(host.launcher, "start", starting, raising=False)
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    assert host.gets(ref) == (30, 4)


@pytest.mark.parametrize(
    "script",
    [
        "exit 3",
        'case "$*" in *-f*) exec sleep 60;; esac\nexec "$real" "$@"',
        'case "$*" in *-f*) exec "$real" "$@";; esac\ngrep -q set_default && exit 1',
    ],
    ids=["ends at once", "does not answer", "does not take limits"],
)
def test_a_daemon_that_does_not_get_ready_is_told_of_and_leaves_nothing(
    host, users, monkeypatch, script
):
    monkeypatch.setattr(sharing, "READY_SECONDS", 0.3)
    install(host, script)
    ref = users.give(GPU, configs=[LIMITED])
    with pytest.raises(errors.Retryable, match="not ready"):
        host.prepare(ref, seconds=0.1)
    assert host.is_clean()


def test_a_daemon_that_does_not_get_ready_takes_the_partition_with_it(host, users, monkeypatch):
    monkeypatch.setattr(sharing, "READY_SECONDS", 0.3)
    install(host, "exit 3")
    with pytest.raises(errors.Retryable, match="not ready"):
        host.prepare(users.give(PARTITION, configs=[LIMITED_PARTITION]), seconds=0.1)
    assert host.is_clean()


def test_a_daemon_that_does_not_stop_keeps_the_record(host, users, failing_call):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    failing_call(host.launcher, "wait_ended", errors.Rejected("it waits for the GPU"), 0)
    with pytest.raises(errors.Rejected, match="waits for the GPU"):
        host.unprepare(ref)
    assert host.record(ref) is not None
    assert host.card().compute_mode == sharing_node.EXCLUSIVE
    host.unprepare(ref)
    assert host.is_clean()


def test_a_claim_in_use_whose_daemon_cannot_be_looked_after_keeps_everything(
    host, users, failing_call
):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    process = host.daemon(ref)
    failing_call(host.launcher, "start", errors.Rejected("no"), 0)
    with pytest.raises(errors.Rejected, match="no"):
        host.prepare(ref)
    assert host.daemon(ref) == process
    assert host.card().compute_mode == sharing_node.EXCLUSIVE
    assert host.gets(ref) == (30, 4)


def test_a_daemon_that_is_slow_does_not_make_the_answer_late(host, users, monkeypatch):
    monkeypatch.setattr(sharing, "READY_SECONDS", 1000.0)
    waited = []

    def waiting(_daemon, patience):
        waited.append(patience.left)
        raise errors.Rejected("not ready")

    monkeypatch.setattr(host.launcher, "wait_ready", waiting, raising=False)
    with pytest.raises(errors.Rejected, match="not ready"):
        host.prepare(users.give(GPU, configs=[LIMITED]), seconds=60)
    [seconds] = waited
    assert seconds <= 60


def test_a_shared_memory_that_cannot_be_mounted_is_told_of_and_leaves_nothing(
    host, users, monkeypatch
):
    def refusing(path, _size):
        raise errors.Rejected(f"cannot mount {path}: the process needs to be root")

    monkeypatch.setattr(mounts, "mount_tmpfs", refusing)
    monkeypatch.setattr(host.launcher, "_private_shm", True, raising=False)
    with pytest.raises(errors.Rejected, match="cannot mount"):
        host.prepare(users.give(GPU, configs=[LIMITED]))
    assert host.is_clean()


@pytest.mark.parametrize("trouble", ["damaged", "gone"])
def test_a_description_that_says_nothing_is_written_anew_by_the_next_prepare(host, users, trouble):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    # It is gone where somebody was killed who ended the daemon.
    host.domain(ref).retire()
    if trouble == "damaged":
        host.domain(ref).description.write_text("{", encoding="utf-8")
    host.prepare(ref)
    assert host.gets(ref) == (30, 4)
    host.unprepare(ref)
    assert host.is_clean()


@pytest.mark.parametrize("trouble", ["damaged", "not restarted"])
def test_a_daemon_whose_cap_cannot_follow_holds_up_nobody(
    shared_host, users, failing_call, trouble
):
    small, large = users.share(memory=10, cores=20), users.share(memory=30, cores=40)
    shared_host.prepare(small)
    shared_host.prepare(large)
    if trouble == "damaged":
        shared_host.domain(small).description.write_text("{", encoding="utf-8")
    else:
        failing_call(shared_host.launcher, "start", errors.Rejected("no"), 0)
    shared_host.unprepare(large)
    assert shared_host.record(large) is None
    shared_host.unprepare(small)
    assert shared_host.is_clean()
