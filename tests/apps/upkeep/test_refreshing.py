"""What containers read of their devices stays true while their claims are prepared."""

import contextlib
import errno
import os

import disk_faults
import mig_node
import pytest

from dra_driver import errors
from dra_driver.apps.upkeep import refreshing
from dra_driver.model import prepared
from dra_driver.sim.gpus import gpu_operations, gpu_state


@pytest.fixture
def ref(users):
    return users.give("gpu-0", "gpu-1")


def path(host, ref, request="r0"):
    folder = host.root / "dra-device-metadata" / f"{ref.namespace}_{ref.name}"
    return folder / request / "metadata.json"


def spec(host, ref, request="r0"):
    return host.cdi / f"gpu.nvidia.com_metadata_{ref.uid}_{request}.json"


def files(host, ref):
    """All that is there of the claim, with when it was changed."""
    found = [*host.root.glob("dra-device-metadata/*/*/*"), *host.cdi.iterdir()]
    found.append(host.root / "claims" / f"{ref.uid}.json")
    return {str(one): (one.read_text(), one.stat().st_ino, one.stat().st_mtime_ns) for one in found}


def inodes(found):
    return {name: inode for name, (_, inode, _) in found.items() if "metadata" in name}


def update_driver(host, version="600.10.01"):
    """NVIDIA's driver is another one by now, and the node has looked."""
    with gpu_state.open_file(host.simulation).edit() as state:
        state.driver_version = version
    host.gpus.look()


def version_and_generation(body):
    [device] = body["requests"][0]["devices"]
    return device["attributes"]["driverVersion"]["version"], body["metadata"]["generation"]


def test_nothing_is_written_while_nothing_changes_also_after_a_start(host, new_host, ref):
    host.prepare(ref)
    before = files(host, ref)
    host.refresher.look()
    new_host().start()
    assert files(host, ref) == before


@pytest.mark.parametrize("by", ["look", "start", "prepare"])
def test_a_fact_that_changes_is_told_in_the_same_file_with_the_next_generation(
    host, new_host, ref, by
):
    host.prepare(ref)
    before, told = files(host, ref), version_and_generation(host.metadata(ref)["r0"])
    with path(host, ref).open() as mounted:
        update_driver(host)
        if by == "look":
            host.refresher.look()
        elif by == "prepare":
            host.prepare(ref)
        else:
            host = new_host().start()
        # Whoever has it open, or mounted, reads what is true now.
        assert mounted.read() == path(host, ref).read_text()
    assert told[1] == 1
    assert version_and_generation(host.metadata(ref)["r0"]) == ("600.10.1", 2)
    assert inodes(files(host, ref)) == inodes(before)
    host.refresher.look()
    assert version_and_generation(host.metadata(ref)["r0"])[1] == 2


def test_each_change_has_a_generation_of_its_own(host, ref):
    host.prepare(ref)
    for number in (2, 3, 4):
        update_driver(host, f"600.10.{number}")
        host.refresher.look()
        told = version_and_generation(host.metadata(ref)["r0"])
        assert told == (f"600.10.{number}", number)


def test_a_text_that_is_shorter_has_no_rest_of_the_longer_one(host, ref):
    update_driver(host, "600.100.100")
    host.prepare(ref)
    longer = len(path(host, ref).read_text())
    update_driver(host, "600.1.1")
    host.refresher.look()
    text = path(host, ref).read_text()
    assert len(text) < longer
    assert text.endswith("}\n")
    assert len(text.splitlines()) == 2


@pytest.mark.parametrize("gone", [path, spec])
def test_what_somebody_removed_is_written_again_as_it_was(host, ref, gone):
    host.prepare(ref)
    text = gone(host, ref).read_text()
    gone(host, ref).unlink()
    host.refresher.look()
    assert gone(host, ref).read_text() == text


def test_what_somebody_changed_is_put_right_in_the_same_file(host, ref):
    host.prepare(ref)
    text, inode = path(host, ref).read_text(), path(host, ref).stat().st_ino
    path(host, ref).write_bytes(b"\xff" * 5000)
    host.refresher.look()
    assert (path(host, ref).read_text(), path(host, ref).stat().st_ino) == (text, inode)


def test_a_generation_does_not_go_back_when_the_driver_dies_before_the_file_is_written(
    host, new_host, ref, monkeypatch
):
    host.prepare(ref)
    update_driver(host)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "died")))
        with pytest.raises(errors.DriverError, match="died"):
            host.refresher.look()
    assert version_and_generation(host.metadata(ref)["r0"])[1] == 1
    again = new_host().start()
    assert version_and_generation(again.metadata(ref)["r0"]) == ("600.10.1", 2)


def test_of_a_card_that_is_gone_the_file_stays_as_it_is(host, ref):
    host.prepare(ref)
    before = files(host, ref)
    card = gpu_operations.remove_card(host.simulation, host.uuid(1))
    host.gpus.look()
    host.refresher.look()
    assert files(host, ref) == before
    gpu_operations.insert_card(host.simulation, card)


def test_one_claim_that_cannot_be_written_keeps_no_other_from_it(host, users):
    first, second = users.give("gpu-0"), users.give("gpu-1")
    host.prepare(first)
    host.prepare(second)
    update_driver(host)
    folder = path(host, first).parent
    refusing = disk_faults.Disk(errno.ENOSPC, ("pwrite",), [folder], opens="changed")
    with refusing.failing(), pytest.raises(errors.DriverError, match="free space"):
        host.refresher.look()
    assert version_and_generation(host.metadata(second)["r0"]) == ("600.10.1", 2)
    host.refresher.look()
    assert version_and_generation(host.metadata(first)["r0"]) == ("600.10.1", 2)


def test_a_claim_that_was_given_back_meanwhile_gets_no_file(host, ref, monkeypatch):
    host.prepare(ref)
    path(host, ref).unlink()
    hold = host.held.hold

    @contextlib.contextmanager
    def late(*arguments, **options):
        monkeypatch.setattr(host.held, "hold", hold)
        host.unprepare(ref)
        with hold(*arguments, **options):
            yield

    monkeypatch.setattr(host.held, "hold", late)
    host.refresher.look()
    assert host.files() == []


def test_a_claim_that_is_half_undone_or_of_an_earlier_boot_is_left_alone(host, ref):
    host.prepare(ref)
    record = host.record(ref)
    path(host, ref).unlink()
    for other in (
        record.model_copy(update={"phase": prepared.Phase.STARTED}),
        record.model_copy(update={"boot_id": "boot-0"}),
    ):
        host.store.records.write(other)
        host.refresher.look()
        assert not path(host, ref).exists()
    host.store.records.write(record)
    leaving = refreshing.Refresher(
        host.store, host.gpus, host.effects.metadata, leaving=lambda: [ref.uid]
    )
    leaving.look()
    assert not path(host, ref).exists()
    host.refresher.look()
    assert path(host, ref).exists()
    assert mig_node.DRIVER in spec(host, ref).name
