"""What holds for every effect in the list, whichever it is."""

import effect_claims
import pytest

from dra_driver.apps.effects import effect, sharing
from dra_driver.model import prepared

CASES = pytest.mark.parametrize("case", effect_claims.CASES.values(), ids=effect_claims.NAMES)


def test_each_effect_in_the_list_has_a_case_here_in_the_order_of_the_list(host):
    assert [type(one) for one in host.effects.listed] == list(effect_claims.CASES)


@CASES
def test_what_is_prepared_works_and_is_undone_without_a_trace(host, users, case):
    host.set_card(**case.before)
    untouched = host.hardware()
    ref = users.give(case.device, configs=case.configs)
    host.prepare(ref)
    assert case.works(host, ref)
    host.unprepare(ref)
    assert (host.files(), host.hardware()) == ([], untouched)
    assert host.runs_nothing()


@CASES
def test_the_same_again_gives_the_same_and_changes_nothing(host, users, case):
    host.set_card(**case.before)
    ref = users.give(case.device, configs=case.configs)
    first = host.prepare(ref)
    before = host.files(), host.hardware(), host.record(ref), host.edits(ref)
    assert host.prepare(ref) == first
    assert (host.files(), host.hardware(), host.record(ref), host.edits(ref)) == before


@CASES
def test_the_record_tells_of_one_effect_and_of_what_every_claim_has(host, users, case):
    """The others have nothing to undo."""
    ref = users.give(case.device, configs=case.configs)
    host.prepare(ref)
    record = host.record(ref)
    told = [type(one) for one in host.effects.listed if one.is_in(record)]
    assert case in [effect_claims.CASES[kind] for kind in told]
    more = {kind for kind in told if effect_claims.CASES[kind] is not case}
    assert more | {told[-1]} == {*effect_claims.EVERYWHERE}
    assert record.phase is prepared.Phase.COMPLETED
    hardware = host.hardware()
    for one in host.effects.listed:
        if not one.is_in(record):
            one.undo(record, [])
    assert host.hardware() == hardware
    assert case.works(host, ref)


@CASES
def test_without_what_its_device_needs_a_record_tells_of_nothing(host, users, case):
    ref = users.give(case.device, configs=case.configs)
    host.prepare(ref)
    record = host.record(ref)
    for one in host.effects.listed:
        assert one.without(record, {"gpu-9"}) == record
        record = one.without(record, {case.device})
    assert not any(one.is_in(record) for one in host.effects.listed)


@CASES
def test_what_a_record_needs_no_look_at_a_gpu_puts_back(host, users, case):
    host.set_card(**case.before)
    untouched = host.set_to()
    ref = users.give(case.device, configs=case.configs)
    host.prepare(ref)
    for one in host.effects.listed:
        one.settle(host.uuid(), [host.record(ref)])
        one.settle(host.uuid(), None)
    assert case.works(host, ref)
    host.unprepare(ref)
    assert host.set_to() == untouched


@CASES
def test_what_is_set_for_a_claim_that_nobody_knows_is_put_back_once_that_is_sure(host, users, case):
    """Instances and daemons stay: they are left over, as below."""
    host.set_card(**case.before)
    untouched = host.set_to()
    ref = users.give(case.device, configs=case.configs)
    host.prepare(ref)
    as_set = host.set_to()
    for records, left in ((None, as_set), ([], untouched)):
        for one in host.effects.listed:
            one.settle(host.uuid(), records)
        assert host.set_to() == left
    host.unprepare(ref)


def lose(host, ref):
    """All that is remembered of a claim is gone, but for what was made for it."""
    host.store.records.remove(ref.uid)
    (host.cdi / host.cdi_name(ref)).unlink()


@CASES
def test_what_no_record_tells_of_goes_once_it_is_sure_that_no_claim_has_it(host, users, case):
    host.set_card(**case.before)
    untouched = host.hardware()
    ref = users.give(case.device, configs=case.configs)
    host.prepare(ref)
    assert host.leftovers() == []
    lose(host, ref)
    host.tidy(allocated=[])
    assert (host.leftovers(), host.files(), host.hardware()) == ([], [], untouched)
    assert host.runs_nothing()


def test_what_several_effects_left_over_goes_together(host, users):
    untouched = host.hardware()
    ref = effect_claims.everything(users)
    host.prepare(ref)
    lose(host, ref)
    host.tidy(allocated=[])
    assert (host.leftovers(), host.files(), host.hardware()) == ([], [], untouched)
    assert host.runs_nothing()


def test_a_device_that_a_claim_without_a_record_has_stays(host, users):
    ref = users.give(effect_claims.PARTITION)
    host.prepare(ref)
    made = host.mig_uuids()
    lose(host, ref)
    host.tidy(allocated=[effect_claims.PARTITION])
    assert host.mig_uuids() == made
    host.prepare(ref)
    assert host.mig_uuids() == made


@CASES
def test_the_status_of_a_claim_says_what_the_effect_has_to_tell(host, users, case):
    ref = users.give(case.device, configs=case.configs)
    host.prepare(ref)
    told = effect.told(host.effects.listed, host.record(ref))
    assert {key: dict(facts) for key, facts in told.items()} == case.told(host)


@CASES
def test_nothing_is_wrong_with_what_works(host, users, case):
    ref = users.give(case.device, configs=case.configs)
    host.prepare(ref)
    for anew in (True, False):
        assert effect.troubles(host.effects.listed, host.record(ref), anew=anew) == {}


def test_what_is_wrong_with_a_device_is_told_as_it_was_seen_last(host, users):
    case = effect_claims.CASES[sharing.Sharer]
    ref = users.give(case.device, configs=case.configs)
    host.prepare(ref)
    host.kill_supervisor(ref)

    def troubles(*, anew):
        found = effect.troubles(host.effects.listed, host.record(ref), anew=anew)
        return {key: trouble.reason for key, trouble in found.items()}

    assert troubles(anew=False) == {}
    assert troubles(anew=True) == {case.device: "MpsDaemonDown"}
    assert troubles(anew=False) == {case.device: "MpsDaemonDown"}
    host.look_after()
    assert troubles(anew=False) == {}
