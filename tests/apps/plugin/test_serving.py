"""What can be seen of calls from outside: log lines and metrics."""

import contextlib
import functools
import json

import api_cluster
import polling
import pytest
import reserved_port
import scraping
import structlog.testing

from dra_driver import errors, telemetry
from dra_driver.adapters.kubelet import dra_grpc
from dra_driver.apps.plugin import serving
from dra_driver.model import claims
from dra_driver.sim.api.serving import options


@pytest.fixture(scope="module")
def metrics_port():
    with contextlib.closing(reserved_port.Reserved()) as port:
        yield port.number


@pytest.fixture(scope="module")
def plugin(new_plugin, metrics_port):
    return new_plugin(metrics_address=f"127.0.0.1:{metrics_port}").start()


@pytest.fixture
def metrics(metrics_port):
    return functools.partial(scraping.plugin, metrics_port)


def series(operation, outcome):
    return f'dra_driver_calls_total{{operation="{operation}",outcome="{outcome}"}}'


def test_each_line_of_a_request_names_its_claim(kubelet, cluster, plugin):
    ref = cluster.claim("gpu-0")
    with cluster.faults.claims_of(ref.name, options.Fault(status=503)):
        kubelet.prepare(ref)
    kubelet.unprepare(ref)
    claim = {"claim_namespace": "default", "claim_name": ref.name, "claim_uid": ref.uid}
    lines = plugin.log(**claim)
    assert [(line["operation"], line["level"], line["event"]) for line in lines] == [
        ("prepare", "info", "claim not read; trying again"),
        ("prepare", "info", "prepare done"),
        ("unprepare", "info", "unprepare done"),
    ]
    assert lines[1]["devices"] == ["gpu-0"]
    assert [line for line in plugin.log() if ref.uid in str(line)] == lines


def test_a_refusal_is_in_the_log_as_the_kubelet_hears_it(kubelet, cluster, plugin):
    ref = cluster.claim(allocate=False)
    error = kubelet.refusal(ref)
    assert [line["level"] for line in plugin.log("prepare failed", reason=error)] == ["warning"]


def test_a_config_of_10_kib_makes_neither_a_long_answer_nor_a_long_line(kubelet, cluster, plugin):
    fields = {f"wrong{number}": 1 for number in range(650)}
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", **fields}
    opaque = {"driver": api_cluster.DRIVER, "parameters": parameters}
    assert 9_000 < len(json.dumps(parameters)) < 10 * 1024
    configs = [{"source": "FromClaim", "opaque": opaque} for _ in range(3)]
    ref = cluster.claim("gpu-0", config=configs)

    error = kubelet.refusal(ref)

    assert error.endswith(f"; and {3 * 650 - 10} more problems")
    assert len(error.encode()) <= 4096
    assert [line["reason"] for line in plugin.log("prepare failed", claim_uid=ref.uid)] == [error]


@pytest.mark.parametrize("kind", [errors.Rejected, errors.Retryable, ValueError])
def test_whatever_an_error_says_the_answer_is_short_and_steers_no_terminal(kind):
    class Failing:
        def prepare(self, _ref, _seconds):
            raise kind("why \x1b[2J\u202e\ud800 " + "x" * 256_000)

    service = serving.Service(telemetry.Metrics("gpu.nvidia.com", "node-1"))
    service.ready(Failing())
    ref = claims.ClaimRef("default", "some", claims.ClaimUid("uid-1"))
    with structlog.testing.capture_logs():
        answer = service.prepare([ref], dra_grpc.Caller(60))[ref.uid]
    assert r"why \u001b[2J\u202e\ud800 xxx" in answer.error
    assert len(answer.error.encode()) <= 4096
    assert answer.error.isprintable()


def test_lines_of_claims_of_one_call_are_not_mixed_up(kubelet, cluster, plugin):
    refs = [cluster.claim("gpu-0"), cluster.claim("gpu-1")]
    kubelet.prepare(*refs)
    done = plugin.log("prepare done")[-2:]
    assert {line["claim_uid"]: line["devices"] for line in done} == {
        refs[0].uid: ["gpu-0"],
        refs[1].uid: ["gpu-1"],
    }


