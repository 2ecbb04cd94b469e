"""What is to be explained: a pod with its claims, or a claim alone, stored or in a manifest."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from dra_driver import errors
from dra_driver.logic.converting import conversion
from dra_driver.logic.explaining import described_pods, old_resources
from dra_driver.logic.picturing import snapshots
from dra_driver.logic.scheduling import extended_resources, placing
from dra_driver.model import claims

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Claims that are allocated together; `bodies` as the API has them.

    `pod` is None for a claim that is explained alone: then every node may take it. `extended` is
    the pod as the API has it if the last of the claims is one that the scheduler has yet to make.
    """

    title: str
    pod: placing.Pod | None
    claims: tuple[claims.ResourceClaim, ...]
    bodies: tuple[Json, ...]
    notes: tuple[str, ...] = ()
    node: str = ""
    """Where the pod runs, if it does."""
    extended: Json | None = None
    blocked: tuple[str, ...] = ()
    """Why the scheduler does not even look for devices."""
    conversion: "Conversion | None" = None
    """What conversion would make of a pod that waits and asks as older systems had it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Conversion:
    """A conversion, and how to have it. The pod, and what it is explained from, if it is made."""

    made: conversion.Conversion
    how: tuple[str, ...]
    target: Target | None = None
    snapshot: snapshots.Snapshot | None = None


def named(snapshot: snapshots.Snapshot, name: str, namespace: str) -> Target:
    """The pod or claim that `pod/NAME` or `claim/NAME` names.

    Raises:
        errors.Rejected: another form, or no such object.
    """
    kind, plain = split(name)
    known = snapshot.pods if kind == "pod" else snapshot.claims
    body = known.get((namespace, plain))
    if body is None:
        raise errors.Rejected(_absent(kind, namespace, plain, known))
    return _of_pod(snapshot, body) if kind == "pod" else _of_claim(body)


def _absent(kind: str, namespace: str, name: str, known: Iterable[snapshots.Key]) -> str:
    listed = list(known)
    if elsewhere := sorted(space for space, each in listed if each == name):
        return (
            f"{kind} {namespace}/{name} does not exist; one of that name is in namespace "
            f"{', '.join(elsewhere)}: name it with -n"
        )
    others = sorted(each for space, each in listed if space == namespace)
    shown = ", ".join(others[:20]) or "none"
    return (
        f"{kind} {namespace}/{name} does not exist; there {_are(len(others))}: {shown}. Name its "
        "namespace with -n"
    )


def split(name: str) -> tuple[str, str]:
    """`pod` or `claim`, and the name, of `pod/NAME` or `claim/NAME`.

    Raises:
        errors.Rejected: another form.
    """
    kind, slash, plain = name.partition("/")
    if not slash or not plain or kind not in {"pod", "claim"}:
        raise errors.Rejected(f"{name!r}: allowed are pod/NAME and claim/NAME")
    return kind, plain


def in_manifest(snapshot: snapshots.Snapshot, bodies: Iterable[Json]) -> tuple[Target, ...]:
    """The pods of a manifest, workloads' pod templates, and the claims that none of them uses.

    `bodies` are normalized and part of the snapshot too.

    Raises:
        errors.Rejected: there is nothing to explain, or a claim that is named does not exist.
    """
    listed = list(bodies)
    pods = [pod for body in listed for pod in described_pods.of(body)]
    found = [_of_pod(snapshot, pod) for pod in pods if _has_claims(snapshot, pod)]
    used = {name for pod in pods for name in _names(pod)}
    for body in listed:
        name = (body["kind"], body["metadata"].get("namespace"), body["metadata"]["name"])
        if name in used:
            continue
        if body["kind"] == "ResourceClaim":
            found.append(_of_claim(body))
        elif body["kind"] == "ResourceClaimTemplate":
            made = _made(body, body["metadata"]["name"])
            found.append(dataclasses.replace(_of_claim(made), title=f"template {_name(body)}"))
    if not found:
        for pod in pods:
            if names := extended_resources.needs(pod):
                why = f"{_unserved(names)}: there is nothing to explain"
                raise errors.Rejected(f"{pod['kind'].lower()} {_name(pod)}: {why}")
        raise errors.Rejected(
            "the manifest has no pod with spec.resourceClaims or an extended resource that a "
            "DeviceClass serves, no ResourceClaim and no ResourceClaimTemplate: there is nothing "
            "to explain"
        )
    return tuple(found)


def _has_claims(snapshot: snapshots.Snapshot, pod: Json) -> bool:
    return bool(
        pod["spec"].get("resourceClaims")
        or extended_resources.claim(pod, snapshot.extended)
        or old_resources.converted(pod, snapshot)
    )


def _names(pod: Json) -> Iterator[tuple[str, str, str]]:
    namespace = pod["metadata"]["namespace"]
    for item in pod["spec"].get("resourceClaims") or ():
        if "resourceClaimName" in item:
            yield "ResourceClaim", namespace, item["resourceClaimName"]
        else:
            yield "ResourceClaimTemplate", namespace, item["resourceClaimTemplateName"]


def _of_pod(snapshot: snapshots.Snapshot, body: Json) -> Target:
    pod = placing.parse(body)
    kind = body.get("kind", "Pod").lower()
    part = f" ({body['part']})" if "part" in body else ""
    title = f"{kind} {pod.namespace}/{pod.name}{part}"
    spec = body.get("spec") or {}
    node = str(spec.get("nodeName") or "")
    named = [_claim(snapshot, pod, item) for item in pod.claims]
    special = _special(snapshot, body)
    made = None if special or node else extended_resources.claim(body, snapshot.extended)
    bodies = [*named, *(each for each in (special, made) if each is not None)]
    converted = None if special or node or placing.is_finished(body) else _converted(snapshot, body)
    blocked = [*_blocked(pod, body, bodies)]
    if not bodies and not (node and pod.extended_resources):
        why = _nothing(pod, spec.get("resourceClaims"))
        if converted is None:
            raise errors.Rejected(f"{title} {why}: there is nothing to explain")
        blocked.append(f"the pod {why}")
    return Target(
        title=title,
        pod=pod,
        claims=tuple(map(claims.parse, bodies)),
        bodies=tuple(bodies),
        notes=tuple(_notes(snapshot, body, pod, special or made, is_told=converted is not None)),
        node=node,
        extended=body if made else None,
        blocked=tuple(blocked),
        conversion=converted,
    )


def _converted(snapshot: snapshots.Snapshot, body: Json) -> Conversion | None:
    made = old_resources.converted(body, snapshot)
    if made is None:
        return None
    namespace = body["metadata"]["namespace"]
    is_stored = not body["metadata"]["uid"].startswith(snapshots.NOT_CREATED)
    how = old_resources.how(body, is_stored=is_stored)
    if not made.is_converted:
        return Conversion(made, ())
    after = old_resources.with_templates(snapshot, namespace, made)
    target = _of_pod(after, {**body, **made.pod})
    titled = dataclasses.replace(target, title=f"{target.title}, converted")
    return Conversion(made, how, titled, after)


def _special(snapshot: snapshots.Snapshot, pod: Json) -> Json | None:
    """The claim that the scheduler made for the pod's extended resources; None if there is none."""
    metadata = pod["metadata"]
    if (name := extended_resources.claim_name(pod)) is not None:
        return snapshot.claims.get((metadata["namespace"], name))
    for (namespace, _), claim in snapshot.claims.items():
        annotations = claim["metadata"].get("annotations") or {}
        owners = {each["uid"] for each in claim["metadata"].get("ownerReferences") or ()}
        made = annotations.get(extended_resources.ANNOTATION) == "true"
        if made and namespace == metadata["namespace"] and metadata["uid"] in owners:
            return claim
    return None


