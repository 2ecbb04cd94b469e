"""GPUs of claims that are for one daemon alone, on nodes whose driver forgets what nobody has open.

Persistence mode is off: a compute mode lasts until the last client of the card is gone.
"""

import pytest
import sharing_claims
import sharing_node
import structlog

from dra_driver import errors
from dra_driver.adapters.system import patience
from dra_driver.apps.upkeep import card_upkeep
from dra_driver.sim.gpus import gpu_clients, gpu_faults, gpu_operations

pytestmark = pytest.mark.sampled(11)

GPU, OTHER_GPU = sharing_claims.GPU, sharing_claims.OTHER_GPU
DEFAULT, PROHIBITED, EXCLUSIVE = (
    sharing_node.DEFAULT,
    sharing_node.PROHIBITED,
    sharing_node.EXCLUSIVE,
)
LIMITED = sharing_claims.mps_gpu(
    defaultActiveThreadPercentage=30, defaultPinnedDeviceMemoryLimit="4Gi"
)
LONG = sharing_claims.time_slicing("Long")
NO_PERMISSION = 4


@pytest.fixture
def host(new_host):
    """Two H100 with persistence mode off."""
    made = new_host()
    for number in (0, 1):
        made.set_card(number, persistence_mode=False)
    return made


@pytest.fixture
def claim(host, users):
    """A claim that is prepared: a whole GPU under MPS, which no look has seen so far."""
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    return ref


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def is_open(host, number):
    """Whether anybody is a client of a card."""
    opened = gpu_clients.attach(host.simulation, [host.uuid(number)])
    try:
        return not all(map(gpu_clients._is_alone, opened.descriptors.values()))
    finally:
        gpu_clients.detach(opened)


def test_the_mode_is_there_for_whoever_looks_once_the_claim_is_prepared(host, claim):
    assert host.mode() == EXCLUSIVE
    assert host.gets(claim) == (30, 4)


def test_the_mode_of_all_gpus_of_a_claim_is_there(host, users):
    ref = users.give(GPU, OTHER_GPU, configs=[LIMITED])
    host.prepare(ref)
    assert [host.mode(number) for number in (0, 1)] == [EXCLUSIVE, EXCLUSIVE]


def test_nobody_but_the_daemon_has_a_card_open_for_it(host, claim):
    assert [is_open(host, number) for number in (0, 1)] == [True, False]
    host.unprepare(claim)
    assert [is_open(host, number) for number in (0, 1)] == [False, False]
    assert host.is_clean()


def test_a_mode_that_does_not_stay_is_no_prepared_claim(host, users, monkeypatch):
    set_mode = host.modes.set

    def setting(gpu, mode):
        set_mode(gpu, mode)
        host.set_card(compute_mode=DEFAULT)

    monkeypatch.setattr(host.modes, "set", setting, raising=False)
    ref = users.give(GPU, configs=[LIMITED])
    with pytest.raises(errors.Retryable) as caught:
        host.prepare(ref, seconds=3)
    assert f"{host.uuid()}: compute mode EXCLUSIVE_PROCESS was set, and now it is DEFAULT" in str(
        caught.value
    )
    assert host.is_clean()


def test_a_mode_that_would_not_have_stayed_before_either_keeps_no_claim(host, users, log):
    host.set_card(compute_mode=PROHIBITED, persistence_mode=True)
    ref = users.give(GPU, configs=[LIMITED])
    host.prepare(ref)
    host.set_card(persistence_mode=False)
    host.unprepare(ref)
    assert host.is_clean()
    [told] = [line for line in log if line["event"] == "GPU is not what it was before"]
    assert "PROHIBITED was set, and now it is DEFAULT" in told["reason"]


def test_after_a_daemon_has_died_the_mode_is_set_again(host, claim, log):
    assert host.upkeep.look() == {}
    host.comes_back(claim, host.kill_daemon(claim))
    assert host.mode() == DEFAULT
    host.gpus.look()
    assert host.upkeep.look() == {}
    assert host.mode() == EXCLUSIVE
    [told] = [line for line in log if line["event"] == "compute mode was lost: set again"]
    assert (told["gpu"], told["found"]) == (host.uuid(), "DEFAULT")


