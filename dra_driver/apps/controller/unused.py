"""Removes the templates that the webhook has made for converted pods, once nobody uses them.

Each write names the version that was read: one that the webhook gave to a pod meanwhile stays.
"""

import datetime as dt
from collections.abc import Callable

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import kube
from dra_driver.apps.controller import reading
from dra_driver.logic.controller import unused_templates
from dra_driver.settings import controller as controller_settings

_PODS = 200
"""Pods in one answer."""
_LOOKS = 24
"""How often it is looked within the time after which templates are removed."""


def utc_now() -> dt.datetime:
    """The time, with its zone."""
    return dt.datetime.now(dt.UTC)


class Cleaner:
    """Marks templates that no pod names, and removes those that were marked for long enough."""

    def __init__(
        self,
        config: controller_settings.Controller,
        client: kube.Client,
        metrics: telemetry.ControllerMetrics,
        clock: Callable[[], dt.datetime] = utc_now,
    ) -> None:
        self._seconds = config.unused_seconds
        self._client = client
        self._metrics = metrics
        self._clock = clock
        self._looked: float | None = None
        self._log = telemetry.logger("templates")

    def clean(self, now: float, may_go_on: Callable[[], bool]) -> None:
        """One look, at `now` (monotonic seconds), if it is due; see `Sweeper.sweep`.

        Raises:
            errors.DriverError: the API server does not answer, or refuses; one refused change does
                not keep the others from being made.
        """
        if self._looked is not None and now - self._looked < self._seconds / _LOOKS:
            return
        self._clean(may_go_on)
        self._looked = now

    def forget(self) -> None:
        """Look at once the next time."""
        self._looked = None

    def _clean(self, may_go_on: Callable[[], bool]) -> None:
        read = reading.Reader(self._client, may_go_on)
        found = read(
            kube.TEMPLATES,
            unused_templates.of_template,
            metadata_only=True,
            label_selector=unused_templates.LABELS,
        )
        # Pods are read after the templates: one that is let in meanwhile has a new version of its
        # template, or one that was not marked.
        used = {
            (namespace, name)
            for namespace in sorted({each.namespace for each in found})
            for names in read(kube.PODS, _named, namespace=namespace, page=_PODS)
            for name in names
        }
        now = self._clock()
        refused: list[kube.ApiError] = []
        for template, step in unused_templates.steps(found, used, now=now, seconds=self._seconds):
            if not may_go_on():
                break
            try:
                self._settle(template, step, now)
            except (kube.NotFound, kube.Conflict):
                # Gone or changed meanwhile: the next look sees what it is then.
                continue
            except kube.ApiError as error:
                refused.append(error)
        if refused:
            raise errors.Retryable(f"{len(refused)} templates stay; of the first: {refused[0]}")

    def _settle(
        self, template: unused_templates.Template, step: unused_templates.Step, now: dt.datetime
    ) -> None:
        if step is not unused_templates.Step.REMOVE:
            patch = unused_templates.patch(template, step, now)
            self._client.patch(kube.TEMPLATES, template.name, patch, template.namespace)
            return
        self._client.delete(
            kube.TEMPLATES,
            template.name,
            template.namespace,
            uid=template.uid,
            resource_version=template.version,
        )
        self._metrics.removed("ResourceClaimTemplate")
        self._log.info("unused template removed", template=str(template), since=template.since)


def _named(pod: kube.Json) -> frozenset[str] | None:
    """The templates that a pod names; None where it names none."""
    return unused_templates.named(pod) or None
