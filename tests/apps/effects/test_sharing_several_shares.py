"""Shares of several cards in one request: a container uses all of them, through one daemon."""

import pytest
import sharing_claims

from dra_driver import errors
from dra_driver.logic.preparing import cdi, mps_edits

pytestmark = pytest.mark.sampled(5)

GPU, OTHER_GPU, PARTITION = sharing_claims.GPU, sharing_claims.OTHER_GPU, sharing_claims.PARTITION
CHEATING = {
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=60G,1=60G",
}


def part(device, *, request="gpu", **amounts):
    """A share for a request that has several."""
    return sharing_claims.share(device=device, **amounts) | {"request": request}


def two(users, *, namespace="default", configs=(), **amounts):
    """A claim that asks once for two shares, which are on two cards."""
    parts = (part(OTHER_GPU, **amounts), part(GPU, **amounts))
    return users.give(*parts, namespace=namespace, configs=configs)


def recalled(host, ref):
    text = (host.cdi / host.cdi_name(ref)).read_text(encoding="utf-8")
    gpus = {f"gpu-{number}": host.uuid(number) for number in range(2)}
    return mps_edits.recalled(host.record(ref).devices, cdi.edits(ref.uid, text), gpus)


def test_one_daemon_serves_both_cards_and_holds_each_share_to_its_limit(shared_host, users):
    ref = two(users, memory=10, cores=20)
    for entry in shared_host.prepare(ref):
        key = cdi.device_key(entry.device, entry.share_id)
        assert shared_host.gets_each(ref, key, **CHEATING) == [10, 10]
        assert shared_host.gets(ref, key)[0] == 20
    assert len(shared_host.daemons()) == 1
    assert shared_host.described(ref).devices == (shared_host.uuid(0), shared_host.uuid(1))
    assert shared_host.limits(ref) == (20, 10)
    shared_host.unprepare(ref)
    assert shared_host.is_clean()


def test_a_program_that_hides_one_of_the_cards_has_the_limit_on_the_other(shared_host, users):
    ref = two(users, memory=10, cores=20)
    [entry, _] = shared_host.prepare(ref)
    key = cdi.device_key(entry.device, entry.share_id)
    hidden = {"CUDA_VISIBLE_DEVICES": shared_host.uuid(1)}
    assert shared_host.gets_each(ref, key, **hidden) == [10]


def test_a_claim_with_one_share_of_such_a_card_has_a_daemon_of_its_own(shared_host, users):
    both, one = two(users, memory=10, cores=20), users.share(memory=30, cores=40)
    shared_host.prepare(both)
    shared_host.prepare(one)
    assert len(shared_host.daemons()) == 2
    assert (shared_host.limits(both), shared_host.limits(one)) == ((20, 10), (40, 30))
    shared_host.unprepare(both)
    assert shared_host.gets(one) == (40, 30)
    shared_host.unprepare(one)
    assert shared_host.is_clean()


def test_claims_of_one_namespace_with_the_same_cards_share_a_daemon(shared_host, users):
    small, large = two(users, memory=10, cores=20), two(users, memory=30, cores=40)
    shared_host.prepare(small)
    shared_host.prepare(large)
    assert shared_host.daemon(small) == shared_host.daemon(large)
    assert shared_host.limits(small) == (40, 30)
    shared_host.unprepare(large)
    shared_host.look_after()
    assert shared_host.limits(small) == (20, 10)
    shared_host.unprepare(small)
    assert shared_host.is_clean()


def test_other_namespaces_with_the_same_cards_have_a_daemon_of_their_own(shared_host, users):
    one, other = (two(users, namespace=name, memory=10, cores=20) for name in ("team-a", "team-b"))
    shared_host.prepare(one)
    shared_host.prepare(other)
    assert shared_host.daemon(one) != shared_host.daemon(other)


def test_a_config_of_the_claim_lowers_the_limits_of_both(shared_host, users):
    lower = sharing_claims.mps_gpu(
        defaultActiveThreadPercentage=10, defaultPinnedDeviceMemoryLimit="4Gi"
    )
    ref = two(users, memory=10, cores=20, configs=[lower])
    [entry, _] = shared_host.prepare(ref)
    key = cdi.device_key(entry.device, entry.share_id)
    assert shared_host.gets_each(ref, key, **CHEATING) == [4, 4]
    assert shared_host.limits(ref) == (10, 4)


def test_shares_that_differ_are_refused_with_their_amounts(shared_host, users):
    ref = users.give(part(GPU, memory=10, cores=20), part(OTHER_GPU, memory=5, cores=20))
    with pytest.raises(
        errors.Rejected,
        match="request 'gpu': its shares differ \\(10Gi and 20 % of gpu-0, 5Gi and 20 % of gpu-1",
    ):
        shared_host.prepare(ref)
    assert shared_host.is_clean()


@pytest.mark.parametrize(
    "others",
    [
        [PARTITION],
        [sharing_claims.share(device=PARTITION, memory=2, cores=20)],
        [sharing_claims.share(device=GPU, memory=1, cores=1)],
    ],
    ids=["a partition", "a share of a partition", "another share of one of the cards"],
)
def test_a_request_with_more_than_shares_of_different_cards_is_refused(shared_host, users, others):
    parts = [part(OTHER_GPU, memory=10, cores=20), part(GPU, memory=10, cores=20)]
    more = [{"device": one} if isinstance(one, str) else one for one in others]
    ref = users.give(*parts, *(one | {"request": "gpu"} for one in more))
    with pytest.raises(errors.Rejected, match="CUDA talks to one only"):
        shared_host.prepare(ref)
    assert shared_host.is_clean()


def test_what_the_claims_record_has_of_its_daemon_is_recalled_from_the_spec(shared_host, users):
    ref = two(users, memory=10, cores=20)
    shared_host.prepare(ref)
    assert recalled(shared_host, ref) == shared_host.record(ref).sharing


def test_two_requests_for_the_same_cards_are_two_uses_of_one_daemon(shared_host, users):
    ref = users.give(
        *(part(device, memory=10, cores=20) for device in (GPU, OTHER_GPU)),
        *(part(device, memory=5, cores=30, request="more") for device in (GPU, OTHER_GPU)),
    )
    shared_host.prepare(ref)
    assert len(shared_host.daemons()) == 1
    assert shared_host.limits(ref) == (30, 10)
    uses = shared_host.record(ref).sharing.mps
    assert [(use.percent, len(use.keys)) for use in uses] == [(20, 2), (30, 2)]
    assert recalled(shared_host, ref) == shared_host.record(ref).sharing
