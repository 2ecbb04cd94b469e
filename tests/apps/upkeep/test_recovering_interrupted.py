"""A recovery that is killed before any of its steps, or that another instance comes between."""

import contextlib
import shutil

import api_cluster
import effort
import plugin_process
import pytest

from dra_driver.adapters.disk import records, resets
from dra_driver.adapters.system import locks
from dra_driver.apps.offering import inventory
from dra_driver.apps.preparing import attempts
from dra_driver.apps.upkeep import mending, recovering
from dra_driver.logic.preparing import planning
from dra_driver.model import claims, prepared


@pytest.mark.deep
def test_a_recovery_killed_before_any_step_ends_like_one_that_was_not(
    victim, checks, own_cluster, own_machine
):
    old, damaged = own_cluster.claim("gpu-0"), own_cluster.claim("gpu-1")
    victim.start(0).prepare(old, damaged)
    victim.plugin.kill()
    record = own_machine.record(old).model_copy(update={"boot_id": "boot-0"})
    own_machine.record_path(old).write_text(prepared.encode(record))
    own_machine.record_path(damaged).write_text("damaged")
    (own_machine.records / ".0-gone.json.new").write_text("{")
    (own_machine.cdi / ".k8s.gpu.nvidia.com-claim_0-gone.json.new").write_text("{")
    folders = (own_machine.records, own_machine.cdi)
    template = own_machine.root / "template"
    for folder in folders:
        shutil.copytree(folder, template / folder.name)
    aside = own_machine.records / f"{damaged.uid}.json.damaged-0"
    # What a start does then, without the start: that takes long.
    claim = claims.parse(own_cluster.get_claim(damaged))
    recovery = recovery_in(store_in(own_machine.records, own_machine.cdi), lambda _uids: [claim])
    for number in effort.steps():
        died = victim.dies_at_start(number)
        if died:
            recovery.run()
        entry = prepared.PreparedDevice(**plugin_process.device(damaged, "gpu-1", is_first=False))
        assert own_machine.record(damaged).devices == (entry,)
        assert aside.read_text() == "damaged"
        aside.unlink()
        checks.is_cleared_up(damaged, described=[old])
        if not died:
            break
        for folder in folders:
            shutil.rmtree(folder)
            shutil.copytree(template / folder.name, folder)
    # Whether the directory takes files is tried with one that has no name, so it leaves nothing.
    done = [step for step in victim.steps(damaged) if step != "write cdi"]
    steps = [step.partition(" ")[0] for step in done]
    assert {name: steps.count(name) for name in steps} == {
        "remove": 8, "link": 1, "rename": 1, "fsync": 2, "write": 1, "chmod": 1
    }  # fmt: skip
    victim.plugin.kubelet.unprepare(old)
    checks.works(victim.plugin.kubelet, damaged, "gpu-1")


def store_in(records_dir, cdi_dir):
    return attempts.Store(
        records.Records(records_dir),
        resets.opened(records_dir.with_name("resets")),
        cdi_dir,
        locks.Locks(records_dir.with_name("locks")),
        "boot-1",
    )


def recovery_in(store, claim_list):
    node = planning.Node(api_cluster.DRIVER, api_cluster.NODE)
    return recovering.Recovery(
        store, [], mending.Mender(node, store, inventory.Snapshot), claim_list
    )


class OtherInstance:
    """What another live instance does while this one recovers."""

    def __init__(self, tmp_path):
        (tmp_path / "cdi").mkdir()
        self.store = store_in(tmp_path / "claims", tmp_path / "cdi")
        self.record = prepared.Record(
            uid="uid-1",
            namespace="default",
            name="claim",
            phase=prepared.Phase.STARTED,
            boot_id="boot-1",
            devices=(),
        )
        self.spec = tmp_path / "cdi" / "k8s.gpu.nvidia.com-claim_uid-1.json"
        self.spec.write_text('{"devices": [{"name": "uid-1-gpu-0"}]}')

    def recover_while(self, action):
        def claim_list(_uids):
            action()
            return []

        recovery_in(self.store, claim_list).run()


def test_a_claim_that_another_instance_prepares_meanwhile_keeps_its_record(tmp_path):
    other = OtherInstance(tmp_path)
    other.recover_while(lambda: other.store.records.write(other.record))
    assert other.store.records.get("uid-1") == other.record
    assert other.spec.exists()


def test_a_claim_that_another_instance_prepares_anew_after_a_reboot_is_not_dropped(
    tmp_path, monkeypatch
):
    other = OtherInstance(tmp_path)
    other.store.records.write(other.record.model_copy(update={"boot_id": "boot-0"}))
    hold = other.store.locks.hold

    @contextlib.contextmanager
    def held_by_the_other_first(names, waiting):
        with hold(names, waiting):
            other.store.records.write(other.record)
            yield

    monkeypatch.setattr(other.store.locks, "hold", held_by_the_other_first)
    other.recover_while(lambda: None)
    assert other.store.records.get("uid-1") == other.record
    assert other.spec.exists()


def test_a_claim_that_another_instance_unprepares_meanwhile_is_not_remembered_again(tmp_path):
    other = OtherInstance(tmp_path)
    other.recover_while(other.spec.unlink)
    assert other.store.records.get("uid-1") is None
