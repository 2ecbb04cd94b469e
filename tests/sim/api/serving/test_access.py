"""Who is answered: whoever has the token, and calls the server by a name of loopback."""

import base64
import contextlib
import http.client
import json
import select
import socket
import ssl
import stat
import subprocess

import api_objects
import kubernetes
import pytest
from kubectl_program import Kubectl

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.sim.api.serving import access

ACCESS = access.make()
PATHS = ["/", "/healthz", "/livez", "/readyz", "/version", "/api", "/apis", "/openapi/v2",
         "/api/v1/pods", "/api/v1/secrets", "/nowhere"]  # fmt: skip


@pytest.fixture(scope="module")
def api():
    with api_objects.Api(credentials=ACCESS) as running:
        yield running


@pytest.fixture
def ask(api):
    """The answer to a request with these headers alone, over TLS."""
    context = ssl.create_default_context(cadata=ACCESS.authority.decode())
    port = int(api.server.url.rpartition(":")[2])

    def ask(path="/api/v1/pods", method="GET", body=b"", **headers):
        with contextlib.closing(
            http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
        ) as connection:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in {"Host": f"127.0.0.1:{port}", **headers}.items():
                for each in [value] if isinstance(value, str) else value:
                    connection.putheader(name, each)
            if body:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    return ask


def bearer(token=ACCESS.token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_answered_whatever_the_path(ask, path):
    status, headers, body = ask(path)
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert json.loads(body)["reason"] == "Unauthorized"
    assert ask(path, **bearer())[0] in (200, 404)


@pytest.mark.parametrize(
    "given",
    ["Bearer", "Bearer ", "Bearer x", "Bearer TOKENx", "Bearer TOKE", "Bearer TOKEN x", "TOKEN",
     "Basic TOKEN", "Bearer \xff", ["Bearer TOKEN", "Bearer x"], ["Bearer TOKEN", "Bearer TOKEN"]],
)  # fmt: skip
def test_another_token_is_none(ask, given):
    several = [given] if isinstance(given, str) else given
    sent = [
        each.replace("TOKEN", ACCESS.token).replace("TOKE", ACCESS.token[:-1]) for each in several
    ]
    assert ask(Authorization=sent)[0] == 401


def test_the_token_is_no_password(ask):
    basic = base64.b64encode(f"user:{ACCESS.token}".encode()).decode()
    assert ask(Authorization=f"Basic {basic}")[0] == 401


def test_the_word_before_the_token_is_in_any_case(ask):
    assert ask(Authorization=f"bearer {ACCESS.token}")[0] == 200


def test_nothing_is_changed_without_the_token(api, ask):
    body = json.dumps(api_objects.pod()).encode()
    path = "/api/v1/namespaces/default/pods"
    sent = {"Content-Type": "application/json"}
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        assert ask(path, method, body, **sent)[0] == 401
    assert ask(path, "POST", body, **sent, **bearer())[0] == 201
    assert ask(f"{path}/train", "DELETE", **bearer())[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:1",
        "127.8.9.10:80",
        "localhost",
        "LOCALHOST:99",
        "[::1]",
        "[::1]:8080",
    ],
)
def test_names_and_addresses_of_loopback_are_the_servers_own(ask, host):
    assert ask(Host=host, **bearer())[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "",
     "10.0.0.1", "192.0.2.1", "[::]", "[fe80::1]:80", "127.0.0.1:80@evil.example", "127.0.0.1, x",
     ["127.0.0.1", "evil.example"], "127.1", "2130706433"],
)  # fmt: skip
def test_a_name_that_somebody_has_pointed_here_is_refused_even_with_the_token(ask, host):
    status, _, body = ask(Host=host, **bearer())
    assert (status, json.loads(body)["reason"]) == (403, "Forbidden")
    assert "call the server by 127.0.0.1" in json.loads(body)["message"]


def test_without_tls_nothing_is_answered(api):
    port = int(api.server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert not connection.recv(4096).startswith(b"HTTP/1.1 ")


def test_tokens_cannot_be_guessed():
    assert len(ACCESS.token) >= 43
    assert len({access.make().token for _ in range(20)}) == 20
    assert ACCESS.token not in repr(ACCESS)
    assert "PRIVATE" not in repr(ACCESS)


def test_nobody_else_reads_the_kubeconfig(api, tmp_path):
    path = tmp_path / "kubeconfig"
    path.touch(mode=0o644)
    api.server.write_kubeconfig(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ACCESS.token in path.read_text()


def test_kubectl_works_with_the_kubeconfig_and_not_without(api, tmp_path):
    kubectl = Kubectl(api, tmp_path)
    assert kubectl("get --raw /readyz") == "ok"
    kubectl("create configmap settings")
    assert kubectl("get configmaps -o name") == "configmap/settings\n"
    kubectl("delete configmap settings")
    with subprocess.Popen(
        kubectl.command("get events --watch-only"), stdout=subprocess.PIPE, text=True
    ) as watching:
        try:
            made = {"involvedObject": {"kind": "Pod", "name": "x", "namespace": "default"}}
            client = kube.Client(kubeconfig=tmp_path / "kubeconfig", user_agent="test")
            # The watch begins at some moment: until it shows one, there are more.
            for number in range(1000):
                body = {"metadata": {"name": f"hello-{number}"}, "message": "hello", **made}
                client.create(kube.EVENTS, body, "default")
                if number == 999 or _readable(watching.stdout, 0.1):
                    break
            assert "hello" in watching.stdout.readline() + watching.stdout.readline()
            client.close()
        finally:
            watching.kill()

    path = tmp_path / "kubeconfig"
    config = json.loads(path.read_text())
    config["users"][0]["user"] = {"token": "other"}
    path.write_text(json.dumps(config))
    refused = kubectl.run("get pods")
    assert refused.returncode == 1
    assert "You must be logged in to the server" in refused.stderr


def _readable(stream, seconds):
    return bool(select.select([stream], [], [], seconds)[0])


def test_clients_in_python_have_what_they_need_from_the_kubeconfig(api, tmp_path):
    path = tmp_path / "kubeconfig"
    api.server.write_kubeconfig(path)
    own = kube.Client(kubeconfig=path, user_agent="test")
    assert own.list(kube.PODS)[0] == []
    own.close()
    client = kubernetes.config.new_client_from_config(str(path))
    assert kubernetes.client.CoreV1Api(client).list_namespace().items
    client.close()
    client.rest_client.pool_manager.clear()

    config = json.loads(path.read_text())
    config["users"][0]["user"] = {"token": "other"}
    path.write_text(json.dumps(config))
    other = kube.Client(kubeconfig=path, user_agent="test")
    with pytest.raises(errors.DriverError, match="Unauthorized"):
        other.list(kube.PODS)
    other.close()


def test_it_stops_though_clients_keep_their_connections(tmp_path):
    with api_objects.Api(credentials=ACCESS) as api:
        path = tmp_path / "kubeconfig"
        api.server.write_kubeconfig(path)
        client = kube.Client(kubeconfig=path, user_agent="test")
        assert client.list(kube.PODS)[0] == []
        api.server.stop()
        client.close()
    assert api.server._thread is None
