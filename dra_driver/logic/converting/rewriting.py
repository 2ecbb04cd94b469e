"""A pod with claims in place of resources. Nothing that was given is changed."""

import dataclasses
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dra_driver.logic.converting import asks, reading

Json = dict[str, Any]
_LONGEST = 63
"""Characters of the name of a pod's claim, a DNS label."""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one container: the name of the pod's claim that it uses."""

    wish: asks.Wish
    claim: str


def rewritten(
    pod: Json,
    changes: Sequence[Change],
    templates: Mapping[str, str],
    *,
    annotations: Collection[str],
) -> Json:
    """The pod with these changes, and without these annotations.

    `templates` are the names of templates by the names of the claims that the pod gets.
    """
    spec = dict(pod["spec"])
    for key in {change.wish.container.listed for change in changes}:
        spec[key] = list(spec[key])
    for change in changes:
        container = change.wish.container
        body = spec[container.listed][container.index]
        spec[container.listed][container.index] = _container(body, change)
    added = [
        {"name": name, "resourceClaimTemplateName": template}
        for name, template in templates.items()
    ]
    spec["resourceClaims"] = [*(spec.get("resourceClaims") or ()), *added]
    changed = {**pod, "spec": spec}
    metadata = reading.mapping(pod.get("metadata"))
    if annotations and reading.mapping(metadata.get("annotations")):
        kept = {k: v for k, v in metadata["annotations"].items() if k not in annotations}
        changed = reading.replaced(
            changed, "metadata", reading.replaced(metadata, "annotations", kept)
        )
    return changed


def claim_name(container: str, taken: Collection[str]) -> str:
    """A name for the claim of a container that the pod does not have yet."""
    name, turn = f"gpu-{container}", 0
    while name in taken or len(name) > _LONGEST:
        digest = hashlib.sha256(f"{container}/{turn}".encode()).hexdigest()[:8]
        name, turn = f"gpu-{container[: _LONGEST - 13]}".rstrip("-") + f"-{digest}", turn + 1
    return name


def _container(body: Json, change: Change) -> Json:
    resources: Json = dict(body["resources"]) if isinstance(body.get("resources"), dict) else {}
    for key in ("limits", "requests"):
        if reading.mapping(resources.get(key)):
            kept = {k: v for k, v in resources[key].items() if k not in change.wish.resources}
            resources = reading.replaced(resources, key, kept)
    resources["claims"] = [*(resources.get("claims") or ()), {"name": change.claim}]
    changed = {**body, "resources": resources}
    if change.wish.environment:
        environment = [{"name": n, "value": v} for n, v in change.wish.environment]
        changed["env"] = [*(body.get("env") or ()), *environment]
    return changed