def _nothing(pod: placing.Pod, claimed: object) -> str:
    """Why no claim is for the pod."""
    if claimed:
        return "needs no claim, though it has spec.resourceClaims: its status says so"
    if not pod.extended_resources:
        return "has no spec.resourceClaims, and its containers ask for no extended resource"
    return f"has no spec.resourceClaims, and {_unserved(pod.extended_resources)}"


def _unserved(resources: Iterable[str]) -> str:
    return (
        f"no DeviceClass serves {', '.join(resources)}: either a device plugin has to offer that, "
        "or a class has to have it as spec.extendedResourceName"
    )


def _notes(
    snapshot: snapshots.Snapshot,
    body: Json,
    pod: placing.Pod,
    special: Json | None,
    *,
    is_told: bool,
) -> Iterator[str]:
    """`is_told`: what becomes of resources that no class serves is told by their conversion."""
    if "count" in body:
        yield f"one of its {body['count']} pods is explained: each needs as much"
    scheduler = (body.get("spec") or {}).get("schedulerName") or placing.SCHEDULER
    if scheduler != placing.SCHEDULER:
        yield f"the pod is for scheduler {scheduler}, which may decide otherwise"
    if special is not None:
        yield from extended_resources.mappings(body, snapshot.extended)
    name = extended_resources.claim_name(body)
    if special is None and name is not None:
        yield f"claim {name}, which was made for its extended resources, does not exist any more"
    for resource in pod.extended_resources:
        served_by = snapshot.extended.of(resource)
        if served_by is None:
            if is_told:
                continue
            yield (
                f"containers ask for {resource}, which no DeviceClass serves: a device plugin has "
                "to offer it, and what is free of it is not explained"
            )
        elif name is None and special is None:
            yield f"{resource} comes from a device plugin of its node: no claim was made for it"
        elif name is None:
            yield (
                f"{resource} is served by class {served_by}, with a claim that the scheduler "
                "makes: that needs Kubernetes 1.36, or the feature gate DRAExtendedResource. "
                f"Without it the pod waits with `Insufficient {resource}`"
            )


