"""The webhook as an API server meets it: AdmissionReviews over TLS."""

import contextlib
import json
import pathlib
import re
import signal
import ssl
import subprocess
import sys
import threading
import types

import api_cluster
import config_cases
import limited
import pytest
import trustme
import webhook_reviews as reviews
import webhook_scene

from dra_driver import errors, telemetry
from dra_driver.adapters.serving import http_server
from dra_driver.apps.webhook import webhook


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    scene = webhook_scene.Scene(tmp_path_factory.mktemp("certificate"))
    scene.wait_served()
    yield scene
    scene.webhook.stop()


@pytest.fixture(scope="module")
def client(shared):
    with shared.client() as connected:
        yield connected


def ask(client, resource, version, parameters):
    body = reviews.made(resource, version, configs=[reviews.config(parameters)])
    return client.ask(reviews.review(resource, version, body))


# Configs


@pytest.mark.parametrize("case", config_cases.LEGAL)
def test_a_legal_config_is_allowed_in_each_kind_and_version(client, case):
    parameters, _ = config_cases.LEGAL[case]
    for resource, version in reviews.EVERYWHERE:
        response = ask(client, resource, version, parameters)
        assert (response["allowed"], response.get("status")) == (True, None)
        assert response["uid"] == reviews.review(resource)["request"]["uid"]


@pytest.mark.parametrize("case", config_cases.ILLEGAL)
def test_an_illegal_config_is_refused_in_each_kind_and_version(client, case):
    illegal = config_cases.ILLEGAL[case]
    for resource, version in reviews.EVERYWHERE:
        response = ask(client, resource, version, illegal.parameters)
        status = response["status"]
        assert (response["allowed"], status["code"], status["reason"]) == (False, 422, "Invalid")
        path = f"{reviews.root(resource)}.config[0].opaque.parameters"
        causes = status["details"]["causes"]
        assert len(causes) == len(illegal.messages)
        for cause, message in zip(causes, illegal.messages, strict=True):
            assert cause["field"] == path or cause["field"].startswith(f"{path}.")
            assert message.endswith(cause["message"])
            assert f"{cause['field']}: {cause['message']}" in status["message"]


def test_warnings_come_with_what_is_allowed(client):
    requests = [reviews.request("gpu", tolerations=[{"operator": "Exists"}])]
    body = reviews.made("resourceclaims", requests=requests)
    response = client.ask(reviews.review("resourceclaims", body=body))
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning.startswith("spec.devices.requests[0].exactly.tolerations[0]: ")


def test_half_a_character_in_a_config_harms_nobody(client):
    half = b'"\\ud83d"'
    document = json.dumps(
        reviews.review(
            "resourceclaims",
            body=reviews.made("resourceclaims", configs=[reviews.config({"kind": "HALF"})]),
        )
    ).encode()
    response = client.send(document.replace(b'"HALF"', half)).response
    assert not response["allowed"]


# What is no review

REVIEW = json.dumps(reviews.review("resourceclaims")).encode()


@pytest.mark.parametrize("content_type", ["text/plain", "application/yaml", "", "x" * 300])
def test_another_content_type_is_refused(client, content_type):
    answer = client.send(REVIEW, content_type=content_type)
    assert answer.status == 415
    assert answer.body.endswith(b"is not allowed: send application/json\n")


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
def test_json_may_be_said_in_other_ways(client, content_type):
    assert client.send(REVIEW, content_type=content_type).response["allowed"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "the body is no JSON: Expecting value"),
        (b"{", "the body is no JSON: "),
        (b"\xff\xfe\xfd", "the body is no JSON: "),
        (b"[" * 100_000, "the body is no JSON: nested too deeply"),
        (b"{}", "apiVersion, kind: None, None is not allowed: send admission.k8s.io/v1"),
        (b"7", "apiVersion, kind: None, None is not allowed: send admission.k8s.io/v1"),
        (
            b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
            "request.uid: missing: send a review with a request",
        ),
    ],
)
def test_what_is_no_review_is_told_so(client, body, text):
    answer = client.send(body)
    assert answer.status == 400
    assert answer.body.decode().startswith(text)


