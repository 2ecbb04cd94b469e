"""Claims that the kubelet forgot, and what is asked of the API to find them."""

import api_cluster
import pytest
import reconciling_scene
import structlog

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.model import prepared
from dra_driver.sim.api.serving import options

AWAY, FORBIDDEN = reconciling_scene.AWAY, reconciling_scene.FORBIDDEN
GRACE, INTERVAL = reconciling_scene.GRACE, reconciling_scene.INTERVAL


@pytest.fixture
def scene(cluster, tmp_path):
    yield reconciling_scene.Scene(cluster, tmp_path)
    cluster.client.delete_collection(kube.CLAIMS, "default", field_selector="metadata.name!=x")


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def delete(cluster, ref):
    cluster.delete_claim(ref)


def make_again(cluster, ref):
    cluster.delete_claim(ref)
    cluster.claim("gpu-0", name=ref.name)


def deallocate(cluster, ref):
    cluster.reallocate(ref)


def allocate_elsewhere(cluster, ref):
    cluster.reallocate(ref, {"device": "gpu-0", "pool": "node-2"})


def allocate_other_device(cluster, ref):
    cluster.reallocate(ref, "gpu-1")


ENDS = [delete, make_again, deallocate, allocate_elsewhere, allocate_other_device]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_a_claim_that_is_not_the_nodes_any_more_is_unprepared_at_the_second_look(
    scene, cluster, log, end
):
    kept, forgotten = scene.prepared("gpu-1"), scene.prepared("gpu-0")
    end(cluster, forgotten)
    assert scene.look_after(0) == []
    assert scene.look_after(GRACE - 1) == []
    assert scene.look_after(1) == [forgotten.uid]
    assert scene.remembered() == {kept.uid}
    assert scene.look_after(INTERVAL) == [forgotten.uid]
    assert [line["claim"] for line in log] == [str(forgotten)] * 2
    assert log[1]["event"] == "stale claim unprepared, as the kubelet had not done it"
    assert log[1]["devices"] == ["gpu-0"]
    assert "claim" in log[0]["reason"]
    assert "claim" in log[1]["reason"]


def test_claims_that_still_have_their_devices_are_never_touched(scene, cluster):
    scene.prepared("gpu-0", "gpu-1")
    half = scene.prepared("gpu-0", "gpu-1")
    cluster.reallocate(half, "gpu-1", "gpu-2")
    started = scene.prepared("gpu-2", phase=prepared.Phase.STARTED)
    remembered = scene.remembered()
    for _ in range(3):
        assert scene.look_after(INTERVAL) == []
    assert scene.remembered() == remembered
    assert started.uid in remembered


def test_a_prepare_that_did_not_get_far_is_undone_too(scene, cluster):
    ref = scene.prepared("gpu-0", phase=prepared.Phase.STARTED)
    delete(cluster, ref)
    scene.look_after(0)
    assert scene.look_after(GRACE) == [ref.uid]


def test_the_kubelet_comes_first_where_it_comes(scene, cluster, log):
    ref = scene.prepared("gpu-0")
    delete(cluster, ref)
    scene.look_after(0)
    scene.known.remove(ref.uid)
    assert scene.look_after(GRACE) == []
    assert len(log) == 1


def test_records_of_an_earlier_boot_are_left_to_the_start(scene, cluster):
    ref = scene.prepared("gpu-0", boot_id="boot-0")
    delete(cluster, ref)
    scene.look_after(0)
    assert scene.look_after(GRACE) == []
    assert scene.remembered() == {ref.uid}


def test_each_record_s_claim_is_read_by_its_name_and_no_list_is_taken(scene, cluster):
    refs = [scene.prepared("gpu-0"), scene.prepared("gpu-1"), scene.prepared("gpu-2")]
    cluster.claim("gpu-3")
    scene.prepared("gpu-4", boot_id="boot-0")
    gets = sorted(f"get {ref.name}" for ref in refs)
    assert scene.reads_after(0) == gets
    delete(cluster, refs[0])
    assert scene.reads_after(INTERVAL) == gets
    # Once more right before it is acted on.
    assert scene.reads_after(GRACE) == sorted([*gets, f"get {refs[0].name}"])
    assert scene.reads_after(INTERVAL) == sorted(f"get {ref.name}" for ref in refs[1:])
    assert scene.leftovers.told == ["settle"] * 4


