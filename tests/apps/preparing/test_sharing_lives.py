"""Daemons that die, drivers that start again, and what an earlier life left behind."""

import shutil

import pytest
import sharing_claims
import sharing_node

from dra_driver import errors
from dra_driver.adapters.system import patience, pids
from dra_driver.apps.upkeep import orphans

pytestmark = pytest.mark.sampled(11)

GPU, PARTITION = sharing_claims.GPU, sharing_claims.PARTITION
LIMITED = sharing_claims.mps_gpu(
    defaultActiveThreadPercentage=30, defaultPinnedDeviceMemoryLimit="4Gi"
)
LIMITED_PARTITION = sharing_claims.mps_mig(defaultActiveThreadPercentage=50)
CHEATING = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}


def test_a_daemon_killed_under_a_client_is_back_with_the_same_limits(host, users):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    client = host.connect(ref)
    old = host.kill_daemon(ref)
    assert client.wait_unusable(60)
    client.close()
    host.comes_back(ref, old)
    assert host.limits(ref) == (30, 4)
    assert host.gets(ref, **CHEATING) == (30, 4)
    host.unprepare(ref)
    assert host.is_clean()


def test_a_daemon_killed_while_another_claim_comes_has_the_new_cap(shared_host, users):
    small, large = users.share(memory=10, cores=20), users.share(memory=30, cores=40)
    shared_host.prepare(small)
    old = shared_host.kill_daemon(small)
    shared_host.prepare(large)
    assert shared_host.daemon(large) != old
    assert shared_host.limits(large) == (40, 30)
    assert shared_host.gets(small) == (20, 10)


@pytest.mark.parametrize(("device", "config"), [(GPU, LIMITED), (PARTITION, LIMITED_PARTITION)])
def test_a_daemon_whose_supervisor_was_killed_too_runs_after_the_next_prepare(
    host, users, device, config
):
    ref = users.give(device, configs=[config])
    host.prepare(ref)
    old, limits, served = host.daemon(ref), host.limits(ref), host.described(ref).device
    host.kill_supervisor(ref)
    assert pids.wait(old, 60)
    host.prepare(ref)
    assert host.daemon(ref) != old
    assert (host.limits(ref), host.described(ref).device) == (limits, served)
    assert host.gets(ref, **CHEATING)[0] == limits[0]
    host.unprepare(ref)
    assert host.is_clean()


@pytest.mark.parametrize(("device", "config"), [(GPU, LIMITED), (PARTITION, LIMITED_PARTITION)])
def test_a_daemon_whose_supervisor_was_killed_too_runs_after_a_restart_of_the_driver(
    host, new_host, users, device, config
):
    ref = users.give(device, configs=[config])
    host.prepare(ref)
    old, limits = host.daemon(ref), host.limits(ref)
    host.kill_supervisor(ref)
    assert pids.wait(old, 60)
    again = new_host().start().look_after()
    assert again.daemon(ref) != old
    assert again.limits(ref) == limits
    assert again.gets(ref, **CHEATING)[0] == limits[0]


def test_the_daemon_of_shares_whose_supervisor_was_killed_runs_after_a_restart(
    shared_host, new_host, users
):
    small, large = users.share(memory=10, cores=20), users.share(memory=30, cores=40)
    shared_host.prepare(small)
    shared_host.prepare(large)
    old = shared_host.daemon(small)
    shared_host.kill_supervisor(small)
    assert pids.wait(old, 60)
    again = new_host(shares=sharing_node.BY_MEMORY).start().look_after()
    assert again.daemon(small) == again.daemon(large) != old
    assert again.limits(small) == (40, 30)


def test_a_daemon_whose_supervisor_was_killed_leaves_nothing_after_the_unprepare(host, users):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    host.kill_supervisor(ref)
    host.unprepare(ref)
    assert host.is_clean()


def test_a_restart_of_the_driver_does_not_disturb_a_daemon(host, new_host, users):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    process, client = host.daemon(ref), host.connect(ref)
    again = new_host().start()
    assert again.daemon(ref) == process
    assert again.card().compute_mode == sharing_node.EXCLUSIVE
    again.prepare(ref)
    assert again.daemon(ref) == process
    assert client.is_usable()
    client.close()
    assert again.card().compute_mode == sharing_node.EXCLUSIVE
    again.unprepare(ref)
    assert again.is_clean()


def test_a_restart_of_the_driver_does_not_change_a_time_slice(host, new_host, users):
    ref = users.give(GPU, configs=[sharing_claims.time_slicing("Long")])
    host.prepare(ref)
    assert new_host().start().card().time_slice == sharing_node.LONG


