import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import stat
import tempfile
import threading

import grpc
import polling
import pytest

from dra_driver import errors
from dra_driver.adapters import dra_grpc, dra_protocol
from dra_driver.model import claims, prepared

REF = claims.ClaimRef("team-a", "train", claims.ClaimUid("0a1b"))
OTHER = claims.ClaimRef("team-b", "infer", claims.ClaimUid("ffff"))
SHARE = "11111111-2222-3333-4444-555555555555"


def device(name, **facts):
    return prepared.PreparedDevice(
        requests=("gpu", "other"), pool="node-1", device=name, cdi_ids=(f"a/b={name}",), **facts
    )


class Handler:
    """Answers what it is told to, and remembers what it was asked."""

    def __init__(self, *devices, error=""):
        self._answer = dra_grpc.Answer(devices, error)
        self.asked = []

    def prepare(self, refs, seconds):
        self.asked.append(("prepare", list(refs), seconds))
        return {ref.uid: self._answer for ref in refs}

    def unprepare(self, refs, seconds):
        self.asked.append(("unprepare", list(refs), seconds))
        return {ref.uid: dra_grpc.Answer(error=self._answer.error) for ref in refs}


class Blocking(Handler):
    """A handler whose prepare waits until it is let go."""

    def __init__(self):
        super().__init__(device("gpu-0"))
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()

    def prepare(self, refs, seconds):
        self.entered.release()
        assert self.go.wait(60)
        return super().prepare(refs, seconds)


