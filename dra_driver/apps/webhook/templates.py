"""The ResourceClaimTemplates of converted pods: there, and in nobody's way, before it is answered.

What the controller does at the same time is met by versions: it removes a template only as it was
when it was found unused, and one that is used again is written before the pod is let in.
"""

import time
from collections.abc import Callable

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import kube
from dra_driver.logic.admission import converted_templates
from dra_driver.logic.converting import conversion, marks

_TRIES = 5
_DOOR = conversion.Door.WEBHOOK


class Templates:
    """Makes templates, or takes those that are there."""

    def __init__(self, client: kube.Client, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._log = telemetry.logger("templates")

    def make(
        self,
        template: conversion.Template,
        namespace: str,
        until: float,
        *,
        dry_run: bool = False,
    ) -> conversion.Problem | None:
        """Have the template there; a problem if another one has the name, or it is not allowed.

        No request begins after `until` (the clock's seconds). With `dry_run` nothing is made or
        changed, and the answer is what it would be.

        Raises:
            errors.DriverError: the API server does not answer, or refuses for now.
        """
        body = converted_templates.body(template, namespace, _DOOR)
        for _ in range(_TRIES):
            self._check_time(until)
            try:
                self._client.create(kube.TEMPLATES, body, namespace, dry_run=dry_run)
            except kube.NotFound as error:
                raise self._absent(error) from error
            except kube.Refused as error:
                return converted_templates.refused(template, namespace, error.message)
            except kube.Conflict:
                # It is there, or being made: as a rule it is used by other pods already.
                settled, problem = self._take(template, namespace, until, dry_run=dry_run)
                if settled:
                    return problem
            else:
                if not dry_run:
                    self._log.info("template made", namespace=namespace, template=template.name)
                return None
        raise errors.Retryable(
            f"ResourceClaimTemplate {namespace}/{template.name} was changed by others "
            f"{_TRIES} times while it was looked at"
        )

    def _take(
        self, template: conversion.Template, namespace: str, until: float, *, dry_run: bool
    ) -> tuple[bool, conversion.Problem | None]:
        """Whether it is settled what becomes of the one that is there, and its problem."""
        self._check_time(until)
        try:
            stored = self._client.get(kube.TEMPLATES, template.name, namespace)
            problem = converted_templates.problem(stored, template, namespace, _DOOR)
            if problem is not None:
                return True, problem
            if marks.is_going(stored):
                raise errors.Retryable(
                    f"ResourceClaimTemplate {namespace}/{template.name} is being deleted"
                )
            if marks.unused_since(stored) is not None and not dry_run:
                self._check_time(until)
                self._use(stored, namespace)
        except (kube.NotFound, kube.Conflict):
            # Removed or changed since.
            return False, None
        return True, None

    def _use(self, stored: kube.Json, namespace: str) -> None:
        """Take the mark of unused ones away, if it is still the version that was read."""
        metadata = stored["metadata"]
        patch = {
            "metadata": {
                "resourceVersion": metadata["resourceVersion"],
                "uid": metadata["uid"],
                "annotations": {marks.UNUSED_SINCE: None},
            }
        }
        self._client.patch(kube.TEMPLATES, metadata["name"], patch, namespace)
        self._log.info("template used again", namespace=namespace, template=metadata["name"])

    def _absent(self, error: kube.NotFound) -> errors.DriverError:
        if self._is_served():
            return error
        return errors.Retryable(
            "the API server does not serve resource.k8s.io/v1, which pods are converted to: use "
            "Kubernetes 1.34 or newer"
        )

    def _is_served(self) -> bool:
        served = kube.served_versions(self._client, kube.RESOURCE_GROUP)
        return kube.TEMPLATES.version in served

    def _check_time(self, until: float) -> None:
        if self._clock() >= until:
            raise errors.Retryable("the API server takes too long")
