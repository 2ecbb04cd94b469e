"""Refusals of wrong cards are told; whatever else a preparer says goes through as it is."""

import pytest

from dra_driver import errors
from dra_driver.adapters.disk import records
from dra_driver.apps.preparing import refusals
from dra_driver.logic.offering import naming
from dra_driver.model import claims, prepared, slices

REF = claims.ClaimRef("team-a", "train", claims.ClaimUid("0a1b"))
RESULT = claims.Result("gpu", slices.DeviceId("gpu.nvidia.com", "node-1", "gpu-0"))


class Scripted:
    """A preparer that answers what it was told to."""

    def __init__(self):
        self.answer, self.unprepared, self.trouble = (), [], None

    def prepare(self, _ref, _seconds):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def unprepare(self, ref, seconds):
        if self.trouble:
            raise self.trouble
        self.unprepared.append((ref, seconds))


@pytest.fixture
def preparer():
    return Scripted()


@pytest.fixture
def told():
    return []


@pytest.fixture
def known(tmp_path):
    return records.Records(tmp_path / "claims")


@pytest.fixture
def asked(preparer, known, told):
    def tells(record):
        return {record.devices[0].device: {"uuid": "GPU-1"}}

    return refusals.Told(preparer, known, tells, lambda ref, reports: told.append((ref, reports)))


def test_a_wrong_card_is_told_and_refused(asked, preparer, told):
    preparer.answer = naming.WrongCard("another card", [RESULT])
    with pytest.raises(naming.WrongCard, match="another card"):
        asked.prepare(REF, 1)
    [(ref, [report])] = told
    assert (ref, report.device, report.ready, report.message) == (
        REF, "gpu-0", False, "another card",
    )  # fmt: skip


@pytest.mark.parametrize("error", [errors.Rejected("no"), errors.Retryable("not yet")])
def test_other_errors_are_nobody_s_status(asked, preparer, told, error):
    preparer.answer = error
    with pytest.raises(type(error), match=str(error)):
        asked.prepare(REF, 1)
    assert told == []


def test_answers_and_unprepares_go_through(asked, preparer, told):
    entry = prepared.PreparedDevice(requests=(), pool="node-1", device="gpu-0", cdi_ids=())
    preparer.answer = (entry,)
    assert asked.prepare(REF, 1) == (entry,)
    asked.unprepare(REF, 2)
    assert preparer.unprepared == [(REF, 2)]


def test_a_claim_that_is_unprepared_is_told_to_have_nothing(asked, told):
    asked.unprepare(REF, 2)
    assert told == [(REF, ())]


def test_one_that_could_not_be_unprepared_keeps_what_is_told_of_it(asked, preparer, told):
    preparer.trouble = errors.Retryable("busy")
    with pytest.raises(errors.Retryable, match="busy"):
        asked.unprepare(REF, 2)
    assert told == []


def test_what_was_prepared_of_a_claim_stays_told_with_its_data(asked, preparer, known, told):
    other = prepared.PreparedDevice(requests=(), pool="node-1", device="gpu-1", cdi_ids=())
    record = prepared.Record(
        uid=REF.uid, namespace="ns", name="c", phase=prepared.Phase.COMPLETED, boot_id="boot",
        devices=(other,),
    )  # fmt: skip
    known.write(record)
    preparer.answer = naming.WrongCard("another card", [RESULT])
    with pytest.raises(naming.WrongCard):
        asked.prepare(REF, 1)
    [(_, entries)] = told
    assert [(one.device, one.ready, one.data) for one in entries] == [
        ("gpu-1", True, {"uuid": "GPU-1"}),
        ("gpu-0", False, {}),
    ]


def test_a_damaged_record_keeps_nobody_from_being_told(asked, preparer, known, told, tmp_path):
    (tmp_path / "claims" / f"{REF.uid}.json").write_text("damaged")
    preparer.answer = naming.WrongCard("another card", [RESULT])
    with pytest.raises(naming.WrongCard):
        asked.prepare(REF, 1)
    assert len(told) == 1
