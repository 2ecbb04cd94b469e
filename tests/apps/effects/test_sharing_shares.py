"""Shares of one device: a daemon for each namespace, whose cap is the largest share in it."""

import functools
import re

import plugin_process
import pytest
import sharing_claims
import sharing_node

from dra_driver import errors
from dra_driver.model import shares as share_model

pytestmark = pytest.mark.sampled(13)

GPU, OTHER_GPU, PARTITION = sharing_claims.GPU, sharing_claims.OTHER_GPU, sharing_claims.PARTITION


def test_a_share_is_held_to_what_it_took(shared_host, users):
    ref = users.share(memory=10, cores=20)
    shared_host.prepare(ref)
    assert shared_host.limits(ref) == (20, 10)
    assert shared_host.gets(ref) == (20, 10)
    assert shared_host.gets(ref, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="100") == (20, 10)
    assert shared_host.card().compute_mode == sharing_node.DEFAULT
    shared_host.unprepare(ref)
    assert shared_host.is_clean()


def test_claims_of_one_namespace_share_a_daemon_whose_cap_is_the_larger(shared_host, users):
    small, large = users.share(memory=10, cores=20), users.share(memory=30, cores=10)
    shared_host.prepare(small)
    process = shared_host.daemon(small)
    shared_host.prepare(large)
    assert (shared_host.daemon(small), shared_host.daemon(large)) == (process, process)
    assert shared_host.limits(large) == (20, 30)
    assert shared_host.gets(small) == (20, 10)
    assert shared_host.gets(large) == (10, 30)


def test_each_namespace_has_its_own_daemon(shared_host, users):
    one = users.share(namespace="team-a", memory=10, cores=20)
    other = users.share(namespace="team-b", memory=30, cores=40)
    shared_host.prepare(one)
    shared_host.prepare(other)
    assert shared_host.daemon(one) != shared_host.daemon(other)
    assert (shared_host.limits(one), shared_host.limits(other)) == ((20, 10), (40, 30))
    shared_host.unprepare(other)
    assert shared_host.gets(one) == (20, 10)
    assert len(shared_host.daemons()) == 1


def test_who_only_watches_takes_nothing_from_the_shares(shared_host, users):
    watcher = users.give(sharing_claims.share(memory=79, cores=100) | {"adminAccess": True})
    ref = users.share(memory=10, cores=20)
    shared_host.prepare(watcher)
    shared_host.prepare(ref)
    assert shared_host.gets(ref) == (20, 10)
    shared_host.prepare(watcher)
    assert shared_host.edits(watcher)[0].keys().isdisjoint({"CUDA_MPS_PIPE_DIRECTORY"})
    shared_host.unprepare(watcher)
    assert shared_host.gets(ref) == (20, 10)
    shared_host.unprepare(ref)
    assert shared_host.is_clean()


def test_each_card_has_its_own_daemon(shared_host, users):
    one = users.share(memory=10, cores=20)
    other = users.share(device=OTHER_GPU, memory=10, cores=20)
    shared_host.prepare(one)
    shared_host.prepare(other)
    assert shared_host.described(one).device == shared_host.uuid(0)
    assert shared_host.described(other).device == shared_host.uuid(1)


def test_the_unprepare_of_one_leaves_the_others_programs_alone(shared_host, users):
    one, other = users.share(memory=10, cores=20), users.share(memory=30, cores=40)
    shared_host.prepare(one)
    shared_host.prepare(other)
    process, client = shared_host.daemon(other), shared_host.connect(other)
    shared_host.unprepare(one)
    assert client.is_usable()
    assert shared_host.daemon(other) == process
    assert shared_host.gets(other) == (40, 30)
    client.close()
    shared_host.unprepare(other)
    assert shared_host.is_clean()


def test_the_cap_follows_when_the_larger_is_given_back(shared_host, users):
    small, large = users.share(memory=10, cores=20), users.share(memory=30, cores=40)
    shared_host.prepare(small)
    shared_host.prepare(large)
    client = shared_host.connect(small)
    shared_host.unprepare(large)
    shared_host.look_after()
    cheating = {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=60G",
    }
    assert shared_host.gets(small, **cheating) == (20, 10)
    assert client.is_usable()
    client.close()


def test_the_cap_follows_when_a_larger_one_fails(shared_host, users, failing_call):
    small, large = users.share(memory=10, cores=20), users.share(memory=30, cores=40)
    shared_host.prepare(small)
    process = shared_host.daemon(small)
    failing_call(shared_host.launcher, "wait_ready", errors.Rejected("no"), 0)
    with pytest.raises(errors.Rejected, match="no"):
        shared_host.prepare(large)
    assert shared_host.record(large) is None
    shared_host.look_after()
    assert shared_host.daemon(small) == process
    assert shared_host.limits(small) == (20, 10)


def test_a_prepare_again_gives_a_share_the_cap_of_all(shared_host, users):
    small, large = users.share(memory=10, cores=20), users.share(memory=30, cores=40)
    shared_host.prepare(small)
    shared_host.prepare(large)
    shared_host.prepare(small)
    assert shared_host.limits(large) == (40, 30)


