"""What of DRA's older APIs stands in the same files: claims, templates, classes and parameters."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from dra_driver.logic.converting import notes, objects, reading
from dra_driver.logic.offering import classes
from dra_driver.logic.parameters import claims
from dra_driver.model import parameters, sharing

Json = dict[str, Any]

GROUP = "resource.k8s.io/"
OLD = ("v1alpha1", "v1alpha2", "v1alpha3", "v1beta1", "v1beta2")
"""Versions that came before `v1`."""
OLD_DRIVER = "gpu.resource.nvidia.com"
"""What NVIDIA's driver was called in classes of DRA's first API."""
_KINDS = (*parameters.Kind, "DeviceClassParameters", "ComputeInstanceClaimParameters")
_TEMPLATE = "ResourceClaimTemplate"
_WRITTEN = "it is nothing that people write, and no cluster of today has it: delete it"
GONE = {
    "PodSchedulingContext": _WRITTEN,
    "ResourceClaimParameters": _WRITTEN,
    "ResourceClassParameters": _WRITTEN,
    "ResourceSlice": "the driver writes it: delete it",
}
"""Kinds of the older APIs that are not converted, and why."""
_Key = tuple[str, str, str]
"""Kind, namespace, name."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """Parameters that a claim refers to: the body is there if it stands in the files."""

    kind: str
    name: str
    body: Json | None = None

    @property
    def gpu_claim_name(self) -> str:
        """The GPU of another claim that partitions are to be of; empty where that is not said."""
        found = reading.mapping(reading.mapping(self.body).get("spec")).get("gpuClaimName")
        return found if isinstance(found, str) else ""


def version_of(body: Json) -> str:
    """Which of the old versions an object of DRA has; empty if none."""
    version = body.get("apiVersion")
    if not isinstance(version, str) or not version.startswith(GROUP):
        return ""
    found = version.removeprefix(GROUP)
    return found if found in OLD else ""


def is_parameters(body: Json) -> bool:
    """Whether an object is one of NVIDIA's parameters."""
    return body.get("apiVersion") == parameters.API_VERSION and body.get("kind") in _KINDS


def _place(body: Json) -> tuple[str, str]:
    called = reading.mapping(body.get("metadata")).get("name")
    return objects.namespace(body), str(called)


class Library:
    """Objects of the older APIs, to be found by name. `used` grows while claims are read."""

    def __init__(self, bodies: Iterable[Json], driver: str) -> None:
        self.driver = driver
        self.joined: set[tuple[str, str]] = set()
        """Templates, by namespace and name, whose claims have become a part of another claim."""
        self.needed: set[tuple[str, str]] = set()
        """Templates that pods use, and go on using."""
        self.used: set[_Key] = set()
        """Parameters that a claim has been made of."""
        self._found: dict[_Key, Json] = {}
        self._templates: set[tuple[str, str]] = set()
        for body in bodies:
            if body.get("kind") == _TEMPLATE:
                self._templates.add(_place(body))
            if version_of(body) or is_parameters(body):
                self._found.setdefault((str(body.get("kind")), *_place(body)), body)

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """The object of that name."""
        return self._found.get((kind, namespace, name))

    def reference(self, spec: Mapping[str, Any], namespace: str) -> Reference | None:
        """The parameters that a claim of the first API refers to."""
        ref = spec.get("parametersRef")
        if not isinstance(ref, dict):
            return None
        kind, name = str(ref.get("kind")), str(ref.get("name"))
        if ref.get("apiGroup") != parameters.GROUP:
            return Reference(f"{kind} of {ref.get('apiGroup') or GROUP[:-1]}", name)
        return Reference(kind, name, self.get(kind, namespace, name))

    def use(self, reference: Reference, namespace: str) -> None:
        """Say that a claim has been made of these parameters."""
        self.used.add((reference.kind, namespace, reference.name))

    def is_used(self, body: Json) -> bool:
        """Whether a claim has been made of these parameters."""
        return (str(body.get("kind")), *_place(body)) in self.used

    def by_template(self, namespace: str, name: str) -> list[Reference]:
        """Parameters beside which the controller kept a template of that name.

        It is the way to use them without claims of the first API. Empty if a template of that name
        stands in the files.
        """
        if (namespace, name) in self._templates:
            return []
        found = ((kind, self.get(kind, namespace, name)) for kind in parameters.Kind)
        return [Reference(kind, name, body) for kind, body in found if body is not None]

    def is_template(self, body: Json) -> bool:
        """Whether parameters stand for a template of their name."""
        return any(each.body is body for each in self.by_template(*_place(body)))

    def made(
        self, where: str, reference: Reference, said: notes.Notes, *, gpu: Reference | None = None
    ) -> claims.Made | None:
        """The claim that these parameters mean; None if it is refused."""
        field = f"parametersRef {reference.kind}"
        if reference.kind not in set(parameters.Kind):
            kinds = ", ".join(parameters.Kind)
            rule = f"parameters of {parameters.GROUP} can be converted: {kinds}"
            said.refuse(where, field, reference.name, rule)
            return None
        if reference.body is None:
            rule = (
                "it does not stand in the files that are converted: give the file with it too "
                "(-f), in the same namespace"
            )
            said.refuse(where, field, reference.name, rule)
            return None
        of_gpu = reading.mapping(gpu.body).get("spec") or {} if gpu is not None else None
        spec = reference.body.get("spec")
        made = claims.of(reference.kind, spec, self.driver, gpu_spec=of_gpu)
        for fault in made.problems:
            said.refuse(where, f"{reference.kind} {reference.name}", fault.field, fault.message)
        return None if made.problems else made

    def type_of(self, where: str, name: object, said: notes.Notes) -> sharing.DeviceType | None:
        """What devices a class of the first API has; None if it is refused."""
        types = classes.types(self.driver)
        if isinstance(name, str) and name in types:
            return types[name]
        body = self.get("ResourceClass", "", str(name))
        if body is not None and body.get("driverName") in (OLD_DRIVER, self.driver):
            return sharing.DeviceType.GPU
        rule = (
            f"classes of this driver are known: {', '.join(types)}; a ResourceClass of "
            f"{OLD_DRIVER} that stands in the files too"
        )
        said.refuse(where, "resourceClassName", name, rule)
        return None
