"""What is left out of the slices while the API server takes no taints."""

import types

import api_cluster
import pytest
import structlog.testing

from dra_driver import errors
from dra_driver.apps.offering import withdrawing
from dra_driver.sim.gpus import gpu_health_state

ALL = frozenset({"gpu-0", "gpu-1", "gpu-2"})
GONE = (
    "devices that no claim has are left out: their GPU is gone, or they are not well and the API "
    "server takes no taints"
)
UNKNOWN = "devices that are gone or not well stay as they are listed: it is not known who has them"
BACK = "devices were given to claims while they were left out, and are listed again"


class Scene:
    """Who has what, and how often that was asked."""

    def __init__(self, monkeypatch):
        self.now, self.asked, self.allocated = 1000.0, 0, set()
        monkeypatch.setattr(withdrawing, "time", types.SimpleNamespace(monotonic=lambda: self.now))
        self.one = withdrawing.Withdrawing(self.ask, chance=lambda: 1.0)
        self.listed = set(ALL)
        self.takes = 0.0
        """Seconds that the API server takes for an answer."""

    def ask(self):
        self.asked += 1
        self.now += self.takes
        if isinstance(self.allocated, Exception):
            raise self.allocated
        return self.allocated

    def out(self, *doubtful, written=True):
        """What is left out, once that is written."""
        out = set(self.one.out(set(doubtful), self.listed))
        if written:
            self.listed = (self.listed | set(doubtful)) - out
            assert self.one.out(set(doubtful), self.listed) == out
        return out


@pytest.fixture
def scene(monkeypatch):
    return Scene(monkeypatch)


def test_what_claims_have_stays(scene):
    scene.allocated = {"gpu-1", "gpu-7"}
    assert scene.out("gpu-0", "gpu-1", "gpu-2") == {"gpu-0", "gpu-2"}


def test_it_is_asked_only_for_what_is_about_to_be_left_out(scene):
    assert scene.out() == set()
    assert (scene.asked, scene.one.wait) == (0, None)
    assert scene.out("gpu-0") == {"gpu-0"}
    assert scene.out("gpu-0") == {"gpu-0"}
    assert scene.asked == 1
    assert scene.out("gpu-0", "gpu-1") == {"gpu-0", "gpu-1"}
    assert scene.asked == 2


def test_what_was_left_out_is_asked_for_once_more_and_then_no_more(scene):
    scene.out("gpu-0")
    assert scene.one.wait == withdrawing.ASK_AGAIN
    scene.now += withdrawing.ASK_AGAIN - 1
    assert scene.out("gpu-0", "gpu-1") == {"gpu-0", "gpu-1"}
    assert (scene.asked, scene.one.wait) == (2, 1)
    scene.now += 1
    assert scene.out("gpu-0", "gpu-1") == {"gpu-0", "gpu-1"}
    assert (scene.asked, scene.one.wait) == (3, withdrawing.ASK_AGAIN - 1)
    scene.now += withdrawing.ASK_AGAIN - 1
    scene.out("gpu-0", "gpu-1")
    assert (scene.asked, scene.one.wait) == (4, None)
    scene.now += 3600
    assert scene.out("gpu-0", "gpu-1") == {"gpu-0", "gpu-1"}
    assert scene.asked == 4


def test_what_a_scheduler_gave_out_that_was_behind_is_listed_again(scene):
    assert scene.out("gpu-0", "gpu-1") == {"gpu-0", "gpu-1"}
    scene.allocated = {"gpu-0"}
    scene.now += withdrawing.ASK_AGAIN
    with structlog.testing.capture_logs() as lines:
        assert scene.out("gpu-0", "gpu-1") == {"gpu-1"}
    assert [(line["event"], line["devices"]) for line in lines] == [(BACK, ["gpu-0"])]
    assert scene.one.wait == withdrawing.ASK_AGAIN
    scene.allocated = set()
    scene.now += withdrawing.ASK_AGAIN
    assert scene.out("gpu-0", "gpu-1") == {"gpu-0", "gpu-1"}


def test_what_was_given_out_much_later_is_listed_again_once_that_is_learnt(scene):
    scene.out("gpu-0")
    scene.now += withdrawing.ASK_AGAIN
    scene.out("gpu-0")
    scene.now += 3600
    scene.allocated = {"gpu-0"}
    assert scene.out("gpu-0") == {"gpu-0"}
    assert scene.out("gpu-0", "gpu-1") == {"gpu-1"}