def test_a_mode_that_somebody_changed_is_set_again(host, claim):
    host.upkeep.look()
    host.set_card(compute_mode=PROHIBITED)
    host.gpus.look()
    host.upkeep.look()
    assert host.mode() == EXCLUSIVE
    host.unprepare(claim)
    assert host.is_clean()


def test_what_a_look_before_the_claim_saw_changes_nothing(host, claim, log):
    assert host.gpus.snapshot.cards[0].gpu.compute_mode == DEFAULT
    host.upkeep.look()
    assert host.mode() == EXCLUSIVE
    assert [line for line in log if "lost" in line["event"]] == []


def test_asked_again_for_the_claim_the_mode_is_set_again(host, claim):
    host.set_card(compute_mode=DEFAULT)
    host.prepare(claim)
    assert host.mode() == EXCLUSIVE


def test_a_driver_that_starts_again_sets_what_was_lost_meanwhile(host, new_host, users, claim):
    sliced = users.give(OTHER_GPU, configs=[LONG])
    host.prepare(sliced)
    host.set_card(0, compute_mode=DEFAULT)
    host.set_card(1, time_slice=0)
    again = new_host().start()
    assert again.mode() == EXCLUSIVE
    assert again.card(1).time_slice == sharing_node.LONG
    again.unprepare(claim)
    again.unprepare(sliced)
    assert again.is_clean()


def test_what_cannot_be_set_again_is_told_by_daemon_until_it_can(host, claim):
    host.upkeep.look()
    host.set_card(compute_mode=DEFAULT)
    host.gpus.look()
    gpu_faults.inject(host.simulation, function="nvmlDeviceSetComputeMode", error=NO_PERMISSION)
    [use] = host.record(claim).sharing.mps
    for _ in range(2):
        told = host.upkeep.look()
        assert told.keys() == {use.domain}
        assert f"{host.uuid()}: setting its compute mode to EXCLUSIVE_PROCESS" in told[use.domain]
    gpu_faults.clear(host.simulation)
    assert host.upkeep.look() == {}
    assert host.mode() == EXCLUSIVE


def test_what_is_told_of_a_claim_that_is_given_back_is_told_no_more(host, claim):
    gpu_faults.inject(host.simulation, function="nvmlDeviceGetComputeMode", error=NO_PERMISSION)
    assert host.upkeep.look() != {}
    gpu_faults.clear(host.simulation)
    host.unprepare(claim)
    assert host.upkeep.look() == {}


def test_a_card_that_was_away_is_looked_at_again(host, users):
    ref = users.give(GPU, configs=[LONG])
    host.prepare(ref)
    host.upkeep.look()
    host.set_card(time_slice=0)
    host.upkeep.look()
    assert host.card().time_slice == 0
    gpu_faults.remove(host.simulation, host.uuid())
    host.gpus.look()
    host.upkeep.look()
    gpu_faults.clear(host.simulation)
    host.gpus.look()
    host.upkeep.look()
    assert host.card().time_slice == sharing_node.LONG


def test_a_claim_that_somebody_is_busy_with_is_left_to_the_next_look(host, claim, monkeypatch):
    monkeypatch.setattr(card_upkeep, "LOCK_SECONDS", 0.01)
    host.set_card(compute_mode=DEFAULT)
    with host.held.hold([GPU], patience.Patience(60)):
        assert host.upkeep.look() == {}
        assert host.card().compute_mode == DEFAULT
    host.upkeep.look()
    assert host.mode() == EXCLUSIVE


def test_shares_need_no_mode(new_host, users):
    host = new_host(shares=sharing_node.BY_MEMORY)
    host.set_card(persistence_mode=False)
    ref = users.share(memory=10)
    host.prepare(ref)
    host.upkeep.look()
    assert host.mode() == DEFAULT


def test_a_gpu_that_processes_hold_keeps_its_mode_without_a_daemon(host, claim):
    gpu_operations.start_process(host.simulation, host.uuid(), 4711)
    host.comes_back(claim, host.kill_daemon(claim))
    assert host.mode() == EXCLUSIVE