def test_a_body_that_is_too_large_is_refused(shared):
    with shared.client() as own:
        head = {"Content-Length": str(http_server.MAX_BODY + 1)}
        assert own.send(b"", headers=head).status == 413


def test_other_paths_and_methods_are_not_served(client):
    assert client.send(REVIEW, path="/other").status == 404
    assert client.send(b"", method="GET").status == 405


# TLS


def test_the_certificate_is_for_the_service_and_nothing_else(shared):
    pem = shared.authority.cert_pem.bytes()
    with pytest.raises(ssl.SSLCertVerificationError):
        reviews.Client(shared.webhook.port, pem, "other.dra-driver.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        reviews.Client(shared.webhook.port, trustme.CA().cert_pem.bytes(), webhook_scene.SERVICE)


def test_a_certificate_that_is_replaced_on_disk_is_served_while_reviews_go_on(tmp_path):
    scene = webhook_scene.Scene(tmp_path)
    try:
        scene.wait_served()
        with scene.client() as old:
            before = old.certificate
            # As a mount is for a moment: the key of the one with the certificate of the other.
            (tmp_path / "tls.key").write_bytes(
                scene.authority.issue_cert("x").private_key_pem.bytes()
            )
            assert old.ask(reviews.review("resourceclaims"))["allowed"]
            webhook_scene.issue(scene.authority, tmp_path)

            def replaced():
                with scene.client() as new:
                    assert new.ask(reviews.review("resourceclaims"))["allowed"]
                    return new.certificate != before

            api_cluster.wait_for(replaced, "the new certificate")
            assert old.ask(reviews.review("resourceclaims"))["allowed"]
            assert old.certificate == before
    finally:
        scene.webhook.stop()


# State


def test_it_is_ready_once_there_is_a_certificate(tmp_path):
    scene = webhook_scene.Scene(tmp_path, issued=False)
    try:
        assert scene.status("/healthz") == (200, "ok\n")
        assert scene.status("/readyz") == (503, "there is no certificate yet\n")
        webhook_scene.issue(scene.authority, tmp_path)
        scene.wait_served()
        assert scene.status("/readyz") == (200, "ok\n")
    finally:
        scene.webhook.stop()


def test_the_port_for_probes_serves_nothing_else(shared):
    assert shared.status("/validate")[0] == 404
    assert shared.status("/readyz", "POST")[0] == 405


def sample(text, name, **labels):
    shown = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name}{{{shown}}}")]
    return float(line.split()[-1])


def test_reviews_are_counted_by_resource_and_outcome(tmp_path):
    scene = webhook_scene.Scene(tmp_path)
    try:
        scene.wait_served()
        with scene.client() as client:
            ask(client, "resourceclaims", "v1", config_cases.gpu())
            ask(client, "resourceclaims", "v1", config_cases.mig())
            ask(client, "deviceclasses", "v1beta1", config_cases.mps(maxClients=0))
            client.send(b"nonsense")
        driver = {"driver": "gpu.nvidia.com"}
        until = "dra_driver_webhook_certificate_not_after_seconds"

        def with_certificate():
            # It is served before it is told of.
            status, text = scene.status("/metrics")
            assert status == 200
            return text if sample(text, until, **driver) > 1e9 else ""

        text = api_cluster.wait_for(with_certificate, until)
        reviewed = "dra_driver_webhook_reviews_total"
        for resource, outcome, count in [
            ("resourceclaims", "allowed", 2),
            ("resourceclaims", "refused", 0),
            ("deviceclasses", "refused", 1),
            ("other", "malformed", 1),
        ]:
            labels = {**driver, "resource": resource, "outcome": outcome}
            assert sample(text, reviewed, **labels) == count
        claims = {**driver, "resource": "resourceclaims"}
        assert sample(text, "dra_driver_webhook_warnings_total", **claims) == 1
        seconds = "dra_driver_webhook_review_duration_seconds_count"
        assert sample(text, seconds, **claims) == 2
    finally:
        scene.webhook.stop()


