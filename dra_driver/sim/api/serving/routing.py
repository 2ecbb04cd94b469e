"""From the path and method of a request to what it is about.

Source: the Kubernetes API conventions, and `RequestInfoFactory` of `k8s.io/apiserver`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any
from urllib import parse

from dra_driver.sim.api.kinds import kinds, problems, served_kinds

Json = dict[str, Any]

_VERBS = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "GET": "get",
    "HEAD": "get",
    "DELETE": "delete",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """A request, read in full."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = b""

    @property
    def user_agent(self) -> str:
        return self.headers.get("user-agent", "")

    @property
    def accept(self) -> str:
        return self.headers.get("accept", "")

    def flag(self, name: str) -> bool:
        """Whether a boolean of the query is set: `watch`, `watch=1`, `watch=true`."""
        return self.query.get(name, "false").lower() not in ("false", "0")


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """The resource that a request is about, and what it wants."""

    verb: str
    """get, list, watch, create, update, patch, delete, deletecollection."""
    kind: kinds.Kind
    version: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A request as rules for access see it: what a request log is told."""

    user_agent: str
    method: str
    path: str
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    dry_run: bool = False


def parse_query(text: str) -> dict[str, str]:
    """The query; of a parameter given twice the last counts."""
    return dict(parse.parse_qsl(text, keep_blank_values=True))


def describe(request: Request, target: Target | None) -> Call:
    """The call that a request log is told of."""
    if target is None:
        return Call(request.user_agent, request.method, request.path, request.method.lower())
    return Call(
        user_agent=request.user_agent,
        method=request.method,
        path=request.path,
        verb=target.verb,
        group=target.kind.group,
        version=target.version,
        resource=target.kind.plural,
        subresource=target.subresource,
        namespace=target.namespace,
        name=target.name,
        dry_run=request.query.get("dryRun") == "All",
    )


def resolve(request: Request, table: served_kinds.Table) -> Target | None:
    """What the request is about; None if the path is not that of a resource.

    Args:
        request: The request.
        table: The kinds that are served.

    Raises:
        problems.ApiError: 404, no such group, version, resource or subresource is served.
    """
    parts = request.path.strip("/").split("/")
    match parts:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return None
    if version not in table.versions.get(group, ()):
        raise problems.no_such_path()
    watching = rest[0] == "watch"
    if watching:
        rest = rest[1:]
    target = _in_group(table, group, version, rest)
    return dataclasses.replace(target, verb=_verb(request, target, watching=watching))


def _in_group(table: served_kinds.Table, group: str, version: str, rest: list[str]) -> Target:
    match rest:
        case ["namespaces", namespace, plural, *more] if not (
            group == "" and plural in ("status", "finalize")
        ):
            pass
        case [plural, *more]:
            namespace = ""
        case _:
            raise problems.no_such_path()
    kind = table.find(group, plural)
    name, subresource = ([*more, "", ""])[:2]
    if kind is None or not kind.is_in(version, table.minor) or len(more) > 2:
        raise problems.no_such_path()
    if subresource and subresource not in kind.subresources:
        raise problems.no_such_path()
    if bool(namespace) and not kind.namespaced:
        raise problems.no_such_path()
    if name and kind.namespaced and not namespace:
        raise problems.no_such_path()
    return Target("", kind, version, namespace, name, subresource)


def _verb(request: Request, target: Target, *, watching: bool) -> str:
    verb = _VERBS.get(request.method)
    if verb is None:
        raise problems.method_not_allowed(target.kind, request.method.lower())
    if verb == "get" and (watching or request.flag("watch")):
        return "watch"
    if not target.name:
        if verb in ("update", "patch"):
            raise problems.method_not_allowed(target.kind, verb)
        return {"get": "list", "delete": "deletecollection"}.get(verb, verb)
    return verb
