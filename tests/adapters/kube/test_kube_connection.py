"""How an API server is reached, as whom, and what becomes of a connection that goes silent."""

import contextlib
import json
import os
import pathlib
import socket
import ssl
import threading

import kubernetes
import polling
import pytest
import raw_http
import trustme

from dra_driver import errors
from dra_driver.adapters.kube import kube

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
KEEPALIVE_TIMER = "02"
JIFFIES_PER_SECOND = 100


# Who asks


def test_what_is_sent_is_json_with_the_credentials_of_the_kubeconfig(raw_client):
    answer = raw_http.response(b'{"kind": "Status"}')
    with raw_http.serving(answer, answer) as server:
        client = raw_client(server.port, {"token": "s3cret"})
        client.patch(kube.NODES, "n", {"a": "ä"})
        client.get(kube.NODES, "n")
    head, _, body = server.requests[0].partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    headers = {line.split(": ")[0].lower(): line.split(": ")[1] for line in lines}
    assert first == "PATCH /api/v1/nodes/n HTTP/1.1"
    assert headers["authorization"] == "Bearer s3cret"
    assert headers["content-type"] == "application/merge-patch+json"
    assert headers["accept"] == "application/json"
    assert headers["user-agent"] == "test/1"
    assert json.loads(body) == {"a": "ä"}
    assert "content-type" not in server.requests[1].lower()


def test_in_a_pod_the_service_account_is_used_and_its_token_followed(tmp_path, monkeypatch):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    token = tmp_path / "token"
    token.write_text("first")
    incluster = kubernetes.config.incluster_config
    monkeypatch.setattr(incluster, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    answer = raw_http.response(b"{}")
    with raw_http.serving(answer, answer, context=context) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        client = kube.Client(user_agent="test/1")
        client.get(kube.NODES, "n")
        token.write_text("second")
        later = incluster.datetime.datetime.now() + incluster.datetime.timedelta(hours=1)

        class Later(incluster.datetime.datetime):
            @classmethod
            def now(cls, _zone=None):
                return later

        monkeypatch.setattr(incluster.datetime, "datetime", Later)
        client.get(kube.NODES, "n")
        client.close()
    assert [
        line
        for request in server.requests
        for line in request.splitlines()
        if line.lower().startswith("authorization")
    ] == ["authorization: bearer first", "authorization: bearer second"]


def test_without_a_service_account_the_next_step_is_told(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(errors.Fatal) as caught:
        kube.Client(user_agent="test/1")
    assert str(caught.value) == (
        "kubeconfig (in cluster): Service host/port is not set. Pass --kubeconfig FILE, "
        "or run in a pod with a service account"
    )


def test_a_kubeconfig_that_is_not_there_is_not_called_malformed(tmp_path):
    path = tmp_path / "config"
    with pytest.raises(errors.Fatal) as caught:
        kube.Client(kubeconfig=path, user_agent="test/1")
    assert str(caught.value).startswith(f"kubeconfig {path}: the file is absent or empty. Pass ")


@pytest.mark.parametrize(
    "content", [None, "", "a: [", "\x07", "[]", "just text", "clusters: 5\ncurrent-context: x\n"]
)
def test_a_kubeconfig_that_is_none_is_told_by_name(tmp_path, content):
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(errors.Fatal) as caught:
        kube.Client(kubeconfig=path, user_agent="test/1")
    assert str(caught.value).startswith(f"kubeconfig {path}: ")
    assert str(caught.value).endswith(
        "Pass --kubeconfig FILE, or run in a pod with a service account"
    )


# A server that says nothing for long


@pytest.fixture
def watch(raw_client):
    """A watch that is answered, and told nothing; the server's end of its connection."""
    ends = []

    def serve():
        connection, _ = listener.accept()
        ends.append(connection)
        connection.recv(65536)
        connection.sendall(ANSWER)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        thread = threading.Thread(target=serve)
        thread.start()
        watch = raw_client(listener.getsockname()[1]).watch(kube.PODS, resource_version="1")
        thread.join(60)
        yield ends[0]
        watch.stop()
        ends[0].close()


def row(port):
    """What the kernel tells of the client's socket; see proc_pid_net(5)."""

    def found():
        rows = (line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:])
        return next((row for row in rows if int(row[1].partition(":")[2], 16) == port), None)

    # The table is read in pieces, between which others come and go.
    return polling.until(found, what="the client's socket in the table")


def left_to_a_sign_of_life(port):
    """Seconds until the server is asked for one; 0 where no timer for that runs."""
    kind, _, jiffies = row(port)[5].partition(":")
    return int(jiffies, 16) / JIFFIES_PER_SECOND if kind == KEEPALIVE_TIMER else 0


def test_a_watch_that_is_told_nothing_asks_within_15_s_whether_the_server_is_there(watch):
    port = watch.getpeername()[1]
    left = polling.until(lambda: left_to_a_sign_of_life(port), what="a timer for a sign of life")
    assert 0 < left <= 15


def descriptor(inode):
    """The one by which this process has a socket."""
    for path in pathlib.Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if str(path.readlink()) == f"socket:[{inode}]":
                return int(path.name)
    raise AssertionError(f"no descriptor of the socket {inode}")


def test_a_server_that_gives_no_sign_of_life_for_45_s_is_gone(watch):
    inode = row(watch.getpeername()[1])[9]
    with socket.socket(fileno=os.dup(descriptor(inode))) as client:
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 45_000
