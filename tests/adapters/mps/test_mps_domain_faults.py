"""Which MPS daemons have had a fatal fault."""

import os
import pathlib
import shutil
import tempfile

import pytest

from dra_driver.adapters.mps import mps_domain
from dra_driver.model import mps

SAID = "[2026-11-30 07:25:20.123 Other  1629] Volta MPS: Server is handling a fatal GPU error.\n"


@pytest.fixture
def root():
    """A short path: those of sockets in it are limited."""
    made = pathlib.Path(tempfile.mkdtemp(prefix="mps-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def daemon(root):
    made = mps.daemon(
        root=str(root),
        daemon_id="0123456789abcdef",
        device="GPU-0",
        shm_bytes=2**20,
        limits=mps.Limits(),
    )
    pathlib.Path(made.log_dir).mkdir(parents=True)
    return made


@pytest.fixture
def domain(daemon):
    return mps_domain.Domain(pathlib.Path(daemon.directory))


@pytest.mark.parametrize("name", ["server.log", "control.log"])
def test_a_daemon_whose_log_ends_with_a_fatal_fault_has_had_one(daemon, domain, name):
    log = pathlib.Path(daemon.log_dir, name)
    log.write_text("started\n" * 100_000 + SAID)
    assert domain.has_faulted(daemon, 60)


def test_a_fault_of_long_ago_is_none_of_late(daemon, domain):
    log = pathlib.Path(daemon.log_dir, "server.log")
    log.write_text(SAID)
    os.utime(log, (1, 1))
    assert not domain.has_faulted(daemon, 60)


def test_a_daemon_without_logs_or_whose_log_tells_of_none_has_had_none(daemon, domain):
    assert not domain.has_faulted(daemon, 60)
    pathlib.Path(daemon.log_dir, "server.log").write_text("started\n")
    assert not domain.has_faulted(daemon, 60)
