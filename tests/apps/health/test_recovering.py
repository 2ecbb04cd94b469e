"""GPUs whose driver wants a reset get it once nobody can lose by it; else it is said why."""

import dataclasses
import functools
import itertools
import pathlib
import subprocess
import sys
import threading

import pytest

from dra_driver import errors
from dra_driver.apps.health import recovering
from dra_driver.sim.gpus import gpu_faults, host_gpu_reset

FIRST = "gpu-0-mig-1g10gb-19-6"
HOLDER = "import sys; held = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


def test_a_gpu_that_nobody_has_is_reset_and_well_again(patient):
    patient.ask(0)
    patient.look()
    assert patient.resets() == [1, 0]
    assert patient.results == [(patient.uuid(0), "done")]
    assert patient.told() is None
    assert patient.is_over()
    assert patient.health.book.resets(patient.uuid(0)) == (patient.time,)
    patient.look()
    assert patient.resets() == [1, 0]


def test_a_gpu_that_is_well_is_left_alone(patient):
    patient.look()
    assert patient.resets() == [0, 0]


def test_with_the_setting_off_nothing_is_reset(new_patient):
    node = new_patient(on=False)
    node.ask(0)
    node.look()
    assert node.resets() == [0, 0]
    assert node.told() == ""


def test_a_claim_on_the_card_is_waited_for_and_named(patient, api):
    ref = api.make("gpu-0")
    patient.prepare(ref)
    patient.ask(0)
    patient.look()
    assert patient.resets() == [0, 0]
    assert patient.told() == (
        "it is reset once no claim has a device of it; now has: default/claim-1"
    )
    patient.unprepare(ref)
    api.delete(ref)
    patient.look()
    assert patient.resets() == [1, 0]
    assert patient.told() is None


def test_a_claim_with_a_partition_is_waited_for_and_one_on_another_card_is_not(patient, api):
    ref, other = api.make(FIRST), api.make("gpu-1")
    for each in (ref, other):
        patient.prepare(each)
    patient.ask(0)
    patient.look()
    assert patient.resets() == [0, 0]
    before = patient.card(1)
    patient.unprepare(ref)
    api.delete(ref)
    patient.look()
    assert patient.resets() == [1, 0]
    assert patient.card(1) == before
    assert patient.record(other) is not None


def test_a_claim_that_is_allocated_and_not_prepared_is_waited_for(patient, api):
    ref = api.make(FIRST)
    patient.ask(0)
    patient.look()
    assert patient.resets() == [0, 0]
    assert "now has: default/claim-1" in patient.told()
    api.delete(ref)
    patient.look()
    assert patient.resets() == [1, 0]


def test_without_a_whole_list_of_claims_nothing_is_reset(patient, api, monkeypatch):
    def fail(_node, _uids):
        raise errors.Retryable("the API server is away")

    monkeypatch.setattr(api, "concerning", fail)
    patient.ask(0)
    patient.look()
    assert patient.resets() == [0, 0]
    assert patient.told() == ("whether a claim has it is not known for now: the API server is away")
    monkeypatch.undo()
    patient.look()
    assert patient.resets() == [1, 0]


def test_claims_are_listed_only_once_nothing_else_is_in_the_way(patient, api, monkeypatch):
    listed = []
    usual = api.concerning
    monkeypatch.setattr(api, "concerning", lambda *told: (listed.append(1), usual(*told))[1])
    ref = api.make("gpu-0")
    patient.prepare(ref)
    patient.ask(0)
    patient.look()
    assert listed == []
    patient.unprepare(ref)
    patient.look()
    assert len(listed) == 1
    # A claim has it still: it is not asked again at once, whatever wakes it.
    patient.time += recovering.FIRST_LIST / 4
    patient.recovering.look()
    assert len(listed) == 1
    assert "now has: default/claim-1" in patient.told()