def test_an_answer_does_not_grow_old_while_it_cannot_be_written(scene):
    with structlog.testing.capture_logs() as lines:
        for asked in (1, 2, 3):
            assert scene.out("gpu-0", written=False) == {"gpu-0"}
            assert scene.out("gpu-0", written=False) == {"gpu-0"}
            assert (scene.asked, scene.one.wait) == (asked, withdrawing.ASK_AGAIN)
            scene.now += withdrawing.OLD
    assert [line["event"] for line in lines] == [GONE]
    scene.allocated = errors.Retryable("no API server")
    assert scene.out("gpu-0", written=False) == set()


def test_what_is_given_out_while_it_could_not_be_written_is_not_left_out(scene):
    assert scene.out("gpu-0", written=False) == {"gpu-0"}
    scene.allocated = {"gpu-0"}
    scene.now += withdrawing.OLD
    assert scene.out("gpu-0") == set()


def test_what_another_instance_has_listed_again_is_asked_for_anew(scene):
    scene.out("gpu-0")
    scene.now += withdrawing.ASK_AGAIN
    scene.out("gpu-0")
    scene.listed.add("gpu-0")
    scene.allocated = {"gpu-0"}
    assert scene.out("gpu-0") == set()


def test_what_claims_were_seen_to_have_is_asked_for_again_ever_less_often(scene):
    scene.allocated = {"gpu-0"}
    assert scene.out("gpu-0") == set()
    waits = []
    for _ in range(5):
        waits.append(scene.one.wait)
        scene.now += scene.one.wait - 1
        asked = scene.asked
        assert (scene.out("gpu-0"), scene.asked, scene.one.wait) == (set(), asked, 1)
        scene.now += 1
        assert (scene.out("gpu-0"), scene.asked) == (set(), asked + 1)
    assert waits == [10, 20, 40, 80, 80]
    # Another device begins anew.
    scene.allocated.add("gpu-1")
    assert scene.out("gpu-0", "gpu-1") == set()
    assert scene.one.wait == 10
    scene.allocated = set()
    scene.now += 10
    assert scene.out("gpu-0", "gpu-1") == {"gpu-0", "gpu-1"}


def test_what_was_seen_to_be_had_before_it_was_in_doubt_is_asked_for(scene):
    scene.allocated = {"gpu-0", "gpu-1"}
    assert scene.out("gpu-0") == set()
    scene.allocated = {"gpu-0"}
    assert scene.out("gpu-0", "gpu-1") == {"gpu-1"}


def test_what_was_left_out_and_is_well_or_had_since_is_asked_for_anew(scene):
    assert scene.out("gpu-0") == {"gpu-0"}
    assert scene.out() == set()
    scene.allocated = {"gpu-0"}
    assert scene.out("gpu-0") == set()


def test_while_nobody_tells_who_has_what_everything_stays_as_it_is_and_that_is_said(scene):
    scene.allocated = errors.Retryable("no API server")
    scene.listed = {"gpu-0", "gpu-1"}
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            assert scene.out("gpu-0", "gpu-1", "gpu-2", written=False) == {"gpu-2"}
            assert scene.one.wait == withdrawing.ASK_AGAIN
    assert [(line["devices"], line["reason"]) for line in lines] == [
        (["gpu-0", "gpu-1", "gpu-2"], "no API server")
    ]
    assert scene.asked == 1
    scene.allocated = {"gpu-1"}
    scene.now += withdrawing.ASK_AGAIN
    with structlog.testing.capture_logs() as lines:
        assert scene.out("gpu-0", "gpu-1", "gpu-2") == {"gpu-0", "gpu-2"}
    assert [(line["event"], line["devices"]) for line in lines] == [(GONE, ["gpu-0", "gpu-2"])]


def test_an_api_server_that_does_not_tell_is_asked_ever_less_often(scene):
    scene.allocated = errors.Retryable("no API server")
    scene.out("gpu-0", written=False)
    waits = []
    with structlog.testing.capture_logs() as lines:
        for _ in range(5):
            waits.append(scene.one.wait)
            scene.now += scene.one.wait
            scene.out("gpu-0", written=False)
    assert waits == [10, 20, 40, 80, 80]
    assert scene.asked == 6
    assert lines == []


def test_an_api_server_that_is_slow_is_not_asked_again_at_once(scene):
    scene.takes, scene.allocated = 25.0, {"gpu-1"}
    for _ in range(2):
        assert scene.out("gpu-0", "gpu-1", written=False) == {"gpu-0"}
        assert (scene.asked, scene.one.wait) == (1, withdrawing.ASK_AGAIN)