def test_a_daemon_without_a_record_is_removed_at_the_next_start(host, new_host, users):
    kept, lost = users.share(memory=1, cores=1), users.give(GPU, configs=[LIMITED])
    host.prepare(lost)
    process = host.daemon(lost)
    users.delete(lost)
    (host.root / "claims" / f"{lost.uid}.json").unlink()
    (host.cdi / host.cdi_name(lost)).unlink()
    again = new_host(shares=sharing_node.BY_MEMORY).start()
    assert pids.wait(process, 0)
    assert again.daemons() == []
    again.prepare(kept)
    assert again.gets(kept) == (1, 1)


def test_no_daemon_is_removed_while_another_instance_is_at_work_on_a_gpu(host, users, monkeypatch):
    """It may need the daemon that nobody needed when this one looked."""
    monkeypatch.setattr(orphans, "LOCK_SECONDS", 0.05)
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    process = host.daemon(ref)
    (host.root / "claims" / f"{ref.uid}.json").unlink()
    host.orphans.sweep()
    # Its spec still tells that a claim has it.
    assert pids.is_alive(process)
    (host.cdi / host.cdi_name(ref)).unlink()
    with host.held.hold([GPU], patience.Patience(60)):
        host.orphans.sweep()
        assert pids.is_alive(process)
    host.orphans.sweep()
    assert host.daemons() == []
    assert not pids.is_alive(process)


@pytest.mark.parametrize("config", [LIMITED, sharing_claims.time_slicing("Long")])
def test_what_a_gpu_was_set_to_for_a_claim_without_a_record_is_put_back_at_the_next_start(
    host, new_host, users, config
):
    ref = users.give(GPU, configs=[config])
    host.prepare(ref)
    users.delete(ref)
    (host.root / "claims" / f"{ref.uid}.json").unlink()
    (host.cdi / host.cdi_name(ref)).unlink()
    again = new_host().start()
    assert again.set_to() == (0, sharing_node.DEFAULT)
    assert again.is_clean()


def test_a_stray_file_beside_the_daemons_does_not_keep_the_driver_from_starting(
    host, new_host, users
):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    (host.mps / "lost+found").mkdir()
    again = new_host().start()
    assert again.gets(ref) == (30, 4)


def test_a_daemon_that_cannot_be_removed_does_not_keep_the_driver_from_starting(
    host, new_host, users, failing_call
):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    again = new_host()
    failing_call(again.launcher, "stop", errors.Retryable("it waits for the GPU"), 0)
    shutil.rmtree(again.root / "claims")
    (again.root / "claims").mkdir()
    (again.cdi / again.cdi_name(ref)).unlink()
    again.start()


def test_a_claim_whose_record_is_damaged_keeps_its_daemon_over_a_restart(host, new_host, users):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    domain, process = host.domain(ref), host.daemon(ref)
    (host.root / "claims" / f"{ref.uid}.json").write_text("{", encoding="utf-8")
    again = new_host().start()
    assert pids.is_alive(process)
    assert domain.ready() is not None
    again.prepare(ref)
    assert again.daemon(ref) == process
    assert again.gets(ref, **CHEATING) == (30, 4)
    again.unprepare(ref)
    assert [name for name in again.files() if "damaged" not in name] == []
    assert again.set_to() == (0, sharing_node.DEFAULT)


def test_a_claim_whose_record_is_damaged_keeps_its_daemon_while_the_api_is_away_too(
    host, new_host, users, failing_call
):
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    process, client = host.daemon(ref), host.connect(ref)
    (host.root / "claims" / f"{ref.uid}.json").write_text("{", encoding="utf-8")
    failing_call(users, "everywhere", errors.Retryable("it is away"), 0)
    again = new_host().start()
    [use] = again.record(ref).sharing.mps
    assert (use.percent, use.memory_bytes, use.exclusive) == (30, 4 * sharing_node.GIB, True)
    assert client.is_usable()
    client.close()
    assert again.card().compute_mode == sharing_node.EXCLUSIVE
    again.prepare(ref)
    assert again.daemon(ref) == process
    again.unprepare(ref)
    assert [name for name in again.files() if "damaged" not in name] == []
    assert again.set_to() == (0, sharing_node.DEFAULT)


def test_a_share_whose_record_is_damaged_keeps_the_daemon_of_its_namespace_from_ending(
    shared_host, new_host, users, failing_call
):
    one, other = users.share(memory=10, cores=20), users.share(memory=10, cores=20)
    shared_host.prepare(one)
    shared_host.prepare(other)
    process, client = shared_host.daemon(one), shared_host.connect(one)
    (shared_host.root / "claims" / f"{one.uid}.json").write_text("{", encoding="utf-8")
    failing_call(users, "everywhere", errors.Retryable("it is away"), 0)
    again = new_host(shares=sharing_node.BY_MEMORY).start()
    again.unprepare(other)
    assert client.is_usable()
    client.close()
    again.prepare(one)
    assert again.daemon(one) == process
    again.unprepare(one)
    assert [name for name in again.files() if "damaged" not in name] == []