def test_while_a_claim_keeps_it_claims_are_listed_ever_more_seldom(patient, api, monkeypatch):
    listed = []
    usual = api.concerning
    monkeypatch.setattr(
        api, "concerning", lambda *told: (listed.append(patient.time), usual(*told))[1]
    )
    api.make("gpu-0")
    patient.ask(0)
    for _ in range(1200):
        patient.recovering.look()
        patient.time += 0.5
    pauses = [later - earlier for earlier, later in itertools.pairwise(listed)]
    assert pauses[0] <= recovering.FIRST_LIST + 0.5
    assert recovering.AFTER_LIST / 2 <= pauses[-1] <= recovering.AFTER_LIST + 0.5


def test_a_damaged_record_may_be_of_a_claim_that_has_it(patient):
    (patient.root / "claims" / "uid-7.json").write_text("{")
    patient.ask(0)
    patient.look()
    assert patient.resets() == [0, 0]
    assert patient.told() == "what claims uid-7 have is not known for now"


def test_instances_of_others_are_not_destroyed(patient):
    made = patient.foreign("1g.10gb", 0)
    patient.ask(0)
    patient.look()
    assert patient.resets() == [0, 0]
    assert f"that this driver did not make: GPU instances {made.id} at 0:1" in patient.told()
    patient.destroy(made.id)
    patient.look()
    assert patient.resets() == [1, 0]


def test_instances_of_an_administrator_are_not_destroyed(new_patient):
    node = new_patient(mode="static")
    node.foreign("1g.10gb", 0)
    node.ask(0)
    node.look()
    assert node.resets() == [0, 0]
    assert "that this driver did not make" in node.told()


def test_while_another_instance_of_the_driver_is_alive_nothing_is_reset(patient):
    patient.alone = False
    patient.ask(0)
    patient.look()
    assert patient.resets() == [0, 0]
    assert patient.told().startswith("another instance of the driver is alive on the node")
    patient.alone = True
    patient.look()
    assert patient.resets() == [1, 0]


def test_what_does_not_help_is_tried_twice_an_hour(patient):
    host_gpu_reset.inject(patient.simulation, host_gpu_reset.Fault(is_idle=True))
    patient.ask(0)
    for _ in range(6):
        patient.look()
    uuid = patient.uuid(0)
    assert patient.results == [(uuid, "failed")] * 2
    assert "tried 2 times within an hour and it needs one still" in patient.told()
    patient.time += 3600.0
    patient.look()
    assert len(patient.results) == 3


def test_tries_are_counted_over_restarts(patient, new_patient):
    host_gpu_reset.inject(patient.simulation, host_gpu_reset.Fault(is_idle=True))
    patient.ask(0)
    for _ in range(3):
        patient.look()
    again = new_patient()
    again.time = patient.time
    again.look()
    assert again.results == []
    assert "tried 2 times within an hour" in again.told()


def test_who_holds_it_open_is_named_and_it_is_not_reset(patient):
    [node] = patient.found.nodes(patient.uuid(0), 0)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(node)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout.readline() == "open\n"
        patient.ask(0)
        patient.look()
        assert patient.resets() == [0, 0]
        assert f"held open by {_name(holder.pid)} (pid {holder.pid})" in patient.told()
        assert patient.is_over()
        # It is no try: nothing was done.
        assert patient.health.book.resets(patient.uuid(0)) == ()
        holder.stdin.close()
    patient.look()
    assert patient.resets() == [1, 0]


def _name(pid):
    return pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()


def test_a_process_that_nvml_tells_of_is_named(patient):
    patient.occupy(4711)
    patient.ask(0)
    patient.look()
    assert patient.resets() == [0, 0]
    assert "gpu-0 is used by" in patient.told()
    assert "pid 4711" in patient.told()
    patient.look()
    # Refused for the same reason again is no news.
    assert patient.results == [(patient.uuid(0), "refused")]
    patient.end(4711)
    patient.look()
    assert patient.resets() == [1, 0]


def test_while_a_card_is_held_open_it_is_tried_ever_more_seldom(patient, monkeypatch):
    tried = []
    usual = patient.resetter.reset
    monkeypatch.setattr(
        patient.resetter, "reset", lambda gpus: (tried.append(patient.time), usual(gpus))[1]
    )
    patient.occupy(4711)
    patient.ask(0)
    for _ in range(1200):
        patient.recovering.look()
        patient.time += 1.0
    pauses = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert pauses[0] <= recovering.INTERVAL + 1.0
    assert recovering.AFTER_REFUSALS / 2 <= pauses[-1] <= recovering.AFTER_REFUSALS + 1.0
    patient.end(4711)
    patient.time += recovering.AFTER_REFUSALS
    patient.look()
    assert patient.resets() == [1, 0]


