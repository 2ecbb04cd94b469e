"""The kubelet's stream of device health, over a real socket."""

import contextlib
import pathlib
import tempfile
import threading

import api_cluster
import grpc
import polling
import pytest

from dra_driver.adapters.kubelet import dra_grpc, dra_protocol
from dra_driver.apps.telling import device_health

MESSAGES = dra_protocol.health
V1, V1ALPHA1 = (
    f"/{version}.DRAResourceHealth/NodeWatchResources" for version in ("v1", "v1alpha1")
)


class Nobody:
    """No claims are called for."""

    def prepare(self, _refs, _seconds):
        return {}

    unprepare = prepare


@pytest.fixture
def path():
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as directory:
        yield pathlib.Path(directory) / "dra.sock"


@contextlib.contextmanager
def served(path, **options):
    health = device_health.Health("node-1", **options)
    server = dra_grpc.dra_server(path, Nobody(), health)
    server.start()
    try:
        yield health
    finally:
        health.close()
        server.stop(5)


@contextlib.contextmanager
def watching(path, method=V1):
    """What the kubelet hears, message by message."""
    with grpc.insecure_channel(f"unix:{path}") as channel:
        watch = channel.unary_stream(
            method,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=MESSAGES.NodeWatchResourcesResponse.FromString,
        )
        call = watch(MESSAGES.NodeWatchResourcesRequest(), timeout=api_cluster.DEADLINE)
        try:
            yield call
        finally:
            call.cancel()


def heard(call):
    return [
        (one.device.pool_name, one.device.device_name, one.health, one.message)
        for one in next(call).devices
    ]


@pytest.mark.parametrize("method", [V1, V1ALPHA1])
def test_all_devices_are_told_at_once_and_again_when_one_changes(path, method):
    with served(path) as health, watching(path, method) as call:
        health.say({"gpu-0": None, "gpu-1": None})
        assert heard(call) == [("node-1", "gpu-0", 1, ""), ("node-1", "gpu-1", 1, "")]

        health.say({"gpu-0": None, "gpu-1": "it is gone"})

        assert heard(call) == [("node-1", "gpu-0", 1, ""), ("node-1", "gpu-1", 2, "it is gone")]


def test_of_a_device_that_can_be_used_it_is_told_what_is_to_be_known_of_it(path):
    with served(path) as health, watching(path) as call:
        health.say({"gpu-0": None, "gpu-1": "it is gone"}, {"gpu-0": "it is hot", "gpu-1": "hot"})
        assert heard(call) == [
            ("node-1", "gpu-0", 1, "it is hot"),
            ("node-1", "gpu-1", 2, "it is gone"),
        ]
        health.say({"gpu-0": None, "gpu-1": "it is gone"})
        assert heard(call)[0] == ("node-1", "gpu-0", 1, "")


def test_of_what_nobody_can_tell_the_kubelet_is_told_that_and_why(path):
    with served(path) as health, watching(path) as call:
        unseen = {"gpu-vfio-0": "bound to vfio-pci", "gpu-1": "bound"}
        health.say({"gpu-vfio-0": None, "gpu-1": "it is stranded"}, {}, unseen)
        assert heard(call) == [
            ("node-1", "gpu-vfio-0", 0, "bound to vfio-pci"),
            ("node-1", "gpu-1", 2, "it is stranded"),
        ]


def test_every_device_is_told_of_at_least_every_five_seconds():
    assert device_health.HEARTBEAT < 5


def test_each_kubelet_that_comes_hears_all(path):
    with served(path) as health:
        health.say({"gpu-0": None})
        for _ in range(2):
            with watching(path) as call:
                assert heard(call) == [("node-1", "gpu-0", 1, "")]


def test_what_stays_the_same_is_repeated(path):
    with served(path, heartbeat=0.01) as health, watching(path) as call:
        health.say({"gpu-0": None})
        assert [heard(call) for _ in range(3)] == [[("node-1", "gpu-0", 1, "")]] * 3


def test_nothing_is_told_before_the_gpus_have_been_looked_at(path):
    with served(path, heartbeat=0.01) as health, watching(path) as call:
        first = []
        thread = threading.Thread(target=lambda: first.append(heard(call)), daemon=True)
        thread.start()
        health.wake()
        health.say({"gpu-7": None})
        thread.join(api_cluster.DEADLINE)
    assert first == [[("node-1", "gpu-7", 1, "")]]


def test_a_stop_ends_the_streams_and_is_not_held_up(path):
    with served(path, heartbeat=600) as health, watching(path) as call:
        health.say({"gpu-0": None})
        heard(call)

        health.close()

        with pytest.raises(StopIteration):
            next(call)


def test_what_is_wrong_is_told_in_as_many_bytes_as_the_kubelet_keeps(path):
    with served(path) as health, watching(path) as call:
        health.say({"gpu-0": "down (claims " + "team/\x1b[2Jclaim, " * 500})
        [(*_, message)] = heard(call)
        assert len(message.encode()) <= 1024
        assert message.startswith(r"down (claims team/\u001b[2Jclaim, ")
        assert message.endswith("more characters)")


def test_a_kubelet_that_goes_takes_its_stream_along(path):
    with served(path, heartbeat=600) as health:
        health.say({"gpu-0": None})
        watchers = []
        watch = health.watch

        def counted(is_heard):
            watchers.append(is_heard)
            try:
                yield from watch(is_heard)
            finally:
                watchers.remove(is_heard)

        health.watch = counted
        with watching(path) as call:
            heard(call)
            assert len(watchers) == 1
        polling.until(lambda: watchers == [])


def test_the_message_has_the_field_numbers_of_kubernetes():
    message = MESSAGES.NodeWatchResourcesResponse()
    entry = message.devices.add(
        health=2, last_updated_time=3, health_check_timeout_seconds=4, message="m"
    )
    entry.device.pool_name, entry.device.device_name = "p", "d"
    inner = bytes([0x0A, 6]) + b"\x0a\x01p\x12\x01d" + b"\x10\x02\x18\x03\x20\x04\x2a\x01m"
    assert message.SerializeToString() == bytes([0x0A, len(inner)]) + inner