@pytest.mark.parametrize(("device", "config"), [(GPU, LIMITED), (PARTITION, LIMITED_PARTITION)])
def test_a_claim_of_which_only_the_cdi_spec_tells_leaves_nothing_after_the_unprepare(
    host, new_host, users, failing_call, device, config
):
    ref = users.give(device, configs=[config])
    host.prepare(ref)
    process = host.daemon(ref)
    (host.root / "claims" / f"{ref.uid}.json").unlink()
    failing_call(users, "everywhere", errors.Retryable("it is away"), 0)
    again = new_host().start()
    assert pids.is_alive(process)
    again.unprepare(ref)
    assert again.is_clean()


def test_a_claim_whose_record_was_rebuilt_is_held_to_its_limits_by_the_next_prepare(
    shared_host, new_host, users
):
    ref = users.share(memory=10, cores=20)
    shared_host.prepare(ref)
    (shared_host.root / "claims" / f"{ref.uid}.json").write_text("{", encoding="utf-8")
    again = new_host(shares=sharing_node.BY_MEMORY).start()
    again.prepare(ref)
    assert again.gets(ref, **CHEATING) == (20, 10)


@pytest.mark.parametrize("device", [GPU, PARTITION])
def test_after_a_reboot_nothing_is_left_and_the_claim_can_be_prepared_again(
    host, new_host, users, device
):
    config = LIMITED if device == GPU else LIMITED_PARTITION
    ref = users.give(device, configs=[config])
    host.prepare(ref)
    host.reboot()
    again = new_host(boot="boot-2").start()
    assert again.daemons() == []
    assert again.record(ref) is None
    assert again.set_to() == (0, sharing_node.DEFAULT)
    again.prepare(ref)
    assert again.gets(ref, **CHEATING)[0] == (30 if device == GPU else 50)
    again.unprepare(ref)
    assert again.set_to() == (0, sharing_node.DEFAULT)
    assert again.is_clean()


def test_after_a_reboot_what_the_time_slice_was_before_that_is_forgotten(host, new_host, users):
    host.set_card(time_slice=sharing_node.MEDIUM)
    ref = users.give(GPU, configs=[sharing_claims.time_slicing("Long")])
    host.prepare(ref)
    host.reboot()
    again = new_host(boot="boot-2").start()
    again.prepare(ref)
    assert again.card().time_slice == sharing_node.LONG
    again.unprepare(ref)
    assert again.is_clean()


def test_a_record_that_was_rebuilt_without_the_api_is_completed_by_the_next_prepare(
    shared_host, new_host, users
):
    ref = users.share(memory=10, cores=20)
    shared_host.prepare(ref)
    (shared_host.root / "claims" / f"{ref.uid}.json").write_text("{", encoding="utf-8")
    known = dict(users.known)
    users.known.clear()
    again = new_host(shares=sharing_node.BY_MEMORY).start()
    users.known.update(known)
    again.prepare(ref)
    assert again.gets(ref, **CHEATING) == (20, 10)
    again.unprepare(ref)
    assert again.daemons() == []


def test_what_is_set_up_for_a_rebuilt_record_is_remembered_first(
    shared_host, new_host, users, failing_call
):
    ref = users.share(memory=10, cores=20)
    shared_host.prepare(ref)
    (shared_host.root / "claims" / f"{ref.uid}.json").write_text("{", encoding="utf-8")
    known = dict(users.known)
    users.known.clear()
    again = new_host(shares=sharing_node.BY_MEMORY).start()
    users.known.update(known)
    failing_call(again.launcher, "start", errors.Rejected("no"), 0)
    with pytest.raises(errors.Rejected, match="no"):
        again.prepare(ref)
    assert again.record(ref).sharing
    again.unprepare(ref)
    assert again.daemons() == []


@pytest.mark.parametrize("config", [LIMITED, sharing_claims.time_slicing("Long")])
def test_a_damaged_record_does_not_have_the_settings_of_its_gpu_put_back(host, users, config):
    ref = users.give(GPU, configs=[config])
    host.prepare(ref)
    wanted = host.set_to()
    (host.root / "claims" / f"{ref.uid}.json").write_text("{", encoding="utf-8")
    host.orphans.settle()
    assert host.set_to() == wanted
