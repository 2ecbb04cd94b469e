"""The kubelet reads what plugins tell of their devices, and tells it in the status of pods."""

import threading

import kubelet_node
import pytest
import scripted_plugin
from polling import until

from dra_driver.adapters.kubelet import dra_client, dra_grpc, dra_health, dra_protocol
from dra_driver.apps.telling import device_health as telling
from dra_driver.sim.cluster import device_health

V1, V1ALPHA1 = dra_protocol.HEALTH_SERVICES
CALLS = tuple(dra_protocol.DRA_PACKAGES)


@pytest.fixture
def sources():
    """What a plugin tells by each service: of gpu-0, by which of them."""
    made = {service: telling.Health(kubelet_node.NODE) for service in (V1, V1ALPHA1)}
    for service, source in made.items():
        source.say({"gpu-0": f"told by {service}"})
    yield made
    for source in made.values():
        source.close()


def devices(node, name="train", container=0):
    """What the status of a pod tells: name -> list of (health, message)."""
    status = node.pod(name)["status"]["containerStatuses"][container]
    return {
        entry["name"]: [(one["health"], one.get("message", "")) for one in entry["resources"]]
        for entry in status.get("allocatedResourcesStatus", ())
    }


def run_pod(node):
    node.add_claim("one")
    node.run_pod("train", {"gpu": "one"})
    node.wait_phase("train", "Running")


class TestWhichServiceIsOpened:
    @pytest.mark.parametrize(
        ("release", "advertised", "service"),
        [
            (None, (), V1ALPHA1),
            ("1.36.2", (), V1ALPHA1),
            ("1.36.2", (V1, V1ALPHA1), V1ALPHA1),
            ("1.37", (V1, V1ALPHA1), V1),
            ("1.37", (V1ALPHA1, V1), V1),
            ("1.37", (V1ALPHA1,), V1ALPHA1),
            ("1.38", (V1,), V1),
        ],
    )
    def test_up_to_1_36_v1alpha1_and_then_what_is_advertised(
        self, node, sources, release, advertised, service
    ):
        node.start_kubelet(release)
        node.add_plugin(sources, versions=(*CALLS, *advertised))
        run_pod(node)
        expected = {"claim:gpu": [("Unhealthy", f"told by {service}")]}
        until(lambda: devices(node) == expected, what=f"{expected}")

    @pytest.mark.parametrize("release", ["1.37", "1.38"])
    def test_none_where_none_is_advertised(self, node, sources, release, monkeypatch):
        agent = node.start_kubelet(release)
        monkeypatch.setattr(agent._health, "_read", None)
        node.add_plugin(sources, versions=CALLS)
        run_pod(node)
        assert devices(node) == {"claim:gpu": [("Unknown", "")]}