def test_a_node_without_claims_asks_for_none(scene, cluster):
    cluster.claim("gpu-0")
    assert scene.reads_after(0) == []


def test_a_record_without_a_name_is_looked_for_in_one_list_by_its_uid(scene, cluster):
    kept, free, gone = (
        scene.prepared(device, name="", namespace="") for device in ("gpu-0", "gpu-1", "gpu-2")
    )
    deallocate(cluster, free)
    delete(cluster, gone)
    assert scene.reads_after(0) == ["list"]
    # What is in no list by its UID is gone for good; the others have a name now.
    names = sorted([f"get {kept.name}", f"get {free.name}"])
    assert scene.reads_after(GRACE) == sorted([*names, f"get {free.name}"])
    assert sorted(scene.unprepared) == sorted([free.uid, gone.uid])
    assert scene.remembered() == {kept.uid}
    assert scene.reads_after(INTERVAL) == [f"get {kept.name}"]
    cluster.delete_claim(kept)
    scene.look_after(INTERVAL)
    scene.look_after(GRACE)
    assert scene.remembered() == set()


def test_each_new_record_without_a_name_is_worth_another_list(scene):
    first = scene.prepared("gpu-0", name="", namespace="")
    assert scene.reads_after(0) == ["list"]
    second = scene.prepared("gpu-1", name="", namespace="")
    assert scene.reads_after(GRACE) == ["list"]
    assert scene.reads_after(GRACE) == sorted([f"get {first.name}", f"get {second.name}"])


def test_a_list_is_taken_instead_of_reads_where_something_else_needs_it(scene, cluster):
    kept, forgotten = scene.prepared("gpu-1"), scene.prepared("gpu-0")
    cluster.claim("gpu-7", {"device": "gpu-0", "pool": "node-2"})
    cluster.claim({"device": "nic-0", "driver": "nic.example.com"})
    scene.leftovers.needs = True
    left = []
    scene.leftovers.on_remove = lambda: left.append(len(scene.remembered()))
    assert scene.reads_after(0) == ["list"]
    delete(cluster, forgotten)
    assert scene.reads_after(0) == ["list"]
    assert scene.reads_after(GRACE) == [f"get {forgotten.name}", "list"]
    both, one = ["gpu-0", "gpu-1", "gpu-7"], ["gpu-1", "gpu-7"]
    assert scene.leftovers.told == [
        *("settle", "rebuild with 3", both),
        *("settle", "rebuild with 2", one),
        *("settle", "rebuild with 2", one),
    ]
    # Stale records are dealt with first.
    assert left == [2, 2, 1]
    scene.leftovers.needs = False
    assert scene.reads_after(INTERVAL) == [f"get {kept.name}"]


@pytest.mark.parametrize("fault", [AWAY, FORBIDDEN, options.Fault(drop="after")])
def test_a_read_that_fails_says_nothing_about_any_claim(scene, cluster, fault):
    refs = [scene.prepared("gpu-0"), scene.prepared("gpu-1")]
    scene.look_after(0)
    for ref in refs:
        delete(cluster, ref)
    with scene.reading(None, *[fault] * 10), pytest.raises(errors.DriverError):
        scene.look_after(GRACE)
    assert scene.leftovers.told == ["settle"] * 2
    # It was no look: two are needed from now on.
    assert scene.look_after(GRACE) == []
    assert sorted(scene.look_after(GRACE)) == sorted(ref.uid for ref in refs)


