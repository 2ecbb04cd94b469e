"""What resets have left that were cut short, or could not be ended: it is put in order first."""

import pathlib
import subprocess
import sys

import pytest

from dra_driver import errors
from dra_driver.adapters.nvml import nvidia_smi
from dra_driver.model import resets as written
from dra_driver.sim.gpus import gpu_state


def begun(node, step, *, boot=None, **modes):
    """What a driver has left that died at this step of a reset."""
    card = written.Card(gpu=node.uuid(0), name="gpu-0", minor=0, locks=("gpu-0",), **modes)
    boot = boot or node.store.boot_id
    node.begun.write(written.Record(boot_id=boot, step=step, cards=(card,)))


def test_only_a_reset_that_is_known_to_be_done_counts_as_one(patient, monkeypatch):
    told = []
    monkeypatch.setattr(patient.health, "was_reset", told.append)
    for step in (written.Step.BEGUN, written.Step.RESETTING):
        begun(patient, step)
        patient.look()
        assert patient.is_over()
        assert told == []
    begun(patient, written.Step.RESTORING)
    patient.look()
    assert told == [patient.uuid(0)]


def test_a_mode_is_not_put_back_under_a_claim_that_has_come(patient, api):
    patient.prepare(api.make("gpu-0"))
    begun(patient, written.Step.RESTORING, mig=True)
    patient.look()
    assert not patient.card().mig_enabled
    assert patient.is_over()


def test_of_another_boot_nothing_is_put_back(patient):
    with gpu_state.open_file(patient.simulation).edit() as state:
        state.gpus[0].persistence_mode = False
    begun(patient, written.Step.RESTORING, boot="boot-0", persistence=True)
    patient.look()
    assert patient.persistence() == [False, True]
    assert patient.begun.contents().records == {}


def test_a_card_whose_reset_cannot_be_ended_is_not_touched_until_it_has(patient, monkeypatch):
    """A process that hangs in the driver outlives its signals."""
    words = patient.smi.traces(patient.uuid(0))
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", *words], stdin=subprocess.PIPE
    ) as program:

        def hang(_gpus):
            raise nvidia_smi.Hung("it did not end within 60 s")

        monkeypatch.setattr(patient.smi, "reset", hang)
        patient.ask(0)
        patient.look()
        assert patient.results == [(patient.uuid(0), "failed")]
        assert patient.persistence() == [False, True]
        patient.look()
        assert f"it is still at work: {_name(program.pid)} (pid {program.pid})" in patient.told()
        assert patient.persistence() == [False, True]
        program.stdin.close()
    monkeypatch.undo()
    patient.look()
    assert patient.resets() == [1, 0]
    assert patient.is_over()


def _name(pid):
    return pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()


def test_a_damaged_file_of_a_reset_is_kept_aside_and_holds_up_nothing(patient):
    (patient.root / "resets").mkdir(exist_ok=True)
    path = patient.root / "resets" / f"{patient.uuid(0)}.json"
    path.write_text("{")
    patient.ask(0)
    patient.look()
    assert patient.resets() == [1, 0]
    assert [one.name for one in path.parent.iterdir()] == [f"{path.name}.damaged-0"]


def test_a_claim_gets_no_card_that_a_reset_may_be_at_work_on_until_it_is_put_in_order(patient, api):
    begun(patient, written.Step.RESETTING)
    ref = api.make("gpu-0")
    with pytest.raises(errors.Retryable, match="a reset of gpu-0 was cut short"):
        patient.prepare(ref, seconds=0.5)
    assert patient.record(ref) is None
    patient.prepare(api.make("gpu-1"))
    patient.look()
    assert patient.prepare(ref)


@pytest.mark.parametrize(
    ("step", "boot"),
    [
        (written.Step.BEGUN, None),
        (written.Step.RESTORING, None),
        (written.Step.RESETTING, "boot-0"),
    ],
    ids=["before it", "after it", "an earlier boot"],
)
def test_a_claim_gets_a_card_that_no_reset_can_be_at_work_on(patient, api, step, boot):
    begun(patient, step, boot=boot)
    assert patient.prepare(api.make("gpu-0"))


def test_a_claim_gets_no_card_of_which_it_is_not_known_whether_it_is_being_reset(patient, api):
    (patient.root / "resets").mkdir(exist_ok=True)
    path = patient.root / "resets" / f"{patient.uuid(0)}.json"
    path.write_text("{")
    ref = api.make("gpu-0")
    with pytest.raises(errors.Retryable, match="a reset of gpu-0"):
        patient.prepare(ref, seconds=0.5)
    patient.look()
    assert patient.prepare(ref)


def test_a_claim_gets_none_of_the_cards_that_are_reset_at_once(patient, api):
    both = _begun_together(patient)
    for name in both:
        with pytest.raises(errors.Retryable, match=f"a reset of {name} was cut short"):
            patient.prepare(api.make(name), seconds=0.5)


def test_a_card_that_cannot_be_put_in_order_keeps_no_other_from_claims_once_no_reset_is_at_work(
    patient, api, monkeypatch
):
    _, second = _begun_together(patient, persistence=True)

    def refuse(_gpu, *, on):
        raise errors.Rejected(f"persistence mode: {on}")

    monkeypatch.setattr(patient.resetter._modes, "set_persistence", refuse)
    patient.look()
    assert patient.begun.contents().records
    assert patient.prepare(api.make(second))
    monkeypatch.undo()
    patient.look()
    assert patient.is_over()
    assert patient.resets() == [0, 0]


def _begun_together(node, **modes):
    """The names of two cards whose reset was cut short."""
    cards = {
        node.uuid(n): written.Card(
            gpu=node.uuid(n), name=f"gpu-{n}", minor=n, locks=(f"gpu-{n}",), **modes
        )
        for n in (0, 1)
    }
    ordered = tuple(cards[uuid] for uuid in sorted(cards))
    boot = node.store.boot_id
    node.begun.write(written.Record(boot_id=boot, step=written.Step.RESETTING, cards=ordered))
    return [card.name for card in ordered]


def test_a_damaged_file_of_a_reset_stays_while_the_reset_is_at_work(patient, api):
    (patient.root / "resets").mkdir(exist_ok=True)
    path = patient.root / "resets" / f"{patient.uuid(0)}.json"
    path.write_text("{")
    words = patient.smi.traces(patient.uuid(0))
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", *words], stdin=subprocess.PIPE
    ) as program:
        patient.look()
        for name in ("gpu-0", "gpu-1"):
            with pytest.raises(errors.Retryable, match="a reset of"):
                patient.prepare(api.make(name), seconds=0.5)
        program.stdin.close()
    patient.look()
    assert not path.exists()
    assert patient.prepare(api.make("gpu-0"))
