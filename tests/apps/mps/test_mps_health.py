"""Daemons of prepared claims that are killed: real processes, a real API server, real files."""

import pathlib
import shutil
import tempfile
import threading

import api_cluster
import mps_scene
import polling
import pytest
import sharing_claims
import sharing_node
import structlog

from dra_driver import errors
from dra_driver.adapters.system import patience, pids
from dra_driver.apps.mps import mps_health
from dra_driver.apps.preparing import fetching, preparing
from dra_driver.apps.telling import device_status
from dra_driver.logic.preparing import reports

pytestmark = pytest.mark.sampled(13)

GPU, OTHER = sharing_claims.GPU, sharing_claims.OTHER_GPU
PREPARED, DOWN = ("True", "Prepared"), ("False", "MpsDaemonDown")


@pytest.fixture(scope="module")
def cluster():
    made = api_cluster.Cluster()
    yield made
    made.close()


class Scene:
    """A node whose claims are in an API server, with what looks after daemons."""

    def __init__(self, cluster, root, starter):
        self.cluster = cluster
        source = fetching.ApiClaims(cluster.client, threading.Event())
        self.node = sharing_node.Node(
            root, "h100-80gb-hbm3:2", source, starter, shares=sharing_node.BY_MEMORY
        )
        self.told = []
        self.writer = device_status.DeviceStatusWriter(
            cluster.client, source, api_cluster.DRIVER, pool=api_cluster.NODE
        )
        self.writer.start()
        self.health = self.new_health()

    def new_health(self, keep=dict, **options):
        made = mps_health.Health(
            self.node.store.records,
            self.node.held,
            self.node.launcher,
            self.node.mps,
            **options,
        )
        made.wire(on_change=lambda record: self.tell(record, made.told_of(record)), keep=keep)
        return made

    def tell(self, record, down):
        self.told.append((record.uid, bool(down)))
        self.write(record, down)

    def write(self, record, down):
        troubles = reports.of_daemons(record, down)
        self.writer.report(record.ref, reports.of_record(record, troubles))

    def prepare(self, *results, configs=(), namespace="default"):
        ref = self.cluster.claim(*results, config=configs, namespace=namespace)
        self.node.prepare(ref, 60)
        self.report(ref)
        return ref

    def report(self, ref):
        """What follows each prepare."""
        record = self.node.record(ref)
        self.write(record, self.health.down(record))

    def status(self, ref, device=GPU):
        """Status and reason of a device's condition, once all is written."""
        assert self.writer.wait_idle(api_cluster.DEADLINE)
        entries = self.cluster.get_claim(ref)["status"]["devices"]
        [condition] = next(one["conditions"] for one in entries if one["device"] == device)
        return condition["status"], condition["reason"]

    def look_until(self, condition):
        def looked():
            self.health.look()
            return condition()

        polling.until(looked)

    def close(self):
        for path in self.node.store.records.contents().records.values():
            self.node.unprepare(path.ref)
        self.writer.stop()
        self.node.close()


@pytest.fixture
def scene(cluster, starter, monkeypatch):
    monkeypatch.setattr(preparing, "LOOK_AGAIN", 0.02)
    monkeypatch.setattr(mps_health, "LOCK_SECONDS", 0.05)
    root = pathlib.Path(tempfile.mkdtemp(prefix="health-", dir="/tmp"))
    made = Scene(cluster, root, starter)
    yield made
    made.close()
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def share(device=GPU, memory=10, request="gpu"):
    return sharing_claims.share(device, memory=memory) | {"request": request}


def kill_both(scene, ref):
    """The supervisor is killed, and its daemon with it."""
    process = scene.node.daemon(ref)
    scene.node.kill_supervisor(ref)
    polling.until(lambda: not pids.is_alive(process))
    return process


def test_a_claim_whose_daemon_is_killed_says_so_until_the_daemon_is_back_with_its_limits(scene):
    ref = scene.prepare(share())
    assert scene.status(ref) == PREPARED
    before = scene.node.limits(ref)

    kill_both(scene, ref)
    scene.health.look()

    assert scene.status(ref) == DOWN
    scene.look_until(lambda: scene.status(ref) == PREPARED)
    assert scene.node.limits(ref) == before


