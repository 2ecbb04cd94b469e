"""Mutating admission: each webhook in turn makes what it will of an object before it is stored.

Only creates of objects come here. Source: `k8s.io/apiserver/pkg/admission/plugin/webhook/mutating`
(dispatcher.go, reinvocationcontext.go) and `pkg/kubeapiserver/options/plugins.go` (the order).
"""

import copy
import dataclasses
import uuid
from typing import Any

from dra_driver.sim.api.admitting import calling, matching, reviews
from dra_driver.sim.api.kinds import kinds, problems, webhook_configurations
from dra_driver.sim.api.storing import codecs, patching, registry

Json = dict[str, Any]


class Admission:
    """Asks the webhooks of the registry's MutatingWebhookConfigurations."""

    def __init__(self, objects: registry.Registry) -> None:
        self._registry = objects

    def concerns(self, kind: kinds.Kind, version: str) -> bool:
        """Whether there is a webhook for objects of that kind, whatever their labels."""
        served = self._versions(kind)
        return any(
            matching.version_for(hook, kind, version, served) is not None for hook in self._hooks()
        )

    def admit(self, created: matching.Created, warnings: list[str], *, dry_run: bool) -> Json:
        """What the webhooks make of the object; what they warn of comes to `warnings`.

        Nothing is locked, and it takes as long as they take.

        Raises:
            problems.ApiError: one has denied it, or cannot be asked and must not be passed by.
        """
        if not self.concerns(created.kind, created.version):
            return created.body
        body = self._registry.draft(created.kind, created.namespace, created.body, created.version)
        run = _Run(self._registry, warnings, dry_run=dry_run)
        drafted = dataclasses.replace(created, body=body)
        for again in (False, True):
            drafted = self._round(run, drafted, again=again)
            if not run.due:
                break
        return drafted.body

    def _round(self, run: "_Run", created: matching.Created, *, again: bool) -> matching.Created:
        served = self._versions(created.kind)
        for hook in self._hooks():
            version = matching.version_for(hook, created.kind, created.version, served)
            labels = self._registry.namespace_labels(created.namespace)
            if version is None or not matching.is_selected(hook, created, labels):
                continue
            if again and hook.key not in run.due:
                continue
            created = run.ask(hook, created, version)
        return created

    def _hooks(self) -> list[matching.Hook]:
        return [*matching.hooks(self._registry.store.items(webhook_configurations.MUTATING))]

    def _versions(self, kind: kinds.Kind) -> tuple[str, ...]:
        table = self._registry.table
        versions = table.versions.get(kind.group, ())
        return tuple(each for each in versions if kind.is_in(each, table.minor))


class _Run:
    """The admission of one object."""

    def __init__(self, objects: registry.Registry, warnings: list[str], *, dry_run: bool) -> None:
        self._registry = objects
        self._warnings = warnings
        self._dry_run = dry_run
        self._passed: set[tuple[str, int]] = set()
        """Webhooks that want to see what others have changed since."""
        self.due: set[tuple[str, int]] = set()
        """Those for which there is something new to see."""

    def ask(self, hook: matching.Hook, created: matching.Created, version: str) -> matching.Created:
        """The object as the webhook wants it."""
        try:
            answer = self._answer(hook, created, version)
        except calling.CallError as error:
            if hook.body["failurePolicy"] == "Ignore":
                return created
            name = hook.body["name"]
            raise problems.internal(f'failed calling webhook "{name}": {error}') from error
        self._warnings += answer.warnings
        if not answer.allowed:
            raise reviews.denied(hook.body["name"], answer.status)
        changed = self._patched(created, version, answer.patch) if answer.patch else created
        if changed.body != created.body:
            self.due |= self._passed
            self._passed = set()
        if hook.body["reinvocationPolicy"] == "IfNeeded":
            self._passed.add(hook.key)
        return changed

    def _answer(
        self, hook: matching.Hook, created: matching.Created, version: str
    ) -> reviews.Answer:
        uid = str(uuid.uuid4())
        review = reviews.question(created, version, uid=uid, dry_run=self._dry_run)
        found = calling.call(hook.body["clientConfig"], review, hook.body["timeoutSeconds"])
        return reviews.read(found, uid)

    def _patched(self, created: matching.Created, version: str, patch: Any) -> matching.Created:
        shown = copy.deepcopy(codecs.encode(created.kind, version, created.body))
        try:
            decoded = codecs.decode(
                created.kind,
                version,
                patching.json_patch(shown, patch),
                field_validation="Ignore",
                minor=self._registry.table.minor,
            )
        except problems.ApiError as error:
            raise problems.internal(str(error)) from error
        body = self._registry.draft(created.kind, created.namespace, decoded.body, created.version)
        return dataclasses.replace(created, body=body)
