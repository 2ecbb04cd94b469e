"""What becomes of MIG instances when the driver, its files or the node start anew."""

import json
import shutil

import mig_node
import pytest
import structlog

from dra_driver.sim.gpus import gpu_faults, gpu_operations

FIRST, SECOND, OTHER_CARD = mig_node.FIRST, mig_node.SECOND, mig_node.OTHER_CARD


@pytest.fixture
def claimed(node, api):
    """A claim that is prepared."""
    ref = api.make(FIRST)
    node.prepare(ref)
    return ref


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def record_path(node, ref):
    return node.root / "claims" / f"{ref.uid}.json"


def test_after_a_reboot_a_claim_gets_a_new_instance(node, new_node, claimed):
    before = node.mig_uuids()
    gpu_operations.reboot(node.simulation)
    assert (node.instances(), node.card().mig_enabled) == ([], False)
    again = new_node(boot="boot-2")
    again.recover()
    assert again.record(claimed) is None
    again.prepare(claimed)
    assert again.mig_uuids() & before == set()
    assert again.record(claimed).partitions[0].uuid in again.mig_uuids()
    assert again.books.get(again.uuid()).boot_id == "boot-2"
    again.unprepare(claimed)
    assert again.is_clean()


def test_the_ledger_of_an_earlier_boot_makes_nothing_ours(node, new_node, claimed):
    gpu_operations.reboot(node.simulation)
    theirs = node.foreign("1g.10gb", 6)
    again = new_node(boot="boot-2")
    again.recover()
    assert again.books.get(again.uuid()).spots == set()
    again.unprepare(claimed)
    again.clean()
    assert again.card().gpu_instances == [theirs]
    assert again.card().mig_enabled


def test_after_a_restart_the_instance_is_still_the_claims(node, new_node, claimed):
    before = node.mig_uuids()
    again = new_node()
    again.recover()
    again.clean()
    again.prepare(claimed)
    assert again.mig_uuids() == before
    again.unprepare(claimed)
    assert again.is_clean()


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("lost", [True, False])
def test_a_record_that_is_damaged_or_lost_is_rebuilt_with_its_instance(
    node, new_node, claimed, listed, lost
):
    partitions = node.record(claimed).partitions
    if lost:
        record_path(node, claimed).unlink()
    else:
        record_path(node, claimed).write_text("damaged")
    again = new_node()
    again.recover(listed=listed)
    assert again.record(claimed).rebuilt
    assert again.record(claimed).partitions == partitions
    again.clean()
    assert again.mig_uuids() == {partitions[0].uuid}
    again.unprepare(claimed)
    assert [name for name in again.files() if "damaged" not in name] == []
    assert again.hardware() == [(False, False, [], True)] * 2


def test_a_damaged_record_of_a_claim_that_was_allocated_anew_tells_what_is_to_be_undone(
    node, new_node, api, claimed
):
    partitions = node.record(claimed).partitions
    record_path(node, claimed).write_text("damaged")
    api.allocate(claimed, "gpu-1")
    again = new_node()
    again.recover()
    assert again.record(claimed).partitions == partitions
    again.prepare(claimed)
    assert again.instances() == []
    assert [one.device for one in again.record(claimed).devices] == ["gpu-1"]


def test_a_rebuilt_claim_that_is_asked_for_again_keeps_its_instance(node, new_node, claimed):
    partitions, variables = node.record(claimed).partitions, node.variables(claimed)
    record_path(node, claimed).write_text("damaged")
    again = new_node()
    again.recover()
    again.prepare(claimed)
    assert again.record(claimed).partitions == partitions
    assert again.variables(claimed) == variables


def test_a_claim_rebuilt_while_no_gpu_was_there_never_gets_the_whole_gpu(node, new_node, claimed):
    variables, uuids = node.variables(claimed), node.mig_uuids()
    record_path(node, claimed).write_text("damaged")
    gpu_faults.inject(node.simulation, error=9, function="nvmlInitWithFlags")
    again = new_node()
    again.recover()
    gpu_faults.clear(node.simulation)
    again.gpus.look()
    again.prepare(claimed)
    assert again.variables(claimed) == variables
    assert again.mig_uuids() == uuids
    again.unprepare(claimed)
    assert again.hardware() == [(False, False, [], True)] * 2


def test_a_record_that_is_damaged_while_the_driver_runs_does_not_matter(node, claimed):
    before = node.mig_uuids()
    record_path(node, claimed).write_text("damaged")
    node.prepare(claimed)
    assert node.mig_uuids() == before
    node.unprepare(claimed)
    assert node.hardware() == [(False, False, [], True)] * 2


def test_an_instance_whose_claim_and_record_are_gone_is_removed_after_a_complete_list(
    node, new_node, api, claimed
):
    other = api.make(SECOND)
    node.prepare(other)
    lose_record(node, claimed)
    again = new_node()
    again.recover()
    assert len(again.instances()) == 2
    # The claim is still there: its instance stays.
    again.clean()
    assert len(again.instances()) == 2
    api.delete(claimed)
    again.clean()
    assert again.instances() == [(19, 0, 1)]
    assert again.card().mig_enabled
    again.unprepare(other)
    assert again.is_clean()