def test_a_daemon_that_its_supervisor_brings_back_is_told_of_and_left_to_it(scene):
    ref = scene.prepare(share())
    supervisor = scene.node.domain(ref).supervisor()
    # It cannot bring it back as long as this stands here.
    program = scene.node.simulation / "driver/usr/bin/nvidia-cuda-mps-control"
    text = program.read_text()
    mps_scene.replace(program, "#!/bin/sh\nexit 3\n")
    scene.node.kill_daemon(ref)

    scene.look_until(lambda: scene.status(ref) == DOWN)
    assert scene.node.domain(ref).supervisor() == supervisor
    mps_scene.replace(program, text)

    scene.look_until(lambda: scene.status(ref) == PREPARED)
    assert scene.node.domain(ref).supervisor() == supervisor


def test_a_daemon_that_does_not_answer_is_told_of_with_what_its_supervisor_says(scene):
    ref = scene.prepare(GPU, configs=[sharing_claims.mps_gpu()])
    record = scene.node.record(ref)
    domain = scene.node.domain(ref)
    problem = "it does not answer: process 41 of user 65534 has connected, and says nothing"
    domain.say_not_ready()
    domain.say_problem(problem)
    assert scene.health.down(record) == {
        domain.directory.name: f"MPS daemon {domain.directory.name} is not ready: {problem}; until "
        "then processes that start wait for it, or run without its limits"
    }


def test_only_changes_are_told(scene):
    ref = scene.prepare(share())
    scene.health.look()
    scene.health.look()
    assert scene.told == []

    kill_both(scene, ref)
    scene.look_until(lambda: scene.told[-1:] == [(ref.uid, False)])
    scene.health.look()

    assert scene.told == [(ref.uid, True), (ref.uid, False)]


def test_all_claims_of_a_daemon_are_told_and_those_of_others_are_not(scene):
    refs = [scene.prepare(share(memory=memory)) for memory in (10, 20)]
    other = scene.prepare(share(OTHER), namespace=api_cluster.ADMIN_NAMESPACE)

    kill_both(scene, refs[0])
    scene.health.look()

    assert [scene.status(ref) for ref in refs] == [DOWN, DOWN]
    assert scene.status(other, OTHER) == PREPARED


def test_of_a_claim_only_the_devices_with_that_daemon_are_down(scene):
    ref = scene.prepare(share(GPU, request="a"), share(OTHER, request="b"))
    process = scene.node.daemon(ref, 0)
    mps_scene.kill(scene.node.domain(ref, 0).supervisor())
    polling.until(lambda: not pids.is_alive(process))

    scene.health.look()

    assert scene.status(ref, GPU) == DOWN
    assert scene.status(ref, OTHER) == PREPARED


def test_a_daemon_with_which_a_claim_is_at_work_is_left_alone_and_nothing_is_said(scene):
    ref = scene.prepare(share())
    kill_both(scene, ref)

    with scene.node.held.hold([GPU], patience.Patience(60)):
        scene.health.look()
        assert scene.node.domain(ref).supervisor() is None
    assert scene.told == []

    scene.health.look()
    assert scene.told == [(ref.uid, True)]


def test_what_was_told_stays_while_a_claim_is_at_work(scene, failing_call):
    ref = scene.prepare(share())
    kill_both(scene, ref)
    failing_call(scene.node.launcher, "start", errors.Retryable("not now"), 0)
    scene.health.look()

    with scene.node.held.hold([GPU], patience.Patience(60)):
        scene.health.look()

    assert scene.told == [(ref.uid, True)]
    assert scene.status(ref) == DOWN


def test_the_daemon_of_a_claim_that_was_unprepared_meanwhile_is_not_started(scene):
    ref = scene.prepare(share())
    domain = scene.node.domain(ref)
    kill_both(scene, ref)
    record = scene.node.record(ref)
    scene.node.unprepare(ref)

    assert scene.health._confirm_and_mend(record.sharing.mps[0].domain, [GPU]) is None

    assert scene.told == []
    assert not domain.directory.exists()


def test_a_daemon_that_cannot_be_started_is_tried_again_and_complained_of_once(
    scene, failing_call, log
):
    ref = scene.prepare(share())
    kill_both(scene, ref)
    calls = []

    def fail(_daemon):
        # It is told before anything is done about it.
        calls.append(list(scene.told))
        raise errors.Retryable("out of order")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scene.node.launcher, "start", fail)
        scene.health.look()
        scene.health.look()

    assert calls == [[(ref.uid, True)]] * 2
    complaints = [line for line in log if line["event"].startswith("MPS daemon not brought back")]
    assert [line["reason"] for line in complaints] == ["out of order"]
    assert scene.status(ref) == DOWN
    scene.look_until(lambda: scene.status(ref) == PREPARED)


