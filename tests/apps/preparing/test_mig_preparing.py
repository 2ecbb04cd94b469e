"""Claims for partitions: MIG instances are made where they were allocated, and unmade."""

import contextlib
import types

import mig_node
import pytest

from dra_driver import errors
from dra_driver.model import ledgers, mig, prepared
from dra_driver.sim.gpus import gpu_operations

FIRST, SECOND, LARGE, OTHER_CARD = (
    mig_node.FIRST,
    mig_node.SECOND,
    mig_node.LARGE,
    mig_node.OTHER_CARD,
)


def test_a_claim_gets_an_instance_at_its_place_and_gives_it_back(node, api):
    ref = api.make(FIRST)
    entry = prepared.PreparedDevice(
        requests=("r0",),
        pool="node-1",
        device=FIRST,
        cdi_ids=(f"k8s.gpu.nvidia.com/claim={ref.uid}-{FIRST}",),
        kind="mig",
    )
    described = (*entry.cdi_ids, f"gpu.nvidia.com/metadata={ref.uid}_r0")
    assert node.prepare(ref) == (entry.model_copy(update={"cdi_ids": described}),)
    assert node.card().mig_enabled
    assert node.instances() == [(19, 6, 1)]
    [uuid] = node.mig_uuids()
    partition = prepared.Partition(
        device=FIRST,
        gpu=node.uuid(),
        minor=0,
        profile="1g.10gb",
        profile_id=19,
        start=6,
        size=1,
        gi=0,
        ci=0,
        uuid=uuid,
    )
    record = node.record(ref)
    assert (record.phase, record.devices) == (prepared.Phase.COMPLETED, (entry,))
    assert record.partitions == (partition,)
    assert node.variables(ref) == [
        f"SIMULATED_MIG_0_0=NVIDIA H100 80GB HBM3|{node.uuid()}|1g.10gb|{uuid}"
    ]
    assert node.books.get(node.uuid()).spots == {mig.Spot(19, mig.Placement(6, 1))}
    node.unprepare(ref)
    assert node.is_clean()


def test_asked_again_a_claim_keeps_its_instance(node, api):
    ref = api.make(FIRST)
    first = node.prepare(ref)
    before, uuids = node.record(ref), node.mig_uuids()
    assert node.prepare(ref) == first
    assert (node.record(ref), node.mig_uuids()) == (before, uuids)


def test_mig_mode_is_on_from_the_first_instance_to_the_last(node, api):
    refs = [api.make(FIRST), api.make(SECOND), api.make(OTHER_CARD)]
    assert [node.card(number).mig_enabled for number in (0, 1)] == [False, False]
    node.prepare(refs[0])
    assert [node.card(number).mig_enabled for number in (0, 1)] == [True, False]
    node.prepare(refs[1])
    node.prepare(refs[2])
    node.unprepare(refs[0])
    assert [node.card(number).mig_enabled for number in (0, 1)] == [True, True]
    assert node.instances() == [(19, 0, 1)]
    node.unprepare(refs[1])
    assert [node.card(number).mig_enabled for number in (0, 1)] == [False, True]
    node.unprepare(refs[2])
    assert node.is_clean()


def test_mig_mode_that_was_on_before_stays_on(node, api):
    node.set_mig_mode(on=True)
    node.gpus.look()
    ref = api.make(FIRST)
    node.prepare(ref)
    assert not node.books.get(node.uuid()).mode_switched
    node.unprepare(ref)
    assert node.card().mig_enabled
    assert node.files() == []


def test_on_ampere_mig_mode_is_never_switched(new_node, api):
    node = new_node("a100-40gb-sxm4:1")
    assert list(node.gpus.snapshot.offered) == ["gpu-0"]
    node.set_mig_mode(on=True)
    node.gpus.look()
    assert "gpu-0" not in node.gpus.snapshot.offered
    ref = api.make("gpu-0-mig-3g20gb-9-4")
    node.prepare(ref)
    assert node.instances() == [(9, 4, 1)]
    node.unprepare(ref)
    assert node.instances() == []
    assert (node.card().mig_enabled, node.card().mig_pending) == (True, True)
    assert node.files() == []


def test_an_ampere_whose_mig_mode_was_switched_off_is_refused_with_what_to_do(new_node, api):
    node = new_node("a100-40gb-sxm4:1")
    node.set_mig_mode(on=True)
    node.gpus.look()
    node.set_mig_mode(on=False)
    with pytest.raises(errors.Rejected, match="changes it with a reset only"):
        node.prepare(api.make("gpu-0-mig-3g20gb-9-4"))
    assert node.files() == []


@pytest.mark.parametrize("others", [[SECOND], [OTHER_CARD], [LARGE.replace("9-4", "9-0")]])
def test_a_claim_of_several_partitions_gets_them_all_and_gives_them_back(node, api, others):
    ref = api.make(FIRST, *others)
    assert [entry.device for entry in node.prepare(ref)] == [FIRST, *others]
    uuids = [one.uuid for one in node.record(ref).partitions]
    assert len(set(uuids)) == 1 + len(others)
    assert set(uuids) == node.mig_uuids(0) | node.mig_uuids(1)
    assert len(node.variables(ref)) == 1 + len(others)
    node.unprepare(ref)
    assert node.is_clean()


