"""When the reconciler looks by itself."""

import threading

import api_cluster
import pytest
import reconciling_scene
import structlog

from dra_driver.adapters.kube import kube
from dra_driver.apps.upkeep import reconciling

FORBIDDEN, GRACE = reconciling_scene.FORBIDDEN, reconciling_scene.GRACE


@pytest.fixture
def scene(cluster, tmp_path):
    yield reconciling_scene.Scene(cluster, tmp_path)
    cluster.client.delete_collection(kube.CLAIMS, "default", field_selector="metadata.name!=x")


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def test_the_first_look_comes_after_the_grace_at_the_node_s_own_moment(scene):
    pauses = {scene.make(node=f"node-{number}").first_pause() for number in range(20)}
    assert len(pauses) == 20
    assert all(GRACE <= pause <= GRACE + reconciling.SPREAD for pause in pauses)
    assert scene.make().first_pause() == scene.make().first_pause()


def test_the_thread_waits_before_its_first_look_where_nothing_needs_a_list(scene, cluster):
    scene.prepared("gpu-0")
    asked = threading.Event()
    scene.leftovers.needs_view = asked.set
    before = len(cluster.faults.calls)
    reconciler = scene.make()
    reconciler.start()
    assert asked.wait(api_cluster.DEADLINE)
    # A thread that did not wait would be at it while this is read.
    cluster.slices()
    reconciler.stop()
    assert scene.leftovers.told == []
    assert {call.resource for call in cluster.faults.calls[before:]} == {"resourceslices"}


def test_the_thread_looks_at_once_where_something_needs_a_list(scene):
    scene.leftovers.needs = True
    looked = threading.Event()
    scene.leftovers.on_remove = looked.set
    reconciler = scene.make(pace=reconciling.Pace(grace=10 * api_cluster.DEADLINE))
    reconciler.start()
    assert looked.wait(api_cluster.DEADLINE)
    reconciler.stop()


def test_the_thread_looks_by_itself_until_it_is_stopped(scene, cluster):
    ref = scene.prepared("gpu-0")
    cluster.delete_claim(ref)
    reconciler = scene.make(pace=reconciling.Pace(0.01, 0.0))
    reconciler.start()
    api_cluster.wait_for(lambda: scene.unprepared, "an unprepare")
    reconciler.stop()
    assert not [t for t in threading.enumerate() if t.name == "reconciler"]
    assert scene.unprepared == [ref.uid]


def test_the_thread_goes_on_after_reads_that_fail_and_tells_of_them_once(scene, log):
    scene.prepared("gpu-0")
    looks = scene.leftovers.told
    with scene.reading(*[FORBIDDEN] * 3) as happened:
        reconciler = scene.make(pace=reconciling.Pace(0.01, GRACE, lambda: scene.time))
        reconciler.start()
        api_cluster.wait_for(lambda: len(looks) > 4, "looks")
        reconciler.stop()
    assert len(happened) == 3
    (line,) = log
    assert line["event"] == "claims cannot be read; nothing is cleaned up meanwhile"
    assert "cannot get resourceclaims" in line["reason"]


@pytest.mark.parametrize("where", ["needs_view", "settle"])
def test_the_thread_goes_on_after_what_nobody_expected(scene, cluster, log, where):
    ref = scene.prepared("gpu-0")
    cluster.delete_claim(ref)
    odd = [KeyError("odd")]
    usual = getattr(scene.leftovers, where)

    def fails_once():
        if odd:
            raise odd.pop()
        return usual()

    setattr(scene.leftovers, where, fails_once)
    reconciler = scene.make(pace=reconciling.Pace(0.01, 0.0))
    reconciler.start()
    api_cluster.wait_for(lambda: scene.unprepared, "an unprepare")
    reconciler.stop()
    assert log[0]["event"] == "comparing records with claims failed unexpectedly"
    assert len([line for line in log if "unexpectedly" in line["event"]]) == 1