@pytest.mark.parametrize("text", [None, "damaged"])
def test_a_daemon_of_which_nothing_is_known_any_more_is_told_of(scene, text, log):
    ref = scene.prepare(share())
    kill_both(scene, ref)
    description = scene.node.domain(ref).description
    kept = description.read_text()
    description.unlink()
    if text is not None:
        description.write_text(text)

    scene.health.look()

    assert scene.status(ref) == DOWN
    assert any("not brought back" in line["event"] for line in log)
    description.write_text(kept)


def test_after_a_restart_of_the_driver_a_daemon_that_is_down_is_told_at_once(scene):
    ref = scene.prepare(share())
    kill_both(scene, ref)

    restarted = scene.new_health()
    down = restarted.down(scene.node.record(ref))
    assert list(down) == [scene.node.record(ref).sharing.mps[0].domain]
    restarted.look()

    # It is told already, by whoever asked.
    assert scene.told == []


def test_a_daemon_that_a_claim_brings_back_during_a_look_is_not_called_down_after_it(
    scene, monkeypatch
):
    refs = [scene.prepare(share()), scene.prepare(share(OTHER))]
    first, second = (
        next(ref for ref in refs if ref.uid == record.uid) for record in scene.health._prepared()
    )
    kill_both(scene, first)
    domain, trouble = scene.node.domain(second).directory.name, scene.health._trouble

    def meanwhile(asked):
        if asked == domain:
            scene.node.prepare(first, 60)
            scene.report(first)
        return trouble(asked)

    monkeypatch.setattr(scene.health, "_trouble", meanwhile)
    scene.health.look()

    assert scene.told == [(first.uid, True)]
    assert scene.status(first, scene.node.record(first).devices[0].device) == PREPARED


def test_claims_without_daemons_are_no_concern(scene):
    ref = scene.prepare(GPU)
    assert scene.health.down(scene.node.record(ref)) == {}
    scene.health.look()
    assert scene.told == []


def test_a_thread_looks_again_and_again(scene):
    ref = scene.prepare(share())
    health = scene.new_health(interval=0.01)
    health.start()
    try:
        kill_both(scene, ref)
        polling.until(lambda: scene.told == [(ref.uid, True), (ref.uid, False)])
    finally:
        health.stop()


def test_a_look_that_fails_is_not_the_last_one(scene, monkeypatch, log):
    looks = threading.Event()
    health = scene.new_health(interval=0.01)
    original, failed = health.look, []

    def look():
        if not failed:
            failed.append(True)
            raise OSError("disk")
        looks.set()
        original()

    monkeypatch.setattr(health, "look", look)
    health.start()
    try:
        assert looks.wait(api_cluster.DEADLINE)
    finally:
        health.stop()
    assert [line["event"] for line in log if line["log_level"] == "error"] == [
        "looking at MPS daemons failed unexpectedly"
    ]


def test_a_daemon_whose_gpu_is_not_set_as_it_should_be_counts_as_down_until_it_is(scene):
    ref = scene.prepare(share())
    [use] = scene.node.record(ref).sharing.mps
    lost = {use.domain: "GPU-1: compute mode EXCLUSIVE_PROCESS was set, and now it is DEFAULT"}
    health = scene.health = scene.new_health(keep=lambda: lost)
    assert not health.look()
    assert scene.status(ref) == DOWN
    assert health.told == lost
    before = len(scene.told)
    assert not health.look()
    assert len(scene.told) == before
    lost = {}
    assert health.look()
    assert scene.status(ref) == PREPARED
    assert health.told == {}


def test_a_daemon_that_is_down_itself_is_told_of_as_such(scene):
    ref = scene.prepare(share())
    [use] = scene.node.record(ref).sharing.mps
    health = scene.health = scene.new_health(keep=lambda: {use.domain: "not set"})
    kill_both(scene, ref)
    health.look()
    assert f"MPS daemon {use.domain} is not ready" in health.told[use.domain]
