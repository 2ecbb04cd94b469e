"""Which webhooks an object concerns that is created.

Sources: `k8s.io/apiserver/pkg/admission/plugin/webhook/predicates` (rules, namespace, object) and
`.../webhook/generic/webhook.go` (ShouldCallHook).
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dra_driver.sim.api.kinds import kinds, label_selectors

Json = dict[str, Any]

_EXEMPT_GROUP = "admissionregistration.k8s.io"
"""A webhook cannot be in the way of what would remove it."""
_ANY = "*"


@dataclasses.dataclass(frozen=True, slots=True)
class Created:
    """An object before it is stored, in its stored form. `name` is empty where it is generated."""

    kind: kinds.Kind
    version: str
    namespace: str
    body: Json

    @property
    def name(self) -> str:
        """The name that its creator has given."""
        return str(self.body["metadata"].get("name") or "")


@dataclasses.dataclass(frozen=True, slots=True)
class Hook:
    """A webhook of a configuration; `key` is unlike that of any other."""

    key: tuple[str, int]
    body: Json


def hooks(configurations: Iterable[Json]) -> Iterator[Hook]:
    """All webhooks, in the order in which they are called."""
    for found in sorted(configurations, key=lambda body: str(body["metadata"]["name"])):
        for index, body in enumerate(found.get("webhooks") or ()):
            yield Hook((found["metadata"]["name"], index), body)


def version_for(hook: Hook, kind: kinds.Kind, version: str, served: Iterable[str]) -> str | None:
    """The version in which the webhook is shown objects that come as `version`; None: it is not.

    `served` are the versions of the group that the kind has.
    """
    if kind.group == _EXEMPT_GROUP:
        return None
    wanted = [rule for rule in hook.body.get("rules") or () if _concerns(rule, kind)]
    others = served if hook.body["matchPolicy"] == "Equivalent" else ()
    for each in (version, *others):
        if any(_has(rule["apiVersions"], each) for rule in wanted):
            return each
    return None


def is_selected(hook: Hook, created: Created, namespace_labels: Mapping[str, str]) -> bool:
    """Whether the labels of the object, and of its namespace, are those that the webhook wants."""
    own = created.body["metadata"].get("labels") or {}
    around = own if created.kind.resource == "namespaces" else namespace_labels
    in_space = created.kind.namespaced or created.kind.resource == "namespaces"
    if in_space and not label_selectors.matches(hook.body["namespaceSelector"], around):
        return False
    return label_selectors.matches(hook.body["objectSelector"], own)


def _concerns(rule: Json, kind: kinds.Kind) -> bool:
    scope = "Namespaced" if kind.namespaced and kind.resource != "namespaces" else "Cluster"
    return (
        rule["scope"] in (_ANY, scope)
        and _has(rule["operations"], "CREATE")
        and _has(rule["apiGroups"], kind.group)
        # `*/*` are all resources, and all subresources.
        and any(each in (_ANY, "*/*", kind.plural) for each in rule["resources"])
    )


def _has(listed: Iterable[str], value: str) -> bool:
    return any(each in (_ANY, value) for each in listed)
