"""Pods that use claims as older APIs had it -> pods of today.

`source:` around the name of a claim or a template (Kubernetes 1.26 to 1.30) is gone. Partitions of
the GPU that another claim of the pod had (`gpuClaimName` of parameters) become requests of one
claim, which are of one GPU.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.logic.converting import conversion, notes, old_library, reading, specs
from dra_driver.logic.parameters import claims
from dra_driver.model import parameters

Json = dict[str, Any]

_NAMES = ("resourceClaimName", "resourceClaimTemplateName")
_FIELD = "gpuClaimName"


@dataclasses.dataclass(frozen=True, slots=True)
class _Claim:
    """An entry of `resourceClaims`; the parameters of its template, where these are old ones."""

    name: str
    template: str
    reference: old_library.Reference | None

    @property
    def gpu(self) -> str:
        """The claim of the GPU that its partition is of; empty if that is all the same."""
        return self.reference.gpu_claim_name if self.reference is not None else ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    """Partitions of one GPU, which another claim of the pod asks for."""

    gpu: _Claim
    partitions: tuple[_Claim, ...]


def convert(
    pod: Json, namespace: str, library: old_library.Library, said: notes.Notes
) -> tuple[Json, tuple[conversion.Template, ...]]:
    """The pod as one of today, and the templates that it needs."""
    spec = reading.mapping(pod.get("spec"))
    listed = reading.listed(spec.get("resourceClaims"))
    if not listed or not all(isinstance(each, dict) for each in listed):
        return pod, ()
    flat = [_flat(each, said) for each in listed]
    changed = {**spec, "resourceClaims": flat}
    found = [_read(each, namespace, library, said) for each in flat]
    templates = []
    for group in _groups(found, said):
        parts = (group.gpu, *group.partitions)
        library.joined |= {(namespace, each.template) for each in parts}
        made = _made(group, namespace, library, said)
        if made is not None:
            template = specs.Spec(made, ()).template
            templates.append(template)
            changed = _joined(changed, group, template, said)
    still = (each.get("resourceClaimTemplateName") for each in changed["resourceClaims"])
    library.needed |= {(namespace, name) for name in still if isinstance(name, str)}
    return {**pod, "spec": changed}, tuple(templates)


def has_sources(pod: object) -> bool:
    """Whether claims of a pod are written as they were until Kubernetes 1.30."""
    listed = reading.listed(reading.mapping(reading.mapping(pod).get("spec")).get("resourceClaims"))
    return any("source" in reading.mapping(each) for each in listed)


def _flat(entry: Json, said: notes.Notes) -> Json:
    if "source" not in entry:
        return entry
    source = reading.mapping(entry["source"])
    names = {key: source[key] for key in _NAMES if isinstance(source.get(key), str)}
    where, called = "pod", f"resourceClaims {entry.get('name')}: source"
    if len(names) != 1 or set(source) - set(names) or set(entry) & set(_NAMES):
        rule = f"a text in one of {', '.join(_NAMES)} is allowed in it, and none of them beside it"
        said.refuse(where, called, entry["source"], rule)
        return entry
    told = ", ".join(f"{key} {value}" for key, value in names.items())
    said.tell(where, f"claim {entry.get('name')}: source", told)
    changed: Json = {}
    for key, value in entry.items():
        changed |= names if key == "source" else {key: value}
    return changed


def _read(entry: Json, namespace: str, library: old_library.Library, said: notes.Notes) -> _Claim:
    called, template = str(entry.get("name")), str(entry.get("resourceClaimTemplateName") or "")
    kind, name = "ResourceClaimTemplate", template
    if not template:
        kind, name = "ResourceClaim", str(entry.get("resourceClaimName") or "")
    parameters_of = library.by_template(namespace, template) if template else []
    if len(parameters_of) > 1:
        kinds = " and ".join(each.kind for each in parameters_of)
        rule = f"{kinds} have that name: give one of them another one"
        said.refuse("pod", f"claim {called}: resourceClaimTemplateName", template, rule)
    if parameters_of:
        return _Claim(called, template, parameters_of[0])
    outer = reading.mapping(reading.mapping(library.get(kind, namespace, name)).get("spec"))
    spec = reading.mapping(outer.get("spec")) if template else outer
    return _Claim(called, template, library.reference(spec, namespace))


def _groups(found: Sequence[_Claim], said: notes.Notes) -> list[_Group]:
    groups = []
    for name in dict.fromkeys(each.gpu for each in found if each.gpu):
        partitions = tuple(each for each in found if each.gpu == name)
        gpu = next((each for each in found if _is_gpu(each, name)), None)
        field = f"{_FIELD} of {', '.join(each.name for each in partitions)}"
        if gpu is None:
            rule = (
                "no claim of the pod has a GPU by that name: claim one with GpuClaimParameters "
                "of that name, or leave gpuClaimName out"
            )
            said.refuse("pod", field, name, rule)
        elif not all(each.template for each in (gpu, *partitions)):
            rule = "the GPU and its partitions have to be claimed by resourceClaimTemplateName"
            said.refuse("pod", field, name, rule)
        else:
            groups.append(_Group(gpu, partitions))
    return groups


def _is_gpu(claim: _Claim, name: str) -> bool:
    reference = claim.reference
    if reference is None or reference.kind != parameters.Kind.GPU:
        return False
    return name in (reference.name, claim.name, claim.template)


def _made(
    group: _Group, namespace: str, library: old_library.Library, said: notes.Notes
) -> Json | None:
    """The spec of the one claim for the partitions of a GPU."""
    gpu = group.gpu.reference
    if gpu is None or library.made("pod", gpu, said) is None:
        return None
    library.use(gpu, namespace)
    requests: list[Json] = []
    config: list[Json] = []
    for each in group.partitions:
        if each.reference is None:
            return None
        made = library.made("pod", each.reference, said, gpu=gpu)
        if made is None or made.request is None:
            return None
        library.use(each.reference, namespace)
        requests.append({"name": each.name, "exactly": made.request})
        config += _config(each.name, made)
    _check(gpu, said)
    devices: Json = {"requests": requests}
    if len(requests) > 1 or requests[0]["exactly"].get("count", 1) > 1:
        attribute = f"{library.driver}/parentUUID"
        names = [request["name"] for request in requests]
        devices["constraints"] = [{"requests": names, "matchAttribute": attribute}]
    if config:
        devices["config"] = config
    return {"devices": devices}


def _check(gpu: old_library.Reference, said: notes.Notes) -> None:
    """What cannot be asked of a GPU whose partitions are asked for."""
    spec = reading.mapping(reading.mapping(gpu.body).get("spec"))
    if spec.get("count") not in (None, 1):
        rule = "partitions are of one GPU: 1 is allowed"
        said.refuse("pod", f"{gpu.kind} {gpu.name}: spec.count", spec["count"], rule)
    if spec.get("sharing"):
        name = f"{gpu.kind} {gpu.name}: spec.sharing"
        said.warn("pod", name, "left out: say it of the partitions")


def _config(name: str, made: claims.Made) -> list[Json]:
    if made.config is None:
        return []
    return [{"requests": [name], "opaque": {"driver": made.driver, "parameters": made.config}}]


def _joined(
    spec: Mapping[str, Any], group: _Group, template: conversion.Template, said: notes.Notes
) -> Json:
    """The pod's spec with one claim, for the GPU's name, in place of several."""
    name, requests = group.gpu.name, [each.name for each in group.partitions]
    said.tell(
        "pod",
        f"claims {', '.join((name, *requests))}",
        f"claim {name} with a request for each partition, all of one GPU: {template.name}",
    )
    listed = []
    for entry in spec["resourceClaims"]:
        if entry.get("name") == name:
            listed.append({"name": name, "resourceClaimTemplateName": template.name})
        elif entry.get("name") not in requests:
            listed.append(entry)
    changed = {**spec, "resourceClaims": listed}
    for key in reading.LISTS:
        if isinstance(spec.get(key), list):
            changed[key] = [_container(each, name, requests, said) for each in spec[key]]
    return changed


def _container(body: Any, gpu: str, requests: Sequence[str], said: notes.Notes) -> Any:
    resources = reading.mapping(reading.mapping(body).get("resources"))
    listed = reading.listed(resources.get("claims"))
    used = [reading.mapping(each).get("name") for each in listed]
    if gpu not in used and not set(requests) & set(used):
        return body
    where = f"container {body.get('name')}"
    if not set(requests) & set(used):
        rule = "it has no partition of that GPU: name the claim of one, or leave this one out"
        said.refuse(where, "resources.claims", gpu, rule)
        return body
    claims_now: list[Any] = []
    for each, name in zip(listed, used, strict=True):
        if name in requests:
            claims_now.append({"name": gpu, "request": name})
            said.tell(where, f"claim {name}", f"claim {gpu}, request {name}")
        elif name != gpu:
            claims_now.append(each)
    return {**body, "resources": {**resources, "claims": claims_now}}
