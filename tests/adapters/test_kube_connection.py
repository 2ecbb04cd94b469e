"""What becomes of connections to an API server that says nothing for long."""

import os
import pathlib
import socket
import threading

import polling
import pytest

from dra_driver.adapters import kube

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: only, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: only, user: {{}}}}]
contexts: [{{name: only, context: {{cluster: only, user: only}}}}]
current-context: only
"""
KEEPALIVE_TIMER = "02"
JIFFIES_PER_SECOND = 100


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(60)
        yield made


@pytest.fixture
def watch(listener, tmp_path):
    """A watch that is answered, and told nothing; the server's end of its connection."""
    port = listener.getsockname()[1]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG.format(port=port))
    client = kube.Client(kubeconfig=kubeconfig, user_agent="test")
    ends = []

    def serve():
        connection, _ = listener.accept()
        ends.append(connection)
        connection.recv(65536)
        connection.sendall(ANSWER)

    thread = threading.Thread(target=serve)
    thread.start()
    watch = client.watch(kube.PODS, resource_version="1")
    thread.join(60)
    yield ends[0]
    watch.stop()
    ends[0].close()
    client.close()


def row(port):
    """What the kernel tells of the client's socket; see proc_pid_net(5)."""
    rows = (line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:])
    return next(row for row in rows if int(row[1].partition(":")[2], 16) == port)


def timer(port):
    """Which timer it has, and the seconds that this has left."""
    kind, _, jiffies = row(port)[5].partition(":")
    return kind, int(jiffies, 16) / JIFFIES_PER_SECOND


def test_a_watch_that_is_told_nothing_asks_within_15_s_whether_the_server_is_there(watch):
    port = watch.getpeername()[1]
    polling.until(lambda: timer(port)[0] == KEEPALIVE_TIMER, what="a timer for a sign of life")
    assert 0 < timer(port)[1] <= 15


def test_a_server_that_gives_no_sign_of_life_for_45_s_is_gone(watch):
    inode = row(watch.getpeername()[1])[9]
    (name,) = (
        path.name
        for path in pathlib.Path("/proc/self/fd").iterdir()
        if path.is_symlink() and str(path.readlink()) == f"socket:[{inode}]"
    )
    with socket.socket(fileno=os.dup(int(name))) as client:
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 45_000
