"""The webhook's own certificate, kept by the API server, as replicas share and renew it."""

import base64
import datetime as dt
import io
import threading

import api_cluster
import pytest
import served_api
import webhook_reviews as reviews
import webhook_scene

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import kube
from dra_driver.adapters.serving import tls
from dra_driver.apps.webhook import webhook, webhook_certificates
from dra_driver.sim.api.serving import options

pytestmark = pytest.mark.sampled(7)

NOW = dt.datetime.now(dt.UTC)
DAY, HOUR = dt.timedelta(days=1), dt.timedelta(hours=1)
START = NOW - 735 * DAY
"""Clients of these tests have the real clock: what is served to them was made before."""
SECRETS, CONFIGURATIONS = webhook_certificates.SECRETS, webhook_certificates.CONFIGURATIONS
NAMESPACE, SECRET = "dra-driver", "dra-driver-webhook-certificate"
CONFIGURATION = "dra-driver-webhook"


@pytest.fixture
def log():
    stream = io.StringIO()
    telemetry.configure(level="debug", log_format="json", stream=stream)
    return stream


@pytest.fixture
def api(tmp_path, log):
    served = served_api.ServedApi(tmp_path)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    served.client.create(kube.NAMESPACES, body)
    yield served
    served.close()
    # Whatever the test did.
    assert "PRIVATE KEY" not in log.getvalue()
    assert "BEGIN" not in log.getvalue()


