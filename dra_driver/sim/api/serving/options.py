"""How an API server can differ from the usual one, and what can go wrong with it on purpose."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from dra_driver.logic.scheduling import emulation
from dra_driver.sim.api.kinds import problems, served_kinds
from dra_driver.sim.api.serving import access, pod_logs, routing


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """What is to go wrong with a request."""

    delay_seconds: float = 0.0
    """How long the request waits before anything else happens to it."""
    status: int = 0
    """The code of the failure that is answered without doing anything; 0: none."""
    reason: str = "InternalError"
    message: str = "a fault was injected"
    retry_after: int | None = None
    """Seconds, for the header and the details of the failure."""
    drop: Literal["", "before", "after"] = ""
    """The connection is cut: before anything is done, or when it is done but not answered."""


NO_FAULT = Fault()
_EMULATED = "-emulated"
"""How the version of a server ends that behaves as released, and not as 1.36 without defects."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The settings of a server. The hooks are called in the server's thread: they must be quick."""

    port: int = 0
    """0: any that is free."""
    credentials: access.Access | None = None
    """What clients have to send, with TLS; None: neither token nor TLS, for tests."""
    resource_versions: tuple[str, ...] = ("v1",)
    """Which versions of `resource.k8s.io` are served, the preferred one first."""
    kubernetes_version: str = "v1.36.2-sim"
    """What the server says it is. Its minor version decides which feature gates are on."""
    disabled_gates: frozenset[str] = frozenset()
    """Feature gates that are off, besides those that this version has off by default."""
    enabled_gates: frozenset[str] = frozenset()
    """Feature gates that are on, of those that this version has off by default."""
    history: int = 4096
    """How many changes of each resource a watch can go back."""
    bookmark_seconds: float = 60.0
    """How long a watch is silent before it gets a bookmark, if it wants any."""
    expression_check: Callable[[str], str | None] = lambda _expression: None
    """What is wrong with a CEL expression that selects devices, or None."""
    derivation_check: Callable[[str], str | None] = lambda _expression: None
    """The same of one that derives an attribute."""
    webhook: Callable[[dict[str, Any]], problems.Denial | None] = lambda _object: None
    """What a validating webhook has against an object as it is to be stored."""
    pod_log: pod_logs.Source = lambda _uid, _container: None
    """What a container has written."""
    request_log: Callable[[routing.Call], None] = lambda _call: None
    """Told of each request."""
    fault: Callable[[routing.Call], Fault | None] = lambda _call: None
    """What is to go wrong with a request."""


_BETAS = ("v1", "v1beta2", "v1beta1")
_RESOURCE_VERSIONS = {"1.34": _BETAS, "1.35": _BETAS}
"""What releases serve besides v1, by an administrator's `--runtime-config`: clusters that come from
1.33 have it. Kubernetes has the betas up to 1.37 at least, and none is on by itself."""


def of_release(release: str | None) -> Options:
    """The settings of a server that answers as one of a Kubernetes release, for example `1.37`."""
    if release is None:
        return Options()
    patch = release if release.count(".") > 1 else f"{release}.0"
    return Options(
        kubernetes_version=f"v{patch}{_EMULATED}",
        resource_versions=_RESOURCE_VERSIONS.get(release, ("v1",)),
    )


def releases_with(group: str, version: str, kind: str) -> tuple[str, ...]:
    """The releases, as `of_release` takes them, that serve a kind in that version."""
    found = []
    for release in emulation.RELEASES:
        minor = int(release.split(".")[1])
        served = served_kinds.Table(of_release(release).resource_versions, minor)
        if version in served.versions.get(group, ()):
            found += [release for each in served.of(group, version) if each.kind == kind]
    return tuple(found)