def test_an_instance_without_a_claim_that_a_process_uses_stays_until_that_has_ended(
    node, new_node, api, claimed
):
    node.use(4711)
    lose_record(node, claimed)
    api.delete(claimed)
    again = new_node()
    again.clean()
    assert again.instances() == [(19, 6, 1)]
    again.end(4711)
    again.clean()
    assert again.is_clean()


def test_while_a_record_is_damaged_no_instance_is_removed(node, api, claimed):
    other = api.make(SECOND)
    node.prepare(other)
    record_path(node, other).write_text("damaged")
    lose_record(node, claimed)
    api.delete(claimed)
    api.delete(other)
    node.clean()
    assert len(node.instances()) == 2


def test_mig_mode_that_could_not_be_switched_off_is_switched_off_later(node, new_node, api, faults):
    ref = api.make(FIRST)
    node.prepare(ref)
    faults(error=19, function="nvmlDeviceSetMigMode", times=1)
    node.unprepare(ref)
    assert node.card().mig_enabled
    new_node().clean()
    assert node.is_clean()


def test_a_lost_ledger_does_not_keep_a_claim_from_giving_its_instance_back(node, new_node, claimed):
    shutil.rmtree(node.root / "gpus")
    again = new_node()
    again.recover()
    again.unprepare(claimed)
    assert again.instances() == []
    assert again.files() == []


def old_ledger(node, text=None):
    """The node as a driver left it that had one file for all that it had done to a GPU."""
    told = node.books.get(node.uuid())
    document = {"version": 1, "ledger": told.model_dump(exclude={"is_page"})}
    for path in (node.root / "gpus").iterdir():
        path.unlink()
    path = node.root / "gpus" / f"{node.uuid()}.json"
    path.write_text(json.dumps(document, indent=1) if text is None else text)
    return path


def test_the_ledger_of_an_earlier_driver_becomes_pages_at_the_start(node, new_node, claimed):
    told = node.books.get(node.uuid())
    path = old_ledger(node)
    again = new_node()
    again.recover()
    again.clean()
    assert not path.exists()
    assert again.books.get(again.uuid()) == told
    again.unprepare(claimed)
    assert again.is_clean()


def test_a_damaged_ledger_of_an_earlier_driver_makes_nothing_ours(node, new_node, api, claimed):
    path = old_ledger(node, "damaged")
    lose_record(node, claimed)
    api.delete(claimed)
    again = new_node()
    again.recover()
    again.clean()
    assert again.instances() == [(19, 6, 1)]
    assert FIRST not in again.gpus.snapshot.offered
    assert path.with_name(f"{path.name}.damaged-0").read_text() == "damaged"


def test_a_damaged_ledger_of_an_earlier_driver_is_rebuilt_from_the_records(node, new_node, claimed):
    told = node.books.get(node.uuid())
    path = old_ledger(node, "damaged")
    again = new_node()
    again.recover()
    again.clean()
    assert again.books.get(again.uuid()).spots == told.spots
    assert path.with_name(f"{path.name}.damaged-0").read_text() == "damaged"
    again.unprepare(claimed)
    assert again.instances() == []


def test_a_damaged_page_still_tells_what_is_ours_and_is_mended(node, new_node, api, claimed, log):
    told = node.books.get(node.uuid())
    for path in (node.root / "gpus").iterdir():
        path.write_text("damaged")
    again = new_node()
    assert again.books.get(again.uuid()) == told
    assert FIRST in again.gpus.snapshot.offered
    again.clean()
    assert again.books.damaged(again.uuid()) == {}
    assert again.books.get(again.uuid()) == told
    lines = [line for line in log if line["event"].startswith("file of a GPU's ledger cannot")]
    assert [line["device"] for line in lines] == ["gpu-0"] * 2
    assert all(line["set_aside"].endswith(".json.damaged-0") for line in lines)
    lose_record(again, claimed)
    api.delete(claimed)
    again.clean()
    assert again.instances() == []


def lose_record(node, ref):
    record_path(node, ref).unlink()
    node.effects.files.remove(ref.uid)
    for path in node.cdi.iterdir():
        if ref.uid in path.name:
            path.unlink()


def test_a_claim_prepared_before_mig_was_switched_off_in_the_settings_can_be_given_back(
    node, new_node, claimed
):
    again = new_node(mode="off")
    again.recover()
    assert again.gpus.snapshot.offered.keys() == {"gpu-1"}
    again.unprepare(claimed)
    assert again.is_clean()
    assert again.gpus.look().offered.keys() == {"gpu-0", "gpu-1"}


def test_a_static_instance_of_a_claim_is_adopted_only_after_that(new_node, api):
    node = new_node(mode="static")
    theirs = node.foreign("1g.10gb", 6)
    node.gpus.look()
    ref = api.make(FIRST)
    node.prepare(ref)
    api.delete(ref)
    again = new_node(adopt=True)
    again.recover()
    again.clean()
    assert again.card().gpu_instances == [theirs]
    again.unprepare(ref)
    assert again.card().gpu_instances == [theirs]
    again.clean()
    assert again.is_clean()


def test_the_instance_of_a_record_stays_whatever_the_list_of_claims_says(node, api, claimed):
    lost = api.make(SECOND)
    node.prepare(lost)
    lose_record(node, lost)
    api.delete(claimed)
    api.delete(lost)
    node.clean()
    assert node.instances() == [(19, 6, 1)]