@pytest.mark.parametrize("fault", [AWAY, FORBIDDEN, options.Fault(drop="after")])
def test_a_list_that_fails_says_nothing_either(scene, cluster, fault):
    scene.leftovers.needs = True
    ref = scene.prepared("gpu-0")
    delete(cluster, ref)
    with scene.reading(*[fault] * 10, verb="list"), pytest.raises(errors.DriverError):
        scene.look_after(GRACE)
    assert scene.leftovers.told == ["settle"]
    assert scene.look_after(GRACE) == []
    assert scene.look_after(GRACE) == [ref.uid]


def test_half_a_list_is_no_list(scene, cluster, monkeypatch):
    monkeypatch.setattr(kube, "PAGE", 1)
    scene.leftovers.needs = True
    scene.prepared("gpu-0")
    scene.prepared("gpu-1")
    for _ in range(3):
        with scene.reading(None, AWAY, verb="list"), pytest.raises(errors.DriverError):
            scene.look_after(INTERVAL)
    assert scene.look_after(INTERVAL) == []
    assert scene.leftovers.told == ["settle"] * 4 + ["rebuild with 2", ["gpu-0", "gpu-1"]]


def test_a_claim_that_is_allocated_again_at_the_last_moment_stays(scene, cluster, log):
    ref = scene.prepared("gpu-0")
    deallocate(cluster, ref)
    scene.look_after(0)
    body = cluster.get_claim(ref)
    scene.before_check.append(lambda: cluster.allocate(body, ["gpu-0"]))
    assert scene.look_after(GRACE) == []
    assert scene.remembered() == {ref.uid}
    assert log[-1]["event"] == "claim no longer looks stale"


def test_a_claim_that_is_prepared_anew_at_the_last_moment_stays(scene, cluster):
    ref = scene.prepared("gpu-0")
    deallocate(cluster, ref)
    scene.look_after(0)
    scene.before_check.append(lambda: scene.prepared("gpu-1", ref=ref))
    assert scene.look_after(GRACE) == []
    # What was prepared then gets as long as any other.
    assert scene.look_after(1) == []
    assert scene.look_after(GRACE - 1) == []
    assert scene.look_after(1) == [ref.uid]


def test_a_claim_that_cannot_be_confirmed_stays_until_it_can(scene, cluster, log):
    ref = scene.prepared("gpu-0")
    delete(cluster, ref)
    scene.look_after(0)
    with scene.reading(None, *[AWAY] * 10) as happened:
        assert scene.look_after(GRACE) == []
        assert happened == [AWAY]
    assert "503" in log[-1]["reason"]
    assert scene.look_after(1) == [ref.uid]


def test_an_unprepare_that_fails_is_tried_again_at_the_next_look(scene, cluster, log):
    first, second = scene.prepared("gpu-0"), scene.prepared("gpu-1")
    delete(cluster, first)
    delete(cluster, second)
    scene.look_after(0)
    scene.refusals.append(errors.Retryable("claim is in use by another call"))
    assert len(scene.look_after(GRACE)) == 1
    assert log[-2]["reason"] == "claim is in use by another call"
    assert sorted(scene.look_after(1)) == sorted([first.uid, second.uid])


def test_what_cannot_be_undone_is_tried_again_soon_and_told_each_time(scene, cluster, log):
    """As a GPU of a virtual machine that does not come back: nobody else would try it."""
    ref = scene.prepared("gpu-0")
    delete(cluster, ref)
    scene.reconciler.look()
    for _ in range(3):
        scene.time += GRACE
        scene.refusals.append(errors.Retryable("the kernel does not come back"))
        assert scene.reconciler.look() == GRACE
        assert log[-1]["reason"] == "the kernel does not come back"
    scene.time += GRACE
    assert scene.reconciler.look() == INTERVAL
    assert scene.unprepared == [ref.uid]


def test_the_next_look_is_soon_only_while_a_suspect_waits(scene, cluster):
    ref = scene.prepared("gpu-0")
    assert scene.reconciler.look() == INTERVAL
    delete(cluster, ref)
    assert scene.reconciler.look() == GRACE
    scene.time += GRACE
    assert scene.reconciler.look() == INTERVAL


