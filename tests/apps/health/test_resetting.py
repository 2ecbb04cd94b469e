"""One reset: what is done before and after it, and what becomes of one that fails."""

import collections
import threading
import types

import polling
import pytest

from dra_driver import errors
from dra_driver.adapters.nvml import nvml_gate
from dra_driver.adapters.system import file_holders, patience
from dra_driver.apps.health import resetting, watching
from dra_driver.model import health
from dra_driver.sim.gpus import (
    gpu_clients,
    gpu_event_log,
    gpu_faults,
    gpu_state,
    host_gpu_reset,
)

PARTITION = "gpu-0-mig-1g10gb-19-6"


def gpu(node, number=0):
    return next(card.gpu for card in node.gpus.snapshot.cards if card.gpu.uuid == node.uuid(number))


def fault(node, **facts):
    host_gpu_reset.inject(node.simulation, host_gpu_reset.Fault(**facts))


def set_card(node, **fields):
    with gpu_state.open_file(node.simulation).edit() as state:
        for name, value in fields.items():
            setattr(state.gpus[0], name, value)


def test_what_hangs_is_ended_and_said_and_tried_once_more(new_patient):
    node = new_patient(own_program=True, reset_seconds=0.5)
    fault(node, hangs=True)
    node.ask(0)
    node.look()
    assert node.results == [(node.uuid(0), "failed")]
    assert "did not end within 0.5 s" in node.told()
    assert node.is_over()
    fault(node)
    node.events.pause()
    again = new_patient()
    again.time = node.time
    again.look()
    assert again.resets() == [1, 0]
    assert len(again.health.book.resets(again.uuid(0))) == 2


def test_what_fails_is_said_in_the_words_of_the_program(patient):
    fault(patient, fails="Unknown Error")
    patient.ask(0)
    patient.look()
    assert patient.results == [(patient.uuid(0), "failed")]
    assert "a reset failed" in patient.told()
    assert "GPU 00000000:04:00.0: Unknown Error" in patient.told()
    assert patient.is_over()


def test_whom_nobody_can_name_the_program_finds(patient, monkeypatch):
    monkeypatch.setattr(file_holders, "pids", lambda _root, _nodes: [])
    opened = gpu_clients.attach(patient.simulation, [patient.uuid(0)])
    patient.ask(0)
    patient.look()
    assert patient.results == [(patient.uuid(0), "refused")]
    assert "In use by another client" in patient.told()
    assert "fuser -v /dev/nvidia*" in patient.told()
    assert patient.is_over()
    # Nothing was done: it is no try, also after a restart.
    patient.health.book.load()
    assert patient.health.book.resets(patient.uuid(0)) == ()
    gpu_clients.detach(opened)
    patient.look()
    assert patient.resets() == [1, 0]


def test_without_the_program_nothing_is_begun_and_no_try_is_counted(patient, monkeypatch):
    def find():
        raise errors.Retryable("no nvidia-smi in /usr/bin")

    monkeypatch.setattr(patient.smi, "_program", find)
    patient.ask(0)
    patient.look()
    assert "no nvidia-smi in /usr/bin" in patient.told()
    assert patient.health.book.resets(patient.uuid(0)) == ()
    assert patient.is_over()
    monkeypatch.undo()
    patient.look()
    assert patient.resets() == [1, 0]


def test_a_reset_that_is_not_wanted_any_more_is_not_done(patient):
    assert patient.resetter.reset([gpu(patient)]) is False
    assert patient.resets() == [0, 0]
    assert patient.is_over()


def test_a_card_that_a_claim_is_being_prepared_on_is_left_alone(patient):
    patient.ask(0)
    busy = pytest.raises(errors.Retryable, match="gpu-0 is in use by another call")
    seen = gpu(patient)
    with patient.held.hold(["gpu-0"], patience.Patience(60)), busy:
        patient.resetter.reset([seen])
    assert patient.resets() == [0, 0]


