"""Whom an event concerns."""

import dataclasses

import mig_cards

from dra_driver.logic.health import attributing
from dra_driver.model import devices, health, prepared

GPU = mig_cards.gpu(mig_cards.H100)
SPOT = mig_cards.spot(GPU, "1g.10gb", 0)
XID = health.EventKind.XID


def record(uid, *, gi=None, mps=(), gpu=GPU.uuid):
    parts = ()
    if gi is not None:
        place = SPOT.placement
        parts = (
            prepared.Partition(
                device=f"gpu-0-mig-{gi}",
                gpu=gpu,
                minor=0,
                profile="1g.10gb",
                profile_id=SPOT.profile_id,
                start=place.start,
                size=place.size,
                gi=gi,
            ),
        )
    uses = tuple(prepared.MpsUse(domain=one, keys=("gpu-0",), devices=("gpu-0",)) for one in mps)
    return prepared.Record(
        uid=uid,
        namespace="n",
        name=uid,
        phase=prepared.Phase.COMPLETED,
        boot_id="b",
        devices=(),
        partitions=parts,
        sharing=prepared.Sharing(mps=uses),
        gpus={"gpu-0": gpu},
    )


def blamed(number, *known, gi=None, card=GPU, faulted=()):
    event = health.Event(XID, GPU.uuid, number, gi)
    return attributing.of(event, card, known, lambda _: faulted)


def test_an_event_of_the_card_concerns_all_its_claims_and_nobody_elses():
    known = (record("a"), record("b", gi=1), record("c", gpu="GPU-other"))
    assert blamed(79, *known) == attributing.Blamed(None, ("a", "b"))


def test_an_event_of_an_instance_concerns_its_place_and_the_claim_that_has_it():
    assert blamed(95, record("a", gi=1), record("b", gi=2), gi=1) == attributing.Blamed(
        SPOT, ("a",)
    )


def test_an_instance_of_no_claim_is_found_on_the_card():
    card = dataclasses.replace(GPU, instances=(mig_cards.instance(GPU, "1g.10gb", 0, gi=7),))
    assert blamed(95, gi=7, card=card) == attributing.Blamed(SPOT, ())


def test_an_instance_that_is_gone_is_no_loss_to_an_application_but_a_fault_of_the_card():
    assert blamed(31, gi=7) is None
    assert blamed(95, gi=7) == attributing.Blamed(None, ())


def test_a_fatal_fault_inside_an_mps_daemon_concerns_the_claims_of_that_daemon():
    known = (record("a", mps=("red",)), record("b", mps=("red",)), record("c", mps=("blue",)))
    assert blamed(31, *known, faulted=("red",)) == attributing.Blamed(
        None, ("a", "b"), by_daemon=True
    )


def test_a_fault_that_no_daemon_tells_of_concerns_all_claims_of_the_card():
    known = (record("a", mps=("red",)), record("c", mps=("blue",)))
    assert blamed(31, *known) == attributing.Blamed(None, ("a", "c"))


def test_a_fault_of_the_hardware_is_no_daemons():
    assert blamed(79, record("a", mps=("red",)), faulted=("red",)).by_daemon is False


def test_a_card_that_nobody_has_seen_can_still_have_events():
    event = health.Event(XID, devices.GpuUuid("GPU-x"), 79)
    assert attributing.of(event, None, (), lambda _: ()) == attributing.Blamed()
