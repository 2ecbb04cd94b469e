import contextlib
import datetime as dt
import io
import json
import pathlib
import platform
import threading
import tomllib

import prometheus_client
import prometheus_client.parser
import pytest
import structlog

from dra_driver import build, telemetry


@pytest.fixture
def logged():
    """Sets logging up on a stream that it hands out; the set-up of before comes back."""

    def configure(stream=None, **options):
        stream = stream or io.StringIO()
        telemetry.configure(**{"level": "info", "log_format": "json", "stream": stream} | options)
        return stream

    yield configure
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def fail(log, token=""):
    def inner(_token):
        raise ValueError("why")

    try:
        inner(token)
    except ValueError:
        log.exception("failed")


# Logs


def test_a_line_is_one_json_object_with_time_level_component_and_fields(logged):
    stream = logged()
    telemetry.logger("preparer").info("prepare done", devices=["gpu-0"], ms=1.5)
    (line,) = lines(stream)
    moment = dt.datetime.fromisoformat(line.pop("time"))
    assert abs(dt.datetime.now(dt.UTC) - moment) < dt.timedelta(minutes=1)
    assert line == {
        "event": "prepare done",
        "level": "info",
        "component": "preparer",
        "devices": ["gpu-0"],
        "ms": 1.5,
    }


def test_every_line_inside_a_block_carries_what_was_bound(logged):
    stream = logged()
    log = telemetry.logger("service")
    claim = {"claim_namespace": "ns", "claim_name": "c", "claim_uid": "u"}
    with telemetry.bound(operation="prepare", **claim):
        log.info("first")
        with telemetry.bound(claim_uid="inner"):
            log.warning("second")
        telemetry.logger("other").error("third")
    log.info("after")
    shown = [
        {key: line.get(key) for key in ("event", "operation", *claim)} for line in lines(stream)
    ]
    bound = {"operation": "prepare"} | claim
    assert shown == [
        {"event": "first"} | bound,
        {"event": "second"} | bound | {"claim_uid": "inner"},
        {"event": "third"} | bound,
        {"event": "after"} | dict.fromkeys(bound),
    ]


@pytest.fixture
def full_disk():
    # What could not be written stays in the stream's buffer, and closing tries it again.
    with (
        contextlib.suppress(OSError),
        pathlib.Path("/dev/full").open("w", buffering=1) as stream,
    ):
        yield stream


def test_a_line_that_cannot_be_written_is_lost_and_nothing_else(logged, full_disk):
    logged(full_disk)
    log = telemetry.logger("x")
    for size in (1, 100_000):
        log.error("to a full disk", text="x" * size)
    stream = logged()
    log.info("to one with room")
    assert [line["event"] for line in lines(stream)] == ["to one with room"]


def test_what_is_bound_ends_with_an_exception(logged):
    stream = logged()
    with pytest.raises(ZeroDivisionError), telemetry.bound(claim_uid="u"):
        raise ZeroDivisionError
    telemetry.logger("x").info("after")
    assert "claim_uid" not in lines(stream)[0]


