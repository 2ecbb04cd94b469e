"""What the driver tells in the status of claims, to a real API server that stumbles."""

import time

import api_cluster
import pytest
import structlog
from device_status_scene import EARLY, LATE, NIC, NIC_ENTRY, Scene, report

from dra_driver.apps.telling import device_status
from dra_driver.model import claims
from dra_driver.sim.api.serving import options

pytestmark = pytest.mark.sampled(7)

FORBIDDEN = options.Fault(status=403, reason="Forbidden", message="cannot patch")
LATE_FORBIDDEN = options.Fault(
    status=422,
    reason="Invalid",
    message="status.devices: changing status.devices is forbidden: cannot associated-node:patch",
)


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def events(log):
    return [line["event"] for line in log]


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_a_device_is_told_of_in_whichever_version_the_server_offers(started, version):
    cluster = api_cluster.Cluster(resource_versions=(version,))
    scene = started(cluster)
    try:
        ref = cluster.claim("gpu-0")
        scene.report(ref, report())
        assert scene.entries(ref) == [
            {
                "driver": api_cluster.DRIVER,
                "pool": api_cluster.NODE,
                "device": "gpu-0",
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "reason": "Prepared",
                        "message": "as the claim asks",
                        "lastTransitionTime": EARLY,
                    }
                ],
                "data": {"uuid": {"string": "GPU-1"}},
            }
        ]
    finally:
        scene.writer.stop()
        cluster.close()


def test_entries_of_other_drivers_stay_as_they_are(scene, served):
    ref = served.claim("gpu-0", NIC)
    scene.write_nic(ref)
    scene.report(ref, report())
    scene.report(ref, report(uuid="GPU-2"))
    assert NIC_ENTRY in scene.entries(ref)
    assert scene.told(ref) == [("gpu-0", "True", "GPU-2")]
    scene.report(ref)
    assert scene.entries(ref) == [NIC_ENTRY]


def test_a_claim_that_another_writes_meanwhile_gets_both(scene, served):
    ref = served.claim("gpu-0", NIC)
    scene.source.between.append(lambda: scene.write_nic(ref))
    scene.report(ref, report())
    assert NIC_ENTRY in scene.entries(ref)
    assert scene.told(ref) == [("gpu-0", "True", "GPU-1")]


def test_shares_of_one_device_are_told_apart(scene, served):
    shares = ["0f0e0d0c-0b0a-4908-8706-050403020100", "ffffffff-0b0a-4908-8706-050403020100"]
    ref = served.claim(*({"device": "gpu-0", "shareID": share} for share in shares))
    first, second = (report(share_id=share, uuid=share) for share in shares)
    scene.report(ref, first, second)
    assert scene.told(ref) == [("gpu-0", "True", share) for share in shares]
    scene.report(ref, second)
    assert [entry["shareID"] for entry in scene.entries(ref)] == [shares[1]]


def test_what_has_not_changed_is_not_written(scene, served):
    ref = served.claim("gpu-0")
    scene.report(ref, report())
    before, writes = scene.version(ref), len(served.faults.calls)
    scene.now = LATE
    scene.report(ref, report())
    assert scene.version(ref) == before
    assert [call.verb for call in served.faults.calls[writes:]] == ["get", "get"]


def test_only_a_device_whose_state_changes_gets_another_time(scene, served):
    ref = served.claim("gpu-0", "gpu-1")
    scene.report(ref, report("gpu-0"), report("gpu-1"))
    scene.now = LATE
    scene.report(ref, report("gpu-0", ready=False), report("gpu-1", uuid="GPU-2"))
    times = [entry["conditions"][0]["lastTransitionTime"] for entry in scene.entries(ref)]
    assert times == [LATE, EARLY]


def test_a_device_that_is_no_longer_reported_is_no_longer_told_of(scene, served):
    ref = served.claim("gpu-0", "gpu-1")
    scene.report(ref, report("gpu-0"), report("gpu-1"))
    scene.report(ref, report("gpu-1"))
    assert scene.told(ref) == [("gpu-1", "True", "GPU-1")]


def test_what_is_given_back_waits_as_long_as_that_says_and_not_as_reports_do(
    scene, served, monkeypatch
):
    ref = served.claim("gpu-0")
    scene.report(ref, report())
    monkeypatch.setattr(device_status, "SETTLING", 3600.0)
    monkeypatch.setattr(device_status, "GIVEN_BACK_SETTLING", 0.0)
    scene.report(ref)
    assert scene.told(ref) == []


