"""CDI specs that are gone while claims are prepared, and what they come back from."""

import shutil

import mig_node
import pytest
import sharing_claims
import structlog

from dra_driver import errors
from dra_driver.adapters.disk import files
from dra_driver.adapters.system import patience
from dra_driver.model import prepared
from dra_driver.sim.gpus import gpu_faults

pytestmark = pytest.mark.sampled(7)

GPU, PARTITION = sharing_claims.GPU, sharing_claims.PARTITION
CLAIMS = {
    "whole GPU": ([GPU], []),
    "two GPUs": ([GPU, "gpu-1"], []),
    "partition": ([PARTITION], []),
    "time slice": ([GPU], [sharing_claims.time_slicing("Long")]),
    "daemon": ([GPU], [sharing_claims.mps_gpu(defaultActiveThreadPercentage=30)]),
    "daemon of two": (
        [GPU, "gpu-1"],
        [sharing_claims.mps_gpu(defaultPinnedDeviceMemoryLimit="4Gi")],
    ),
    "daemon of a partition": (
        [PARTITION],
        [sharing_claims.mps_mig(defaultPinnedDeviceMemoryLimit="2Gi")],
    ),
}
GONE = "CDI spec of a claim was gone; written again"
STILL = "CDI spec of a claim is gone, and cannot be written for now; its containers cannot start"


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def events(log, event):
    return [line["claim"] for line in log if line["event"] == event]


def specs(node):
    return {path.name: path.read_text() for path in node.cdi.iterdir() if path.name[:4] == "k8s."}


def empty(node):
    for path in node.cdi.iterdir():
        path.unlink()


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_spec_of_a_claim_is_written_again_as_it_was(host, users, log, claim):
    devices, configs = CLAIMS[claim]
    ref = users.give(*devices, configs=configs)
    host.prepare(ref)
    before = specs(host)
    host.restorer.look()
    assert events(log, GONE) == []
    empty(host)
    host.restorer.look()
    assert specs(host) == before
    assert events(log, GONE) == [str(ref)]
    # Nothing is written when it is asked for again.
    wanted = (host.cdi / host.cdi_name(ref)).stat()
    host.prepare(ref)
    assert (host.cdi / host.cdi_name(ref)).stat() == wanted
    host.unprepare(ref)
    assert host.is_clean()


def test_the_specs_of_shares_have_the_limits_of_each(shared_host, users):
    refs = [users.share(memory=10, cores=20), users.share(memory=30, cores=40)]
    for ref in refs:
        shared_host.prepare(ref)
    before = specs(shared_host)
    empty(shared_host)
    shared_host.restorer.look()
    assert specs(shared_host) == before


def test_a_directory_that_was_emptied_while_the_driver_was_away_is_filled_at_the_start(
    host, new_host, users, monkeypatch
):
    ref = users.give(PARTITION)
    host.prepare(ref)
    before = specs(host)
    empty(host)
    users.known.clear()

    def away():
        raise AssertionError("the API was asked")

    monkeypatch.setattr(users, "everywhere", away)
    again = new_host().start()
    assert specs(again) == before


def test_a_directory_that_vanished_is_made_again(node, api):
    ref = api.make(GPU)
    node.prepare(ref)
    before = specs(node)
    shutil.rmtree(node.cdi)
    node.restorer.look()
    assert specs(node) == before
    assert node.cdi.stat().st_mode & 0o777 == 0o755


def test_a_claim_whose_card_is_not_there_is_told_once_and_comes_back_with_it(node, api, lose, log):
    here, gone = api.make("gpu-0"), api.make("gpu-1")
    for ref in (here, gone):
        node.prepare(ref)
    before = specs(node)
    card = node.card(1)
    lose(1)
    node.gpus.look()
    empty(node)
    for _ in range(2):
        node.restorer.look()
    assert events(log, GONE) == [str(here)]
    [told] = [line for line in log if line["event"] == STILL]
    assert told["claim"] == str(gone)
    assert "gpu-1 are not there" in told["reason"]
    gpu_faults.clear(node.simulation)
    assert node.card(1) == card
    node.gpus.look()
    node.restorer.look()
    assert specs(node) == before
    assert events(log, GONE) == [str(here), str(gone)]


def test_a_prepare_that_did_not_get_far_has_no_spec(node, api, log):
    ref = api.make(GPU)
    node.prepare(ref)
    record = node.record(ref)
    empty(node)
    node.store.records.write(record.model_copy(update={"phase": prepared.Phase.STARTED}))
    node.restorer.look()
    node.store.records.write(record.model_copy(update={"boot_id": "boot-0"}))
    node.restorer.look()
    assert specs(node) == {}
    assert log == []


def test_a_claim_that_is_being_unprepared_gets_no_spec_again(node, api, failing_call, log):
    ref = api.make(PARTITION)
    node.prepare(ref)
    failing_call(node.nvml, "destroy_compute", errors.Rejected("no"), 0)
    with pytest.raises(errors.Rejected, match="no"):
        node.unprepare(ref)
    node.restorer.look()
    assert specs(node) == {}
    node.unprepare(ref)
    assert node.is_clean()
    assert events(log, STILL) == []


def test_a_claim_that_somebody_is_busy_with_is_left_to_them(node, api, monkeypatch, log):
    monkeypatch.setattr("dra_driver.apps.upkeep.restoring.LOCK_SECONDS", 0.01)
    busy, other = api.make("gpu-0"), api.make("gpu-1")
    for ref in (busy, other):
        node.prepare(ref)
    empty(node)
    with node.held.hold([f"claim {busy.uid}"], patience.Patience(60)):
        node.restorer.look()
    assert events(log, GONE) == [str(other)]
    assert events(log, STILL) == []
    node.restorer.look()
    assert events(log, GONE) == [str(other), str(busy)]


def test_what_the_disk_refuses_is_told_and_tried_again(node, api, log):
    ref = api.make(GPU)
    node.prepare(ref)
    before = specs(node)
    shutil.rmtree(node.cdi)
    node.cdi.write_text("in the way")
    with pytest.raises(files.Unusable, match="cannot be listed"):
        node.restorer.look()
    node.cdi.unlink()
    node.restorer.look()
    assert specs(node) == before


def test_files_of_others_are_neither_read_nor_removed(node, api):
    ref = api.make(mig_node.FIRST)
    node.prepare(ref)
    theirs = node.cdi / "k8s.nic.example.com-claim_1.json"
    theirs.write_text("theirs")
    (node.cdi / node.cdi.joinpath(f"k8s.gpu.nvidia.com-claim_{ref.uid}.json").name).unlink()
    node.restorer.look()
    assert theirs.read_text() == "theirs"
    assert len(specs(node)) == 2