def test_what_is_bound_is_of_one_thread(logged):
    stream = logged()
    entered, leave = threading.Event(), threading.Event()

    def other():
        with telemetry.bound(claim_uid="theirs"):
            entered.set()
            assert leave.wait(60)
            telemetry.logger("x").info("their line")

    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(60)
    with telemetry.bound(claim_uid="mine"):
        telemetry.logger("x").info("my line")
        leave.set()
        thread.join(60)
    assert {line["event"]: line["claim_uid"] for line in lines(stream)} == {
        "my line": "mine", "their line": "theirs",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_lines_below_the_level_are_not_written(logged, level, shown):
    stream = logged(level=level)
    log = telemetry.logger("x")
    for name in ("debug", "info", "warning", "error"):
        getattr(log, name)(name)
    assert [line["level"] for line in lines(stream)] == shown


def test_a_logger_made_before_the_set_up_follows_it(logged):
    log = telemetry.logger("early")
    stream = logged()
    log.info("line")
    assert lines(stream)[0]["component"] == "early"


def test_an_exception_is_told_with_its_trace_on_the_same_line(logged):
    stream = logged()
    fail(telemetry.logger("x"))
    (line,) = lines(stream)
    assert (line["event"], line["level"]) == ("failed", "error")
    assert (line["exception"][0]["exc_type"], line["exception"][0]["exc_value"]) == (
        "ValueError", "why",
    )  # fmt: skip


def test_what_is_no_json_is_written_all_the_same(logged, tmp_path):
    stream = logged()
    telemetry.logger("x").info("a\nb", path=tmp_path, text="ä\n")
    (line,) = lines(stream)
    assert (line["event"], line["text"]) == ("a\nb", "ä\n")
    assert str(tmp_path) in line["path"]


@pytest.mark.parametrize(
    ("log_format", "terminal", "is_json"),
    [("json", False, True), ("json", True, True), ("console", False, False),
     ("console", True, False), ("auto", False, True), ("auto", True, False)],
)  # fmt: skip
def test_the_form_is_what_was_asked_for_or_fits_the_stream(logged, log_format, terminal, is_json):
    stream = logged(Terminal() if terminal else io.StringIO(), log_format=log_format)
    with telemetry.bound(claim_uid="u-1"):
        telemetry.logger("preparer").warning("prepare failed", reason="busy")
    text = stream.getvalue()
    assert text.startswith("{") == is_json
    for part in ("prepare failed", "warning", "preparer", "u-1", "busy"):
        assert part in text
    assert ("\x1b[" in text) == (terminal and not is_json)
    assert text.count("\n") == 1


def test_an_exception_on_a_console_has_its_trace(logged):
    stream = logged(log_format="console")
    fail(telemetry.logger("x"))
    for part in ("failed", "ValueError", "why", "in fail"):
        assert part in stream.getvalue()


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_trace_does_not_tell_the_values_of_variables(logged, log_format):
    stream = logged(log_format=log_format)
    fail(telemetry.logger("x"), "s3-cret")
    assert "fail" in stream.getvalue()
    assert "s3-cret" not in stream.getvalue()


def test_logs_go_to_standard_error_unless_told_otherwise(capsys):
    telemetry.configure(level="info", log_format="json")
    telemetry.logger("x").info("line")
    structlog.reset_defaults()
    shown = capsys.readouterr()
    assert (shown.out, json.loads(shown.err)["event"]) == ("", "line")


# Metrics


@pytest.fixture
def metrics():
    return telemetry.Metrics("gpu.nvidia.com", "node-1")


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(
        name, {"driver": "gpu.nvidia.com", "node": "node-1"} | labels
    )


def test_every_series_exists_from_the_start_at_zero(metrics):
    for operation in ("prepare", "unprepare"):
        for outcome in ("ok", "error"):
            labels = {"operation": operation, "outcome": outcome}
            assert value(metrics, "dra_driver_calls_total", **labels) == 0
        assert value(metrics, "dra_driver_calls_in_flight", operation=operation) == 0
        count = value(metrics, "dra_driver_call_duration_seconds_count", operation=operation)
        assert count == 0
    for device_type in ("gpu", "mig", "vfio"):
        assert value(metrics, "dra_driver_prepared_devices", type=device_type) == 0
    assert value(metrics, "dra_driver_prepared_claims") == 0
    assert value(metrics, "dra_driver_publish_errors_total") == 0
    assert value(metrics, "dra_driver_slices_published") == 0
    for state in ("offered", "failed", "lost"):
        assert value(metrics, "dra_driver_gpus", state=state) == 0
    for state in ("ready", "down"):
        assert value(metrics, "dra_driver_mps_daemons", state=state) == 0


def test_a_call_is_in_flight_while_it_runs_and_counted_and_timed_after(metrics):
    with metrics.call("prepare"), metrics.call("prepare"):
        assert value(metrics, "dra_driver_calls_in_flight", operation="prepare") == 2
        assert value(metrics, "dra_driver_calls_in_flight", operation="unprepare") == 0
        ok = {"operation": "prepare", "outcome": "ok"}
        assert value(metrics, "dra_driver_calls_total", **ok) == 0
    assert value(metrics, "dra_driver_calls_in_flight", operation="prepare") == 0
    assert value(metrics, "dra_driver_calls_total", **ok) == 2
    assert value(metrics, "dra_driver_calls_total", operation="prepare", outcome="error") == 0
    name = "dra_driver_call_duration_seconds"
    assert value(metrics, f"{name}_count", operation="prepare") == 2
    assert value(metrics, f"{name}_bucket", operation="prepare", le="45.0") == 2
    assert 0 < value(metrics, f"{name}_sum", operation="prepare") < 45


def test_a_call_that_raises_is_an_error_and_still_raises(metrics):
    with pytest.raises(ZeroDivisionError), metrics.call("unprepare"):
        raise ZeroDivisionError
    labels = {"operation": "unprepare"}
    assert value(metrics, "dra_driver_calls_total", **labels, outcome="error") == 1
    assert value(metrics, "dra_driver_calls_total", **labels, outcome="ok") == 0
    assert value(metrics, "dra_driver_calls_in_flight", **labels) == 0
    assert value(metrics, "dra_driver_call_duration_seconds_count", **labels) == 1


def test_prepared_devices_are_those_of_now_and_publish_errors_add_up(metrics):
    metrics.prepared({"gpu": 3, "mig": 2}, claims=4)
    metrics.prepared({"gpu": 1, "vfio": 1}, claims=1)
    metrics.publish_error()
    metrics.publish_error()
    assert value(metrics, "dra_driver_prepared_devices", type="gpu") == 1
    assert value(metrics, "dra_driver_prepared_devices", type="mig") == 0
    assert value(metrics, "dra_driver_prepared_devices", type="vfio") == 1
    assert value(metrics, "dra_driver_prepared_claims") == 1
    assert value(metrics, "dra_driver_publish_errors_total") == 2


def test_gpus_and_daemons_are_those_of_now_by_state(metrics):
    metrics.gpus(offered=8, failed=0, lost=0)
    metrics.gpus(offered=5, failed=1, lost=2)
    metrics.mps_daemons(ready=3, down=1)
    states = ("offered", "failed", "lost")
    assert [value(metrics, "dra_driver_gpus", state=state) for state in states] == [5, 1, 2]
    assert value(metrics, "dra_driver_mps_daemons", state="ready") == 3
    assert value(metrics, "dra_driver_mps_daemons", state="down") == 1


def test_whether_slices_are_published_is_asked_for_when_metrics_are_read(metrics):
    assert value(metrics, "dra_driver_slices_published") == 0
    done = threading.Event()
    metrics.published_if(done.is_set)
    assert value(metrics, "dra_driver_slices_published") == 0
    done.set()
    assert value(metrics, "dra_driver_slices_published") == 1


def test_two_drivers_in_a_process_do_not_share_metrics(metrics):
    other = telemetry.Metrics("gpu.example.com", "node-1")
    other.publish_error()
    assert value(metrics, "dra_driver_publish_errors_total") == 0


def test_metrics_are_told_as_text_with_types_and_descriptions(metrics):
    with metrics.call("prepare"):
        pass
    body, content_type = metrics.text()
    assert content_type.startswith("text/plain; version=")
    text = body.decode()
    assert (
        'dra_driver_calls_total{driver="gpu.nvidia.com",node="node-1",operation="prepare",'
        'outcome="ok"} 1.0\n' in text
    )
    families = {
        family.name: family
        for family in prometheus_client.parser.text_string_to_metric_families(text)
    }
    assert {name: family.type for name, family in families.items()} == {
        "dra_driver_build_info": "gauge",
        "dra_driver_calls": "counter",
        "dra_driver_call_duration_seconds": "histogram",
        "dra_driver_calls_in_flight": "gauge",
        "dra_driver_devices": "gauge",
        "dra_driver_gpu_events": "counter",
        "dra_driver_gpu_health_seconds": "counter",
        "dra_driver_gpu_resets": "counter",
        "dra_driver_gpu_xids": "counter",
        "dra_driver_gpus": "gauge",
        "dra_driver_unmonitored_gpus": "gauge",
        "dra_driver_mps_daemons": "gauge",
        "dra_driver_prepared_claims": "gauge",
        "dra_driver_prepared_devices": "gauge",
        "dra_driver_publish_errors": "counter",
        "dra_driver_refused_devices": "gauge",
        "dra_driver_slices_published": "gauge",
        "dra_driver_stale_claims": "gauge",
    }
    assert all(family.documentation.endswith(".") for family in families.values())


def test_each_part_tells_its_version(metrics):
    parts = {
        'driver="gpu.nvidia.com",node="node-1"': metrics,
        'driver="gpu.nvidia.com"': telemetry.WebhookMetrics("gpu.nvidia.com"),
        'driver="gpu.nvidia.com",': telemetry.ControllerMetrics("gpu.nvidia.com"),
    }
    python = f'python="{platform.python_version()}",version="{build.VERSION}"'
    for constant, part in parts.items():
        line = f"dra_driver_build_info{{{constant.strip(',')},{python}}} 1.0\n"
        assert line in part.text()[0].decode()


def test_the_version_is_that_of_the_package():
    project = pathlib.Path(__file__).parents[1] / "pyproject.toml"
    assert tomllib.loads(project.read_text("utf-8"))["project"]["version"] == build.VERSION


def test_a_controller_that_no_longer_leads_tells_of_no_stale_claims():
    metrics = telemetry.ControllerMetrics("gpu.nvidia.com")
    metrics.leads(leads=True)
    metrics.stale_claims(3)
    assert 'stale_claims{driver="gpu.nvidia.com"} 3.0' in metrics.text()[0].decode()
    metrics.leads(leads=False)
    assert 'stale_claims{driver="gpu.nvidia.com"} 0.0' in metrics.text()[0].decode()
