"""Claims for partitions at the same time."""

import concurrent.futures
import functools
import threading

import mig_node
import plugin_process
import polling
import pytest

FIRST, SECOND, OTHER_CARD = mig_node.FIRST, mig_node.SECOND, mig_node.OTHER_CARD
DEADLINE = 60.0


@pytest.fixture
def background():
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def held(node, monkeypatch):
    """Holds up the creation of an instance at this place until it is let go."""
    begun, may_go = threading.Event(), threading.Event()
    create = node.nvml.create
    inside, most = [], []

    def creating(gpu, spot):
        inside.append(gpu)
        most.append(inside.count(gpu))
        try:
            if (gpu, spot.placement.start) == (node.uuid(), 6):
                begun.set()
                assert may_go.wait(DEADLINE)
            return create(gpu, spot)
        finally:
            inside.remove(gpu)

    monkeypatch.setattr(node.nvml, "create", creating, raising=False)
    yield begun, may_go, most
    may_go.set()


def test_claims_on_two_gpus_do_not_wait_for_each_other(node, api, held, background):
    begun, may_go, _ = held
    slow = background.submit(node.prepare, api.make(FIRST))
    assert begun.wait(DEADLINE)
    ref = api.make(OTHER_CARD)
    node.prepare(ref)
    node.unprepare(ref)
    assert not slow.done()
    may_go.set()
    assert [entry.device for entry in slow.result(DEADLINE)] == [FIRST]


def test_claims_on_one_gpu_come_one_after_the_other(node, api, held, background):
    begun, may_go, most = held
    slow = background.submit(node.prepare, api.make(FIRST))
    assert begun.wait(DEADLINE)
    next_one = background.submit(node.prepare, api.make(SECOND))
    # It has a lock of its claim, and waits for that of the GPU.
    polling.until(lambda: next_one.done() or node.held.waiting("gpu-0"))
    assert node.instances() == []
    may_go.set()
    slow.result(DEADLINE)
    next_one.result(DEADLINE)
    assert node.instances() == [(19, 0, 1), (19, 6, 1)]
    assert max(most) == 1


def test_many_claims_at_once_get_each_an_instance_of_its_own_and_leave_nothing(node, api):
    places = [f"gpu-{card}-mig-1g10gb-19-{start}" for card in (0, 1) for start in range(7)]
    refs = [api.make(place) for place in places]
    for _ in range(2):
        plugin_process.at_once(*(functools.partial(node.prepare, ref) for ref in refs))
        uuids = [node.record(ref).partitions[0].uuid for ref in refs]
        assert len(set(uuids)) == len(refs)
        assert set(uuids) == node.mig_uuids(0) | node.mig_uuids(1)
        plugin_process.at_once(*(functools.partial(node.unprepare, ref) for ref in refs))
        assert node.is_clean()


def test_claims_that_cross_on_two_gpus_do_not_block_each_other(node, api):
    refs = [api.make(FIRST, OTHER_CARD), api.make("gpu-1-mig-1g10gb-19-6", SECOND)]

    def cycle(ref):
        for _ in range(5):
            node.prepare(ref, seconds=DEADLINE)
            node.unprepare(ref, seconds=DEADLINE)

    plugin_process.at_once(*(functools.partial(cycle, ref) for ref in refs))
    assert node.is_clean()


@pytest.mark.parametrize("before", [True, False])
def test_an_instance_that_is_made_or_destroyed_during_a_look_is_not_taken_for_foreign(
    node, api, monkeypatch, before
):
    source, ref = node.gpus._looking_at.source, api.make(FIRST)
    discover = source.discover
    if not before:
        node.prepare(ref)
        node.gpus.look()

    def discovering():
        if before:
            node.prepare(ref)
        found = discover()
        if not before:
            node.unprepare(ref)
        return found

    monkeypatch.setattr(source, "discover", discovering, raising=False)
    [card, _] = node.gpus.look().cards
    assert [one.spot.placement.start for one in card.gpu.instances] == [6]
    assert card.foreign == ()
    assert {"gpu-0", FIRST, SECOND} <= card.offers.keys()