def test_what_was_left_out_stays_so_while_nobody_tells_who_has_it(scene):
    scene.out("gpu-0")
    scene.allocated = errors.Retryable("no API server")
    scene.now += withdrawing.ASK_AGAIN
    assert scene.out("gpu-0") == {"gpu-0"}
    assert (scene.asked, scene.one.wait) == (2, withdrawing.ASK_AGAIN)
    scene.allocated = {"gpu-0"}
    scene.now += withdrawing.ASK_AGAIN
    assert scene.out("gpu-0") == set()


# With an API server

PREPARED, ALLOCATED = "gpu-0-mig-1g10gb-19-6", "gpu-0-mig-1g10gb-19-0"
CLOSED = frozenset({"DRADeviceTaints"})


@pytest.fixture
def cluster():
    made = api_cluster.Cluster(disabled_gates=CLOSED)
    yield made
    made.close()


def devices(cluster):
    return {
        device["name"]: device
        for body in cluster.slices()
        for device in body["spec"].get("devices") or ()
    }


def taints(cluster):
    """The keys and values of taints of devices that have some, by name."""
    return {
        name: [(taint["key"], taint["value"]) for taint in device["taints"]]
        for name, device in devices(cluster).items()
        if device.get("taints")
    }


def wait_devices(cluster, names):
    api_cluster.wait_for(
        lambda: devices(cluster).keys() == set(names),
        lambda: f"devices {sorted(names)}; there are {sorted(devices(cluster))}",
    )


def put_wrong_and_wait_until_it_is_right(cluster):
    """After that the plugin has asked about the taints that are there, and has its answer."""
    before = [body["spec"] for body in cluster.slices()]
    body = next(body for body in cluster.slices() if body["spec"].get("devices"))
    body["spec"]["devices"][0]["attributes"]["driverVersion"] = {"version": "1.0.0"}
    cluster.client.replace(cluster.slice_resource, body)
    api_cluster.wait_for(
        lambda: [body["spec"] for body in cluster.slices()] == before, "slices as they were"
    )


def wants_reboot(machine, name, *, is_so=True):
    with gpu_health_state.open_file(machine.simulation).edit() as cards:
        cards.of(machine.uuid(name)).recovery = 2 if is_so else 0


def test_while_the_gate_is_off_a_sick_card_keeps_what_claims_have_and_gets_back_the_rest(
    cluster, own_machine, own_plugin
):
    plugin = own_plugin(
        cluster=cluster, gpus="h100-80gb-hbm3:2", mig_mode="dynamic", health_hold_seconds="0"
    ).start()
    api_cluster.wait_for(lambda: ALLOCATED in devices(cluster), "partitions")
    plugin.kubelet.prepare(cluster.claim(PREPARED))
    cluster.claim(ALLOCATED)
    all_ = set(devices(cluster))
    sick = {name for name in all_ if name.startswith("gpu-0")}
    wants_reboot(own_machine, "gpu-0")
    left = all_ - sick | {PREPARED, ALLOCATED}
    wait_devices(cluster, left)
    assert taints(cluster) == {}
    # Another instance finds out by itself, and lists nothing meanwhile that was left out.
    plugin.kill()
    plugin.start()
    plugin.wait_log(GONE, count=2)
    assert devices(cluster).keys() == left
    cluster.upgrade(disabled_gates=frozenset())
    wait_devices(cluster, all_)
    assert taints(cluster) == {key: [("gpu.nvidia.com/recovery", "reboot")] for key in sick}
    put_wrong_and_wait_until_it_is_right(cluster)
    cluster.upgrade(disabled_gates=CLOSED)
    # The server keeps the taints that there are, but nobody heeds them any more.
    wait_devices(cluster, left)
    wants_reboot(own_machine, "gpu-0", is_so=False)
    wait_devices(cluster, all_)
    assert taints(cluster) == {}


def test_a_sick_device_stays_listed_while_the_api_server_does_not_list_claims(
    cluster, own_machine, own_plugin
):
    silent = api_cluster.api_options.Fault(status=503, reason="ServiceUnavailable")

    def rule(call):
        return silent if (call.resource, call.verb) == ("resourceclaims", "list") else None

    plugin = own_plugin(cluster=cluster, gpus="h100-80gb-hbm3:2").start()
    cluster.wait_devices("gpu-0", "gpu-1")
    cluster.faults.rule = rule
    wants_reboot(own_machine, "gpu-0")
    plugin.wait_log(UNKNOWN)
    cluster.wait_devices("gpu-0", "gpu-1")
    cluster.faults.rule = None
    cluster.claim("gpu-0")
    wants_reboot(own_machine, "gpu-1")
    cluster.wait_devices("gpu-0")
