"""What becomes of MPS daemons whose description is damaged, or gone, while claims are at work."""

import re

import polling
import pytest
import sharing_claims
import structlog

from dra_driver import errors
from dra_driver.adapters.system import pids

pytestmark = pytest.mark.sampled(9)

GPU, OTHER_GPU, PARTITION = sharing_claims.GPU, sharing_claims.OTHER_GPU, sharing_claims.PARTITION
LIMITED = sharing_claims.mps_gpu(
    defaultActiveThreadPercentage=30, defaultPinnedDeviceMemoryLimit="4Gi"
)
LIMITED_PARTITION = sharing_claims.mps_mig(
    defaultActiveThreadPercentage=50, defaultPinnedDeviceMemoryLimit="2Gi"
)
CHEATING = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def damage(path):
    path.write_bytes(b"\xff damaged")


def lose(path):
    path.unlink()


@pytest.mark.parametrize("harm", [damage, lose])
@pytest.mark.parametrize(
    ("device", "config", "limits"),
    [(GPU, LIMITED, (30, 4)), (PARTITION, LIMITED_PARTITION, (50, 2))],
    ids=["GPU", "partition"],
)
def test_it_is_described_anew_and_a_daemon_that_is_killed_then_comes_back_with_its_limits(
    host, users, log, harm, device, config, limits
):
    ref = users.give(device, configs=[config])
    host.prepare(ref)
    before, process = host.described(ref), host.daemon(ref)
    harm(host.domain(ref).description)
    host.describer.look()
    assert host.described(ref) == before
    assert host.daemon(ref) == process
    [told] = [line for line in log if line["log_level"] == "error"]
    assert told["claim"] == str(ref)
    if harm is damage:
        copy = host.domain(ref).description.with_name("daemon.json.damaged-0")
        assert (told["set_aside"], copy.read_bytes()) == (str(copy), b"\xff damaged")
    host.kill_supervisor(ref)
    polling.until(lambda: not pids.is_alive(process))
    host.look_after()
    assert host.gets(ref, **CHEATING) == limits
    host.unprepare(ref)
    assert host.is_clean()


def test_a_daemon_that_is_described_is_left_alone(host, users, log):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    before = host.domain(ref).description.stat()
    host.describer.look()
    assert host.domain(ref).description.stat() == before
    assert [line for line in log if line["log_level"] == "error"] == []


def test_a_claim_that_is_asked_for_again_keeps_its_daemon_and_clients(host, users):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    before, process, client = host.described(ref), host.daemon(ref), host.connect(ref)
    damage(host.domain(ref).description)
    host.prepare(ref)
    assert host.described(ref) == before
    assert host.daemon(ref) == process
    assert client.is_usable()
    client.close()
    host.unprepare(ref)
    assert host.is_clean()


def test_a_share_that_comes_leaves_the_clients_of_others_their_daemon(shared_host, users):
    first, second = users.share(memory=10, cores=20), users.share(memory=30, cores=40)
    shared_host.prepare(first)
    process, client = shared_host.daemon(first), shared_host.connect(first)
    damage(shared_host.domain(first).description)
    shared_host.prepare(second)
    assert shared_host.daemon(first) == process
    assert client.is_usable()
    client.close()
    assert shared_host.gets(second, **CHEATING) == (40, 30)
    for ref in (first, second):
        shared_host.unprepare(ref)
    assert shared_host.is_clean()


def test_a_daemon_that_no_claim_has_been_at_work_with_is_made_anew(host, users, failing_call):
    ref = users.give(GPU, configs=[LIMITED])
    failing_call(host.launcher, "wait_ready", errors.Rejected("no"), 0)
    failing_call(host.launcher, "retire", errors.Rejected("nor this"), 0)
    with pytest.raises(errors.Rejected, match="no"):
        host.prepare(ref)
    damage(host.domain(ref).description)
    host.prepare(ref)
    assert host.gets(ref, **CHEATING) == (30, 4)
    host.unprepare(ref)
    assert host.is_clean()


def test_of_several_devices_nothing_tells_the_limits_and_that_is_said(host, users):
    ref = users.give(GPU, OTHER_GPU, configs=[LIMITED])
    host.prepare(ref)
    damage(host.domain(ref).description)
    with pytest.raises(errors.Retryable, match=re.escape(f"Delete the pods of claim {ref}")):
        host.describer.look()
    # Its configs do, once it is asked for again.
    host.prepare(ref)
    assert host.gets(ref, GPU) == (30, 4)
    host.describer.look()
    host.unprepare(ref)
    assert host.is_clean()


def test_a_daemon_that_is_being_ended_is_not_described_again(host, users, failing_call):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    domain = host.domain(ref)

    def retire(*_):
        domain.retire()
        raise errors.Rejected("no")

    original, host.launcher.retire = host.launcher.retire, retire
    with pytest.raises(errors.Rejected, match="no"):
        host.unprepare(ref)
    host.describer.look()
    assert domain.read() is None
    host.launcher.retire = original
    host.unprepare(ref)
    assert host.is_clean()
