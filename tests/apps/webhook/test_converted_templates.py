"""The templates of converted pods: whose they are, and what happens to them meanwhile."""

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import threading

import api_cluster
import limited
import pod_reviews
import pytest
import trustme
import webhook_scene

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import kube
from dra_driver.apps.controller import unused
from dra_driver.apps.webhook import templates
from dra_driver.logic.converting import conversion, marks
from dra_driver.settings import controller as controller_settings

LATE = dt.datetime(2026, 1, 3, tzinfo=dt.UTC)
OLD = "2026-01-01T00:00:00Z"


@pytest.fixture
def client(own_cluster, tmp_path):
    with pod_reviews.converting_webhook(own_cluster, tmp_path) as connected:
        yield connected


def ask(client, **changes):
    return client.convert(pod_reviews.review(pod_reviews.share(), **changes))


def put(cluster, body, **metadata):
    """The template in place of the one that is there."""
    name = body["metadata"]["name"]
    cluster.client.delete(kube.TEMPLATES, name, pod_reviews.NAMESPACE)
    new = body | {"metadata": {"name": name, "namespace": pod_reviews.NAMESPACE} | metadata}
    return cluster.client.create(kube.TEMPLATES, new, pod_reviews.NAMESPACE)


def only(cluster):
    [found] = pod_reviews.templates(cluster).values()
    return found


def mark(cluster, since=OLD):
    """Mark the template as unused."""
    found = only(cluster)
    patch = {"metadata": {"annotations": {marks.UNUSED_SINCE: since}}}
    name = found["metadata"]["name"]
    return cluster.client.patch(kube.TEMPLATES, name, patch, pod_reviews.NAMESPACE)


def cleaner(cluster):
    config = controller_settings.Controller.model_validate(
        {"identity": "c", "converted_templates": True}
    )
    metrics = telemetry.ControllerMetrics("gpu.nvidia.com")
    return unused.Cleaner(config, cluster.client, metrics, lambda: LATE)


# Others' templates


@pytest.mark.parametrize("dry_run", [False, True], ids=["for good", "dry run"])
@pytest.mark.parametrize("labels", [{}, {"dra-driver.dev/converted": "command"}], ids=str)
def test_a_template_of_somebody_else_is_left_alone_and_told(own_cluster, client, labels, dry_run):
    ask(client)
    theirs = put(own_cluster, only(own_cluster), labels=labels)
    response = ask(client, dryRun=dry_run)
    assert not response["allowed"]
    [cause] = response["status"]["details"]["causes"]
    name = f"default/{theirs['metadata']['name']}"
    assert cause["field"].startswith(f"ResourceClaimTemplate {name}: metadata.labels")
    assert "delete it, or give it another name" in cause["message"]
    assert only(own_cluster) == theirs


def test_a_template_with_another_spec_is_not_used_whatever_its_label(own_cluster, client):
    ask(client)
    body = only(own_cluster)
    [request] = body["spec"]["spec"]["devices"]["requests"]
    request["exactly"]["capacity"]["requests"]["memory"] = "1Mi"
    theirs = put(own_cluster, body, labels=body["metadata"]["labels"])
    response = ask(client)
    assert not response["allowed"]
    assert response["status"]["code"] == 422
    assert "spec.spec: changed: not what the pod asks for" in response["status"]["message"]
    assert only(own_cluster) == theirs


def test_a_template_that_writes_something_on_claims_is_not_used(own_cluster, client):
    ask(client)
    body = only(own_cluster)
    body["spec"]["metadata"] = {"labels": {"team": "theirs"}}
    put(own_cluster, body, labels=body["metadata"]["labels"])
    response = ask(client)
    assert not response["allowed"]
    assert "spec.metadata: ['labels']: claims are to have none" in response["status"]["message"]


# Templates that were unused


def test_one_that_is_used_again_has_no_mark_when_the_pod_is_let_in(own_cluster, client):
    ask(client)
    mark(own_cluster)
    assert ask(client)["allowed"]
    assert marks.unused_since(only(own_cluster)) is None


def test_a_dry_run_leaves_the_mark(own_cluster, client):
    ask(client)
    marked = mark(own_cluster)
    assert ask(client, dryRun=True)["allowed"]
    assert only(own_cluster) == marked


def test_what_the_controller_was_about_to_remove_stays_if_a_pod_gets_it_first(own_cluster, client):
    ask(client)
    mark(own_cluster)
    answers = []

    def meanwhile(call):
        """Between the controller's look and its write a pod comes."""
        if (call.resource, call.verb) == ("pods", "list") and not answers:
            thread = threading.Thread(target=lambda: answers.append(ask(client)))
            thread.start()
            threads.append(thread)

    threads = []
    with own_cluster.faults.where(meanwhile):
        going = cleaner(own_cluster)
        # The controller waits at each object it may go on with: the pod is let in by then.
        going.clean(0.0, lambda: [thread.join(60) for thread in threads] or True)
    assert [answer["allowed"] for answer in answers] == [True]
    assert marks.unused_since(only(own_cluster)) is None


