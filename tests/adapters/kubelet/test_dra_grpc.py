"""What the kubelet and the driver say to each other, and what of it fails."""

import concurrent.futures
import threading

import dra_grpc_scene as scene
import grpc
import pytest

from dra_driver import errors
from dra_driver.adapters.kubelet import dra_client, dra_grpc, dra_protocol, grpc_server
from dra_driver.model import claims

# Registration


def test_the_plugin_tells_what_it_is_and_hears_whether_it_is_registered(socket_path):
    heard = []
    server = dra_grpc.registration_server(
        socket_path, scene.INFO, lambda *status: heard.append(status)
    )
    with scene.serving(server), dra_client.Client(str(socket_path)) as kubelet:
        assert kubelet.get_info(60) == dra_grpc.PluginInfo(
            name="gpu.nvidia.com",
            endpoint="/p/dra.sock",
            versions=("v1.DRAPlugin", "v1beta1.DRAPlugin"),
            type="DRAPlugin",
        )
        kubelet.notify(registered=True, timeout=60)
        kubelet.notify(registered=False, error="unknown versions", timeout=60)
    assert heard == [(True, ""), (False, "unknown versions")]


def test_without_an_endpoint_the_registration_socket_serves_everything(socket_path):
    server = dra_grpc.registration_server(
        socket_path, dra_grpc.PluginInfo("d", ""), lambda *_: None
    )
    with scene.serving(server), dra_client.Client(str(socket_path)) as kubelet:
        assert kubelet.get_info(60).endpoint == str(socket_path)