@pytest.fixture
def directory():
    # Those of pytest may be longer than the path of a socket.
    made = pathlib.Path(tempfile.mkdtemp(prefix="dra-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def path(directory):
    return directory / "dra.sock"


@contextlib.contextmanager
def serving(server):
    server.start()
    try:
        yield server
    finally:
        server.stop(0)


def names(directory):
    return sorted(entry.name for entry in directory.iterdir())


INFO = dra_grpc.PluginInfo("gpu.nvidia.com", "/p/dra.sock")


# Registration


def test_the_plugin_tells_what_it_is_and_hears_whether_it_is_registered(path):
    heard = []
    server = dra_grpc.registration_server(path, INFO, lambda *status: heard.append(status))
    with serving(server), dra_grpc.Client(str(path)) as kubelet:
        assert kubelet.get_info(60) == dra_grpc.PluginInfo(
            name="gpu.nvidia.com",
            endpoint="/p/dra.sock",
            versions=("v1.DRAPlugin", "v1beta1.DRAPlugin"),
            type="DRAPlugin",
        )
        kubelet.notify(registered=True, timeout=60)
        kubelet.notify(registered=False, error="unknown versions", timeout=60)
    assert heard == [(True, ""), (False, "unknown versions")]


def test_without_an_endpoint_the_registration_socket_serves_everything(path):
    server = dra_grpc.registration_server(path, dra_grpc.PluginInfo("d", ""), lambda *_: None)
    with serving(server), dra_grpc.Client(str(path)) as kubelet:
        assert kubelet.get_info(60).endpoint == str(path)


def test_both_sockets_serve_at_once(directory, path):
    handler = Blocking()
    registration = directory / "gpu.nvidia.com-reg.sock"
    with (
        serving(dra_grpc.dra_server(path, handler)),
        serving(dra_grpc.registration_server(registration, INFO, lambda *_: None)),
        dra_grpc.Client(str(path)) as service,
        dra_grpc.Client(str(registration)) as registry,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        call = pool.submit(service.prepare, [REF])
        assert handler.entered.acquire(timeout=60)
        assert registry.get_info(60) == INFO
        handler.go.set()
        assert call.result(60)[REF.uid].devices == (device("gpu-0"),)


# Prepare and unprepare


@pytest.mark.parametrize(
    ("version", "share"), [("v1.DRAPlugin", SHARE), ("v1beta1.DRAPlugin", None)]
)
def test_both_versions_are_served_by_one_handler_and_the_share_id_in_v1(path, version, share):
    handler = Handler(device("gpu-0", share_id=SHARE), device("gpu-1"))
    with serving(dra_grpc.dra_server(path, handler)), dra_grpc.Client(str(path)) as kubelet:
        assert kubelet.prepare([REF, OTHER], version=version) == {
            uid: dra_grpc.Answer((device("gpu-0", share_id=share), device("gpu-1")))
            for uid in ("0a1b", "ffff")
        }
        assert kubelet.unprepare([OTHER], version=version) == {"ffff": dra_grpc.Answer()}
    assert [(verb, refs) for verb, refs, _ in handler.asked] == [
        ("prepare", [REF, OTHER]), ("unprepare", [OTHER]),
    ]  # fmt: skip


def test_an_error_of_a_claim_reaches_the_kubelet(path):
    handler = Handler(error="it cannot work: ä")
    with serving(dra_grpc.dra_server(path, handler)), dra_grpc.Client(str(path)) as kubelet:
        failed = dra_grpc.Answer(error="it cannot work: ä")
        assert kubelet.prepare([REF]) == {"0a1b": failed}
        assert kubelet.unprepare([REF]) == {"0a1b": failed}


def test_a_call_without_claims_has_an_answer_without_claims(path):
    with serving(dra_grpc.dra_server(path, Handler())), dra_grpc.Client(str(path)) as kubelet:
        assert kubelet.prepare([]) == {}


def test_what_is_on_the_wire_is_what_the_kubelet_expects(path):
    handler = Handler(device("gpu-0", share_id=SHARE))
    with (
        serving(dra_grpc.dra_server(path, handler)),
        grpc.insecure_channel(f"unix:{path}") as channel,
    ):
        reply = channel.unary_unary(
            "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
        )(b"\x0a\x0f\x0a\x02ns\x12\x04uid1\x1a\x03abc", timeout=60)
    wire = (
        b"\x0a\x03gpu\x0a\x05other\x12\x06node-1\x1a\x05gpu-0\x22\x09a/b=gpu-0\x2a\x24"
        + SHARE.encode()
    )
    answer = b"\x0a" + bytes([len(wire)]) + wire
    entry = b"\x0a\x04uid1\x12" + bytes([len(answer)]) + answer
    assert reply == b"\x0a" + bytes([len(entry)]) + entry
    assert handler.asked[0][1] == [claims.ClaimRef("ns", "abc", claims.ClaimUid("uid1"))]


def test_the_handler_is_told_how_long_the_kubelet_waits(path):
    handler = Handler()
    with serving(dra_grpc.dra_server(path, handler)), dra_grpc.Client(str(path)) as kubelet:
        kubelet.prepare([REF], timeout=20)
        kubelet.unprepare([REF], timeout=500)
        with grpc.insecure_channel(f"unix:{path}") as channel:
            channel.unary_unary("/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources")(
                b"", wait_for_ready=True
            )
    seconds = [asked[2] for asked in handler.asked]
    # The deadline travels rounded up.
    assert 10 < seconds[0] < 21
    assert seconds[1:] == [45.0, 45.0]


def test_calls_run_side_by_side(path):
    together = threading.Barrier(8, timeout=60)

    class Meeting(Handler):
        def prepare(self, refs, seconds):
            together.wait()
            return super().prepare(refs, seconds)

    refs = [claims.ClaimRef("ns", f"c{n}", claims.ClaimUid(f"u{n}")) for n in range(8)]
    with (
        serving(dra_grpc.dra_server(path, Meeting(device("gpu-0")))),
        dra_grpc.Client(str(path)) as kubelet,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):
        answers = list(pool.map(lambda ref: kubelet.prepare([ref]), refs))
    assert [list(answer) for answer in answers] == [[ref.uid] for ref in refs]


def test_other_services_are_not_served(path):
    with (
        serving(dra_grpc.dra_server(path, Handler())),
        grpc.insecure_channel(f"unix:{path}") as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        channel.unary_stream("/v1alpha1.DRAResourceHealth/NodeWatchResources")(b"").next()
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


# The socket


def test_the_socket_appears_by_rename_when_it_answers_already(path, monkeypatch):
    rename, seen = pathlib.Path.rename, []

    def noted(self, target):
        with dra_grpc.Client(str(self)) as kubelet:
            seen.append((self.name, target, target.exists(), kubelet.get_info(60)))
        return rename(self, target)

    monkeypatch.setattr(pathlib.Path, "rename", noted)
    with serving(dra_grpc.registration_server(path, INFO, lambda *_: None)):
        assert seen == [(".dra.sock", path, False, INFO)]
        assert names(path.parent) == ["dra.sock"]
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_stop_takes_the_socket_away(path):
    server = dra_grpc.dra_server(path, Handler())
    server.start()
    server.stop(0)
    assert names(path.parent) == []


def test_what_a_killed_server_left_is_replaced(path):
    path.touch()
    path.with_name(".dra.sock").touch()
    with (
        serving(dra_grpc.dra_server(path, Handler())),
        dra_grpc.Client(str(path)) as kubelet,
    ):
        assert kubelet.prepare([REF]).keys() == {"0a1b"}
    assert names(path.parent) == []


def test_a_server_that_took_the_path_over_keeps_its_socket(path):
    old = dra_grpc.dra_server(path, Handler(device("old")))
    old.start()
    with serving(dra_grpc.dra_server(path, Handler(device("new")))):
        old.stop(0)
        assert names(path.parent) == ["dra.sock"]
        with dra_grpc.Client(str(path)) as kubelet:
            assert kubelet.prepare([REF])[REF.uid].devices == (device("new"),)
    assert names(path.parent) == []


def test_a_socket_that_is_gone_already_is_fine(path):
    server = dra_grpc.dra_server(path, Handler())
    server.start()
    path.unlink()
    server.stop(0)
    assert names(path.parent) == []


def test_a_client_finds_the_server_that_takes_over(path):
    with dra_grpc.Client(str(path)) as kubelet:
        with serving(dra_grpc.dra_server(path, Handler(device("old")))):
            assert kubelet.prepare([REF])[REF.uid].devices == (device("old"),)
        with serving(dra_grpc.dra_server(path, Handler(device("new")))):

            def answer():
                with contextlib.suppress(errors.Retryable):
                    return kubelet.prepare([REF])[REF.uid].devices

            assert polling.until(answer) == (device("new"),)


def test_a_directory_that_is_not_there_is_told_with_what_to_check(directory):
    path = directory / "absent" / "dra.sock"
    with pytest.raises(errors.Fatal) as caught:
        dra_grpc.dra_server(path, Handler()).start()
    assert str(caught.value).startswith(f"socket {path} cannot be bound: ")
    assert str(caught.value).endswith(
        ". Does its directory exist, and may this process write to it?"
    )


def of_length(directory, count):
    return directory / "x".ljust(count - len(os.fsencode(directory)) - 1, "x")


def test_the_longest_path_that_is_let_pass_works(directory):
    path = of_length(directory, 106)
    assert len(os.fsencode(path)) == 106
    dra_grpc.check_socket_path(path, setting="--plugin-dir")
    with serving(dra_grpc.dra_server(path, Handler())), dra_grpc.Client(str(path)) as kubelet:
        assert kubelet.prepare([REF]).keys() == {"0a1b"}


def test_a_longer_path_is_refused_with_the_setting_that_shortens_it(directory):
    path = of_length(directory, 107)
    with pytest.raises(errors.Fatal) as caught:
        dra_grpc.check_socket_path(path, setting="--plugin-dir")
    assert str(caught.value) == (
        f"socket path {path} has 107 bytes; at most 106 are possible for a unix socket that is "
        "bound under a hidden name first. Choose a shorter --plugin-dir"
    )
    with pytest.raises(errors.Fatal, match="cannot be bound"):
        dra_grpc.dra_server(path, Handler()).start()


def test_the_length_of_a_path_is_counted_in_bytes():
    dra_grpc.check_socket_path(pathlib.Path("/" + "ä" * 52 + "x"), setting="--plugin-dir")
    with pytest.raises(errors.Fatal, match="has 107 bytes"):
        dra_grpc.check_socket_path(pathlib.Path("/" + "ä" * 53), setting="--plugin-dir")


# Stop


def is_refused(kubelet):
    try:
        kubelet.unprepare([REF], timeout=60)
    except errors.Retryable:
        return True
    return False


def test_a_call_in_flight_finishes_within_the_grace(path):
    handler = Blocking()
    server = dra_grpc.dra_server(path, handler)
    server.start()
    with (
        concurrent.futures.ThreadPoolExecutor() as pool,
        dra_grpc.Client(str(path)) as kubelet,
        dra_grpc.Client(str(path)) as late,
    ):
        assert late.unprepare([REF]) == {"0a1b": dra_grpc.Answer()}
        call = pool.submit(kubelet.prepare, [REF])
        assert handler.entered.acquire(timeout=60)
        stopped = pool.submit(server.stop, 30)
        polling.until(lambda: not path.exists())
        polling.until(lambda: is_refused(late))
        assert not call.done()
        assert not stopped.done()
        handler.go.set()
        assert call.result(60) == {"0a1b": dra_grpc.Answer((device("gpu-0"),))}
        stopped.result(60)


def test_a_call_that_outlives_the_grace_is_given_up(path):
    handler = Blocking()
    server = dra_grpc.dra_server(path, handler)
    server.start()
    with (
        concurrent.futures.ThreadPoolExecutor() as pool,
        dra_grpc.Client(str(path)) as kubelet,
    ):
        call = pool.submit(kubelet.prepare, [REF])
        assert handler.entered.acquire(timeout=60)
        server.stop(0.05)
        with pytest.raises(errors.Retryable):
            call.result(60)
        handler.go.set()
        polling.until(lambda: handler.asked)


def test_no_thread_outlives_its_server(path):
    before = set(threading.enumerate())
    with serving(dra_grpc.dra_server(path, Handler())), dra_grpc.Client(str(path)) as kubelet:
        kubelet.prepare([REF])
    polling.until(lambda: set(threading.enumerate()) <= before)


# The client's errors


def test_no_server_is_a_reason_to_try_again(path):
    with dra_grpc.Client(str(path)) as kubelet, pytest.raises(errors.Retryable) as caught:
        kubelet.get_info(60)
    assert str(caught.value).startswith(
        f"{path} /pluginregistration.Registration/GetInfo: UNAVAILABLE: "
    )


def test_a_late_answer_is_a_reason_to_try_again(path):
    handler = Blocking()
    with serving(dra_grpc.dra_server(path, handler)), dra_grpc.Client(str(path)) as kubelet:
        with pytest.raises(errors.Retryable) as caught:
            kubelet.prepare([REF], timeout=0.05)
        handler.go.set()
    assert str(caught.value).startswith(
        f"{path} /k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources: "
        "DEADLINE_EXCEEDED: "
    )


def test_a_service_that_is_not_there_and_a_handler_that_fails_are_reasons_to_try_again(path):
    class Broken(Handler):
        def prepare(self, *_):
            raise ZeroDivisionError

    with serving(dra_grpc.dra_server(path, Broken())), dra_grpc.Client(str(path)) as kubelet:
        with pytest.raises(errors.Retryable, match="UNIMPLEMENTED"):
            kubelet.get_info(60)
        with pytest.raises(errors.Retryable, match="UNKNOWN: Exception calling application"):
            kubelet.prepare([REF])


def test_every_version_of_the_protocol_is_served():
    assert tuple(dra_protocol.dra) == dra_grpc.PluginInfo("d", "e").versions