def test_a_claim_that_another_node_has_by_now_is_left_to_it(scene, served):
    ref = served.claim("gpu-0")
    scene.report(ref, report())
    elsewhere = {"device": "gpu-0", "pool": "node-2", "driver": api_cluster.DRIVER}
    served.reallocate(ref, elsewhere)
    body = served.get_claim(ref)
    theirs = {"driver": api_cluster.DRIVER, "pool": "node-2", "device": "gpu-0"}
    body["status"]["devices"] = [theirs]
    served.client.replace_status(served.claims, body, ref.namespace)
    version = scene.version(ref)
    scene.report(ref)
    scene.report(ref, report())
    assert scene.version(ref) == version


def test_a_claim_that_was_allocated_anew_has_nothing_of_the_earlier_devices(scene, served):
    ref = served.claim("gpu-0")
    scene.report(ref, report("gpu-0"))
    served.reallocate(ref, "gpu-1")
    scene.report(ref, report("gpu-0"), report("gpu-1"))
    assert scene.told(ref) == [("gpu-1", "True", "GPU-1")]


@pytest.mark.parametrize("when", ["before it is read", "after it was read"])
@pytest.mark.parametrize("what", ["gone", "made again", "deallocated"])
def test_a_claim_that_is_not_ours_any_more_is_passed_over_in_silence(
    scene, served, log, what, when
):
    ref = served.claim("gpu-0")

    def change():
        if what == "deallocated":
            served.reallocate(ref)
            return
        served.delete_claim(ref)
        if what == "made again":
            served.claim("gpu-0", name=ref.name)

    if when == "before it is read":
        change()
    else:
        scene.source.between.append(change)
    scene.report(ref, report())
    assert log == []
    if what != "gone":
        assert scene.entries(ref) == []


def test_a_claim_whose_name_is_not_known_is_passed_over(scene, served):
    calls = len(served.faults.calls)
    scene.report(claims.ClaimRef("", "", claims.ClaimUid("uid-1")), report())
    assert served.faults.calls[calls:] == []


def test_a_gate_that_is_off_is_told_once_and_the_driver_goes_on(started, log):
    gate = "DRAResourceClaimDeviceStatus"
    cluster = api_cluster.Cluster(disabled_gates=frozenset({gate}))
    scene = started(cluster)
    try:
        for _ in range(2):
            ref = cluster.claim("gpu-0")
            scene.report(ref, report())
            assert scene.entries(ref) == []
        assert len(log) == 1
        assert gate in log[0]["event"]
        for _ in range(2):
            with scene.refusing(options.Fault(status=503)):
                scene.report(ref, report())
        away = "device status not written; trying again"
        assert events(log)[1:] == [away] * 2
    finally:
        scene.writer.stop()
        cluster.close()


@pytest.mark.parametrize("fault", [FORBIDDEN, LATE_FORBIDDEN], ids=["early", "late"])
def test_a_right_that_is_missing_is_told_once_until_it_is_there(scene, served, log, fault):
    ref = served.claim("gpu-0")
    with scene.refusing(fault, fault) as happened:
        scene.report(ref, report())
        scene.report(ref, report())
        assert happened == [fault, fault]
        scene.report(ref, report())
    assert scene.told(ref) == [("gpu-0", "True", "GPU-1")]
    (line,) = log
    assert "helm upgrade, or kubectl apply -f deploy/manifests" in line["event"]
    assert fault.message in line["reason"]
    with scene.refusing(fault):
        scene.report(ref, report(uuid="GPU-2"))
    assert len(log) == 2


def test_what_the_server_does_not_take_is_told_with_its_claim_and_not_tried_again(
    scene, served, log
):
    ref = served.claim("gpu-0")
    bad = device_status.DeviceReport(api_cluster.NODE, "gpu-0", ready=True, reason="no reason")
    scene.report(ref, bad)
    scene.report(
        ref,
        device_status.DeviceReport(
            api_cluster.NODE, "gpu-0", ready=True, reason="Prepared", data={"x": "y" * 10240}
        ),
    )
    assert [line["claim"] for line in log] == [str(ref)] * 2
    assert "a condition reason must" in log[0]["reason"]
    assert "allowed are 10240" in log[1]["reason"]
    assert scene.entries(ref) == []


@pytest.mark.parametrize(
    "faults",
    [
        [options.Fault(status=409, reason="Conflict")] * 3,
        [options.Fault(status=503, reason="ServiceUnavailable")],
        [options.Fault(status=429, reason="TooManyRequests")],
        [options.Fault(drop="before")] * 2,
        [options.Fault(drop="after")],
    ],
    ids=lambda faults: str(faults[0].status or faults[0].drop),
)
def test_a_write_that_fails_is_done_again(scene, served, log, faults):
    ref = served.claim("gpu-0")
    with scene.refusing(*faults) as happened:
        scene.report(ref, report())
    assert happened == faults
    assert scene.told(ref) == [("gpu-0", "True", "GPU-1")]
    conflicts = all(fault.status == 409 for fault in faults)
    assert len(log) == (0 if conflicts else 1)


