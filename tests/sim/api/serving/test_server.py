import asyncio
import json
import socket
import threading

import api_objects
import pytest
import reserved_port
import urllib3
from api_objects import CLAIMS, CONFIG_MAPS

from dra_driver import errors
from dra_driver.sim.api.serving import server


@pytest.fixture
def port():
    """Nobody else on this machine is given it meanwhile."""
    reserved = reserved_port.Reserved()
    yield reserved.number
    reserved.close()


def servers():
    """How many servers run in this process: other tests may have some of their own."""
    return sum(thread.name == "api-server" for thread in threading.enumerate())


def test_a_server_can_be_started_many_times():
    before = servers()
    for _ in range(20):
        with api_objects.Api() as api:
            assert api.names(api_objects.NAMESPACES) == ["default", "kube-system"]

    assert servers() == before


def test_small_answers_are_not_held_back():
    listener = server._listen(0)

    assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    listener.close()


def test_after_stop_nothing_listens(port):
    with api_objects.Api(port=port):
        pass

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_connection_that_is_made_while_the_server_stops_is_closed():
    connected, held = threading.Event(), threading.Event()

    def stop_once_connected():
        held.set()
        connected.wait(api_objects.DEADLINE)
        api.server._uvicorn.stop()

    with api_objects.Api() as api:
        host, _, port = api.server.url.removeprefix("http://").partition(":")
        api.server._uvicorn._loop.call_soon_threadsafe(stop_once_connected)
        assert held.wait(api_objects.DEADLINE)
        with socket.create_connection((host, int(port)), timeout=api_objects.DEADLINE) as client:
            connected.set()
            api.server.stop()
            assert client.recv(1) == b""


def test_a_port_can_be_used_again_at_once(port):
    with api_objects.Api(port=port) as api:
        api.create(CONFIG_MAPS, api_objects.config_map())

    with api_objects.Api(port=port) as api:
        assert api.server.url == f"http://127.0.0.1:{port}"
        assert api.names(CONFIG_MAPS) == []


def test_versions_rise_from_one_server_to_the_next():
    versions = []
    for _ in range(2):
        with api_objects.Api() as api:
            versions.append(int(api.get(CONFIG_MAPS)["metadata"]["resourceVersion"]))

    assert versions[0] < versions[1]


def test_a_port_that_is_taken_is_told():
    with api_objects.Api() as api:
        port = int(api.server.url.rpartition(":")[2])
        other = server.ApiServer(server.Options(port=port))

        with pytest.raises(errors.Fatal, match=f"127.0.0.1:{port}"):
            other.start()


def test_a_server_that_was_not_started_has_no_address():
    with pytest.raises(errors.Fatal, match="start"):
        _ = server.ApiServer().url


def test_a_server_that_was_not_started_can_be_stopped():
    server.ApiServer().stop()


def test_stop_may_be_called_again():
    with api_objects.Api() as api:
        api.server.stop()


def test_stop_does_not_wait_for_connections_that_are_kept():
    before = servers()
    running = server.ApiServer()
    running.start()
    held = urllib3.HTTPConnectionPool("127.0.0.1", int(running.url.rpartition(":")[2]))
    held.request("GET", "/healthz")

    running.stop()
    held.close()

    assert servers() == before


def test_a_version_that_is_none_is_refused():
    with pytest.raises(errors.Rejected, match="kubernetes_version"):
        server.ApiServer(server.Options(kubernetes_version="latest"))


def test_a_kubeconfig_leads_to_the_server(api, tmp_path):
    path = tmp_path / "kubeconfig"

    api.server.write_kubeconfig(path)

    config = json.loads(path.read_text())
    assert config["clusters"][0]["cluster"]["server"] == api.server.url
    assert config["contexts"][0]["name"] == config["current-context"]