def test_a_claim_of_a_partition_and_a_whole_gpu_gets_both(node, api):
    ref = api.make(FIRST, "gpu-1")
    assert [entry.kind for entry in node.prepare(ref)] == ["mig", "gpu"]
    assert not node.card(1).mig_enabled
    assert f"SIMULATED_GPU_1=NVIDIA H100 80GB HBM3|{node.uuid(1)}" in node.variables(ref)
    node.unprepare(ref)
    assert node.is_clean()


def test_a_partition_of_a_gpu_that_another_claim_has_is_refused_and_the_other_way_round(node, api):
    whole, part = api.make("gpu-0"), api.make(FIRST)
    node.prepare(whole)
    with pytest.raises(errors.Rejected, match=f"'{FIRST}' overlaps 'gpu-0', which is prepared"):
        node.prepare(part)
    node.unprepare(whole)
    node.prepare(part)
    with pytest.raises(errors.Rejected, match=f"'gpu-0' overlaps '{FIRST}', which is prepared"):
        node.prepare(whole)
    with pytest.raises(errors.Rejected, match=f"'{LARGE}' overlaps '{FIRST}', which is prepared"):
        node.prepare(api.make(LARGE))
    node.unprepare(part)
    assert node.is_clean()


@pytest.mark.parametrize("device", ["gpu-0", FIRST])
def test_what_is_offered_is_looked_at_anew_only_if_a_prepare_has_changed_something(
    node, api, monkeypatch, device
):
    told = []
    for part in (node.preparer, node.preparer._attempts):
        monkeypatch.setattr(part, "_on_change", lambda: told.append(1))
    ref = api.make(device)
    for expected in (1, 1):
        node.prepare(ref)
        assert len(told) == expected
    for path in node.cdi.iterdir():
        path.unlink()
    node.prepare(ref)
    assert len(told) == 2
    node.unprepare(ref)
    assert len(told) == 3


def test_a_whole_gpu_is_taken_out_of_the_mig_mode_that_it_was_left_in(node, api, faults):
    ref, whole = api.make(FIRST), api.make("gpu-0")
    node.prepare(ref)
    # What is in the way of switching back is told of, and hinders nobody.
    faults(error=19, function="nvmlDeviceSetMigMode", times=1)
    node.unprepare(ref)
    assert node.card().mig_enabled
    assert node.files() == [f"gpus/{node.uuid()}.{ledgers.tag('boot-1')}.mig-mode.json"]
    node.gpus.look()
    node.prepare(whole)
    assert not node.card().mig_enabled
    node.unprepare(whole)
    assert node.is_clean()


def test_a_claim_given_another_partition_ends_with_that_alone(node, api):
    ref = api.make(FIRST)
    node.prepare(ref)
    api.allocate(ref, OTHER_CARD)
    node.prepare(ref)
    assert (node.instances(0), node.instances(1)) == ([], [(14, 2, 1)])
    assert not node.card(0).mig_enabled
    node.unprepare(ref)
    assert node.is_clean()


def test_instances_that_a_reset_of_the_gpu_destroyed_are_made_anew(node, api):
    ref = api.make(FIRST, SECOND)
    node.prepare(ref)
    before = node.mig_uuids()
    gpu_operations.reset(node.simulation, node.uuid())
    assert node.instances() == []
    node.prepare(ref)
    after = node.mig_uuids()
    assert (len(after), after & before) == (2, set())
    assert {one.uuid for one in node.record(ref).partitions} == after
    assert all(any(uuid in text for text in node.variables(ref)) for uuid in after)
    node.unprepare(ref)
    assert node.is_clean()


def test_a_claim_whose_gpu_is_gone_can_be_unprepared(node, api, lose):
    ref = api.make(OTHER_CARD)
    node.prepare(ref)
    lose(1)
    node.unprepare(ref)
    assert node.record(ref) is None


def test_whoever_only_looks_at_a_partition_neither_makes_nor_destroys_it(node, api):
    ref, admin = api.make(FIRST), api.make(FIRST, admin=True)
    with pytest.raises(errors.Retryable, match="adminAccess"):
        node.prepare(admin, seconds=1)
    assert node.is_clean()
    node.prepare(ref)
    node.prepare(admin)
    assert node.variables(admin) == node.variables(ref)
    node.unprepare(admin)
    assert node.instances() == [(19, 6, 1)]
    node.unprepare(ref)
    assert node.is_clean()


def test_what_is_given_back_before_the_wait_for_it_is_not_waited_for(node, api, monkeypatch):
    holder, ref = api.make(FIRST), api.make(FIRST)
    node.prepare(holder)
    # Its pod has ended; the kubelet gives it back when the other claim is about to wait.
    api.delete(holder)
    log = types.SimpleNamespace(info=lambda *_, **__: node.unprepare(holder))
    monkeypatch.setattr(node.preparer, "_log", log)
    waits = []
    place = node.preparer._given_back._place

    @contextlib.contextmanager
    def noted(cards):
        with place(cards) as told:
            told.wait = waits.append
            yield told

    monkeypatch.setattr(node.preparer._given_back, "_place", noted)
    node.prepare(ref)
    assert (node.instances(), waits) == ([(19, 6, 1)], [])