@pytest.mark.parametrize("verb", ["get", "patch"])
def test_what_the_controller_removes_under_the_webhook_s_hands_is_made_anew(
    own_cluster, client, verb
):
    ask(client)
    before = mark(own_cluster)
    removed = []

    def first(call):
        if call.resource == "resourceclaimtemplates" and call.verb == verb and not removed:
            objects, key = own_cluster._api.store, (call.namespace, call.name)
            removed.append(objects.remove("resourceclaimtemplates.resource.k8s.io", key))

    with own_cluster.faults.where(first):
        assert ask(client)["allowed"]
    assert removed
    after = only(own_cluster)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert marks.unused_since(after) is None


def test_one_of_somebody_else_that_came_under_the_name_meanwhile_is_left_alone(own_cluster, client):
    ask(client)
    mark(own_cluster)
    replaced = []

    def first(call):
        if (call.resource, call.verb) == ("resourceclaimtemplates", "patch") and not replaced:
            resource = "resourceclaimtemplates.resource.k8s.io"
            old = own_cluster._api.store.remove(resource, (call.namespace, call.name))
            theirs = old["metadata"] | {"uid": "theirs", "labels": {}}
            replaced.append(own_cluster._api.store.put(resource, old | {"metadata": theirs}))

    with own_cluster.faults.where(first):
        response = ask(client)
    assert not response["allowed"]
    assert "delete it, or give it another name" in response["status"]["message"]
    assert marks.unused_since(only(own_cluster)) == OLD


def test_one_that_changes_while_it_is_taken_is_looked_at_again(own_cluster, client):
    ask(client)
    mark(own_cluster)
    changed = []

    def first(call):
        if (call.resource, call.verb) == ("resourceclaimtemplates", "patch") and not changed:
            resource = "resourceclaimtemplates.resource.k8s.io"
            old = own_cluster._api.store.remove(resource, (call.namespace, call.name))
            changed.append(old | {"metadata": old["metadata"] | {"labels": {}}})
            own_cluster._api.store.put(resource, changed[0])

    with own_cluster.faults.where(first):
        response = ask(client)
    assert not response["allowed"]
    assert "delete it, or give it another name" in response["status"]["message"]
    assert marks.unused_since(only(own_cluster)) == OLD


@pytest.mark.parametrize("requests", [1, 2])
def test_no_request_begins_when_the_time_is_up(own_cluster, client, requests):
    ask(client)
    body = mark(own_cluster)
    template = conversion.Template(body["metadata"]["name"], body["spec"]["spec"])
    own_cluster.faults.calls.clear()
    ticks = iter([0.0] * requests + [1.0] * 10)
    made = templates.Templates(own_cluster.client, clock=lambda: next(ticks))
    with pytest.raises(errors.Retryable, match="takes too long"):
        made.make(template, pod_reviews.NAMESPACE, 1.0)
    asked = [call.verb for call in own_cluster.faults.calls]
    assert asked == ["create", "get", "patch"][:requests]


def test_one_that_is_being_deleted_is_not_given_to_a_pod(own_cluster, client):
    ask(client)
    body = only(own_cluster)
    put(own_cluster, body, labels=body["metadata"]["labels"], finalizers=["example.com/wait"])
    own_cluster.client.delete(kube.TEMPLATES, body["metadata"]["name"], pod_reviews.NAMESPACE)
    response = ask(client)
    assert not response["allowed"]
    assert response["status"]["code"] == 500
    assert "is being deleted" in response["status"]["message"]


# The end of a webhook


def test_a_webhook_that_is_killed_before_it_answers_leaves_a_template_that_is_removed_later(
    own_cluster, tmp_path
):
    authority = trustme.CA()
    webhook_scene.issue(authority, tmp_path)
    flags = {
        "certificate-dir": tmp_path, "address": "127.0.0.1:0", "status-address": "127.0.0.1:0",
        "kubeconfig": own_cluster.kubeconfig, "convert": "true", "log-format": "json",
    }  # fmt: skip
    given = [part for name, value in flags.items() for part in (f"--{name}", str(value))]
    command = limited.command([sys.executable, "-m", "dra_driver", "webhook", *given])
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            port = _served_port(process)
            pem = authority.cert_pem.bytes()
            with pod_reviews.Client(port, pem, webhook_scene.SERVICE) as client:

                def kill(call):
                    """The template is made, and nobody is there any more to be told."""
                    if (call.resource, call.verb) == ("resourceclaimtemplates", "create"):
                        os.kill(process.pid, signal.SIGKILL)

                with own_cluster.faults.where(kill), pytest.raises(OSError, match=r".*"):
                    ask(client)
        finally:
            process.kill()
    api_cluster.wait_for(lambda: pod_reviews.templates(own_cluster), "the template is there")
    # The API server tried to make the pod again with another webhook, or not at all: nobody has it.
    mark(own_cluster)
    cleaner(own_cluster).clean(0.0, lambda: True)
    assert pod_reviews.templates(own_cluster) == {}


def _served_port(process):
    port, served = 0, False
    for line in process.stderr:
        event = json.loads(line)
        port = event.get("reviews", port)
        served = served or event["event"] == "certificate served"
        if port and served:
            return port
    raise AssertionError("it ended")