def test_a_claim_that_came_meanwhile_is_in_time(patient, api, monkeypatch):
    """It was decided on a list in which it was not."""
    patient.ask(0)
    ref = api.make("gpu-0")
    patient.prepare(ref)
    # Nothing is begun for that, and NVML is not closed.
    monkeypatch.setattr(patient.begun, "write", lambda record: pytest.fail(f"{record} begun"))
    with pytest.raises(resetting.Refused, match="claims have devices of it: default/claim-1"):
        patient.resetter.reset([gpu(patient)])
    assert patient.resets() == [0, 0]


def test_what_is_found_when_nvml_is_closed_already_is_in_time(patient, monkeypatch):
    """As by another instance of the driver, which has started meanwhile."""

    def comes(_root, _nodes):
        (patient.root / "claims" / "uid-7.json").write_text("{")
        return []

    monkeypatch.setattr(file_holders, "pids", comes)
    patient.ask(0)
    with pytest.raises(resetting.Refused, match="what claims uid-7 have is not known"):
        patient.resetter.reset([gpu(patient)])
    assert patient.resets() == [0, 0]
    assert patient.health.book.resets(patient.uuid(0)) == ()
    assert patient.is_over()


def test_another_instance_of_the_driver_that_has_started_meanwhile_is_seen(patient):
    patient.ask(0)
    patient.alone = False
    with pytest.raises(resetting.Refused, match="another instance of the driver is alive"):
        patient.resetter.reset([gpu(patient)])
    assert patient.resets() == [0, 0]


def test_an_instance_that_was_made_since_the_last_look_is_not_destroyed(patient):
    seen = gpu(patient)
    made = patient.foreign("1g.10gb", 0)
    patient.ask(0)
    with pytest.raises(resetting.Refused, match=f"would be destroyed: {made.id} at 0:1"):
        patient.resetter.reset([seen])
    assert patient.resets() == [0, 0]
    assert patient.is_over()


def test_a_prepare_waits_for_the_reset_and_goes_on(patient, api, monkeypatch):
    patient.ask(0)
    ref, other = api.make("gpu-0"), api.make("gpu-1")
    at_work, go_on = threading.Event(), threading.Event()
    usual = patient.smi.reset

    def slow(gpus):
        at_work.set()
        assert go_on.wait(60)
        usual(gpus)

    monkeypatch.setattr(patient.smi, "reset", slow)
    resets = threading.Thread(target=patient.resetter.reset, args=([gpu(patient)],))
    resets.start()
    assert at_work.wait(60)
    prepare = threading.Thread(target=patient.prepare, args=(ref,))
    prepare.start()
    polling.until(lambda: patient.held.waiting("gpu-0"))
    assert patient.record(ref) is None
    # A card that is not reset waits for NVML alone.
    other_one = threading.Thread(target=patient.prepare, args=(other,))
    other_one.start()
    go_on.set()
    for one in (resets, prepare, other_one):
        one.join(60)
    assert patient.resets() == [1, 0]
    assert {patient.record(one).phase for one in (ref, other)} == {"completed"}


def test_a_look_at_the_gpus_during_a_reset_loses_none(patient, monkeypatch):
    monkeypatch.setattr(nvml_gate, "WAIT_SECONDS", 0.01)
    before = patient.gpus.snapshot
    seen = []
    usual = patient.smi.reset

    def looking(gpus):
        seen.extend(patient.gpus.look() for _ in range(3))
        usual(gpus)

    monkeypatch.setattr(patient.smi, "reset", looking)
    patient.ask(0)
    assert patient.resetter.reset([gpu(patient)]) is True
    assert seen == [before] * 3
    assert patient.gpus.look().cards == before.cards