def test_before_ampere_cards_that_nvlink_connects_are_reset_together(new_patient, api):
    node = new_patient("v100-16gb-sxm2:3")
    node.link(0, 1)
    ref = api.make("gpu-1")
    node.prepare(ref)
    node.ask(0)
    node.look()
    assert node.resets() == [0, 0, 0]
    assert node.told() == (
        "gpu-1 is reset with it: it is reset once no claim has a device of it; now has: "
        "default/claim-1"
    )
    node.unprepare(ref)
    api.delete(ref)
    node.look()
    assert node.resets() == [1, 1, 0]
    assert node.told() is None
    assert node.is_over()


def test_from_ampere_on_each_card_is_reset_for_itself(patient, api):
    patient.link(0, 1)
    patient.prepare(api.make("gpu-1"))
    patient.ask(0)
    patient.look()
    assert patient.resets() == [1, 0]


def test_where_links_are_not_known_nothing_is_reset(new_patient, faults_of):
    node = new_patient("v100-16gb-sxm2:2")
    faults_of(node)(error=999, function="nvmlDeviceGetNvLinkRemotePciInfo")
    node.ask(0)
    node.look()
    assert node.resets() == [0, 0]
    assert node.told().startswith("not reset: which GPUs are reset with it is not known")


def test_a_card_that_is_gone_after_the_reset_is_said_so(patient):
    host_gpu_reset.inject(patient.simulation, host_gpu_reset.Fault(loses=True))
    patient.ask(0)
    patient.look()
    assert patient.resets() == [1, 0]
    assert patient.results == [(patient.uuid(0), "failed")]
    # The mode that it had is remembered for when it is back.
    assert list(patient.begun.contents().records) == [patient.uuid(0)]
    assert [card.gpu.uuid for card in patient.gpus.snapshot.cards] == [patient.uuid(1)]


def test_the_thread_looks_when_it_is_woken_and_ends_when_told(patient, monkeypatch):
    monkeypatch.setattr(recovering, "INTERVAL", 3600.0)
    monkeypatch.setattr(recovering, "_LEAST_PAUSE", 0.0)
    looked = threading.Semaphore(0)
    usual = patient.recovering.look
    monkeypatch.setattr(patient.recovering, "look", lambda: (usual(), looked.release()))
    patient.recovering.start()
    assert looked.acquire(timeout=60)
    patient.ask(0)
    patient.recovering.changed()
    assert looked.acquire(timeout=60)
    patient.recovering.stop()
    assert patient.resets() == [1, 0]


@pytest.fixture
def faults_of():
    return lambda node: functools.partial(gpu_faults.inject, node.simulation)


def bind(node, number):
    """A virtual machine has the GPU."""
    cards = list(node.gpus.snapshot.cards)
    cards[number] = dataclasses.replace(cards[number], is_bound=True)
    node.gpus._snapshot = dataclasses.replace(node.gpus.snapshot, cards=tuple(cards))


def test_a_gpu_that_a_virtual_machine_has_is_neither_reset_nor_waited_for(patient):
    patient.ask(0)
    bind(patient, 0)
    patient.recovering.look()
    assert patient.resets() == [0, 0]
    assert patient.results == []
    assert patient.told() == ""


def test_it_is_reset_once_it_is_back(patient):
    patient.ask(0)
    bind(patient, 0)
    patient.recovering.look()
    patient.look()
    assert patient.resets() == [1, 0]


def test_what_is_reset_with_a_gpu_of_a_virtual_machine_waits_for_it(new_patient):
    node = new_patient("t4:2")
    node.link(0, 1)
    node.ask(1)
    bind(node, 0)
    node.recovering.look()
    assert node.resets() == [0, 0]
    assert node.told(1) == (
        "gpu-0 is reset with it: not reset: a VFIO driver has it, for a virtual machine"
    )
