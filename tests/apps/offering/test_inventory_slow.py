"""NVML that does not come back, as it happens with a sick card."""

import threading
import types

import api_cluster
import mig_node
import plugin_process
import polling
import pytest

from dra_driver import errors
from dra_driver.adapters.disk import ledgers
from dra_driver.apps.offering import inventory
from dra_driver.model import devices, mig


class Source:
    """GPUs that are told of once they may be."""

    def __init__(self):
        self.looks = 0
        self.may = threading.Event()

    def discover(self):
        self.looks += 1
        assert self.may.wait(api_cluster.DEADLINE)
        return devices.Discovery(gpus=())


@pytest.fixture
def source():
    made = Source()
    yield made
    made.may.set()


@pytest.fixture
def gpus(source, tmp_path, monkeypatch):
    monkeypatch.setattr(inventory, "LEAST_LOOK", 0.05)
    books = ledgers.Ledgers(tmp_path / "gpus", boot_id="boot-1")
    looking = inventory.Looking(source, None, books, lambda _: mig.Mode("off"))
    return inventory.Inventory(looking, interval=3600, on_change=lambda: None)


def test_a_look_that_does_not_come_back_is_waited_for_no_longer_than_there_is_time(gpus, source):
    for _ in range(3):
        with pytest.raises(errors.Retryable, match="NVML does not come back"):
            gpus.look_within(0)
        polling.until(lambda: source.looks, what="the first look")
    assert source.looks == 1


def test_the_wait_for_another_look_is_part_of_the_time(gpus, monkeypatch):
    clock, waits = types.SimpleNamespace(now=0.0), []

    class OtherLook:
        """Ends after 30 s."""

        def acquire(self, timeout):
            assert timeout == 42
            clock.now += 30
            return True

        def release(self):
            pass

    class Look:
        """Does not come back."""

        def __init__(self, **_):
            pass

        def start(self):
            pass

        def join(self, timeout):
            waits.append(timeout)

    monkeypatch.setattr(gpus, "_looking", OtherLook())
    time = types.SimpleNamespace(monotonic=lambda: clock.now)
    monkeypatch.setattr(inventory, "time", time)
    monkeypatch.setattr(inventory, "threading", types.SimpleNamespace(Thread=Look))
    with pytest.raises(errors.Retryable, match="NVML does not come back"):
        gpus.look_within(42)
    assert waits == [12]


def test_once_nvml_comes_back_the_next_look_sees_what_is_there(gpus, source):
    with pytest.raises(errors.Retryable):
        gpus.look_within(0)
    source.may.set()
    assert gpus.wait_first(api_cluster.DEADLINE)
    assert gpus.look_within(api_cluster.DEADLINE) == inventory.Snapshot()
    assert source.looks == 2


def test_a_claim_for_an_unknown_gpu_is_answered_and_can_be_given_back_while_nvml_hangs(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(inventory, "LEAST_LOOK", 0.05)
    api = mig_node.Claims()
    node = mig_node.Node(tmp_path, "h100-80gb-hbm3:1", api)
    ref = api.make("gpu-7")
    refusals = []

    def prepare():
        with pytest.raises(errors.Retryable) as caught:
            node.prepare(ref, seconds=0.5)
        refusals.append(str(caught.value))

    with node.gpus._looking:
        calling = plugin_process.in_background(prepare)
        calling.join(api_cluster.DEADLINE)
        assert [inventory.SLOW in text for text in refusals] == [True]
        node.unprepare(ref, seconds=0)
