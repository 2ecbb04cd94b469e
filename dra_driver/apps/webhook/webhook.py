"""The admission webhook: HTTPS around `logic.admission`; it validates, and converts pods."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import kube
from dra_driver.adapters.serving import http_server, tls
from dra_driver.apps import pages
from dra_driver.apps.webhook import converting, webhook_certificates
from dra_driver.logic.admission import admission, converted
from dra_driver.settings import webhook as webhook_settings

PATH = "/validate"
CONVERT = "/convert"
LONG = 3600.0
"""Seconds of one wait for the end, which comes when it comes."""
_JSON = "application/json"

SourceMaker = Callable[[webhook_settings.Webhook], webhook_certificates.Source]
ConverterMaker = Callable[[webhook_settings.Webhook], converting.Converter]
Answer = Callable[[object, telemetry.Review], dict[str, Any]]
"""What is answered to a decoded review, which is told to the metrics."""


class Webhook:
    """Answers AdmissionReviews; `/healthz`, `/readyz` and `/metrics` at a port of their own.

    That port has no TLS: probes and scrapers need no certificate, and `/readyz` can say that there
    is none yet.
    """

    def __init__(
        self,
        config: webhook_settings.Webhook,
        source: SourceMaker,
        converter: ConverterMaker | None = None,
    ) -> None:
        """Listens at once, and answers after `start`. A `converter` is made if pods are converted.

        Raises:
            errors.Fatal: an address cannot be had, or the source cannot be made.
        """
        self._config = config
        self._log = telemetry.logger("webhook")
        converts = config.convert and converter is not None
        self._metrics = telemetry.WebhookMetrics(config.driver_name, converts=converts)
        self._answers: dict[str, Answer] = {PATH: self._validate}
        if config.convert and converter is not None:
            self._converter = converter(config)
            self._answers[CONVERT] = self._convert
        self._certificate = tls.Certificate()
        self._stopping = False
        self.keeper = webhook_certificates.Keeper(
            source(config), self._certificate, self._metrics, config.check_seconds
        )
        self._status = pages.server(
            config.status_address,
            {
                "/healthz": lambda: pages.text(200, "ok"),
                "/readyz": self._readiness,
                "/metrics": pages.metrics(self._metrics),
            },
            self._on_error,
        )
        host, _, port = config.address.rpartition(":")
        self._reviews = http_server.Server(
            host.strip("[]"),
            int(port),
            self._respond_review,
            certificate=self._certificate,
            on_error=self._on_error,
        )

    @property
    def port(self) -> int:
        """Where reviews are answered."""
        return self._reviews.port

    @property
    def status_port(self) -> int:
        """Where the state is told."""
        return self._status.port

    def wait_served(self, seconds: float) -> bool:
        """Wait until there is a certificate to serve with; False if the time is up before."""
        return self._certificate.wait(seconds)

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop` is set; then go on until API servers have heard of it."""
        self.start()
        while not stop.wait(LONG):
            pass
        self.stop()

    def start(self) -> None:
        """Begin to serve."""
        self._status.start()
        self._reviews.start()
        self.keeper.start()
        self._log.info("started", reviews=self.port, status=self.status_port)

    def stop(self) -> None:
        """Be not ready, go on for a while, then end what is in progress and close."""
        self._log.info("stopping")
        self._stopping = True
        self._reviews.drain()
        time.sleep(self._config.drain_seconds)
        self.keeper.stop()
        self._reviews.stop()
        self._status.stop()

    def _on_error(self, error: BaseException) -> None:
        self._log.error("request failed", exc_info=error)

    def _readiness(self) -> http_server.Response:
        if self._stopping:
            return pages.text(503, "stopping")
        if not self._certificate.usable:
            return pages.text(503, "there is no certificate yet")
        return pages.text(200, "ok")

    def _respond_review(self, request: http_server.Request) -> http_server.Response:
        answer = self._answers.get(request.path)
        if answer is None:
            return pages.text(404, f"reviews are taken at {' and '.join(self._answers)}")
        if request.method != "POST":
            return pages.not_allowed("POST")
        with self._metrics.review() as outcome:
            content = request.headers.get("content-type", "")
            if content.partition(";")[0].strip().lower() != _JSON:
                return pages.text(
                    415, f"Content-Type: {content[:100]!r} is not allowed: send {_JSON}"
                )
            try:
                body = json.dumps(answer(_decoded(request.body), outcome)).encode()
            except admission.MalformedReview as error:
                return pages.text(400, str(error))
            except RecursionError:
                return pages.text(400, "request.object: nested too deeply")
            return http_server.Response(200, body, _JSON)

    def _validate(self, review: object, outcome: telemetry.Review) -> dict[str, Any]:
        decision = admission.decide(review, self._config.driver_name)
        outcome.decided(
            decision.resource, allowed=decision.allowed, warnings=len(decision.warnings)
        )
        self._tell(decision)
        return admission.answer(decision)

    def _convert(self, review: object, outcome: telemetry.Review) -> dict[str, Any]:
        decision = self._converter.decide(review)
        asked = decision.asked
        resource = converted.PODS if asked.pod is not None else "other"
        outcome.decided(resource, allowed=decision.allowed, warnings=len(decision.warnings))
        named = {"namespace": asked.namespace, "name": asked.name, "uid": asked.uid}
        if not decision.allowed:
            self._log.info("pod refused", **named, reason=converted.message(decision))
        elif decision.patch:
            made = [template.name for template in decision.templates]
            self._log.info("pod converted", **named, dry_run=asked.dry_run, templates=made)
        return converted.answer(decision)

    def _tell(self, decision: admission.Decision) -> None:
        named = {"resource": decision.resource, "name": decision.name, "uid": decision.uid}
        if not decision.allowed:
            self._log.info("refused", **named, reason=admission.message(decision))


def _decoded(body: bytes) -> object:
    try:
        return json.loads(body)
    except RecursionError as error:
        raise admission.MalformedReview("the body is no JSON: nested too deeply") from error
    except ValueError as error:
        raise admission.MalformedReview(f"the body is no JSON: {str(error)[:200]}") from error


def certificate_source(
    config: webhook_settings.Webhook, *, user_agent: str
) -> webhook_certificates.Source:
    """Files if the settings name a directory; else a certificate of our own.

    Raises:
        errors.Fatal: there is no way to the API server to keep one in.
    """
    if config.certificate_dir is not None:
        if not config.certificate_dir.is_dir():
            raise errors.Fatal(f"--certificate-dir {config.certificate_dir}: it is no directory")
        return webhook_certificates.Directory(config.certificate_dir)
    client = kube.Client(kubeconfig=config.kubeconfig, user_agent=user_agent)
    return webhook_certificates.SelfManaged(config, client)
