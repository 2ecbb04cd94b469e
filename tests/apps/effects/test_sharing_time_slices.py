"""Time slices of claims: set when the first is prepared, put back after the last is gone."""

import pytest
import sharing_claims
import sharing_node

from dra_driver import errors
from dra_driver.sim.gpus import gpu_faults

pytestmark = pytest.mark.sampled(9)

GPU, OTHER_GPU = sharing_claims.GPU, sharing_claims.OTHER_GPU
SHORT, MEDIUM, LONG = sharing_node.SHORT, sharing_node.MEDIUM, sharing_node.LONG


@pytest.fixture
def divided(new_host):
    """Cards that many claims may have at once, and nobody holds to anything."""
    return new_host(shares=sharing_node.NOT_ENFORCED)


def wanting(users, interval, *devices, **fields):
    return users.give(
        *(devices or (GPU,)), configs=[sharing_claims.time_slicing(interval)], **fields
    )


@pytest.mark.parametrize(
    ("interval", "number"), [("Default", 0), ("Short", SHORT), ("Medium", MEDIUM), ("Long", LONG)]
)
@pytest.mark.parametrize("before", [0, LONG])
def test_it_is_set_for_the_claim_and_what_it_was_afterwards(host, users, interval, number, before):
    host.set_card(time_slice=before)
    ref = wanting(users, interval)
    host.prepare(ref)
    assert (host.card(0).time_slice, host.card(1).time_slice) == (number, 0)
    host.unprepare(ref)
    assert host.card().time_slice == before
    host.set_card(time_slice=0)
    assert host.is_clean()


def test_what_it_was_is_remembered_over_a_second_prepare_and_a_restart(host, new_host, users):
    host.set_card(time_slice=SHORT)
    ref = wanting(users, "Long")
    host.prepare(ref)
    host.prepare(ref)
    again = new_host().start()
    again.prepare(ref)
    assert again.card().time_slice == LONG
    again.unprepare(ref)
    assert again.card().time_slice == SHORT


def test_all_cards_of_the_claim_are_set(host, users):
    host.set_card(1, time_slice=MEDIUM)
    ref = wanting(users, "Long", GPU, OTHER_GPU)
    host.prepare(ref)
    assert (host.card(0).time_slice, host.card(1).time_slice) == (LONG, LONG)
    host.unprepare(ref)
    assert (host.card(0).time_slice, host.card(1).time_slice) == (0, MEDIUM)


def test_a_claim_without_a_config_changes_nothing(host, users):
    host.set_card(time_slice=MEDIUM, compute_mode=sharing_node.EXCLUSIVE)
    ref = users.give(GPU)
    host.prepare(ref)
    assert host.set_to() == (MEDIUM, sharing_node.EXCLUSIVE)
    host.unprepare(ref)
    assert host.set_to() == (MEDIUM, sharing_node.EXCLUSIVE)


def test_claims_on_one_card_with_the_same_interval_share_the_setting(divided, users):
    divided.set_card(time_slice=SHORT)
    one, other = (
        wanting(users, "Long", sharing_claims.share(memory=8, cores=10)) for _ in range(2)
    )
    divided.prepare(one)
    divided.prepare(other)
    divided.unprepare(one)
    assert divided.card().time_slice == LONG
    divided.unprepare(other)
    assert divided.card().time_slice == SHORT


def test_another_interval_on_the_same_card_is_refused_with_the_claim_that_set_it(divided, users):
    one = wanting(users, "Long", sharing_claims.share(memory=8, cores=10), namespace="team-a")
    other = wanting(users, "Short", sharing_claims.share(memory=8, cores=10))
    divided.prepare(one)
    with pytest.raises(errors.Rejected) as caught:
        divided.prepare(other)
    assert str(one) in str(caught.value)
    assert "Use another card, or the same interval" in str(caught.value)
    assert divided.card().time_slice == LONG
    assert divided.record(other) is None
    divided.unprepare(one)
    divided.prepare(other)
    assert divided.card().time_slice == SHORT


def test_another_interval_on_another_card_is_fine(divided, users):
    one = wanting(users, "Long", sharing_claims.share(GPU, memory=8, cores=10))
    other = wanting(users, "Short", sharing_claims.share(OTHER_GPU, memory=8, cores=10))
    divided.prepare(one)
    divided.prepare(other)
    assert (divided.card(0).time_slice, divided.card(1).time_slice) == (LONG, SHORT)


def test_two_intervals_for_one_card_in_one_claim_are_refused(divided, users):
    configs = [
        sharing_claims.time_slicing("Long", "r0"),
        sharing_claims.time_slicing("Short", "r1"),
    ]
    shares = [sharing_claims.share(memory=8, cores=10) for _ in range(2)]
    with pytest.raises(errors.Rejected, match="time slice"):
        divided.prepare(users.give(*shares, configs=configs))
    assert divided.is_clean()


def test_a_claim_whose_pod_is_gone_is_waited_for_before_another_interval_is_set(divided, users):
    one = wanting(users, "Long", sharing_claims.share(memory=8, cores=10))
    other = wanting(users, "Short", sharing_claims.share(memory=8, cores=10))
    divided.prepare(one)
    users.delete(one)
    with pytest.raises(errors.Retryable):
        divided.prepare(other, seconds=0.1)


def test_a_card_without_support_is_refused_with_the_way_out(host, users):
    host.set_card(time_slice_supported=False)
    with pytest.raises(errors.Rejected) as caught:
        host.prepare(wanting(users, "Long"))
    assert "gpu-0" in str(caught.value)
    assert "Remove `sharing`" in str(caught.value)
    assert host.is_clean()


def test_a_partition_has_none(host, users):
    ref = users.give(sharing_claims.PARTITION, configs=[sharing_claims.time_slicing("Long", "r0")])
    with pytest.raises(errors.Rejected, match="MigDeviceConfig"):
        host.prepare(ref)
    assert host.is_clean()


def test_a_gpu_that_falls_off_the_bus_does_not_hold_up_the_unprepare(host, users):
    ref = wanting(users, "Long")
    host.prepare(ref)
    gpu_faults.remove(host.simulation, host.uuid())
    host.unprepare(ref)
    assert host.files() == []


def test_a_share_held_to_by_mps_has_no_time_slice(shared_host, users):
    ref = wanting(users, "Long", sharing_claims.share(memory=8, cores=10))
    with pytest.raises(errors.Rejected, match="Remove `sharing`"):
        shared_host.prepare(ref)
    assert shared_host.is_clean()
