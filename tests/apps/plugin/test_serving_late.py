"""A call with more claims than there is time for, on a clock that only the claims move."""

import pytest

from dra_driver import errors, telemetry
from dra_driver.adapters.kubelet import dra_grpc
from dra_driver.adapters.system import patience
from dra_driver.apps.plugin import serving
from dra_driver.model import claims

LIMIT = 45.0
"""Seconds after which the kubelet hears nothing any more."""


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    perf_counter = monotonic


class Preparer:
    """Every claim takes as long as it may, and then half a second for a last try."""

    def __init__(self, clock):
        self.clock = clock
        self.tried = []

    def prepare(self, ref, turn):
        self.tried.append(ref.uid)
        self.clock.now += turn.waiting.left + 0.5
        raise errors.Retryable("no answer")

    unprepare = prepare


@pytest.mark.parametrize("operation", ["prepare", "unprepare"])
def test_hundreds_of_claims_that_fail_slowly_are_all_answered_in_time(operation, monkeypatch):
    clock = Clock()
    for module in (serving, patience):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(serving, "AT_ONCE", 1)
    service = serving.Service(telemetry.Metrics("gpu.nvidia.com", "node-1"))
    preparer = Preparer(clock)
    service.ready(preparer)
    refs = [claims.ClaimRef("default", f"c{n}", claims.ClaimUid(f"u{n}")) for n in range(300)]
    begin = clock.now
    answers = getattr(service, operation)(refs, dra_grpc.Caller(LIMIT))
    assert clock.now - begin < LIMIT
    assert list(answers) == [ref.uid for ref in refs]
    told = {uid: answer.error for uid, answer in answers.items()}
    assert {told[uid] for uid in preparer.tried} == {"no answer"}
    assert {told[ref.uid] for ref in refs if ref.uid not in preparer.tried} == {serving.LATE}


def test_a_claim_after_one_that_took_its_time_is_tried_all_the_same(monkeypatch):
    clock = Clock()
    for module in (serving, patience):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(serving, "AT_ONCE", 1)
    service = serving.Service(telemetry.Metrics("gpu.nvidia.com", "node-1"))
    preparer = Preparer(clock)
    service.ready(preparer)
    refs = [claims.ClaimRef("default", name, claims.ClaimUid(name)) for name in ("a", "b")]
    service.prepare(refs, dra_grpc.Caller(LIMIT))
    assert preparer.tried == ["a", "b"]
