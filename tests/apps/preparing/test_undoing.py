"""Unprepares beside damaged records, and of claims whose record is damaged."""

import shutil

import mig_node
import pytest
import sharing_claims
import sharing_node
import structlog

from dra_driver import errors
from dra_driver.adapters.system import pids
from dra_driver.model import prepared

pytestmark = pytest.mark.sampled(4)

GPU, PARTITION = sharing_claims.GPU, sharing_claims.PARTITION
CLAIMS = {
    "whole GPU": ([GPU], []),
    "partition": ([PARTITION], []),
    "two partitions": ([PARTITION, "gpu-1-mig-2g20gb-14-2"], []),
    "daemon": ([GPU], [sharing_claims.mps_gpu(defaultActiveThreadPercentage=30)]),
    "daemon of a partition": ([PARTITION], [sharing_claims.mps_mig()]),
}


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def damage(node, ref):
    node.store.records.path(ref.uid).write_bytes(b"\xff damaged")


def lose_spec(node, ref):
    (node.cdi / f"k8s.gpu.nvidia.com-claim_{ref.uid}.json").unlink()


def left(node):
    return [name for name in node.files() if "damaged" not in name]


@pytest.mark.parametrize("told_by", ["spec", "API"])
@pytest.mark.parametrize("claim", CLAIMS)
def test_what_a_damaged_record_told_of_is_undone_as_well(host, users, log, claim, told_by):
    devices, configs = CLAIMS[claim]
    ref = users.give(*devices, configs=configs)
    host.prepare(ref)
    damage(host, ref)
    if told_by == "API":
        lose_spec(host, ref)
    else:
        users.delete(ref)
    host.unprepare(ref)
    assert left(host) == []
    assert host.runs_nothing()
    assert host.hardware() == [(False, False, [], True, 0, sharing_node.DEFAULT)] * 3
    copy = host.root / "claims" / f"{ref.uid}.json.damaged-0"
    assert copy.read_bytes() == b"\xff damaged"
    [told] = [line for line in log if line["event"].startswith("record of a claim cannot be read")]
    assert (told["claim_uid"], told["set_aside"]) == (ref.uid, str(copy))


def test_a_time_slice_that_only_a_damaged_record_told_of_is_put_back_by_the_next_look(host, users):
    ref = users.give(GPU, configs=[sharing_claims.time_slicing("Long")])
    host.prepare(ref)
    damage(host, ref)
    users.delete(ref)
    host.unprepare(ref)
    host.orphans.settle()
    assert left(host) == []
    assert host.set_to() == (0, sharing_node.DEFAULT)


def test_a_claim_of_which_nothing_tells_is_unprepared_and_what_it_had_is_looked_for(
    node, api, monkeypatch
):
    ref = api.make(PARTITION)
    node.prepare(ref)
    damage(node, ref)
    lose_spec(node, ref)

    def away(*_):
        raise errors.Retryable("it is away")

    with monkeypatch.context() as patch:
        patch.setattr(api, "fetch", away)
        node.unprepare(ref)
    assert node.record(ref) is None
    api.delete(ref)
    node.clean()
    assert node.instances() == []
    assert left(node) == []


def test_a_damaged_record_of_a_claim_that_was_allocated_anew_is_undone_before_the_prepare(
    node, api
):
    ref = api.make(PARTITION)
    node.prepare(ref)
    damage(node, ref)
    api.allocate(ref, "gpu-1")
    node.prepare(ref)
    assert node.instances() == []
    assert [one.device for one in node.record(ref).devices] == ["gpu-1"]
    node.unprepare(ref)
    assert left(node) == []


def test_a_claim_whose_record_is_damaged_keeps_its_instance_when_a_prepare_of_it_fails(
    node, api, faults, failing_call
):
    ref = api.make(PARTITION)
    node.prepare(ref)
    before = node.mig_uuids()
    damage(node, ref)
    failing_call(node.preparer._attempts._injector, "injection", errors.Rejected("no"), 0)
    with pytest.raises(errors.Rejected, match="no"):
        node.prepare(ref)
    assert node.mig_uuids() == before
    node.prepare(ref)
    assert node.mig_uuids() == before


def test_a_share_is_given_back_beside_a_damaged_record_whose_spec_tells_what_it_has(
    shared_host, users
):
    kept, gone = users.share(memory=10, cores=20), users.share(memory=10, cores=20)
    for ref in (kept, gone):
        shared_host.prepare(ref)
    process, client = shared_host.daemon(kept), shared_host.connect(kept)
    damage(shared_host, kept)
    shared_host.unprepare(gone)
    assert pids.is_alive(process)
    assert client.is_usable()
    client.close()
    shared_host.unprepare(kept)
    assert left(shared_host) == []
    assert shared_host.runs_nothing()


def test_a_share_is_given_back_beside_a_damaged_record_of_which_nothing_tells(shared_host, users):
    kept, gone = users.share(memory=10, cores=20), users.share(memory=10, cores=20)
    for ref in (kept, gone):
        shared_host.prepare(ref)
    process, client = shared_host.daemon(kept), shared_host.connect(kept)
    damage(shared_host, kept)
    lose_spec(shared_host, kept)
    shared_host.unprepare(gone)
    assert shared_host.record(gone) is None
    shared_host.orphans.sweep()
    # It may be at work with the daemon, so that stays.
    assert pids.is_alive(process)
    assert client.is_usable()
    client.close()
    shared_host.mender.mend({claim.ref.uid: claim for claim in users.everywhere()})
    shared_host.unprepare(kept)
    assert left(shared_host) == []
    assert shared_host.runs_nothing()