def test_a_claim_whose_record_is_damaged_is_no_suspect(scene, cluster, tmp_path):
    ref = scene.prepared("gpu-0")
    delete(cluster, ref)
    scene.look_after(0)
    (tmp_path / "claims" / f"{ref.uid}.json").write_text("damaged")
    assert scene.look_after(GRACE) == []


@pytest.mark.parametrize("needs", [False, True])
def test_a_server_that_was_upgraded_is_asked_for_its_versions_again(tmp_path, needs):
    cluster = api_cluster.Cluster(resource_versions=("v1beta1",))
    try:
        scene = reconciling_scene.Scene(cluster, tmp_path)
        scene.leftovers.needs = needs
        scene.prepared("gpu-0")
        scene.look_after(0)
        cluster.restart_with(resource_versions=("v1",))
        scene.prepared("gpu-1")
        with pytest.raises(errors.DriverError):
            scene.look_after(INTERVAL)
        scene.look_after(1)
        # The new server has the second claim only.
        assert len(scene.look_after(GRACE)) == 1
        assert len(scene.remembered()) == 1
    finally:
        cluster.close()


def test_a_name_that_is_another_claims_now_is_no_reason_to_touch_that_one(scene, cluster):
    old = scene.prepared("gpu-0")
    cluster.delete_claim(old)
    new = scene.prepared("gpu-0", ref=cluster.claim("gpu-0", name=old.name))
    scene.look_after(0)
    assert scene.look_after(GRACE) == [old.uid]
    assert scene.remembered() == {new.uid}


def test_a_claim_is_not_taken_back_while_a_process_is_on_its_devices(scene, cluster, log):
    used, unused, kept = (scene.prepared(f"gpu-{number}") for number in range(3))
    for ref in (used, unused):
        delete(cluster, ref)
    scene.users.known[used.uid] = "python3 (pid 4711)"
    scene.look_after(0)
    assert scene.users.asked == []
    scene.time += GRACE
    assert scene.reconciler.look() == GRACE
    assert scene.unprepared == [unused.uid]
    assert scene.remembered() == {used.uid, kept.uid}
    assert {uid for uid, _ in scene.users.asked} == {used.uid, unused.uid}
    assert all(kept.uid in others for _, others in scene.users.asked)
    assert not any(uid in others for uid, others in scene.users.asked)
    assert scene.reconciler.kept == 1
    scene.look_after(GRACE)
    [told] = [line for line in log if line["event"].startswith("stale claim stays prepared")]
    assert told["reason"] == "its devices are used by python3 (pid 4711)"
    assert told["devices"] == ["gpu-0"]
    del scene.users.known[used.uid]
    assert scene.look_after(GRACE) == [unused.uid, used.uid]
    assert scene.reconciler.kept == 0


def test_a_claim_is_not_taken_back_while_nobody_knows_who_is_on_its_devices(scene, cluster, log):
    ref = scene.prepared("gpu-0")
    delete(cluster, ref)
    scene.look_after(0)
    scene.users.problem = errors.Retryable("NVML does not come back")
    for _ in range(2):
        assert scene.look_after(GRACE) == []
    assert scene.reconciler.kept == 1
    [told] = [line for line in log if line["event"].startswith("stale claim stays prepared")]
    assert told["reason"].endswith("is not known: NVML does not come back")
    scene.users.problem = None
    assert scene.look_after(GRACE) == [ref.uid]


def test_a_kept_claim_that_is_had_again_is_not_counted_any_more(scene, cluster):
    ref = scene.prepared("gpu-0")
    delete(cluster, ref)
    scene.users.known[ref.uid] = "python3 (pid 4711)"
    scene.look_after(0)
    scene.look_after(GRACE)
    assert scene.reconciler.kept == 1
    scene.known.remove(ref.uid)
    scene.look_after(GRACE)
    assert scene.reconciler.kept == 0