def configure(api, *names):
    """A webhook configuration as the manifest has it: nobody is trusted yet."""
    hooks = [
        {
            "name": name,
            "clientConfig": {"service": {"name": "s", "namespace": NAMESPACE, "path": "/validate"}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        for name in names
    ]
    body = {"metadata": {"name": CONFIGURATION}, "webhooks": hooks}
    return api.client.create(CONFIGURATIONS, body)


@pytest.fixture
def configuration(api):
    return configure(api, "a.example.com", "b.example.com")


class Clock:
    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now


def managed(api, clock=webhook_certificates.now, client=None):
    config = webhook_scene.settings()
    return webhook_certificates.SelfManaged(config, client or api.client, clock)


class Overtaken:
    """A client that is slow once, before the `call` of a resource or, if that is a get, after it;
    meanwhile somebody else does something.
    """

    def __init__(self, client, call, resource, act):
        self._client, self._slow, self._act = client, (call, resource), act

    def get(self, resource, *arguments):
        found = self._client.get(resource, *arguments)
        self._wait("get", resource)
        return found

    def create(self, resource, *arguments):
        self._wait("create", resource)
        return self._client.create(resource, *arguments)

    def replace(self, resource, *arguments):
        self._wait("replace", resource)
        return self._client.replace(resource, *arguments)

    def _wait(self, *call):
        if call == self._slow and self._act is not None:
            act, self._act = self._act, None
            act()


def bundles(api):
    """What the API server trusts, by webhook."""
    hooks = api.client.get(CONFIGURATIONS, CONFIGURATION)["webhooks"]
    return [base64.b64decode(hook["clientConfig"].get("caBundle", "")) for hook in hooks]


def kept(api):
    secret = api.client.get(SECRETS, SECRET, NAMESPACE)
    return {name: base64.b64decode(value) for name, value in secret["data"].items()}


# Alone


def test_the_first_certificate_goes_into_the_secret_and_its_authority_to_the_api_server(
    api, configuration
):
    chain, key = managed(api).get()

    secret = kept(api)
    assert (secret["tls.crt"], secret["tls.key"]) == (chain, key)
    assert bundles(api) == [secret["ca.crt"]] * 2
    (first, _) = api.client.get(CONFIGURATIONS, CONFIGURATION)["webhooks"]
    assert (
        first["clientConfig"]["service"] == configuration["webhooks"][0]["clientConfig"]["service"]
    )


def test_what_is_good_is_not_written_again(api, configuration):
    first = managed(api).get()
    api.calls.clear()
    assert managed(api).get() == first
    assert {call.verb for call in api.calls} == {"get"}


def test_a_secret_that_was_made_empty_is_filled_and_what_else_it_has_is_left(api, configuration):
    body = {
        "metadata": {"name": SECRET, "namespace": NAMESPACE, "labels": {"app": "dra-driver"}},
        "data": {"note": "aGVsbG8="},
        "type": "Opaque",
    }
    api.client.create(SECRETS, body, NAMESPACE)
    managed(api).get()

    secret = api.client.get(SECRETS, SECRET, NAMESPACE)
    assert secret["metadata"]["labels"] == {"app": "dra-driver"}
    assert set(secret["data"]) == {"note", "ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert api.count("create", "secrets") == 1


@pytest.mark.parametrize("damage", ["", "AAAA", "no base64"])
def test_a_damaged_secret_is_made_anew(api, configuration, damage):
    first = managed(api).get()
    secret = api.client.get(SECRETS, SECRET, NAMESPACE)
    data = secret["data"] | {"tls.key": damage}
    api.store.put("secrets", secret | {"data": data})

    second = managed(api).get()
    assert second != first
    tls.Certificate().use(*second)
    assert bundles(api) == [kept(api)["ca.crt"]] * 2


def test_somebody_who_takes_the_authority_away_is_corrected(api, configuration):
    managed(api).get()
    hooks = [hook | {"clientConfig": {"url": "https://x"}} for hook in configuration["webhooks"]]
    current = api.client.get(CONFIGURATIONS, CONFIGURATION)
    api.client.replace(CONFIGURATIONS, current | {"webhooks": hooks})
    managed(api).get()
    assert bundles(api) == [kept(api)["ca.crt"]] * 2


def test_without_a_configuration_there_is_a_certificate_and_a_word(api, log):
    tls.Certificate().use(*managed(api).get())
    assert "there is no ValidatingWebhookConfiguration" in log.getvalue()


def test_a_configuration_without_webhooks_is_left_alone(api):
    configure(api)
    managed(api).get()
    assert api.count("update", "validatingwebhookconfigurations") == 0


def test_a_right_that_is_missing_is_told(api, configuration):
    api.fail(options.Fault(status=403, reason="Forbidden"), verb="create")
    with pytest.raises(kube.Forbidden, match="secrets"):
        managed(api).get()


# Replicas


def test_who_is_slower_takes_what_the_faster_one_made(api, configuration):
    faster = []
    slow = Overtaken(api.client, "create", SECRETS, lambda: faster.append(managed(api).get()))
    assert [managed(api, client=slow).get()] == faster
    assert bundles(api) == [kept(api)["ca.crt"]] * 2


def test_a_renewal_that_comes_too_late_is_dropped(api, configuration):
    clock, faster = Clock(), []
    first = managed(api, clock).get()
    clock.now = START + 61 * DAY
    slow = Overtaken(
        api.client, "replace", SECRETS, lambda: faster.append(managed(api, clock).get())
    )
    assert [managed(api, clock, slow).get()] == faster
    assert faster != [first]


@pytest.mark.parametrize("call", [("get", SECRETS), ("replace", CONFIGURATIONS)])
def test_an_authority_is_not_taken_back_by_who_read_before_it_came(api, configuration, call):
    """A slow replica has read the old Secret when a fast one renews the authority."""
    clock, late = Clock(), Clock()
    managed(api, clock).get()
    current = api.client.get(CONFIGURATIONS, CONFIGURATION)
    hooks = [hook | {"clientConfig": {"url": "https://x"}} for hook in current["webhooks"]]
    api.client.replace(CONFIGURATIONS, current | {"webhooks": hooks})
    late.now = START + 731 * DAY
    slow = Overtaken(api.client, *call, lambda: managed(api, late).get())
    managed(api, clock, slow).get()
    assert kept(api)["ca.crt"].count(b"BEGIN") == 2
    assert bundles(api) == [kept(api)["ca.crt"]] * 2


def test_replicas_that_start_at_once_agree(api, configuration):
    found, barrier = [], threading.Barrier(6)

    def start():
        barrier.wait(60)
        found.append(managed(api).get())

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 6
    assert len(set(found)) == 1
    assert (found[0][0], bundles(api)) == (kept(api)["tls.crt"], [kept(api)["ca.crt"]] * 2)


def test_a_secret_that_others_keep_changing_is_given_up_for_now(api, configuration):
    api.fail(*[options.Fault(status=409, reason="Conflict")] * 5, verb="create")
    with pytest.raises(errors.Retryable, match="was changed by others 5 times"):
        managed(api).get()


# Over time


class Replica:
    """A webhook with a certificate of its own and a clock to turn."""

    def __init__(self, api, clock):
        self.source = managed(api, clock)
        self.webhook = webhook.Webhook(
            webhook_scene.settings(check_seconds=3600), lambda _config: self.source
        )
        self.webhook.start()
        assert self.webhook.wait_served(60)

    def look(self):
        self.webhook.keeper.look()

    def asked(self, bundle):
        """Whether one who trusts the bundle gets an answer."""
        with reviews.Client(self.webhook.port, bundle, webhook_scene.SERVICE) as client:
            return client.ask(reviews.review("resourceclaims"))["allowed"], client.certificate


@pytest.mark.parametrize(
    ("steps", "certificates"),
    [
        # Of one authority: at the age of 60 days the certificate is renewed.
        ((655 * DAY, 685 * DAY, 714 * DAY, 716 * DAY, 734 * DAY), 2),
        # At the age of 730 days the authority is; the new one signs an hour later.
        ((700 * DAY, 729 * DAY, 731 * DAY, 731 * DAY + HOUR / 2, 732 * DAY, 734 * DAY), 2),
    ],
)
def test_the_api_server_can_ask_each_replica_whatever_is_renewed(
    api, configuration, steps, certificates
):
    """At each look of one replica the other still serves what it had before."""
    clock = Clock()
    managed(api, clock).get()
    clock.now = START + steps[0]
    replicas = [Replica(api, clock), Replica(api, clock)]
    shown = set()
    try:
        for later in steps:
            clock.now = START + later
            for replica in replicas:
                known = bundles(api)
                replica.look()
                for bundle in (known[0], bundles(api)[0]):
                    for other in replicas:
                        answer, certificate = other.asked(bundle)
                        assert answer
                        shown.add(certificate)
        assert len(shown) == certificates
    finally:
        for replica in replicas:
            replica.webhook.stop()


def test_when_the_authority_changes_who_knew_only_the_old_one_has_an_hour(api, configuration):
    clock = Clock()
    source = managed(api, clock)
    source.get()
    clock.now = START + 731 * DAY
    old = bundles(api)[0]
    source.get()
    assert bundles(api)[0] != old
    assert bundles(api)[0].endswith(old)
    one = kept(api)["tls.crt"]
    clock.now += 2 * HOUR
    source.get()
    assert kept(api)["tls.crt"] != one
    assert bundles(api)[0].endswith(old)


# The thread


class Failing:
    """A source that fails as often as it is told, and then has a certificate."""

    def __init__(self, *failures, then):
        self.failures, self.then = list(failures), then

    def get(self):
        if self.failures:
            raise self.failures.pop(0)
        return self.then


def test_a_failure_is_told_and_tried_again(api, configuration, log, monkeypatch):
    monkeypatch.setattr(webhook_certificates, "FIRST_BACKOFF", 0.01)
    failures = [errors.Retryable("no answer"), RuntimeError("a surprise")]
    source = Failing(*failures, then=managed(api).get())
    certificate = tls.Certificate()
    keeper = webhook_certificates.Keeper(source, certificate, telemetry.WebhookMetrics("d"), 60)
    keeper.start()
    assert certificate.wait(60)
    keeper.stop()
    text = log.getvalue()
    assert '"reason": "no answer"' in text
    assert '"reason": "RuntimeError: a surprise"' in text


def test_while_the_api_server_is_away_the_old_certificate_is_served(api, configuration):
    clock = Clock()
    clock.now = NOW - 62 * DAY
    replica = Replica(api, clock)
    try:
        bundle = bundles(api)[0]
        api.stop()
        clock.now = NOW
        with pytest.raises(kube.Unavailable):
            replica.look()
        assert replica.asked(bundle)[0]
        assert webhook_scene.status(replica.webhook.status_port, "/readyz") == (200, "ok\n")
    finally:
        replica.webhook.stop()
        api.start()


def test_by_default_the_certificate_is_its_own(api, configuration):
    config = webhook_scene.settings(kubeconfig=api.kubeconfig)
    made = webhook.Webhook(
        config, lambda config: webhook.certificate_source(config, user_agent="test")
    )
    made.start()
    try:
        assert made.wait_served(60)
        api_cluster.wait_for(lambda: bundles(api)[0], "the authority")
        with reviews.Client(made.port, bundles(api)[0], webhook_scene.SERVICE) as client:
            assert client.ask(reviews.review("resourceclaims"))["allowed"]
    finally:
        made.stop()
