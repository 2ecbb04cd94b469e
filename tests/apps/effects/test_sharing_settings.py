"""Drivers that start again with other settings, while claims share devices."""

import pytest
import sharing_claims
import sharing_node

from dra_driver import errors
from dra_driver.model import shares as share_model

pytestmark = pytest.mark.sampled(9)

GPU = sharing_claims.GPU
CHEATING = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}


def test_a_daemon_keeps_its_shared_memory_when_the_setting_for_it_changes(
    shared_host, new_host, users
):
    small, large = users.share(memory=10, cores=20), users.share(memory=30, cores=40)
    shared_host.prepare(small)
    process, wanted = shared_host.daemon(small), shared_host.described(small)
    changed = wanted.shm_bytes * 2
    again = new_host(shares=sharing_node.BY_MEMORY, shm_bytes=changed).start()
    again.prepare(small)
    again.prepare(large)
    assert again.daemon(small) == again.daemon(large) == process
    assert again.described(large).shm_bytes == wanted.shm_bytes
    assert again.gets(large) == (40, 30)
    again.unprepare(small)
    again.unprepare(large)
    again.prepare(small)
    assert again.described(small).shm_bytes == changed


@pytest.mark.parametrize(
    "changed",
    [share_model.Shares(4), share_model.Shares(100), sharing_node.NOT_ENFORCED, None],
    ids=["by count", "by another count", "not enforced", "off"],
)
def test_shares_that_are_prepared_stay_what_they_are_when_devices_are_divided_otherwise(
    shared_host, new_host, users, changed
):
    ref = users.share(memory=30, cores=20)
    entries = shared_host.prepare(ref)
    process = shared_host.daemon(ref)
    again = new_host(shares=changed).start()
    assert again.prepare(ref) == entries
    assert again.daemon(ref) == process
    assert again.gets(ref, **CHEATING) == (20, 30)
    again.unprepare(ref)
    assert again.is_clean()


def test_a_daemon_whose_claim_lost_its_record_stays_when_no_share_needs_one_any_more(
    shared_host, new_host, users
):
    ref = users.share(memory=30, cores=20)
    shared_host.prepare(ref)
    process = shared_host.daemon(ref)
    (shared_host.root / "claims" / f"{ref.uid}.json").write_text("{", encoding="utf-8")
    again = new_host(shares=sharing_node.NOT_ENFORCED).start()
    again.prepare(ref)
    assert again.gets(ref, **CHEATING) == (20, 30)
    after = new_host(shares=sharing_node.NOT_ENFORCED).start()
    assert after.daemon(ref) == process
    after.unprepare(ref)
    assert after.daemons() == []


def test_shares_that_are_prepared_stay_when_devices_have_fewer_by_now(new_host, users):
    before = new_host(shares=share_model.Shares(8))
    some = [users.give(sharing_claims.share(shares=2)) for _ in range(3)]
    for ref in some:
        before.prepare(ref)
    again = new_host(shares=share_model.Shares(4)).start()
    for ref in some:
        again.prepare(ref)
        assert again.limits(ref)[0] == 25
    with pytest.raises(errors.Rejected, match="shares: 4 is what it has"):
        again.prepare(users.give(sharing_claims.share(shares=1)))


def test_shares_that_nobody_held_to_limits_stay_so_when_mps_would_now(new_host, users):
    several = users.give(*[sharing_claims.share(device=GPU, memory=1, cores=1) for _ in range(2)])
    turns = users.give(sharing_claims.share(memory=1, cores=1), configs=[
        sharing_claims.time_slicing("Long")
    ])  # fmt: skip
    before = new_host(shares=sharing_node.NOT_ENFORCED)
    before.prepare(several)
    before.prepare(turns)
    again = new_host(shares=sharing_node.BY_MEMORY).start()
    again.prepare(several)
    again.prepare(turns)
    assert again.daemons() == []
    assert again.card().time_slice == sharing_node.LONG
    again.unprepare(several)
    again.unprepare(turns)
    assert again.is_clean()