def _blocked(pod: placing.Pod, body: Json, bodies: Iterable[Json]) -> Iterator[str]:
    if (reason := _pod_blocked(body)) is not None:
        yield reason
    of_template = {item.claim for item in pod.claims if item.template is not None}
    for claim in bodies:
        metadata, status = claim["metadata"], claim.get("status") or {}
        name = f"claim {_name(claim)}"
        yield from _claim_blocked(claim)
        owners = [owner["uid"] for owner in metadata.get("ownerReferences") or ()]
        if metadata["name"] in of_template and pod.uid not in owners:
            yield f"{name} was not made for this pod: rename or delete it"
        users = [user["uid"] for user in status.get("reservedFor") or ()]
        if pod.uid not in users and len(users) >= placing.MAX_CONSUMERS:
            yield f"{name} is in use by {len(users)} pods, the most allowed: make another claim"


def _pod_blocked(body: Json) -> str | None:
    """Why no scheduler looks for devices of a pod whose claims have none."""
    spec, gates = body.get("spec") or {}, (body.get("spec") or {}).get("schedulingGates") or ()
    if placing.is_finished(body):
        phase = body["status"]["phase"]
        return f"the pod has ended ({phase}): its claims are given back, and it gets no others"
    if "deletionTimestamp" in body["metadata"]:
        return "the pod is being deleted: it gets no devices any more"
    if node := spec.get("nodeName"):
        return (
            f"the pod was bound to node {node} by hand (spec.nodeName), past the scheduler, which "
            "gives devices: take that out of the pod, and write a nodeSelector in its place"
        )
    if gates:
        names = ", ".join(gate["name"] for gate in gates)
        return f"the pod has scheduling gates ({names}): it waits until they are removed"
    return None


def _claim_blocked(claim: Json) -> Iterator[str]:
    if "deletionTimestamp" in claim["metadata"]:
        yield (
            f"claim {_name(claim)} is being deleted: it gets no devices any more. A pod that names "
            "it waits for another of that name, one with a template gets another"
        )


def _claim(snapshot: snapshots.Snapshot, pod: placing.Pod, item: placing.PodClaim) -> Json:
    if item.claim is not None:
        found = snapshot.claims.get((pod.namespace, item.claim))
        kind, name = "claim", item.claim
    else:
        name = str(item.template)
        kind, found = "template", snapshot.templates.get((pod.namespace, name))
    if found is None:
        raise errors.Rejected(
            f"pod {pod.namespace}/{pod.name}, resourceClaims {item.name}: {kind} "
            f"{pod.namespace}/{name} does not exist: {_remedy(snapshot, item, kind, name)}"
        )
    return found if kind == "claim" else _made(found, f"{pod.name}-{item.name}-*")


def _remedy(snapshot: snapshots.Snapshot, item: placing.PodClaim, kind: str, name: str) -> str:
    if kind == "claim" and item.template is not None:
        return f"it was made of template {item.template}. Wait for another, or make the pod again"
    known = snapshot.claims if kind == "claim" else snapshot.templates
    if elsewhere := sorted(space for space, each in known if each == name):
        return (
            f"create it there; that in namespace {', '.join(elsewhere)} is for pods of that "
            "namespace alone"
        )
    if kind == "template" and name.startswith(conversion.TEMPLATES):
        return (
            "conversion made it: it is in what `dra-driver convert` wrote, and the webhook makes "
            "it for a pod as its manifest was before. Apply that one"
        )
    return "create it, or correct the name"


def _made(template: Json, name: str) -> Json:
    """The claim that is made of a template."""
    metadata = template["metadata"]
    uid = f"{snapshots.NOT_CREATED}{metadata['namespace']}/{name}"
    return {
        "metadata": {"namespace": metadata["namespace"], "name": name, "uid": uid},
        "spec": template["spec"]["spec"],
    }


def _of_claim(body: Json) -> Target:
    return Target(
        title=f"claim {_name(body)}",
        pod=None,
        claims=(claims.parse(body),),
        bodies=(body,),
        blocked=tuple(_claim_blocked(body)),
    )


def _name(body: Json) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
