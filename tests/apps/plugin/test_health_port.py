"""The port at which probes of the kind `grpc` ask how the plugin is."""

import contextlib
import pathlib
import socket

import api_cluster
import health_probe
import polling
import pytest
import reserved_port

from dra_driver import errors, settings
from dra_driver.adapters.kubelet import health_checks


@pytest.fixture
def health_port():
    with contextlib.closing(reserved_port.Reserved()) as port:
        yield port.number


@pytest.fixture
def plugin(own_plugin, health_port):
    return own_plugin(health_address=f"127.0.0.1:{health_port}")


def wait_status(port, service, wanted):
    polling.until(lambda: health_probe.check(port, service) == wanted, what=f"{service!r} {wanted}")


def test_liveness_is_answered_at_once_and_readiness_once_claims_can_be_prepared(
    plugin, own_cluster, health_port
):
    plugin.start()
    wait_status(health_port, "liveness", health_probe.SERVING)
    own_cluster.wait_devices("gpu-0", "gpu-1")
    assert health_probe.check(health_port, "") == health_probe.NOT_SERVING
    lines = plugin.wait_log("probe does not pass", probe="readiness")
    assert "the kubelet has not registered the driver yet" in lines[-1]["reason"]
    plugin.register()
    wait_status(health_port, "", health_probe.SERVING)


def test_a_reason_is_logged_once(plugin, health_port):
    plugin.start()
    wait_status(health_port, "liveness", health_probe.SERVING)
    for _ in range(3):
        health_probe.check(health_port, "")
    reasons = [line["reason"] for line in plugin.log("probe does not pass", probe="readiness")]
    assert len(reasons) == len(set(reasons))


def test_a_plugin_that_waits_for_the_kubelet_s_directory_lives(plugin, own_machine, health_port):
    own_machine.registry.rmdir()
    plugin.spawn()
    plugin.wait_log("waiting")
    wait_status(health_port, "liveness", health_probe.SERVING)
    assert health_probe.check(health_port, "") == health_probe.NOT_SERVING


def test_a_plugin_whose_socket_is_gone_does_not_live(plugin, health_port):
    plugin.start()
    wait_status(health_port, "liveness", health_probe.SERVING)
    plugin.service_socket.unlink()
    wait_status(health_port, "liveness", health_probe.NOT_SERVING)


def test_a_service_that_is_not_known_is_not_found(plugin, health_port):
    plugin.start()
    wait_status(health_port, "liveness", health_probe.SERVING)
    assert health_probe.check(health_port, "readiness-of-others") == "NOT_FOUND"


def test_no_port_is_open_that_nobody_asked_for(own_plugin, health_port):
    own_plugin().start()
    assert health_probe.check(health_port, "liveness") == "UNAVAILABLE"


def test_a_port_that_is_taken_is_an_error_that_names_the_setting(own_plugin):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        plugin = own_plugin(health_address=address).spawn()
        assert plugin.wait_exit() == 1
    assert f"--health-address {address}: cannot listen at 127.0.0.1 port " in plugin.log_text()
    assert "Choose another address, or end who has it" in plugin.log_text()


def test_two_servers_never_share_a_port(health_port):
    address = f"127.0.0.1:{health_port}"
    server = health_checks.Server(address, {"": lambda: True})
    server.start()
    with pytest.raises(errors.Fatal, match="cannot listen"):
        health_checks.Server(address, {"": lambda: True})
    server.stop()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_without_a_host_it_is_every_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = health_checks.Server(f":{port}", {"": lambda: True})
    server.start()
    assert health_probe.check(port, "") == health_probe.SERVING
    socket.create_connection(("::1", port), timeout=api_cluster.DEADLINE).close()
    server.stop()


MORE = 100


@pytest.fixture
def crowd(health_port):
    """Starts a server, and connections to it that say nothing, more than it may have."""
    port = health_port
    with contextlib.ExitStack() as ends:

        def gather():
            server = health_checks.Server(f"127.0.0.1:{port}", {"": lambda: True})
            server.start()
            ends.callback(server.stop)
            before = descriptors()
            silent = [
                ends.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
                for _ in range(health_checks.CONNECTIONS + MORE)
            ]
            return port, silent, before + len(silent)

        yield gather


def descriptors():
    return len(list(pathlib.Path("/proc/self/fd").iterdir()))


def is_closed(connection):
    connection.settimeout(0)
    with contextlib.suppress(BlockingIOError):
        try:
            return connection.recv(1 << 16) == b""
        except ConnectionResetError:
            return True
    return False


def test_there_are_only_so_many_connections(crowd, monkeypatch):
    monkeypatch.setattr(health_checks, "SILENT_SECONDS", 3600)
    _, silent, without = crowd()
    polling.until(lambda: is_closed(silent[-1]), what="the last one is turned away")
    # Others in this process may have opened a few files meanwhile.
    assert descriptors() - without < health_checks.CONNECTIONS + MORE / 2


def test_connections_that_say_nothing_make_room_for_probes(crowd):
    port, silent, _ = crowd()
    # By itself gRPC closes them only after a minute.
    closed = "all of them are closed"
    polling.until(lambda: all(map(is_closed, silent)), seconds=40, what=closed)
    assert health_probe.check(port, "") == health_probe.SERVING


def test_an_address_without_a_port_is_refused():
    with pytest.raises(errors.Fatal, match=r"--health-address: '51516': write HOST:PORT"):
        settings.resolve(
            settings.KubeletPlugin,
            environment={"NODE_NAME": "node-1"},
            flags={"health_address": "51516"},
        )
