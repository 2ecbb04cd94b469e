"""Shares, daemons and time slices stay on the cards that they were published for."""

import pytest
import sharing_claims
import sharing_node

from dra_driver.logic.offering import naming
from dra_driver.sim.gpus import gpu_operations

GPU, OTHER_GPU, PARTITION = sharing_claims.GPU, sharing_claims.OTHER_GPU, sharing_claims.PARTITION


@pytest.fixture
def cards(shared_host):
    """The UUIDs of the two cards by the names that they were given."""
    return {GPU: shared_host.uuid(0), OTHER_GPU: shared_host.uuid(1)}


@pytest.fixture
def swapped(shared_host, new_host, cards):
    """Restarts the node: with the cards changed over, the daemons gone, and other options."""

    def restart(**options):
        shared_host.reboot()
        gpu_operations.renumber(shared_host.simulation, cards[OTHER_GPU], cards[GPU])
        return new_host(boot="boot-2", shares=sharing_node.BY_MEMORY, **options).start()

    return restart


def test_shares_of_a_card_meet_on_that_card_after_a_boot_that_changed_its_minor(
    shared_host, users, cards, swapped
):
    before, after = (users.share(memory=10, cores=20) for _ in range(2))
    shared_host.prepare(before)
    again = swapped()
    again.prepare(before)
    again.prepare(after)
    assert len(again.daemons()) == 1
    for ref in (before, after):
        assert again.described(ref).device == cards[GPU]
        assert again.record(ref).gpus == {GPU: cards[GPU]}
        again.unprepare(ref)
    assert again.is_clean()


def test_shares_of_a_partition_are_of_the_card_that_it_was_published_for(users, cards, swapped):
    ref = users.share(device=PARTITION, memory=2, cores=20)
    again = swapped()
    again.prepare(ref)
    assert [one.gpu for one in again.record(ref).partitions] == [cards[GPU]]
    again.unprepare(ref)
    assert again.is_clean()


def test_settings_go_to_the_card_of_the_claim(users, cards, swapped):
    ref = users.give(OTHER_GPU, configs=[sharing_claims.time_slicing("Long")])
    again = swapped()
    again.prepare(ref)
    slices = {card.uuid: card.time_slice for card in map(again.card, (0, 1))}
    assert slices == {cards[OTHER_GPU]: sharing_node.LONG, cards[GPU]: 0}
    again.unprepare(ref)
    assert again.is_clean()


def test_a_share_of_a_card_that_was_replaced_is_refused_and_told_as_that_share(
    shared_host, new_host, users, cards
):
    share = sharing_claims.share(memory=10, cores=20)
    ref = users.give(share)
    shared_host.prepare(ref)
    shared_host.reboot()
    gpu_operations.exchange(shared_host.simulation, cards[GPU], "h100-80gb-hbm3")
    again = new_host(None, boot="boot-2", shares=sharing_node.BY_MEMORY).start()
    with pytest.raises(naming.WrongCard) as caught:
        again.prepare(ref)
    [result] = caught.value.results
    assert (result.device.device, result.share_id) == (GPU, share["shareID"])
    assert again.record(ref) is None
    assert again.daemons() == []