def test_before_it_stops_it_is_not_ready_and_goes_on_answering(tmp_path, monkeypatch):
    scene = webhook_scene.Scene(tmp_path)
    scene.wait_served()
    draining, go_on = threading.Event(), threading.Event()

    def sleep(_seconds):
        draining.set()
        go_on.wait(60)

    # In the webhook alone: other threads of this process sleep, too.
    monkeypatch.setattr(webhook, "time", types.SimpleNamespace(sleep=sleep))
    stop = threading.Event()
    runner = threading.Thread(target=lambda: (stop.wait(60), scene.webhook.stop()))
    runner.start()
    stop.set()
    assert draining.wait(60)
    assert scene.status("/readyz") == (503, "stopping\n")
    with scene.client() as client:
        answer = client.send(REVIEW)
        assert answer.response["allowed"]
        assert answer.headers["connection"] == "close"
    go_on.set()
    runner.join(60)
    assert not runner.is_alive()


def test_a_directory_that_is_missing_is_told(tmp_path):
    config = webhook_scene.settings(certificate_dir=tmp_path / "none")
    with pytest.raises(errors.Fatal, match="none: it is no directory"):
        webhook.certificate_source(config, user_agent="test")


# The process


def test_the_command_serves_until_it_is_told_to_stop(tmp_path):
    authority = trustme.CA()
    webhook_scene.issue(authority, tmp_path)
    command = [
        sys.executable, "-m", "dra_driver", "webhook", "--certificate-dir", str(tmp_path),
        "--address", "127.0.0.1:0", "--status-address", "[::1]:0", "--drain-seconds", "0",
        "--log-format", "json",
    ]  # fmt: skip
    with (
        subprocess.Popen(limited.command(command), stderr=subprocess.PIPE, text=True) as process,
        contextlib.ExitStack() as at_the_end,
    ):
        at_the_end.callback(process.kill)
        ports, served = {}, False
        lines = []
        for line in process.stderr:
            lines.append(line)
            event = json.loads(line)
            if event["event"] == "started":
                ports = event
            served = served or event["event"] == "certificate served"
            if ports and served:
                break
        assert limited.soft_limit(process.pid) == 4096
        pem = authority.cert_pem.bytes()
        with reviews.Client(ports["reviews"], pem, webhook_scene.SERVICE) as client:
            assert client.protocol == "TLSv1.3"
            response = ask(client, "resourceclaims", "v1", config_cases.mps(maxClients=0))
            assert not response["allowed"]
        process.send_signal(signal.SIGTERM)
        lines += process.stderr.readlines()
        assert process.wait(60) == 0
    events = [json.loads(line) for line in lines]
    assert {"refused", "stopping"} <= {event["event"] for event in events}
    assert "PRIVATE KEY" not in "".join(lines)


def test_the_page_names_the_problem_that_kubectl_shows():
    page = (pathlib.Path(__file__).parents[3] / "docs" / "webhook.md").read_text()
    (illegal,) = config_cases.ILLEGAL["0 clients"].messages
    (shown,) = re.findall(r"is invalid: (.*) …$", page, re.MULTILINE)
    assert f"spec.devices.config[0].opaque.parameters.{illegal}".startswith(shown)


def test_each_series_is_there_from_the_start():
    text = telemetry.WebhookMetrics("d").text()[0].decode()
    for resource in reviews.KINDS:
        for outcome in ("allowed", "refused"):
            labels = {"driver": "d", "resource": resource, "outcome": outcome}
            assert sample(text, "dra_driver_webhook_reviews_total", **labels) == 0