def test_requests_are_told_to_the_log():
    calls = []
    with api_objects.Api(request_log=calls.append) as api:
        api.create(CLAIMS, api_objects.claim())
        for method, path, query in (
            ("GET", f"{CLAIMS}/mine", {}),
            ("GET", "/apis/resource.k8s.io/v1/resourceclaims", {}),
            ("PATCH", f"{CLAIMS}/mine/status", {}),
            ("DELETE", CLAIMS, {}),
            ("GET", "/healthz", {}),
            ("GET", "/nowhere/at/all", {}),
        ):
            api.send(method, path, headers={"user-agent": "plugin/1"}, **query)

    told = [
        (call.user_agent, call.verb, call.group, call.resource, call.subresource, call.namespace)
        for call in calls[1:]
    ]
    group = "resource.k8s.io"
    assert told == [
        ("plugin/1", "get", group, "resourceclaims", "", "default"),
        ("plugin/1", "list", group, "resourceclaims", "", ""),
        ("plugin/1", "patch", group, "resourceclaims", "status", "default"),
        ("plugin/1", "deletecollection", group, "resourceclaims", "", "default"),
        ("plugin/1", "get", "", "", "", ""),
        ("plugin/1", "get", "", "", "", ""),
    ]
    assert calls[1].name == "mine"


def test_a_watch_is_told_as_a_watch():
    calls = []
    with api_objects.Api(request_log=calls.append) as api:
        with api.watch(CLAIMS):
            pass
        with api.watch("/api/v1/watch/pods"):
            pass

    assert [(call.verb, call.resource) for call in calls] == [
        ("watch", "resourceclaims"),
        ("watch", "pods"),
    ]


def faulty(fault, verb="create"):
    """A server with one fault, at the first request of that verb."""
    left = [fault]
    return api_objects.Api(fault=lambda call: left.pop() if left and call.verb == verb else None)


def test_a_failure_can_be_injected():
    fault = server.Fault(status=503, reason="ServiceUnavailable", message="go away", retry_after=1)
    with faulty(fault) as api:
        answer = api.send("POST", CONFIG_MAPS, api_objects.config_map())
        exists = api.exists(f"{CONFIG_MAPS}/settings")
        api.create(CONFIG_MAPS, api_objects.config_map())

    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.body["reason"] == "ServiceUnavailable"
    assert answer.body["message"] == "go away"
    assert not exists


@pytest.mark.parametrize(("drop", "done"), [("before", False), ("after", True)])
def test_a_connection_can_be_cut(drop, done):
    with faulty(server.Fault(drop=drop)) as api:
        with pytest.raises(urllib3.exceptions.ProtocolError):
            api.send("POST", CONFIG_MAPS, api_objects.config_map())

        assert api.exists(f"{CONFIG_MAPS}/settings") == done


def test_a_delayed_request_does_not_hold_up_others(monkeypatch):
    arrived, answered, sleep = threading.Event(), threading.Event(), asyncio.sleep

    async def until_the_other_is_answered(seconds):
        assert seconds in {0, 1}
        await sleep(0)
        while seconds and not answered.is_set():
            await sleep(0.005)

    monkeypatch.setattr(asyncio, "sleep", until_the_other_is_answered)

    def fault(call):
        if call.verb != "create" or arrived.is_set():
            return None
        arrived.set()
        return server.Fault(delay_seconds=1)

    with api_objects.Api(fault=fault) as api:
        slow = threading.Thread(
            target=api.create, args=(CONFIG_MAPS, api_objects.config_map("slow"))
        )
        slow.start()
        assert arrived.wait(api_objects.DEADLINE)
        fast = api.create(CONFIG_MAPS, api_objects.config_map("fast"))
        answered.set()
        slow.join()
        late = api.get(f"{CONFIG_MAPS}/slow")

    assert int(fast["metadata"]["resourceVersion"]) < int(late["metadata"]["resourceVersion"])


def test_a_fault_can_be_put_on_a_watch():
    with (
        faulty(server.Fault(status=410, reason="Expired"), verb="watch") as api,
        api.watch(CONFIG_MAPS) as watched,
    ):
        assert watched.status == 410


def test_objects_can_be_used_in_the_same_process(api):
    made = api.create(CONFIG_MAPS, api_objects.config_map())

    assert api.server.store.get("configmaps", ("default", "settings")) == made


def test_concurrent_writers_lose_nothing(api):
    def write(name):
        for index in range(25):
            api.create(CONFIG_MAPS, api_objects.config_map(f"{name}-{index}"))

    writers = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    listed = api.get(CONFIG_MAPS)["items"]
    versions = {item["metadata"]["resourceVersion"] for item in listed}
    assert len(listed) == len(versions) == 100