def test_what_shares_had_goes_once_the_record_that_could_not_be_read_is_given_up(
    shared_host, users
):
    lost, gone = users.share(memory=10, cores=20), users.share(memory=10, cores=20)
    for ref in (lost, gone):
        shared_host.prepare(ref)
    damage(shared_host, lost)
    lose_spec(shared_host, lost)
    shared_host.unprepare(gone)
    users.delete(lost)
    shared_host.mender.mend({})
    shared_host.orphans.sweep()
    assert left(shared_host) == []
    assert shared_host.runs_nothing()


def test_a_share_of_a_partition_is_kept_for_a_claim_whose_record_cannot_be_read(new_host, users):
    host = new_host(shares=sharing_node.NOT_ENFORCED)
    kept, gone = (users.give(sharing_claims.share(PARTITION, memory=1)) for _ in range(2))
    for ref in (kept, gone):
        host.prepare(ref)
    before = host.mig_uuids()
    damage(host, kept)
    lose_spec(host, kept)
    host.unprepare(gone)
    assert host.mig_uuids() == before
    host.mender.mend({claim.ref.uid: claim for claim in users.everywhere()})
    host.unprepare(kept)
    assert host.instances() == []


@pytest.mark.parametrize("number", [0, 1])
def test_a_claim_that_was_undone_in_part_is_undone_altogether_by_the_next_call(
    node, api, failing_call, number
):
    ref = api.make(PARTITION, mig_node.OTHER_CARD)
    node.prepare(ref)
    failing_call(node.nvml, "destroy", errors.Rejected("no"), number)
    with pytest.raises(errors.Rejected, match="no"):
        node.unprepare(ref)
    assert node.preparer.leaving() == [ref.uid]
    node.unprepare(ref)
    assert node.preparer.leaving() == []
    assert node.is_clean()


def test_a_claim_that_was_undone_in_part_and_is_prepared_again_is_not_on_its_way_out(
    node, api, failing_call
):
    ref = api.make(PARTITION)
    node.prepare(ref)
    failing_call(node.nvml, "destroy", errors.Rejected("no"), 0)
    with pytest.raises(errors.Rejected, match="no"):
        node.unprepare(ref)
    node.prepare(ref)
    assert node.preparer.leaving() == []
    lose_spec(node, ref)
    node.restorer.look()
    assert node.variables(ref)
    node.unprepare(ref)
    assert node.is_clean()


def test_a_spec_that_cannot_be_there_is_no_reason_not_to_undo(node, api):
    ref = api.make(PARTITION)
    node.prepare(ref)
    shutil.rmtree(node.cdi)
    node.cdi.touch()
    node.unprepare(ref)
    node.cdi.unlink()
    node.cdi.mkdir()
    assert node.is_clean()


def test_nobody_waits_for_a_look_at_the_gpus_beside_a_damaged_record(node, api, monkeypatch):
    """GPUs are locked then, and NVML may hang."""
    kept, gone = api.make("gpu-1"), api.make(PARTITION)
    for ref in (kept, gone):
        node.prepare(ref)
    damage(node, kept)

    def look():
        raise AssertionError("looked with locks held")

    monkeypatch.setattr(node.preparer._attempts._rebuilder, "_look", look)
    node.unprepare(gone)
    assert node.record(gone) is None
    assert node.instances() == []


LATER = {"vfio": prepared.Part(version=2, content={"bound": ["0000:3b:00.0"]})}
"""What a newer driver did for a claim, as far as this one can see."""


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_a_newer_driver_did_for_a_claim_stays_with_its_record_until_that_is_back(
    host, users, claim
):
    devices, configs = CLAIMS[claim]
    ref = users.give(*devices, configs=configs)
    first = host.prepare(ref)
    record = host.record(ref)
    record = record.model_copy(update={"parts": {**record.parts, **LATER}})
    host.store.records.write(record)
    before = host.files(), host.hardware()
    with pytest.raises(errors.Retryable) as caught:
        host.unprepare(ref, seconds=0)
    assert str(caught.value) == (
        f"claim {ref}: its record has parts that this version of the driver does not know: "
        "'vfio' (version 2). Nothing is undone. Install the version that wrote them, or a later "
        "one, until the claim is unprepared"
    )
    assert (host.files(), host.hardware()) == before
    assert host.prepare(ref) == first
    assert host.record(ref) == record
    # The other driver has undone its part.
    host.store.records.write(record.model_copy(update={"parts": {}}))
    host.unprepare(ref)
    assert left(host) == []


@pytest.mark.parametrize("claim", CLAIMS)
def test_after_a_reboot_only_what_a_newer_driver_did_is_remembered_until_that_is_back(
    host, new_host, users, claim
):
    devices, configs = CLAIMS[claim]
    ref = users.give(*devices, configs=configs)
    first = host.prepare(ref)
    both = {**host.record(ref).parts, **LATER}
    host.store.records.write(host.record(ref).model_copy(update={"parts": both}))
    host.reboot()
    with structlog.testing.capture_logs() as log:
        again = new_host(boot="boot-2").start()
    assert [one["parts"] for one in log if "newer driver" in one["event"]] == [
        ["'vfio' (version 2)"]
    ]
    record = again.record(ref)
    assert (record.parts, record.boot_id, record.phase) == (LATER, "boot-2", "started")
    assert not any(one.is_in(record) for one in again.effects.listed)
    # Nothing is started for a pod that ended with the node.
    assert (again.daemons(), list(again.cdi.iterdir())) == ([], [])
    with pytest.raises(errors.Retryable, match="'vfio'"):
        again.unprepare(ref, seconds=0)
    assert again.prepare(ref) == first
    assert again.record(ref).parts["vfio"] == LATER["vfio"]
    again.store.records.write(again.record(ref).model_copy(update={"parts": {}}))
    again.unprepare(ref)
    assert left(again) == []
