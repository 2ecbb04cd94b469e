"""The metrics port of a kubelet plugin, which every pod may reach, and its other work."""

import contextlib
import resource
import socket
import sys

import http_scene
import limited
import polling
import pytest
import reserved_port
import scraping

from dra_driver import build
from dra_driver.adapters.system import open_files

pytestmark = pytest.mark.sampled(9)

FILES = 1024
"""Descriptors that a process may have; service managers start most with so many."""
IDLE = 1200


@pytest.fixture
def metrics_port():
    with contextlib.closing(reserved_port.Reserved()) as port:
        yield port.number


@pytest.fixture
def many_files():
    """This process may have more connections than the plugin."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if open_files.allow_many() < IDLE + 200:
        pytest.skip(f"this machine allows no {IDLE} connections")
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


PLUGIN = [sys.executable, "-m", "dra_driver", "kubelet-plugin"]


def served(port):
    """Whether metrics are answered; a connection may be cut for the next one."""
    with contextlib.suppress(OSError):
        return scraping.plugin(port)
    return None


@pytest.mark.usefixtures("many_files")
@pytest.mark.exhaustive
def test_idle_connections_to_the_metrics_do_not_keep_claims_from_being_prepared(
    own_plugin, own_cluster, metrics_port
):
    command = limited.command(PLUGIN, soft=FILES, hard=FILES)
    plugin = own_plugin(metrics_address=f"127.0.0.1:{metrics_port}", command=command).start()
    own_cluster.wait_devices("gpu-0", "gpu-1")
    polling.until(lambda: served(metrics_port), what="metrics")
    with contextlib.ExitStack() as ends:
        for number in range(IDLE):
            connection = ends.enter_context(
                socket.create_connection(("127.0.0.1", metrics_port), timeout=60)
            )
            with contextlib.suppress(OSError):
                # Some say nothing, some begin with a request that they do not end.
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: " if number % 2 else b"")
        ref = own_cluster.claim("gpu-0")
        assert [device["device"] for device in plugin.kubelet.prepare(ref)] == ["gpu-0"]
        assert polling.until(lambda: served(metrics_port), what="metrics beside idle connections")
        plugin.kubelet.unprepare(ref)


def test_the_plugin_raises_its_limit_of_open_files_as_far_as_it_may(own_plugin):
    plugin = own_plugin(command=limited.command(PLUGIN)).start()
    assert limited.soft_limit(plugin.pid) == 4096


def test_metrics_have_the_build_and_nothing_else_is_served(own_plugin, metrics_port):
    own_plugin(metrics_address=f"127.0.0.1:{metrics_port}").start()
    found = polling.until(lambda: served(metrics_port), what="metrics")
    python = ".".join(map(str, sys.version_info[:3]))
    assert found[f'dra_driver_build_info{{python="{python}",version="{build.VERSION}"}}'] == 1
    with socket.create_connection(("127.0.0.1", metrics_port), timeout=60) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert http_scene.read_all(connection).startswith(b"HTTP/1.1 404 ")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_metrics_are_answered_on_nodes_of_either_family(own_plugin, metrics_port):
    own_plugin(metrics_address=f":{metrics_port}").start()
    polling.until(lambda: served(metrics_port), what="metrics over IPv4")
    with socket.create_connection(("::1", metrics_port), timeout=60) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert http_scene.read_all(connection).startswith(b"HTTP/1.1 200 ")