def test_who_listens_to_gpus_listens_again_after_it(new_patient, monkeypatch):
    monkeypatch.setattr(watching, "SLICE", 0.05)
    node = new_patient()
    heard = collections.deque()
    ears = types.SimpleNamespace(heard=heard.append, unwatched=lambda _: None)
    watch = watching.EventWatch(
        node.library,
        lambda: [card.gpu.uuid for card in node.gpus.snapshot.cards],
        ears,
        bus=node.found.bus,
        look=node.gpus.look,
    )
    told = gpu_event_log.Told(node.uuid(1), health.EventKind.XID, 43, None)

    def is_heard():
        gpu_event_log.tell(node.simulation, told)
        return heard

    node.events.pause()
    node.library.held_by(watch.pause, watch.resume)
    watch.start()
    try:
        polling.until(is_heard, what="an event before the reset")
        node.ask(0)
        node.look()
        assert node.resets() == [1, 0]
        heard.clear()
        polling.until(is_heard, what="an event after the reset")
    finally:
        watch.stop()


def test_persistence_mode_is_as_it_was(patient):
    set_card(patient, persistence_mode=False)
    patient.ask(0)
    patient.look()
    assert patient.resets() == [1, 0]
    assert patient.persistence() == [False, True]


def test_a_mode_that_an_administrator_has_switched_on_is_there_after_it(new_patient, monkeypatch):
    node = new_patient()
    node.set_mig_mode(on=True)
    node.gpus.look()
    usual = node.smi.reset

    def forgetful(gpus):
        usual(gpus)
        node.set_mig_mode(on=False)

    monkeypatch.setattr(node.smi, "reset", forgetful)
    node.ask(0)
    node.look()
    assert node.resets() == [1, 0]
    assert node.card().mig_enabled
    assert node.is_over()


def test_a_mode_that_waits_for_a_reset_comes_with_it(new_patient):
    node = new_patient("a100-40gb-sxm4:1")
    set_card(node, mig_pending=True)
    node.gpus.look()
    node.ask(0)
    node.look()
    assert (node.resets(), node.card().mig_enabled) == ([1], True)


def test_where_it_was_refused_a_mode_goes_on_waiting(new_patient):
    node = new_patient("a100-40gb-sxm4:1")
    set_card(node, mig_pending=True)
    fault(node, fails="Unknown Error")
    node.gpus.look()
    node.ask(0)
    node.look()
    assert (node.card().mig_enabled, node.card().mig_pending) == (False, True)
    assert node.is_over()


def test_a_card_that_answers_nothing_before_its_reset_is_reset_as_it_was_seen(patient):
    for function in ("nvmlDeviceGetMigMode", "nvmlDeviceSetPersistenceMode"):
        gpu_faults.inject(patient.simulation, function=function, error=16, times=1)
    set_card(patient, persistence_mode=False)
    seen = gpu(patient)
    patient.ask(0)
    assert patient.resetter.reset([seen]) is True
    assert patient.resets() == [1, 0]


def test_without_its_file_nothing_is_reset(patient, monkeypatch):
    def refuse(_record):
        raise errors.Rejected("the disk is full")

    monkeypatch.setattr(patient.begun, "write", refuse)
    patient.ask(0)
    patient.look()
    assert patient.resets() == [0, 0]
    assert "the disk is full" in patient.told()
    assert patient.is_over()


def test_a_try_that_cannot_be_counted_is_not_made(patient, monkeypatch):
    def refuse(_gpu):
        raise errors.Rejected("the disk is full")

    monkeypatch.setattr(patient.health.book, "note_reset", refuse)
    patient.ask(0)
    patient.look()
    assert patient.resets() == [0, 0]
    assert patient.is_over()


def test_what_it_waits_for_is_said_in_the_message_of_its_condition_alone(patient):
    patient.ask(0)
    uuid = patient.uuid(0)
    patient.health.book.note(uuid, "it waits")
    [one] = patient.health.view.of_gpu(uuid)
    assert one.finding.message == "the driver wants the GPU reset; it waits"
    # What is kept of it is the finding itself.
    [kept] = patient.health.book.state(uuid).conditions
    assert kept.finding.message == "the driver wants the GPU reset"
    patient.health.book.note(uuid, "")
    [one] = patient.health.view.of_gpu(uuid)
    assert one.finding.message == "the driver wants the GPU reset"