def test_two_shares_of_one_device_in_one_claim_have_keys_of_their_own(shared_host, users):
    first, second = (
        sharing_claims.share(memory=10, cores=20),
        sharing_claims.share(memory=5, cores=30),
    )
    ref = users.give(first, second)
    entries = shared_host.prepare(ref)
    assert [entry.share_id for entry in entries] == [first["shareID"], second["shareID"]]
    assert len(shared_host.daemons()) == 1
    assert shared_host.limits(ref) == (30, 10)
    assert shared_host.gets(ref, f"{GPU}-{first['shareID']}") == (20, 10)
    assert shared_host.gets(ref, f"{GPU}-{second['shareID']}") == (30, 5)
    shared_host.unprepare(ref)
    assert shared_host.is_clean()


@pytest.mark.parametrize("first_out", [0, 1])
def test_the_instance_of_a_shared_partition_goes_with_the_last_claim(shared_host, users, first_out):
    refs = [users.share(device=PARTITION, memory=2, cores=20) for _ in range(2)]
    for ref in refs:
        shared_host.prepare(ref)
    [instance] = shared_host.mig_uuids()
    assert shared_host.described(refs[0]).device == instance
    shared_host.unprepare(refs[first_out])
    assert shared_host.mig_uuids() == {instance}
    assert shared_host.gets(refs[1 - first_out]) == (20, 2)
    shared_host.unprepare(refs[1 - first_out])
    assert shared_host.is_clean()


def test_a_second_share_of_a_partition_that_fails_leaves_the_instance(
    shared_host, users, failing_call
):
    ref, other = (users.share(device=PARTITION, memory=2, cores=20) for _ in range(2))
    shared_host.prepare(ref)
    failing_call(shared_host.launcher, "start", errors.Rejected("no"), 0)
    with pytest.raises(errors.Rejected, match="no"):
        shared_host.prepare(other)
    assert shared_host.gets(ref) == (20, 2)
    assert len(shared_host.instances()) == 1


def test_a_shared_partition_that_a_reset_took_comes_back_for_each_claim(shared_host, users):
    refs = [users.share(device=PARTITION, memory=2, cores=20) for _ in range(2)]
    for ref in refs:
        shared_host.prepare(ref)
    shared_host.destroy(shared_host.card().gpu_instances[0].id)
    for ref in refs:
        shared_host.prepare(ref)
    [instance] = shared_host.mig_uuids()
    for ref in refs:
        assert shared_host.described(ref).device == instance
        assert shared_host.gets(ref) == (20, 2)


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("next_one", [0, 1])
def test_a_shared_partition_that_a_reset_took_comes_back_where_the_first_try_fails(
    shared_host, users, failing_call, monkeypatch, is_killed, next_one
):
    refs = [users.share(device=PARTITION, memory=2, cores=20) for _ in range(2)]
    for ref in refs:
        shared_host.prepare(ref)
    shared_host.destroy(shared_host.card().gpu_instances[0].id)
    with monkeypatch.context() as context:
        failing_call(shared_host.launcher, "start", errors.Rejected("no"), 0)
        if is_killed:
            undoer = shared_host.preparer._attempts._undoer
            context.setattr(undoer, "after_failure", lambda _: None)
        with pytest.raises(errors.Rejected, match="no"):
            shared_host.prepare(refs[0])
    for ref in (refs[next_one], refs[1 - next_one]):
        shared_host.prepare(ref)
    assert [shared_host.gets(ref) for ref in refs] == [(20, 2), (20, 2)]
    for ref in refs:
        shared_host.unprepare(ref)
    assert shared_host.is_clean()


def test_more_than_the_device_has_is_refused_with_numbers(shared_host, users):
    one, other = users.share(memory=50, cores=50), users.share(memory=40, cores=10)
    shared_host.prepare(one)
    with pytest.raises(errors.Rejected) as caught:
        shared_host.prepare(other)
    assert "'gpu-0', capacity memory" in str(caught.value)
    assert "90Gi" in str(caught.value)
    assert shared_host.record(other) is None
    assert shared_host.limits(one) == (50, 50)


def test_more_cores_than_there_are_are_refused_with_numbers(shared_host, users):
    one, other = users.share(memory=5, cores=60), users.share(memory=5, cores=41)
    shared_host.prepare(one)
    with pytest.raises(errors.Rejected, match=r"capacity cores: 100 is .* have 101"):
        shared_host.prepare(other)
    third = users.share(memory=5, cores=40)
    shared_host.prepare(third)
    assert shared_host.limits(third) == (60, 5)


def test_what_a_claim_still_holds_whose_pod_is_gone_is_waited_for(shared_host, users):
    one, other = users.share(memory=50, cores=50), users.share(memory=40, cores=10)
    shared_host.prepare(one)
    users.delete(one)
    with pytest.raises(errors.Retryable):
        shared_host.prepare(other, seconds=0.1)


