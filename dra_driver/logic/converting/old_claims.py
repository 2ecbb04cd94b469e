"""Claims, templates and classes of DRA's older APIs -> `resource.k8s.io/v1`.

Shapes: k8s.io/api, `resource/v1alpha2` (0.26 to 0.30; `v1alpha1` is alike), `v1alpha3` (0.31) and
`v1beta1` (0.32), in which requests have no `exactly`; `v1beta2` (0.33) is alike `v1`.
"""

from collections.abc import Mapping
from typing import Any

from dra_driver.logic.converting import notes, objects, old_library, reading
from dra_driver.logic.offering import classes
from dra_driver.logic.parameters import claims
from dra_driver.model import parameters, sharing

Json = dict[str, Any]

VERSION = "resource.k8s.io/v1"
_FLAT = ("v1alpha3", "v1beta1")
"""Versions whose requests are flat."""
_STAY = ("name", "firstAvailable", "exactly")
"""What of a request does not go into `exactly`."""
_PARAMETERS = {
    sharing.DeviceType.GPU: parameters.Kind.GPU,
    sharing.DeviceType.VFIO: parameters.Kind.VFIO,
}
"""Whose defaults a claim without parameters has."""


def convert_claim(
    body: Json, namespace: str, library: old_library.Library, said: notes.Notes
) -> Json:
    """A claim, or a template of claims, of an older API as one of today."""
    version = old_library.version_of(body)
    is_template = body.get("kind") == "ResourceClaimTemplate"
    where = "template" if is_template else "claim"
    outer = reading.mapping(body.get("spec"))
    spec = reading.mapping(outer.get("spec")) if is_template else outer
    if "resourceClassName" in spec or version in ("v1alpha1", "v1alpha2"):
        made = _of_class(where, spec, namespace, library, said)
    else:
        made = _of_requests(where, version, spec, said)
        said.tell(where, f"{old_library.GROUP}{version}", VERSION)
    changed = {**body, "apiVersion": VERSION}
    changed["spec"] = {**outer, "spec": made} if is_template else made
    if "status" in changed and version not in ("v1beta1", "v1beta2"):
        said.tell(where, "status", "left out: the API server writes it")
        changed.pop("status")
    return changed


def _of_class(
    where: str,
    spec: Mapping[str, Any],
    namespace: str,
    library: old_library.Library,
    said: notes.Notes,
) -> Json:
    """The spec of a claim of the first API."""
    name = spec.get("resourceClassName")
    device_type = library.type_of(where, name, said)
    reference = library.reference(spec, namespace)
    asked = f"class {name}"
    made: Json | None = None
    if reference is not None:
        asked += f", {reference.kind} {reference.name}"
        made = _of_parameters(where, reference, namespace, library, said)
    elif device_type is sharing.DeviceType.MIG:
        request = {"deviceClassName": _class_of(device_type, library.driver)}
        made = {"devices": {"requests": [{"name": "mig", "exactly": request}]}}
    elif device_type is not None:
        made = claims.of(_PARAMETERS[device_type], {}, library.driver).spec
    if made is None:
        return dict(spec)
    said.tell(where, asked, _told(made))
    mode = spec.get("allocationMode")
    if mode == "Immediate":
        said.warn(
            where, "allocationMode Immediate", "left out: allocated once a pod uses the claim"
        )
    elif mode is not None:
        said.tell(where, f"allocationMode {mode}", "left out: claims are always allocated so")
    return made


def _of_parameters(
    where: str,
    reference: old_library.Reference,
    namespace: str,
    library: old_library.Library,
    said: notes.Notes,
) -> Json | None:
    found = library.made(where, reference, said)
    if found is None:
        return None
    if found.gpu_claim_name:
        rule = (
            "partitions of the GPU of another claim are converted with the pods that use both: "
            "give the file with the pods too, in which the two are claimed by templates"
        )
        said.refuse(where, f"{reference.kind} {reference.name}: gpuClaimName",
                    found.gpu_claim_name, rule)  # fmt: skip
        return None
    library.use(reference, namespace)
    return found.spec


def convert_parameters(
    body: Json, namespace: str, library: old_library.Library, said: notes.Notes
) -> Json:
    """Parameters that pods use by a template of their name, as that template."""
    kind, metadata = str(body.get("kind")), reading.mapping(body.get("metadata"))
    reference = old_library.Reference(kind, str(metadata.get("name")), body)
    spec = _of_parameters("parameters", reference, namespace, library, said)
    if spec is None:
        return body
    said.tell("parameters", kind, f"a template of the same name: {_told(spec)}")
    return {
        "apiVersion": VERSION,
        "kind": "ResourceClaimTemplate",
        "metadata": metadata,
        "spec": {"spec": spec},
    }


def _told(spec: Json) -> str:
    told = []
    for request in spec["devices"]["requests"]:
        exactly = request["exactly"]
        count = exactly.get("count", 1)
        many = f"{count} x " if count > 1 else ""
        selected = ", selected by CEL" if exactly.get("selectors") else ""
        told.append(f"request {request['name']}: {many}{exactly['deviceClassName']}{selected}")
    for config in spec["devices"].get("config", ()):
        strategy = config["opaque"]["parameters"].get("sharing", {}).get("strategy")
        told.append(f"config: {strategy}" if strategy else "config")
    return "; ".join(told)


def _class_of(device_type: sharing.DeviceType, driver: str) -> str:
    return next(name for name, of in classes.types(driver).items() if of is device_type)


def _of_requests(where: str, version: str, spec: Mapping[str, Any], said: notes.Notes) -> Json:
    """The spec of a claim of the structured APIs."""
    if spec.get("controller"):
        rule = "a control plane of a driver allocated such claims: it is no more; write a claim"
        said.refuse(where, "spec.controller", spec["controller"], rule)
        return dict(spec)
    devices = reading.mapping(spec.get("devices"))
    requests = reading.listed(devices.get("requests"))
    if version not in _FLAT or not requests:
        return dict(spec)
    changed = [_exact(request) if isinstance(request, dict) else request for request in requests]
    return {**spec, "devices": {**devices, "requests": changed}}


def _exact(request: Json) -> Json:
    inner = {key: value for key, value in request.items() if key not in _STAY}
    stays = {key: value for key, value in request.items() if key in _STAY}
    return {**stays, "exactly": inner} if inner else stays


def convert_class(body: Json, library: old_library.Library, said: notes.Notes) -> Json | None:
    """A class of an older API as one of today; None if it is not needed any more."""
    if body.get("kind") == "DeviceClass":
        spec = reading.mapping(body.get("spec"))
        if "suitableNodes" in spec:
            rule = "classes have no nodes any more: select devices by CEL, or pods by nodeSelector"
            said.refuse("class", "spec.suitableNodes", spec["suitableNodes"], rule)
        said.tell("class", str(body.get("apiVersion")), VERSION)
        return {**body, "apiVersion": VERSION}
    metadata = reading.mapping(body.get("metadata"))
    driver = body.get("driverName")
    if driver not in (old_library.OLD_DRIVER, library.driver):
        said.warn("class", f"driverName {driver}", "left as it is: a class of another driver")
        return body
    reference = library.reference(body, objects.namespace(body))
    if reference is not None:
        library.use(reference, objects.namespace(body))
        named = f"parametersRef {reference.kind} {reference.name}"
        said.warn("class", named, "left out: classes of today have no parameters")
    becomes = "left out: DeviceClass {} comes with the driver"
    found = library.type_of("class", metadata.get("name"), said)
    if found is not None:
        shown = becomes.format(_class_of(found, library.driver))
        said.tell("class", "ResourceClass", shown)
    return None