class TestTheStatusOfAPod:
    @pytest.fixture
    def source(self, node, sources):
        node.start_kubelet()
        sources[V1ALPHA1].say({"gpu-0": None, "gpu-1": None})
        node.add_plugin(sources)
        return sources[V1ALPHA1]

    def wait(self, node, *told, name="claim:gpu"):
        until(lambda: devices(node) == {name: list(told)}, what=f"{told}, not {devices(node)}")

    def test_follows_the_device(self, node, source):
        run_pod(node)
        self.wait(node, ("Healthy", ""))
        before = kubelet_node.states(node.pod("train"))
        source.say({"gpu-0": "it is gone"})
        self.wait(node, ("Unhealthy", "it is gone"))
        source.say({"gpu-0": None})
        self.wait(node, ("Healthy", ""))
        assert kubelet_node.states(node.pod("train")) == before

    @pytest.mark.usefixtures("source")
    def test_names_the_device_by_its_first_cdi_name(self, node):
        run_pod(node)
        self.wait(node, ("Healthy", ""))
        [entry] = node.pod("train")["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
        [started] = node.engine.started
        assert [one["resourceID"] for one in entry["resources"]] == list(started.asked.cdi_ids)

    @pytest.mark.usefixtures("source")
    def test_is_unknown_once_the_plugin_is_gone(self, node):
        run_pod(node)
        self.wait(node, ("Healthy", ""))
        node.plugins[0].stop()
        self.wait(node, ("Unknown", ""))

    def test_of_a_container_tells_of_the_requests_that_it_uses(self, node, source):
        results = [kubelet_node.result(f"gpu-{n}", request) for n, request in enumerate("ab")]
        node.plugins[0].on_prepare = lambda ref: dra_grpc.Answer(
            tuple(
                scripted_plugin.device(ref, f"gpu-{n}", request) for n, request in enumerate("ab")
            )
        )
        source.say({"gpu-0": None, "gpu-1": "too hot"})
        node.add_claim("two", *results)
        uses = [{"name": "gpu", "request": "b"}], [{"name": "gpu"}], []
        node.run_pod(
            "train", {"gpu": "two"},
            *[kubelet_node.container(f"c{n}", *use) for n, use in enumerate(uses)],
        )  # fmt: skip
        node.wait_phase("train", "Running")
        self.wait(node, ("Unhealthy", "too hot"), name="claim:gpu/b")
        expected = {"claim:gpu": [("Healthy", ""), ("Unhealthy", "too hot")]}
        assert devices(node, container=1) == expected
        assert devices(node, container=2) == {}

    def test_tells_of_devices_with_one_name_once_and_of_the_first(self, node, source):
        node.plugins[0].on_prepare = lambda ref: dra_grpc.Answer(
            tuple(
                scripted_plugin.device(ref, f"gpu-{n}").model_copy(
                    update={"cdi_ids": ("vendor/class=one",)}
                )
                for n in range(2)
            )
        )
        source.say({"gpu-0": None, "gpu-1": "too hot"})
        node.add_claim("one", *[kubelet_node.result(f"gpu-{n}") for n in range(2)])
        node.run_pod("train", {"gpu": "one"})
        node.wait_phase("train", "Running")
        self.wait(node, ("Healthy", ""))

    def test_stays_when_the_pod_has_ended(self, node, source):
        source.say({"gpu-0": "it is gone"})
        run_pod(node)
        self.wait(node, ("Unhealthy", "it is gone"))
        node.engine.started[0].end(1)
        node.wait_phase("train", "Failed")
        assert devices(node) == {"claim:gpu": [("Unhealthy", "it is gone")]}


class Lines:
    """A source that says these things and no more; `breaks` has the stream end with an error."""

    def __init__(self, *messages, breaks=False):
        self._messages = messages
        self._breaks = breaks

    def watch(self, _is_heard):
        yield from self._messages
        if self._breaks:
            raise RuntimeError("the plugin is broken")

    def wake(self):
        """It waits for nothing."""


WELL = [dra_health.DeviceHealth("pool", "gpu-0", healthy=True)]
ILL = [dra_health.DeviceHealth("pool", "gpu-0", healthy=False, message="it is gone")]


class TestAStream:
    @pytest.fixture
    def read(self, node):
        """Reads a stream to its end: what was known after each change."""

        def read(lines, service=V1ALPHA1):
            known = []
            told = device_health.Health(
                on_change=lambda: known.append(told.cache.health("d", "pool", "gpu-0"))
            )
            plugin = node.add_plugin({V1ALPHA1: lines})
            with dra_client.Client(str(plugin.socket.parent.parent / f"{plugin.name}.sock")) as it:
                told._read("d", it, service)
            return known

        return read

    def test_is_told_of_where_it_says_something_new_and_forgotten_at_its_end(self, read):
        assert read(Lines(WELL, WELL, ILL, ILL)) == [
            ("Healthy", ""),
            ("Unhealthy", "it is gone"),
            ("Unknown", ""),
        ]

    def test_that_breaks_is_forgotten_too(self, read):
        assert read(Lines(ILL, breaks=True)) == [("Unhealthy", "it is gone"), ("Unknown", "")]

    def test_that_says_nothing_changes_nothing(self, read):
        assert read(Lines()) == []

    def test_that_is_not_served_changes_nothing(self, read):
        assert read(Lines(ILL), service=V1) == []


class Listened:
    """A source that is silent, and knows when it has a listener and when that has gone."""

    def __init__(self):
        self.opened = threading.Event()
        self.left = threading.Event()
        self._woken = threading.Condition()

    def watch(self, is_heard):
        self.opened.set()
        yield WELL
        with self._woken:
            self._woken.wait_for(lambda: not is_heard())
        self.left.set()

    def wake(self):
        with self._woken:
            self._woken.notify_all()


def readers():
    return {thread for thread in threading.enumerate() if thread.name == "device-health"}


def test_a_plugin_that_is_dropped_is_listened_to_no_more(node):
    before, source = readers(), Listened()
    agent = node.start_kubelet()
    plugin = node.add_plugin({V1ALPHA1: source})
    assert source.opened.wait(60)
    assert readers() > before
    # Its service goes on: only the kubelet forgets it.
    plugin.socket.unlink()
    until(lambda: not agent.plugins._by_socket)
    assert source.left.wait(60)
    until(lambda: readers() <= before, what="the end of the thread that reads")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class TestForHowLongItHolds:
    @pytest.fixture
    def clock(self):
        return Clock()

    @pytest.fixture
    def cache(self, clock):
        return device_health.Cache(clock)

    @staticmethod
    def told(name="gpu-0", health="Healthy", seconds=0):
        return dra_health.Told("pool", name, health, timeout_seconds=seconds)

    @pytest.mark.parametrize(("seconds", "last"), [(0, 30), (-5, 30), (10, 10), (120, 120)])
    def test_thirty_seconds_or_as_long_as_the_driver_says(self, cache, clock, seconds, last):
        cache.update("d", [self.told(seconds=seconds)])
        clock.now = last
        assert cache.health("d", "pool", "gpu-0") == ("Healthy", "")
        clock.now = last + 1
        assert cache.health("d", "pool", "gpu-0") == ("Unknown", "")

    def test_a_device_that_is_left_out_holds_until_its_time_is_over(self, cache, clock):
        cache.update("d", [self.told("a"), self.told("b")])
        clock.now = 20
        assert not cache.update("d", [self.told("a")])
        assert cache.health("d", "pool", "b") == ("Healthy", "")
        clock.now = 40
        assert cache.update("d", [self.told("a")])
        assert cache.health("d", "pool", "b") == ("Unknown", "")
        assert cache.health("d", "pool", "a") == ("Healthy", "")

    def test_only_what_is_new_is_a_change(self, cache):
        assert cache.update("d", [self.told()])
        assert not cache.update("d", [self.told()])
        assert cache.update("d", [self.told(health="Unhealthy")])

    def test_what_is_known_of_one_driver_goes_without_that_of_others(self, cache):
        cache.update("d", [self.told()])
        cache.update("e", [self.told()])
        assert cache.clear("d")
        assert not cache.clear("d")
        assert cache.health("d", "pool", "gpu-0") == ("Unknown", "")
        assert cache.health("e", "pool", "gpu-0") == ("Healthy", "")


def test_a_message_is_cut_as_the_kubelet_cuts_it():
    message = dra_protocol.health.NodeWatchResourcesResponse()
    message.devices.add(health=dra_protocol.UNHEALTHY, message="é" * 600)
    message.devices.add(health=7, message="x" * 1024)
    long, whole = dra_health.read(message)
    assert (long.health, whole.health) == ("Unhealthy", "Unknown")
    assert long.message == "é" * 510 + "..."
    assert whole.message == "x" * 1024