def test_a_device_in_shares_is_not_handed_out_whole(shared_host, users):
    ref, whole = users.share(memory=5, cores=5), users.give(GPU)
    shared_host.prepare(ref)
    with pytest.raises(errors.Rejected, match=f"prepared for claim {re.escape(str(ref))}"):
        shared_host.prepare(whole)


def test_a_share_whose_config_limits_it_further_keeps_to_both(shared_host, users):
    config = sharing_claims.mps_gpu(
        defaultActiveThreadPercentage=90, defaultPinnedDeviceMemoryLimit="6Gi"
    )
    ref = users.give(sharing_claims.share(memory=10, cores=20), configs=[config])
    shared_host.prepare(ref)
    assert shared_host.gets(ref, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="100") == (20, 6)
    assert shared_host.card().compute_mode == sharing_node.DEFAULT
    shared_host.unprepare(ref)
    assert shared_host.is_clean()


def test_numbered_shares_get_their_part(new_host, users):
    host = new_host(shares=share_model.Shares(count=4))
    one, two = users.share(shares=1), users.share(shares=2)
    host.prepare(one)
    host.prepare(two)
    total = host.gpus.snapshot.offered[GPU].gpu.memory_bytes
    part = total // 4 // sharing_node.MIB * sharing_node.MIB / sharing_node.GIB
    assert host.gets(one) == (25, part)
    assert host.gets(two)[0] == 50


def test_shares_that_nobody_holds_to_anything_have_no_daemon(new_host, users):
    host = new_host(shares=sharing_node.NOT_ENFORCED)
    ref = users.share(memory=10, cores=20)
    host.prepare(ref)
    assert host.daemons() == []
    assert not any("MPS" in name for name in host.edits(ref)[0])


def test_claims_that_hold_shares_keep_them_when_shares_are_switched_off(
    shared_host, new_host, users
):
    ref, other = users.share(memory=10, cores=20), users.share(memory=30, cores=40)
    shared_host.prepare(ref)
    shared_host.prepare(other)
    process = shared_host.daemon(ref)
    off = new_host().start()
    off.prepare(ref)
    assert off.daemon(ref) == process
    assert off.gets(ref) == (20, 10)
    off.unprepare(ref)
    assert off.gets(other) == (40, 30)
    off.unprepare(other)
    assert off.is_clean()


def test_claims_that_hold_shares_keep_their_limits_when_enforcement_is_switched_off(
    shared_host, new_host, users
):
    ref = users.share(memory=10, cores=20)
    shared_host.prepare(ref)
    off = new_host(shares=sharing_node.NOT_ENFORCED).start()
    off.prepare(ref)
    assert off.gets(ref) == (20, 10)
    off.unprepare(ref)
    assert off.is_clean()


def test_claims_that_come_and_go_at_once_are_each_held_to_their_share(shared_host, users):
    refs = [
        users.share(namespace=f"team-{number % 2}", memory=5 + number, cores=5 + number)
        for number in range(6)
    ]
    plugin_process.at_once(*(functools.partial(shared_host.prepare, ref, 60) for ref in refs))
    assert len(shared_host.daemons()) == 2
    assert [shared_host.limits(ref) for ref in refs] == [(9, 9), (10, 10)] * 3
    assert [shared_host.gets(ref) for ref in refs] == [(5 + n, 5 + n) for n in range(6)]
    leaving, staying = refs[2:], refs[:2]
    plugin_process.at_once(*(functools.partial(shared_host.unprepare, r, 60) for r in leaving))
    shared_host.look_after()
    assert [shared_host.limits(ref) for ref in staying] == [(5, 5), (6, 6)]
    plugin_process.at_once(*(functools.partial(shared_host.unprepare, r, 60) for r in staying))
    assert shared_host.is_clean()


def test_a_limit_per_device_of_one_claim_does_not_lower_the_cap_of_the_others(shared_host, users):
    config = sharing_claims.mps_gpu(
        defaultPerDevicePinnedMemoryLimit={"0": "2Gi"}, domain="Namespace"
    )
    plain = users.share(memory=30, cores=40)
    lowered = users.give(sharing_claims.share(memory=10, cores=20), configs=[config])
    shared_host.prepare(plain)
    shared_host.prepare(lowered)
    assert shared_host.gets(lowered) == (20, 2)
    assert shared_host.gets(plain) == (40, 30)
    shared_host.prepare(plain)
    assert shared_host.gets(lowered) == (20, 2)


def test_what_a_claim_may_share_whose_record_is_damaged_is_not_taken_down(shared_host, users):
    one, other = users.share(memory=5, cores=5), users.share(memory=6, cores=6)
    shared_host.prepare(one)
    shared_host.prepare(other)
    record = shared_host.root / "claims" / f"{other.uid}.json"
    text = record.read_text(encoding="utf-8")
    record.write_text("damaged", encoding="utf-8")
    shared_host.unprepare(one)
    assert shared_host.gets(other) == (6, 6)
    record.write_text(text, encoding="utf-8")
    shared_host.unprepare(one)
    assert shared_host.gets(other) == (6, 6)
