"""Keeps a ResourceClaimTemplate beside each parameter object, and tells in its status what it did.

Each step can be the last: what is there decides what is done, and the status comes last. A template
is deleted by its UID, and made only where there is none: a controller that has lost the lease
without knowing does no harm. Pods that exist have claims of their own, which nothing here touches.
"""

import collections
import dataclasses
import datetime as dt
import functools
from collections.abc import Callable, Iterable, Mapping

from dra_driver import errors, telemetry
from dra_driver.adapters.kube import kube
from dra_driver.apps.controller import reading
from dra_driver.logic.offering import publishing
from dra_driver.logic.parameters import claims, matching, standing
from dra_driver.model import parameters, slices
from dra_driver.settings import controller as controller_settings

_SOONER = 6
"""How much more often devices are counted where there is something new to count."""

Key = tuple[str, str]


class Keeper:
    """Looks at all parameter objects, and puts in order what is beside them."""

    def __init__(
        self,
        config: controller_settings.Controller,
        client: kube.Client,
        metrics: telemetry.ControllerMetrics,
    ) -> None:
        self._config = config
        self._client = client
        self._metrics = metrics
        self._kept: float | None = None
        self._counted: float | None = None
        self._matches: Mapping[matching.Ask, matching.Matches] = {}
        self._made: dict[tuple[str, int], claims.Made] = {}
        self._told: str | None = None
        self._log = telemetry.logger("parameters")

    def keep(self, now: float, may_go_on: Callable[[], bool]) -> None:
        """One look, if it is due at `now` (monotonic seconds).

        `may_go_on` is asked before each change. Where the kinds are not installed that is said
        once.

        Raises:
            errors.DriverError: the API server does not answer, or refuses; one refused change does
                not keep the others from being made.
        """
        config = self._config
        due = self._kept is None or now - self._kept >= config.parameters_seconds
        if not (config.parameters and due):
            return
        self._kept = now
        if not self._is_installed():
            return
        read = reading.Reader(self._client, may_go_on)
        subjects = self._subjects(read)
        if not subjects:
            self._metrics.parameters(ready=0, others=0)
            return
        version = reading.served_version(self._client)
        try:
            self._count(subjects, read, version, now)
        except errors.DriverError as error:
            # Templates do not depend on it.
            self._log.warning("devices are not counted; it is tried again", reason=str(error))
        templates = self._templates(read, version)
        self._settle(subjects, templates, version, may_go_on)

    def forget(self) -> None:
        """Take everything for new at the next look."""
        self._kept = self._counted = None
        self._metrics.parameters(ready=0, others=0)

    def _settle(
        self,
        subjects: Iterable[standing.Subject],
        templates: Mapping[Key, standing.Template],
        version: str,
        may_go_on: Callable[[], bool],
    ) -> None:
        holders = standing.holders(subjects, templates)
        refused: list[errors.DriverError] = []
        count: collections.Counter[bool] = collections.Counter()
        for subject in subjects:
            if not may_go_on():
                return
            holder = holders[subject.key]
            try:
                verdict = (
                    self._act(subject, templates.get(subject.key), version)
                    if holder is subject
                    else standing.taken(holder)
                )
                if verdict is not None:
                    count[verdict.ready] += 1
                    self._tell(subject, verdict)
            except errors.DriverError as error:
                refused.append(error)
        self._metrics.parameters(ready=count[True], others=count[False])
        if refused:
            raise errors.Retryable(f"{len(refused)} objects are not kept; the first: {refused[0]}")

    def _act(
        self, subject: standing.Subject, template: standing.Template | None, version: str
    ) -> standing.Verdict | None:
        """Put the template in order; None where another look is needed to say how it is."""
        resource = dataclasses.replace(kube.TEMPLATES, version=version)
        if template is None:
            template = self._unlabelled(subject, resource)
        act = standing.act(subject, template)
        if act is standing.Act.LEAVE:
            ending = template is not None and template.ending
            return None if ending else standing.not_ours(subject)
        try:
            if template is not None and act in {standing.Act.REPLACE, standing.Act.REMOVE}:
                self._client.delete(resource, subject.name, subject.namespace, uid=template.uid)
                self._log.info("template removed", of=str(subject), why=act.name.lower())
            if act in {standing.Act.REPLACE, standing.Act.MAKE}:
                body = standing.template(subject, version)
                self._client.create(resource, body, subject.namespace)
                self._log.info("template written", of=str(subject))
        except (kube.NotFound, kube.Conflict) as error:
            # Somebody else was faster, or the namespace is gone: the next look will tell.
            self._log.debug("template is not as it was", of=str(subject), reason=str(error))
            return None
        except (kube.Refused, kube.Forbidden) as error:
            return standing.refused(error.message)
        return standing.verdict(subject)

    def _unlabelled(
        self, subject: standing.Subject, resource: kube.Resource
    ) -> standing.Template | None:
        """A template of the name that was made by somebody else, or since templates were read."""
        try:
            body = self._client.get(resource, subject.name, subject.namespace)
        except kube.NotFound:
            return None
        return standing.template_of(body)

    def _tell(self, subject: standing.Subject, verdict: standing.Verdict) -> None:
        """Write the status if it changes."""
        asked = matching.ask(subject.made)
        status = standing.status(
            subject,
            verdict,
            self._matches.get(asked) if asked is not None else None,
            time=dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        if status == subject.status:
            return
        gone = dict.fromkeys(subject.status.keys() - status.keys())
        patch = {
            "metadata": {"resourceVersion": subject.version},
            "status": {**gone, **status},
        }
        resource = _resource(subject.kind)
        try:
            self._client.patch(
                resource, subject.name, patch, subject.namespace, subresource="status"
            )
        except (kube.NotFound, kube.Conflict) as error:
            self._log.debug("parameters have changed", of=str(subject), reason=str(error))

    def _count(
        self,
        subjects: Iterable[standing.Subject],
        read: reading.Reader,
        version: str,
        now: float,
    ) -> None:
        """Count the devices that match, if that is due."""
        asks = {asked for each in subjects if (asked := matching.ask(each.made)) is not None}
        pause = self._config.matching_seconds
        if not asks <= self._matches.keys():
            pause /= _SOONER
        if not asks or (self._counted is not None and now - self._counted < pause):
            return
        self._counted = now
        count = matching.Count(asks, self._config.driver_name)
        read(
            dataclasses.replace(kube.SLICES, version=version),
            functools.partial(_counted, count, version),
            field_selector=f"spec.driver={self._config.driver_name}",
        )
        self._matches = count.result()

    def _is_installed(self) -> bool:
        served = kube.served_versions(self._client, parameters.GROUP)
        if parameters.VERSION in served:
            self._say(None)
            return True
        self._say(
            f"{parameters.API_VERSION} is not installed: no parameter objects are looked for; "
            "install crds/ of the chart (crds.install), or set parameters=false"
        )
        return False

    def _say(self, text: str | None) -> None:
        """Once, and again when it has been otherwise."""
        if text != self._told and text is not None:
            self._log.info(text)
        self._told = text

    def _subjects(self, read: reading.Reader) -> list[standing.Subject]:
        known, self._made = self._made, {}
        found: list[standing.Subject] = []
        for kind in parameters.Kind:
            try:
                found += read(_resource(kind), functools.partial(self._subject, kind, known))
            except kube.NotFound:
                # Of some kinds there may be no definition.
                continue
        return sorted(found, key=lambda each: (each.key, each.kind))

    def _subject(
        self, kind: parameters.Kind, known: Mapping[tuple[str, int], claims.Made], body: kube.Json
    ) -> standing.Subject | None:
        metadata = body["metadata"]
        if "deletionTimestamp" in metadata:
            return None
        generation = int(metadata.get("generation") or 0)
        key = metadata["uid"], generation
        made = known.get(key) if generation else None
        if made is None:
            made = claims.of(kind, body.get("spec"), self._config.driver_name)
        self._made[key] = made
        return standing.Subject(
            kind=kind,
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            created=metadata.get("creationTimestamp") or "",
            generation=generation,
            version=metadata["resourceVersion"],
            made=made,
            status=body.get("status") or {},
        )

    def _templates(self, read: reading.Reader, version: str) -> Mapping[Key, standing.Template]:
        found = read(
            dataclasses.replace(kube.TEMPLATES, version=version),
            standing.template_of,
            metadata_only=True,
            label_selector=standing.LABEL,
        )
        return {(each.namespace, each.name): each for each in found}


def _resource(kind: parameters.Kind) -> kube.Resource:
    return kube.Resource(parameters.GROUP, parameters.VERSION, kind.plural)


def _counted(count: matching.Count, version: str, body: kube.Json) -> None:
    count.add(slices.parse(publishing.from_version(body, version)))
