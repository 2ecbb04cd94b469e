"""What is told of the health of GPUs by events: what, to whom, and how often."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.health import conditions, meaning, news
from dra_driver.model import devices, events, health, mig, prepared, taints

GPU, PEER = devices.GpuUuid("GPU-0"), devices.GpuUuid("GPU-1")
SPOT, BESIDE = mig.Spot(19, mig.Placement(0, 1)), mig.Spot(19, mig.Placement(1, 1))
NODE = events.About("v1", "Node", "node-1", "")
PLACES = {(GPU, None): "gpu-0", (PEER, None): "gpu-1", (GPU, SPOT): "gpu-0-mig-1g-0"}
SINCE = "2026-11-30T10:00:00Z"
POLICY = meaning.Policy()


def xid(number, gpu=GPU, spot=None, since=SINCE, claims=(), **changes):
    event = health.Event(health.EventKind.XID, gpu, number)
    finding = dataclasses.replace(meaning.of_event(event, spot, POLICY), **changes)
    return health.Condition(finding, since, claims)


def looked(since=SINCE, **facts):
    [finding] = meaning.of_facts(GPU, health.Facts(**facts), POLICY).findings
    return health.Condition(finding, since)


def record(uid="uid", name="claim", device="gpu-0", gpu=GPU, spots=()):
    parts = tuple(
        prepared.Partition(
            device=part, gpu=gpu, minor=0, profile="1g", profile_id=spot.profile_id,
            start=spot.placement.start, size=spot.placement.size,
        )
        for part, spot in spots
    )  # fmt: skip
    names = [part for part, _ in spots] or [device]
    return prepared.Record(
        uid=uid, namespace="ns", name=name, phase=prepared.Phase.COMPLETED, boot_id="b",
        devices=tuple(
            prepared.PreparedDevice(requests=("r",), pool="n", device=one, cdi_ids=())
            for one in names
        ),
        partitions=parts, gpus={} if spots else {device: gpu},
    )  # fmt: skip


def of_node(*listed):
    return [
        (item.reason, item.type, item.message)
        for item in news.of_node(conditions.View(listed), NODE, PLACES)
    ]


def of_claims(known, *listed):
    return [
        (item.about.name, item.reason, item.type, item.message)
        for item in news.of_claims(conditions.View(listed), known)
    ]


# What is said


def test_the_node_is_told_that_a_gpu_is_withdrawn_and_why():
    assert of_node(xid(48)) == [
        (
            "GpuUnhealthy",
            "Warning",
            (
                "gpu-0: XID 48: a memory error that could not be corrected; the GPU needs a reset; "
                "if it comes again, ask the vendor of the machine"
            ),
        )
    ]


@pytest.mark.parametrize("one", [xid(79), xid(167), looked(recovery=2)])
def test_that_the_node_is_to_be_rebooted_has_a_reason_of_its_own(one):
    [(reason, kind, message)] = of_node(one)
    assert (reason, kind) == ("GpuNeedsReboot", "Warning")
    assert "reboot" in message


def test_what_was_there_before_the_boot_is_told_once_it_is_found_again():
    one = xid(79)
    assert of_node(dataclasses.replace(one, before_boot=True)) == []
    assert [told[0] for told in of_node(one)] == ["GpuNeedsReboot"]


@pytest.mark.parametrize("one", [xid(48), xid(32), looked(recovery=1), xid(79, effect="None")])
def test_what_needs_less_than_a_reboot_does_not(one):
    assert not news.needs_reboot(one)


def test_what_only_informs_is_no_warning():
    assert [told[:2] for told in of_node(looked(thermal_slowdown=True))] == [
        ("GpuNotice", "Normal")
    ]


def test_what_ends_pods_says_so():
    [(_, _, message)] = of_node(xid(48, effect=taints.NO_EXECUTE))
    assert message.endswith("; pods that have it and do not tolerate that are ended")


def test_the_gravest_comes_first():
    heat, lost = looked(thermal_slowdown=True), looked(is_lost=True)
    assert [told[0] for told in of_node(heat, xid(63), lost)] == [
        "GpuUnhealthy",
        "GpuNotice",
        "GpuNotice",
    ]


def test_what_an_application_did_is_told_to_its_claims_alone():
    fault = xid(31, claims=("uid",))
    assert of_node(fault) == []
    known = [record(), record("other", "beside")]
    [(name, reason, kind, message)] = of_claims(known, fault)
    assert (name, reason, kind) == ("claim", "GpuNotice", "Warning")
    assert message.startswith("gpu-0: XID 31: a page fault")


def test_what_hits_an_mps_daemon_is_told_to_its_claims_alone():
    fault = xid(94, claims=("uid",), only_claims=True)
    assert of_node(fault) == []
    told = of_claims([record(), record("other", "beside")], fault)
    assert [one[0] for one in told] == ["claim"]


def test_a_claim_is_told_of_what_is_wrong_with_its_card_and_no_other():
    known = [record(), record("two", "beside", "gpu-1", PEER)]
    assert [told[0] for told in of_claims(known, xid(79))] == ["claim"]
    assert [told[0] for told in of_claims(known, xid(79, PEER))] == ["beside"]


def test_a_claim_that_came_later_is_told_too():
    assert of_claims([record("late")], xid(48, claims=("earlier",)))


def test_a_fault_of_an_instance_is_told_by_its_name_and_to_its_claim_alone():
    known = [
        record("a", "mine", spots=[("gpu-0-mig-1g-0", SPOT)]),
        record("b", "beside", spots=[("gpu-0-mig-1g-1", BESIDE)]),
    ]
    [(name, _, _, message)] = of_claims(known, xid(48, spot=SPOT))
    assert (name, message.partition(": ")[0]) == ("mine", "gpu-0-mig-1g-0")
    assert of_node(xid(48, spot=SPOT))[0][2].startswith("gpu-0-mig-1g-0: ")
    assert of_node(xid(48, spot=BESIDE))[0][2].startswith("a part of gpu-0: ")


def test_all_instances_of_a_card_are_told_of_a_fault_of_the_card():
    known = [record("a", "mine", spots=[("gpu-0-mig-1g-0", SPOT), ("gpu-0-mig-1g-1", BESIDE)])]
    [(_, _, _, message)] = of_claims(known, xid(79))
    assert message.startswith("gpu-0-mig-1g-0, gpu-0-mig-1g-1: ")


def test_a_claim_without_a_name_cannot_be_told():
    assert of_claims([record(name="")], xid(79)) == []


def test_a_gpu_whose_name_nobody_knows_is_told_by_its_uuid():
    [item] = news.of_node(conditions.View((xid(79),)), NODE, {})
    assert item.name == "a part of GPU-0"


# How often


class Teller:
    """Tells what is due, at a clock that goes as a test says."""

    def __init__(self):
        self.desk = news.Desk()
        self.seconds = 1000.0
        self.pause = None

    def tell(self, *listed, known=()):
        view = conditions.View(listed)
        items = [*news.of_node(view, NODE, PLACES), *news.of_claims(view, known)]
        there = [NODE, *(news.of_record(one) for one in known)]
        now = conditions.Now(self.seconds, f"at {self.seconds:g}")
        ready, self.pause = self.desk.due(items, there, now)
        for item in ready:
            self.desk.told(item, self.seconds)
        return [(item.about.name, item.reason, item.count) for item in ready]

    def go(self, seconds):
        self.seconds += seconds


@pytest.fixture
def teller():
    return Teller()


def test_what_is_wrong_is_told_once(teller):
    assert teller.tell(xid(48)) == [("node-1", "GpuUnhealthy", 1)]
    assert teller.tell(xid(48)) == []
    teller.go(1000)
    assert (teller.tell(xid(48)), teller.pause) == ([], None)


def test_other_things_are_told_at_once(teller):
    teller.tell(xid(48))
    assert teller.tell(xid(48), xid(95)) == [("node-1", "GpuUnhealthy", 1)]


@pytest.mark.parametrize(
    ("is_done", "reason", "kind"),
    [(True, "GpuReset", "Normal"), (False, "GpuResetFailed", "Warning")],
)
def test_a_reset_is_told_with_what_became_of_it(is_done, reason, kind):
    item = news.of_reset(NODE, GPU, PLACES, "pid 7 holds it", "then", is_done=is_done)
    assert (item.reason, item.type, item.message) == (reason, kind, "gpu-0: pid 7 holds it")


def test_the_gravest_is_told_first(teller):
    told = teller.tell(looked(thermal_slowdown=True), xid(48), xid(79), known=[record()])
    assert [reason for _, reason, _ in told] == [
        "GpuNeedsReboot",
        "GpuNeedsReboot",
        "GpuUnhealthy",
        "GpuUnhealthy",
        "GpuNotice",
        "GpuNotice",
    ]


def test_that_it_is_over_is_told_where_a_gpu_was_withdrawn(teller):
    known = [record()]
    teller.tell(xid(48), xid(95), known=known)
    assert teller.tell(xid(95), known=known) == []
    assert teller.tell(known=known) == [("node-1", "GpuHealthy", 1), ("claim", "GpuHealthy", 1)]
    assert teller.tell(known=known) == []


def test_what_is_said_when_it_is_over(teller):
    teller.tell(xid(48))
    [item], _ = teller.desk.due([], [NODE], conditions.Now(1001.0, "later"))
    assert item.message == f"gpu-0 is well again; since {SINCE} it was not"
    assert (item.type, item.since) == ("Normal", "later")


def test_nothing_is_over_that_was_only_told_of(teller):
    teller.tell(looked(thermal_slowdown=True))
    assert teller.tell() == []


def test_a_claim_that_has_ended_is_told_no_more(teller):
    teller.tell(xid(48), known=[record()])
    assert teller.tell() == [("node-1", "GpuHealthy", 1)]
    teller.go(1000)
    assert teller.tell(known=[record()]) == []


def test_what_comes_back_is_told_once_a_minute_and_counted(teller):
    teller.tell(xid(48))
    for number in range(1, 5):
        teller.go(10)
        teller.tell()
        assert ("node-1", "GpuUnhealthy", 1) not in teller.tell(xid(48, since=f"time {number}"))
    assert teller.pause == 20
    teller.go(20)
    assert teller.tell(xid(48, since="time 4")) == [("node-1", "GpuUnhealthy", 4)]
    assert teller.tell(xid(48, since="time 4")) == []


def test_what_comes_back_after_a_minute_is_told_as_at_first(teller):
    teller.tell(xid(48))
    teller.tell()
    teller.go(60)
    assert teller.tell(xid(48, since="later")) == [("node-1", "GpuUnhealthy", 1)]


def test_that_a_gpu_is_well_is_told_once_a_minute_too(teller):
    teller.tell(xid(48))
    assert teller.tell() == [("node-1", "GpuHealthy", 1)]
    teller.go(30)
    teller.tell(xid(95, since="later"))
    assert (teller.tell(), teller.pause) == ([], 30)
    teller.go(30)
    assert teller.tell() == [("node-1", "GpuHealthy", 1)]


def test_each_time_is_an_event_of_its_own_and_the_same_time_is_not():
    def names(*listed):
        return {item.distinct for item in news.of_node(conditions.View(listed), NODE, PLACES)}

    assert names(xid(48)) == names(xid(48))
    assert names(xid(48)) != names(xid(48, since="later"))
    assert len(names(xid(48), xid(95), xid(48, PEER))) == 3


def test_of_a_flood_a_node_tells_so_much_a_minute(teller):
    for number in range(news.MOST_A_MINUTE):
        assert teller.desk.wait(teller.seconds) == 0
        teller.tell(xid(1000 + number))
    assert teller.desk.wait(teller.seconds) == news.PAUSE
    teller.go(news.PAUSE)
    assert teller.desk.wait(teller.seconds) == 0


def test_what_is_over_is_forgotten_after_a_minute(teller):
    for number in range(5):
        teller.tell(xid(1000 + number))
    assert len(teller.desk) == 5
    teller.go(news.PAUSE)
    teller.tell(xid(1004))
    assert len(teller.desk) == 1


@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from([48, 63, 79, 95])), st.sampled_from([0.0, 1.0, 29.0, 61.0])
        ),
        max_size=30,
    )
)
def test_whatever_happens_the_same_is_told_once_a_minute_and_well_ends_what_was_withdrawn(history):
    teller, last, withdrawn = Teller(), {}, set()
    for number, (wrong, seconds) in enumerate(history):
        teller.go(seconds)
        view = conditions.View(tuple(xid(one, since=f"time {number}") for one in sorted(wrong)))
        items = list(news.of_node(view, NODE, PLACES))
        now = conditions.Now(teller.seconds, f"at {teller.seconds}")
        for item in teller.desk.due(items, [NODE], now)[0]:
            teller.desk.told(item, teller.seconds)
            assert teller.seconds - last.get(item.thing, float("-inf")) >= news.PAUSE
            last[item.thing] = teller.seconds
            if item.reason == news.WELL:
                assert withdrawn
                assert not wrong & {48, 79, 95}
                withdrawn.clear()
            elif item.reason != news.NOTICE:
                withdrawn.add(item.thing)
