"""What the writer of device status reads of a claim, and for how long it waits."""

from device_status_scene import NIC, NIC_ENTRY, Scene, report

from dra_driver.apps.telling import device_status


def test_a_claim_that_was_read_just_now_is_not_read_again(scene, served):
    ref = served.claim("gpu-0")
    calls = len(served.faults.calls)
    scene.report(ref, report(), served=served.get_claim(ref))
    assert [call.verb for call in served.faults.calls[calls:]] == ["get", "patch"]
    calls = len(served.faults.calls)
    scene.report(ref, report(), served=served.get_claim(ref))
    assert [call.verb for call in served.faults.calls[calls:]] == ["get"]
    assert scene.told(ref) == [("gpu-0", "True", "GPU-1")]


def test_a_claim_that_has_changed_since_it_was_read_is_read_again(scene, served):
    ref = served.claim("gpu-0", NIC)
    before = served.get_claim(ref)
    scene.write_nic(ref)
    scene.report(ref, report(), served=before)
    assert NIC_ENTRY in scene.entries(ref)
    assert scene.told(ref) == [("gpu-0", "True", "GPU-1")]


def test_what_was_read_before_the_driver_wrote_does_not_count_as_told(scene, served):
    ref = served.claim("gpu-0")
    scene.report(ref, report())
    before = served.get_claim(ref)
    scene.report(ref, report(ready=False))
    scene.report(ref, report(), served=before)
    assert scene.told(ref) == [("gpu-0", "True", "GPU-1")]


def test_of_reports_in_quick_succession_the_last_one_is_written(scene, served, monkeypatch):
    monkeypatch.setattr(device_status, "SETTLING", 3600.0)
    ref = served.claim("gpu-0")
    scene.writer.report(ref, [report(ready=False)])
    monkeypatch.setattr(device_status, "SETTLING", 0.0)
    calls = len(served.faults.calls)
    scene.report(ref, report())
    assert [call.verb for call in served.faults.calls[calls:]].count("patch") == 1
    assert scene.told(ref) == [("gpu-0", "True", "GPU-1")]


def test_reports_that_follow_each_other_do_not_put_each_other_off(served, monkeypatch):
    scene = Scene(served)  # nothing is written yet
    monkeypatch.setattr(device_status, "SETTLING", 3600.0)
    ref = served.claim("gpu-0")
    scene.writer.report(ref, [report(ready=False)])
    due = scene.writer._pending[ref.uid].due
    scene.writer.report(ref, [report()])
    assert scene.writer._pending[ref.uid].due == due
    monkeypatch.setattr(device_status, "SETTLING", 0.0)
    scene.writer.report(ref, [report()])
    assert scene.writer._pending[ref.uid].due < due