def test_a_server_that_is_away_is_told_of_once_and_gets_everything_when_it_is_back(
    scene, served, log
):
    refs = [served.claim("gpu-0") for _ in range(3)]
    with served.faults.where(lambda _call: options.Fault(drop="before")) as happened:
        for ref in refs:
            scene.writer.report(ref, [report()])
        api_cluster.wait_for(lambda: len(happened) > 12, "tries")
    assert scene.writer.wait_idle(api_cluster.DEADLINE)
    assert [scene.told(ref) for ref in refs] == [[("gpu-0", "True", "GPU-1")]] * 3
    assert events(log) == ["device status not written; trying again"]


def test_of_several_reports_the_last_one_counts_also_when_an_earlier_one_is_tried_again(
    scene, served
):
    ref = served.claim("gpu-0")
    scene.source.between.append(lambda: scene.writer.report(ref, [report(uuid="GPU-2")]))
    with scene.refusing(options.Fault(status=503)):
        scene.report(ref, report(uuid="GPU-1"))
    assert scene.told(ref) == [("gpu-0", "True", "GPU-2")]


def test_what_fails_unexpectedly_costs_its_claim_alone(scene, served, log):
    ref = served.claim("gpu-0")

    def fail():
        raise KeyError("odd")

    scene.source.between.append(fail)
    scene.report(ref, report())
    assert events(log) == ["status of a claim failed unexpectedly"]
    scene.report(ref, report())
    assert scene.told(ref) == [("gpu-0", "True", "GPU-1")]


def test_of_more_claims_than_can_wait_the_oldest_is_given_up(served, log, monkeypatch):
    monkeypatch.setattr(device_status, "CAPACITY", 2)
    monkeypatch.setattr(device_status, "STOP_SECONDS", api_cluster.DEADLINE)
    scene = Scene(served)
    refs = [served.claim("gpu-0") for _ in range(3)]
    scene.writer.report(refs[1], [report()])
    scene.writer.report(refs[0], [report()])
    # Reported anew, it is no longer the one that has waited longest.
    scene.writer.report(refs[1], [report()])
    scene.writer.report(refs[2], [report()])
    scene.writer.start()
    scene.writer.stop()
    assert [len(scene.told(ref)) for ref in refs] == [0, 1, 1]
    assert [line["claim"] for line in log] == [str(refs[0])]


def test_what_is_reported_right_before_the_end_is_written(served, monkeypatch):
    monkeypatch.setattr(device_status, "STOP_SECONDS", api_cluster.DEADLINE)
    scene = Scene(served)
    refs = [served.claim("gpu-0") for _ in range(5)]
    scene.writer.start()
    for ref in refs:
        scene.writer.report(ref, [report()])
    scene.writer.stop()
    assert [scene.told(ref) for ref in refs] == [[("gpu-0", "True", "GPU-1")]] * 5
    scene.writer.report(refs[0], [report(uuid="GPU-2")])
    assert scene.writer.wait_idle(0)


def test_what_waits_to_be_tried_again_is_not_waited_for_at_the_end(served, monkeypatch):
    monkeypatch.setattr(device_status, "FIRST_BACKOFF", 3600.0)
    monkeypatch.setattr(device_status, "STOP_SECONDS", api_cluster.DEADLINE)
    scene = Scene(served)
    ref = served.claim("gpu-0")
    with scene.refusing(options.Fault(status=503)) as happened:
        scene.writer.start()
        scene.writer.report(ref, [report()])
        api_cluster.wait_for(lambda: happened and not scene.writer._writing, "a try")
    scene.writer.stop()
    assert scene.told(ref) == [("gpu-0", "True", "GPU-1")]


def test_an_end_without_a_server_names_what_is_not_written_after_one_try(served, log):
    scene = Scene(served)
    refs = [served.claim("gpu-0") for _ in range(3)]
    # So that it knows already which version is served.
    scene.source.read(refs[0], time.monotonic() + api_cluster.DEADLINE)
    for ref in refs:
        scene.writer.report(ref, [report()])
    calls = len(served.faults.calls)

    def away(_call):
        # The first try takes until the driver ends.
        api_cluster.wait_for(lambda: scene.writer._end, "the end")
        return options.Fault(drop="before")

    with served.faults.where(away):
        scene.writer.start()
        scene.writer.stop()
    assert {call.name for call in served.faults.calls[calls:]} == {refs[0].name}
    assert scene.writer.wait_idle(0)
    lost = [line["claim"] for line in log if line["event"].startswith("driver ends")]
    assert sorted(lost) == sorted(map(str, refs))


def test_a_writer_that_was_never_started_can_be_stopped(served):
    scene = Scene(served)
    scene.writer.stop()
