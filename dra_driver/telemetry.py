"""Logs and metrics: set-up, and the metrics that the apps record.

A log line is one event with fields. What belongs to a request (claim namespace, name, uid) is bound
once with `bound` and is then on every line of that thread.
"""

import contextlib
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TextIO

import prometheus_client
import structlog

from dra_driver import build, health_metrics, log_lines

Logger = structlog.typing.FilteringBoundLogger
LogFormat = Literal["auto", "console", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

# Series that tell when others were made are as many again, and nobody asks for them.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

_LEVELS: Mapping[LogLevel, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 45)
"""Buckets up to 45 s, where the kubelet gives a call up."""


def configure(*, level: LogLevel, log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Set logging up for the process: JSON lines, or text for a person at a terminal."""
    out = stream or sys.stderr
    lines: Any = log_lines.Stream(out)
    console = log_format == "console" or (log_format == "auto" and out.isatty())
    # A trace without the values of variables: a token may be among them.
    trace = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    renderers: list[Any] = (
        [
            structlog.processors.format_exc_info,
            log_lines.capped,
            log_lines.printable,
            structlog.dev.ConsoleRenderer(
                colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ]
        if console
        else [
            structlog.processors.ExceptionRenderer(trace),
            log_lines.capped,
            structlog.processors.JSONRenderer(),
        ]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=lines),
        cache_logger_on_first_use=False,
    )


def logger(component: str) -> Logger:
    """A logger whose lines name the component."""
    log: Logger = structlog.get_logger(component=component)
    return log


@contextlib.contextmanager
def bound(**fields: str) -> Iterator[None]:
    """Put the fields on every line that this thread logs inside the block."""
    with structlog.contextvars.bound_contextvars(**fields):
        yield


class _Exposed:
    """Metrics in a registry of their own, and with them what it is that has them."""

    def __init__(self, **constant: str) -> None:
        """`constant` are the labels of every series."""
        self.registry = prometheus_client.CollectorRegistry()
        labels = {**constant, "version": build.VERSION, "python": platform.python_version()}
        prometheus_client.Gauge(
            "dra_driver_build_info",
            "1; its labels tell which version of the driver runs, on which Python.",
            [*labels],
            registry=self.registry,
        ).labels(**labels).set(1)

    def text(self) -> tuple[bytes, str]:
        """All of them in Prometheus' text format, and its content type."""
        return (
            prometheus_client.generate_latest(self.registry),
            prometheus_client.CONTENT_TYPE_LATEST,
        )


class Metrics(_Exposed):
    """The driver's metrics on a node."""

    def __init__(self, driver_name: str, node_name: str) -> None:
        """Series that can be known beforehand exist from the start, at zero."""
        super().__init__(driver=driver_name, node=node_name)
        self._constant = {"driver": driver_name, "node": node_name}
        constant = list(self._constant)
        self._calls = prometheus_client.Counter(
            "dra_driver_calls_total",
            "Claims handled, by operation and outcome (ok, error).",
            [*constant, "operation", "outcome"],
            registry=self.registry,
        )
        self._seconds = prometheus_client.Histogram(
            "dra_driver_call_duration_seconds",
            "Time that one claim took, by operation.",
            [*constant, "operation"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._in_flight = prometheus_client.Gauge(
            "dra_driver_calls_in_flight",
            "Claims being handled now, by operation.",
            [*constant, "operation"],
            registry=self.registry,
        )
        self._prepared = prometheus_client.Gauge(
            "dra_driver_prepared_devices",
            "Devices prepared for claims, by type.",
            [*constant, "type"],
            registry=self.registry,
        )
        self._publish_errors = prometheus_client.Counter(
            "dra_driver_publish_errors_total",
            "Failed attempts to publish ResourceSlices.",
            constant,
            registry=self.registry,
        )
        self._make_state_gauges(constant)
        self.health = health_metrics.HealthMetrics(self.registry, self._constant)
        self._create_series()

    def _make_state_gauges(self, constant: list[str]) -> None:
        """What is true now, and not what happened."""
        self._prepared_claims = prometheus_client.Gauge(
            "dra_driver_prepared_claims",
            "Claims that are prepared.",
            constant,
            registry=self.registry,
        )
        self._stale_claims = prometheus_client.Gauge(
            "dra_driver_stale_claims",
            "Claims that nobody has any more, kept because processes may use their devices.",
            constant,
            registry=self.registry,
        )
        self._published = prometheus_client.Gauge(
            "dra_driver_slices_published",
            "1 once all ResourceSlices were seen to be as they should be, 0 before.",
            constant,
            registry=self.registry,
        )
        self._refused = prometheus_client.Gauge(
            "dra_driver_refused_devices",
            "Devices and counter sets that the API server refuses, so they are not offered.",
            constant,
            registry=self.registry,
        )
        self._gpus = prometheus_client.Gauge(
            "dra_driver_gpus",
            "GPUs, by state (offered, failed, lost).",
            [*constant, "state"],
            registry=self.registry,
        )
        self._daemons = prometheus_client.Gauge(
            "dra_driver_mps_daemons",
            "MPS daemons that claims need, by state (ready, down).",
            [*constant, "state"],
            registry=self.registry,
        )

    def _create_series(self) -> None:
        """A rate over a series that appears with its first event would miss that event."""
        self._publish_errors.labels(**self._constant)
        self.prepared({}, claims=0)
        self.stale_claims(lambda: 0)
        self.published_if(lambda: False)
        self.refused_are(lambda: 0)
        self.gpus(offered=0, failed=0, lost=0)
        self.mps_daemons(ready=0, down=0)
        for operation in ("prepare", "unprepare"):
            self._seconds.labels(**self._constant, operation=operation)
            self._in_flight.labels(**self._constant, operation=operation)
            for outcome in ("ok", "error"):
                self._calls.labels(**self._constant, operation=operation, outcome=outcome)

    @contextlib.contextmanager
    def call(self, operation: str) -> Iterator[None]:
        """Count and time the handling of one claim; an exception makes it an error."""
        start = time.perf_counter()
        outcome = "error"
        in_flight = self._in_flight.labels(**self._constant, operation=operation)
        in_flight.inc()
        try:
            yield
            outcome = "ok"
        finally:
            in_flight.dec()
            self._seconds.labels(**self._constant, operation=operation).observe(
                time.perf_counter() - start
            )
            self._calls.labels(**self._constant, operation=operation, outcome=outcome).inc()

    def prepared(self, counts: Mapping[str, int], *, claims: int) -> None:
        """How many devices of each type are prepared now, and for how many claims."""
        self._prepared_claims.labels(**self._constant).set(claims)
        for device_type in ("gpu", "mig", "vfio"):
            self._prepared.labels(**self._constant, type=device_type).set(
                counts.get(device_type, 0)
            )

    def stale_claims(self, told: Callable[[], int]) -> None:
        """`told` says how many claims stay only because processes use their devices, or may."""
        self._stale_claims.labels(**self._constant).set_function(told)

    def gpus(self, *, offered: int, failed: int, lost: int) -> None:
        """How many GPUs there are now.

        `failed` do not answer, or are not offered for another reason; `lost` were there earlier.
        """
        for state, count in (("offered", offered), ("failed", failed), ("lost", lost)):
            self._gpus.labels(**self._constant, state=state).set(count)

    def mps_daemons(self, *, ready: int, down: int) -> None:
        """How many of the MPS daemons that claims need are ready, and how many are not."""
        for state, count in (("ready", ready), ("down", down)):
            self._daemons.labels(**self._constant, state=state).set(count)

    def published_if(self, told: Callable[[], bool]) -> None:
        """`told` says whether the slices are published; it is asked whenever metrics are read."""
        self._published.labels(**self._constant).set_function(told)

    def refused_are(self, told: Callable[[], int]) -> None:
        """`told` says how much the API server refuses; it is asked whenever metrics are read."""
        self._refused.labels(**self._constant).set_function(told)

    def publish_error(self) -> None:
        """An attempt to publish failed."""
        self._publish_errors.labels(**self._constant).inc()


class Review:
    """What became of one AdmissionReview."""

    def __init__(self) -> None:
        self.resource, self.outcome, self.warnings = "other", "malformed", 0

    def decided(self, resource: str, *, allowed: bool, warnings: int) -> None:
        """It was answered."""
        self.resource, self.warnings = resource, warnings
        self.outcome = "allowed" if allowed else "refused"


class WebhookMetrics(_Exposed):
    """The webhook's metrics."""

    def __init__(self, driver_name: str, *, converts: bool = False) -> None:
        """Series that can be known beforehand exist from the start; of pods if it `converts`."""
        super().__init__(driver=driver_name)
        self._driver = driver_name
        self._reviews = prometheus_client.Counter(
            "dra_driver_webhook_reviews_total",
            "AdmissionReviews, by resource and outcome (allowed, refused, malformed).",
            ["driver", "resource", "outcome"],
            registry=self.registry,
        )
        self._warnings = prometheus_client.Counter(
            "dra_driver_webhook_warnings_total",
            "Warnings given, by resource.",
            ["driver", "resource"],
            registry=self.registry,
        )
        self._seconds = prometheus_client.Histogram(
            "dra_driver_webhook_review_duration_seconds",
            "Time that one AdmissionReview took, by resource.",
            ["driver", "resource"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._until = prometheus_client.Gauge(
            "dra_driver_webhook_certificate_not_after_seconds",
            "When the certificate that is served runs out, in Unix time; 0 without one.",
            ["driver"],
            registry=self.registry,
        )
        self.certificate_until(0)
        pods = ("pods",) if converts else ()
        for resource in ("resourceclaims", "resourceclaimtemplates", "deviceclasses", *pods):
            self._warnings.labels(driver_name, resource)
            self._seconds.labels(driver_name, resource)
            for outcome in ("allowed", "refused"):
                self._reviews.labels(driver_name, resource, outcome)
        self._reviews.labels(driver_name, "other", "malformed")

    @contextlib.contextmanager
    def review(self) -> Iterator[Review]:
        """Count and time one review; it is malformed unless it says otherwise."""
        start = time.perf_counter()
        review = Review()
        try:
            yield review
        finally:
            labels = (self._driver, review.resource)
            self._seconds.labels(*labels).observe(time.perf_counter() - start)
            self._reviews.labels(*labels, review.outcome).inc()
            self._warnings.labels(*labels).inc(review.warnings)

    def certificate_until(self, timestamp: float) -> None:
        """When the certificate that is served now runs out, in Unix time."""
        self._until.labels(self._driver).set(timestamp)


class ControllerMetrics(_Exposed):
    """The controller's metrics."""

    def __init__(self, driver_name: str) -> None:
        """All series exist from the start, at zero."""
        super().__init__(driver=driver_name)
        self._driver = driver_name
        self._removed = prometheus_client.Counter(
            "dra_driver_controller_removed_total",
            "Objects removed, by kind: of nodes that are gone; templates that are not used.",
            ["driver", "kind"],
            registry=self.registry,
        )
        self._failures = prometheus_client.Counter(
            "dra_driver_controller_sweep_errors_total",
            "Looks for leftovers that failed.",
            ["driver"],
            registry=self.registry,
        )
        self._stale = prometheus_client.Gauge(
            "dra_driver_controller_stale_claims",
            "Claims that are allocated to a node that does not exist.",
            ["driver"],
            registry=self.registry,
        )
        self._leads = prometheus_client.Gauge(
            "dra_driver_controller_leader",
            "1 for the controller that leads, else 0.",
            ["driver"],
            registry=self.registry,
        )
        self._parameters = prometheus_client.Gauge(
            "dra_driver_controller_parameters",
            "Parameter objects, by whether there is a template of them.",
            ["driver", "ready"],
            registry=self.registry,
        )
        self._unkept = prometheus_client.Counter(
            "dra_driver_controller_parameters_errors_total",
            "Rounds in which templates of parameter objects could not be kept.",
            ["driver"],
            registry=self.registry,
        )
        for kind in ("Pod", "ResourceClaimTemplate", "ResourceSlice"):
            self._removed.labels(driver_name, kind)
        self._failures.labels(driver_name)
        self._unkept.labels(driver_name)
        self.parameters(ready=0, others=0)
        self.leads(leads=False)

    def removed(self, kind: str) -> None:
        """An object of this kind was removed."""
        self._removed.labels(self._driver, kind).inc()

    def sweep_failed(self) -> None:
        """A look for leftovers failed."""
        self._failures.labels(self._driver).inc()

    def parameters(self, *, ready: int, others: int) -> None:
        """How many parameter objects have a template, and how many do not."""
        self._parameters.labels(self._driver, "true").set(ready)
        self._parameters.labels(self._driver, "false").set(others)

    def parameters_failed(self) -> None:
        """Templates could not be kept as they should be."""
        self._unkept.labels(self._driver).inc()

    def stale_claims(self, count: int) -> None:
        """How many claims have devices of nodes that are gone."""
        self._stale.labels(self._driver).set(count)

    def leads(self, *, leads: bool) -> None:
        """Whether this controller leads; one that does not knows nothing of stale claims."""
        self._leads.labels(self._driver).set(int(leads))
        if not leads:
            self.stale_claims(0)
