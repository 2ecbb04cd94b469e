"""`/convert`: pods that ask as older systems had it get claims, whose templates are made before."""

import dataclasses
import time
from collections.abc import Callable

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.apps.webhook import fleets, templates
from dra_driver.logic.admission import converted
from dra_driver.logic.converting import conversion
from dra_driver.settings import webhook as webhook_settings

REQUEST_SECONDS = 2.0
"""For one request about templates."""
FLEET_SECONDS = 3.0
"""How long a review waits for the sizes of the cluster's GPUs."""
SECONDS = 7.0
"""After which no request begins any more: the API server waits 10 s for an answer."""


class Converter:
    """Answers reviews of pods."""

    def __init__(
        self,
        config: webhook_settings.Webhook,
        *,
        client: kube.Client,
        slices: kube.Client,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`client` should give up after `REQUEST_SECONDS`; pages of `slices` may take longer."""
        self._policy = policy(config)
        self._clock = clock
        self._templates = templates.Templates(client, clock=clock)
        self._fleets = fleets.Fleets(slices, config.driver_name, config.fleet_seconds, clock=clock)

    def decide(self, review: object) -> converted.Decision:
        """What to answer to a decoded AdmissionReview; the templates are there then.

        Raises:
            admission.MalformedReview: it is none.
        """
        until = self._clock() + SECONDS
        asked = converted.read(review)
        decision = self._converted(asked)
        for template in decision.templates:
            try:
                problem = self._templates.make(
                    template, asked.namespace, until, dry_run=asked.dry_run
                )
            except errors.DriverError as error:
                return decision.failed(str(error))
            if problem is not None:
                return decision.refused(problem)
        return decision

    def _converted(self, asked: converted.Asked) -> converted.Decision:
        if not converted.wants_fleet(asked, self._policy):
            return converted.decide(asked, self._policy)
        try:
            found = self._fleets.get(FLEET_SECONDS)
        except errors.Retryable as error:
            return converted.decide(asked, self._policy, no_fleet=str(error))
        return converted.decide(asked, dataclasses.replace(self._policy, fleet=found))


def policy(config: webhook_settings.Webhook) -> conversion.Policy:
    """What the settings decide of conversions."""
    return conversion.Policy(
        driver=config.driver_name,
        door=conversion.Door.WEBHOOK,
        share_class=config.share_class or f"shared-mps.{config.driver_name}",
        whole_gpus=config.convert_whole_gpus,
        replicas=config.convert_replicas,
    )


def converter(config: webhook_settings.Webhook, *, user_agent: str) -> Converter:
    """One that asks the API server of the settings.

    Raises:
        errors.Fatal: there is no way to it.
    """
    kubeconfig = config.kubeconfig
    client = kube.Client(kubeconfig=kubeconfig, user_agent=user_agent, timeout=REQUEST_SECONDS)
    slices = kube.Client(kubeconfig=kubeconfig, user_agent=user_agent)
    return Converter(config, client=client, slices=slices)