def test_both_sockets_serve_at_once(socket_path):
    handler = scene.Blocking()
    registration = socket_path.parent / "gpu.nvidia.com-reg.sock"
    with (
        scene.serving(dra_grpc.dra_server(socket_path, handler)),
        scene.serving(dra_grpc.registration_server(registration, scene.INFO, lambda *_: None)),
        dra_client.Client(str(socket_path)) as service,
        dra_client.Client(str(registration)) as registry,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        call = pool.submit(service.prepare, [scene.REF])
        assert handler.entered.acquire(timeout=60)
        assert registry.get_info(60) == scene.INFO
        handler.go.set()
        assert call.result(60)[scene.REF.uid].devices == (scene.device("gpu-0"),)


# Prepare and unprepare


@pytest.mark.parametrize(
    ("version", "share"), [("v1.DRAPlugin", scene.SHARE), ("v1beta1.DRAPlugin", None)]
)
def test_both_versions_are_served_by_one_handler_and_the_share_id_in_v1(
    socket_path, version, share
):
    handler = scene.Handler(scene.device("gpu-0", share_id=scene.SHARE), scene.device("gpu-1"))
    with (
        scene.serving(dra_grpc.dra_server(socket_path, handler)),
        dra_client.Client(str(socket_path)) as kubelet,
    ):
        assert kubelet.prepare([scene.REF, scene.OTHER], version=version) == {
            uid: dra_grpc.Answer((scene.device("gpu-0", share_id=share), scene.device("gpu-1")))
            for uid in ("0a1b", "ffff")
        }
        assert kubelet.unprepare([scene.OTHER], version=version) == {"ffff": dra_grpc.Answer()}
    assert [(verb, refs) for verb, refs, _ in handler.asked] == [
        ("prepare", [scene.REF, scene.OTHER]), ("unprepare", [scene.OTHER]),
    ]  # fmt: skip


def test_an_error_of_a_claim_reaches_the_kubelet(socket_path):
    handler = scene.Handler(error="it cannot work: ä")
    with (
        scene.serving(dra_grpc.dra_server(socket_path, handler)),
        dra_client.Client(str(socket_path)) as kubelet,
    ):
        failed = dra_grpc.Answer(error="it cannot work: ä")
        assert kubelet.prepare([scene.REF]) == {"0a1b": failed}
        assert kubelet.unprepare([scene.REF]) == {"0a1b": failed}


def test_a_call_without_claims_has_an_answer_without_claims(socket_path):
    with (
        scene.serving(dra_grpc.dra_server(socket_path, scene.Handler())),
        dra_client.Client(str(socket_path)) as kubelet,
    ):
        assert kubelet.prepare([]) == {}


def test_what_is_on_the_wire_is_what_the_kubelet_expects(socket_path):
    handler = scene.Handler(scene.device("gpu-0", share_id=scene.SHARE))
    with (
        scene.serving(dra_grpc.dra_server(socket_path, handler)),
        grpc.insecure_channel(f"unix:{socket_path}") as channel,
    ):
        reply = channel.unary_unary(
            "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
        )(b"\x0a\x0f\x0a\x02ns\x12\x04uid1\x1a\x03abc", timeout=60)
    wire = (
        b"\x0a\x03gpu\x0a\x05other\x12\x06node-1\x1a\x05gpu-0\x22\x09a/b=gpu-0\x2a\x24"
        + scene.SHARE.encode()
    )
    answer = b"\x0a" + bytes([len(wire)]) + wire
    entry = b"\x0a\x04uid1\x12" + bytes([len(answer)]) + answer
    assert reply == b"\x0a" + bytes([len(entry)]) + entry
    assert handler.asked[0][1] == [claims.ClaimRef("ns", "abc", claims.ClaimUid("uid1"))]


def test_the_handler_is_told_how_long_the_kubelet_waits(socket_path):
    handler = scene.Handler()
    with (
        scene.serving(dra_grpc.dra_server(socket_path, handler)),
        dra_client.Client(str(socket_path)) as kubelet,
    ):
        kubelet.prepare([scene.REF], timeout=40)
        kubelet.unprepare([scene.REF], timeout=500)
        with grpc.insecure_channel(f"unix:{socket_path}") as channel:
            channel.unary_unary("/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources")(
                b"", wait_for_ready=True
            )
    seconds = [asked[2] for asked in handler.asked]
    # The deadline travels rounded up.
    assert 0 < seconds[0] < 41
    assert seconds[1:] == [45.0, 45.0]


def test_calls_run_side_by_side(socket_path):
    together = threading.Barrier(8, timeout=60)

    class Meeting(scene.Handler):
        def prepare(self, refs, seconds):
            together.wait()
            return super().prepare(refs, seconds)

    refs = [claims.ClaimRef("ns", f"c{n}", claims.ClaimUid(f"u{n}")) for n in range(8)]
    with (
        scene.serving(dra_grpc.dra_server(socket_path, Meeting(scene.device("gpu-0")))),
        dra_client.Client(str(socket_path)) as kubelet,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):
        answers = list(pool.map(lambda ref: kubelet.prepare([ref]), refs))
    assert [list(answer) for answer in answers] == [[ref.uid] for ref in refs]


def test_other_services_are_not_served(socket_path):
    with (
        scene.serving(dra_grpc.dra_server(socket_path, scene.Handler())),
        grpc.insecure_channel(f"unix:{socket_path}") as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        channel.unary_stream("/v1alpha1.DRAResourceHealth/NodeWatchResources")(b"").next()
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


# The client's errors


def test_no_server_is_a_reason_to_try_again(socket_path):
    with dra_client.Client(str(socket_path)) as kubelet, pytest.raises(errors.Retryable) as caught:
        kubelet.get_info(60)
    assert str(caught.value).startswith(
        f"{socket_path} /pluginregistration.Registration/GetInfo: UNAVAILABLE: "
    )


def test_a_late_answer_is_a_reason_to_try_again(socket_path):
    handler = scene.Blocking()
    with (
        scene.serving(dra_grpc.dra_server(socket_path, handler)),
        dra_client.Client(str(socket_path)) as kubelet,
    ):
        with pytest.raises(errors.Retryable) as caught:
            kubelet.prepare([scene.REF], timeout=0.05)
        handler.go.set()
    assert str(caught.value).startswith(
        f"{socket_path} /k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources: "
        "DEADLINE_EXCEEDED: "
    )


def test_a_service_that_is_not_there_and_a_handler_that_fails_are_reasons_to_try_again(socket_path):
    class Broken(scene.Handler):
        def prepare(self, *_):
            raise ZeroDivisionError

    with (
        scene.serving(dra_grpc.dra_server(socket_path, Broken())),
        dra_client.Client(str(socket_path)) as kubelet,
    ):
        with pytest.raises(errors.Retryable, match="UNIMPLEMENTED"):
            kubelet.get_info(60)
        with pytest.raises(errors.Retryable, match="UNKNOWN: Exception calling application"):
            kubelet.prepare([scene.REF])


def test_every_version_of_the_protocol_is_served():
    assert tuple(dra_protocol.dra) == dra_grpc.PluginInfo("d", "e").versions


def test_a_call_beyond_the_number_is_refused_at_once_and_never_served_later(
    socket_path, monkeypatch
):
    """One that was queued would be served after a later unprepare of its claim."""
    monkeypatch.setitem(grpc_server.WORKERS, "NodePrepareResources", 2)
    handler = scene.Blocking()
    with (
        scene.serving(dra_grpc.dra_server(socket_path, handler)),
        dra_client.Client(str(socket_path)) as kubelet,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        calls = [pool.submit(kubelet.prepare, [scene.REF]) for _ in range(2)]
        for _ in calls:
            assert handler.entered.acquire(timeout=60)
        with pytest.raises(errors.Retryable, match="2 calls are being served"):
            kubelet.prepare([scene.OTHER])
        assert kubelet.unprepare([scene.OTHER])
        handler.go.set()
        for call in calls:
            assert call.result(60)
        assert kubelet.prepare([scene.OTHER])
    assert [(name, refs) for name, refs, _ in handler.asked] == [
        ("unprepare", [scene.OTHER]),
        ("prepare", [scene.REF]),
        ("prepare", [scene.REF]),
        ("prepare", [scene.OTHER]),
    ]
