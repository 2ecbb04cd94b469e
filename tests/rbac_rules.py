"""Rights that roles give, and whether calls to the API server need just these."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from dra_driver.sim.api.serving import routing


@dataclasses.dataclass(frozen=True, slots=True)
class Right:
    """A verb on a resource (`resourceclaims/status` is one of its own).

    `namespace` is empty where all are meant, `name` where any object is.
    """

    namespace: str
    group: str
    resource: str
    name: str
    verb: str

    def covers(self, call: routing.Call) -> bool:
        """Whether the call is allowed by this right."""
        resource = "/".join(filter(None, (call.resource, call.subresource)))
        return (
            (self.group, self.resource, self.verb) == (call.group, resource, call.verb)
            and self.namespace in ("", call.namespace)
            and self.name in ("", call.name)
        )


def granted(bodies: Iterable[Mapping[str, Any]]) -> set[Right]:
    """What the roles among the objects allow."""
    return {
        Right(body["metadata"].get("namespace", ""), group, resource, name, verb)
        for body in bodies
        if body["kind"] in ("Role", "ClusterRole")
        for rule in body["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames") or ("",)
        for verb in rule["verbs"]
    }


def refused(rights: Iterable[Right], calls: Iterable[routing.Call]) -> list[routing.Call]:
    """Calls for objects that no right covers."""
    return [
        call for call in calls if call.resource and not any(right.covers(call) for right in rights)
    ]


def unused(rights: Iterable[Right], calls: Iterable[routing.Call]) -> set[Right]:
    """Rights that no call needs."""
    made = list(calls)
    return {right for right in rights if not any(right.covers(call) for call in made)}


def bound(bodies: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """The roles that each account has through bindings, as `Kind/name`, by `namespace/account`."""
    found: dict[str, set[str]] = {}
    for body in bodies:
        if body["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            for subject in body["subjects"]:
                account = f"{subject['namespace']}/{subject['name']}"
                role = f"{body['roleRef']['kind']}/{body['roleRef']['name']}"
                found.setdefault(account, set()).add(role)
    return found