def test_calls_and_prepared_devices_are_counted(kubelet, cluster, metrics):
    before = metrics()
    refs = [cluster.claim("gpu-0"), cluster.claim("gpu-1")]
    kubelet.prepare(*refs)
    kubelet.prepare(refs[0])
    kubelet.refusal(cluster.claim(allocate=False))
    kubelet.unprepare(refs[0])
    # What is prepared is counted a moment after the calls are answered.
    polling.until(lambda: metrics()['dra_driver_prepared_devices{type="gpu"}'] == 1)
    after = metrics()
    changes = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert changes[series("prepare", "ok")] == 3
    assert changes[series("prepare", "error")] == 1
    assert changes[series("unprepare", "ok")] == 1
    assert series("unprepare", "error") not in changes
    assert changes['dra_driver_call_duration_seconds_count{operation="prepare"}'] == 4
    assert after['dra_driver_calls_in_flight{operation="prepare"}'] == 0


def test_a_uid_that_is_refused_counts_as_an_error(kubelet, metrics):
    before = metrics()
    kubelet.ask_unprepare(claims.ClaimRef("default", "odd", claims.ClaimUid("../odd")))
    assert metrics()[series("unprepare", "error")] == before[series("unprepare", "error")] + 1


def test_prepared_devices_are_counted_after_a_restart_too(kubelet, cluster, plugin, metrics):
    ref = cluster.claim("gpu-0", "gpu-1")
    kubelet.prepare(ref)
    plugin.kill()
    plugin.start()
    plugin.kubelet.unprepare()
    polling.until(lambda: metrics()['dra_driver_prepared_devices{type="gpu"}'] == 2)
    plugin.kubelet.unprepare(ref)
    polling.until(lambda: metrics()['dra_driver_prepared_devices{type="gpu"}'] == 0)


def test_writes_of_slices_that_fail_are_counted(kubelet, cluster, plugin, metrics):
    cluster.wait_devices("gpu-0", "gpu-1")
    before = metrics()["dra_driver_publish_errors_total"]
    failures = len(plugin.log("ResourceSlices not published"))

    def rule(call):
        return options.Fault(status=503) if call.verb == "create" else None

    with cluster.faults.where(rule):
        cluster.client.delete_collection(
            cluster.slice_resource, field_selector="spec.nodeName=node-1"
        )
        plugin.wait_log("ResourceSlices not published", count=failures + 1)
    cluster.wait_devices("gpu-0", "gpu-1")
    assert metrics()["dra_driver_publish_errors_total"] > before


@pytest.mark.parametrize("operation", ["prepare", "unprepare"])
def test_work_has_to_end_before_the_call_does_so_that_the_answer_is_not_lost(operation):
    class Preparer:
        def prepare(self, _ref, turn):
            given.append(turn.waiting.left)
            return ()

        unprepare = prepare

    given = []
    service = serving.Service(telemetry.Metrics("gpu.nvidia.com", "node"))
    service.ready(Preparer())
    ref = claims.ClaimRef("default", "claim", claims.ClaimUid("uid-1"))
    assert getattr(service, operation)([ref], dra_grpc.Caller(45.0))[ref.uid].error == ""
    assert 0 < max(given) <= 45 - serving.MARGIN


def test_a_call_that_comes_too_early_is_answered_before_it_ends():
    service = serving.Service(telemetry.Metrics("gpu.nvidia.com", "node"))
    ref = claims.ClaimRef("default", "claim", claims.ClaimUid("uid-1"))
    # Less than the margin: it is not waited at all.
    assert service.prepare([ref], dra_grpc.Caller(2.0))[ref.uid].error == "the driver is starting"


def test_once_it_has_failed_nobody_waits_for_a_start_that_is_given_up_after_that():
    service = serving.Service(telemetry.Metrics("gpu.nvidia.com", "node"))
    ref = claims.ClaimRef("default", "claim", claims.ClaimUid("uid-1"))
    service.failed("the driver is stopping")
    service.starting()
    assert service.prepare([ref], dra_grpc.Caller(2.0))[ref.uid].error == "the driver is stopping"


def test_a_probe_is_told_of_a_look_that_goes_wrong_and_claims_are_prepared():
    class Preparer:
        def prepare(self, _ref, _turn):
            return ()

    def broken():
        raise OSError(116, "Stale file handle", "/driver-root/dev")

    service = serving.Service(telemetry.Metrics("gpu.nvidia.com", "node"))
    service.ready(Preparer(), broken)
    ref = claims.ClaimRef("default", "claim", claims.ClaimUid("uid-1"))
    with structlog.testing.capture_logs() as lines:
        answers = service.prepare([serving.PROBE, ref], dra_grpc.Caller(45.0))
    assert "OSError: [Errno 116] Stale file handle" in answers[serving.PROBE.uid].error
    assert answers[ref.uid].error == ""
    assert [line["event"] for line in lines] == ["probe failed unexpectedly", "prepare done"]
