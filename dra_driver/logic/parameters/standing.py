"""Where a parameter object stands: its template, and what its status says of it.

The template has its name. It says in an annotation which spec it was made for, since API servers
fill in fields that nobody wrote.
"""

import dataclasses
import enum
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from dra_driver.logic.parameters import claims, matching, status_schema
from dra_driver.model import parameters, texts

Json = dict[str, Any]

LABEL = "dra-driver.dev/parameters"
"""Of a template: the kind of the parameters that it was made from."""
MADE_FOR = "dra-driver.dev/spec-hash"
"""Annotation of a template: a hash of the spec that was wanted."""
READY, MATCHING = "Ready", "Matching"


class Reason(enum.StrEnum):
    """Why a condition is as it is."""

    WRITTEN = "TemplateWritten"
    INVALID = "InvalidParameters"
    NEEDS_POD = "GpuClaimNameNeedsPod"
    NOT_OURS = "TemplateNotOurs"
    NAME_TAKEN = "NameTaken"
    REFUSED = "TemplateRefused"
    ENOUGH = "EnoughDevices"
    TOO_FEW = "TooFewDevices"
    NOT_COUNTED = "NotCounted"


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """A parameter object: who it is, what it becomes, and the status that it has."""

    kind: parameters.Kind
    namespace: str
    name: str
    uid: str
    created: str
    generation: int
    version: str
    """Its resource version."""
    made: claims.Made
    status: Json

    @property
    def key(self) -> tuple[str, str]:
        """What names its template."""
        return self.namespace, self.name

    def __str__(self) -> str:
        """As in messages."""
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Template:
    """A template as far as it matters: `owner` is the UID of the parameters that own it, if any."""

    namespace: str
    name: str
    uid: str
    owner: str | None
    made_for: str
    ending: bool


class Act(enum.Enum):
    """What is to be done to a template."""

    KEEP = enum.auto()
    MAKE = enum.auto()
    REPLACE = enum.auto()
    REMOVE = enum.auto()
    LEAVE = enum.auto()
    """It is not ours, or is ending."""


def template_of(body: Json) -> Template:
    """What matters of a ResourceClaimTemplate."""
    metadata = body["metadata"]
    labelled = LABEL in (metadata.get("labels") or {})
    owners = metadata.get("ownerReferences") or () if labelled else ()
    ours = (
        each["uid"]
        for each in owners
        if each.get("controller") and each["apiVersion"].partition("/")[0] == parameters.GROUP
    )
    return Template(
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        next(ours, None),
        (metadata.get("annotations") or {}).get(MADE_FOR, ""),
        "deletionTimestamp" in metadata,
    )


def holders(
    subjects: Iterable[Subject], templates: Mapping[tuple[str, str], Template]
) -> dict[tuple[str, str], Subject]:
    """Whose template a name is, where several kinds want it: who has it, else who came first."""
    order = list(parameters.Kind)
    found: dict[tuple[str, str], Subject] = {}

    def rank(subject: Subject) -> tuple[bool, str, int]:
        template = templates.get(subject.key)
        has = template is not None and template.owner == subject.uid
        return not has, subject.created, order.index(subject.kind)

    for subject in sorted(subjects, key=rank):
        found.setdefault(subject.key, subject)
    return found


def act(subject: Subject, template: Template | None) -> Act:
    """What to do to the template of an object that holds the name."""
    wanted = subject.made.spec
    if template is None:
        return Act.MAKE if wanted is not None else Act.KEEP
    if template.owner is None or template.ending:
        return Act.LEAVE
    if wanted is None:
        return Act.REMOVE
    is_current = template.owner == subject.uid and template.made_for == spec_hash(wanted)
    return Act.KEEP if is_current else Act.REPLACE


def spec_hash(spec: Json) -> str:
    """Sixteen digits that differ where specs do."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]


def template(subject: Subject, version: str) -> Json:
    """The ResourceClaimTemplate of an object whose parameters can be used, in an API version."""
    spec = subject.made.spec or {}
    owner = {
        "apiVersion": parameters.API_VERSION,
        "kind": subject.kind.value,
        "name": subject.name,
        "uid": subject.uid,
        "controller": True,
        # It may go before its template: that would need a right over finalizers.
        "blockOwnerDeletion": False,
    }
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": subject.name,
            "namespace": subject.namespace,
            "labels": {LABEL: subject.kind.value},
            "annotations": {MADE_FOR: spec_hash(spec)},
            "ownerReferences": [owner],
        },
        "spec": {"spec": _in_version(spec, version)},
    }


def _in_version(spec: Json, version: str) -> Json:
    """Until v1beta2 a request had the fields of `exactly` itself."""
    if version != "v1beta1":
        return spec
    devices = spec["devices"]
    requests = [{"name": each["name"], **each["exactly"]} for each in devices["requests"]]
    return {"devices": {**devices, "requests": requests}}


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """How the template of an object is, and why; `ready` says whether it is there."""

    ready: bool
    reason: Reason
    message: str


def taken(holder: Subject) -> Verdict:
    """Another object has the name."""
    message = f"the template of this name is that of {holder}: give this object another name"
    return Verdict(ready=False, reason=Reason.NAME_TAKEN, message=message)


def not_ours(subject: Subject) -> Verdict:
    """Somebody else made the template."""
    message = (
        f"ResourceClaimTemplate {subject.name} was not made from it, and is left as it is: delete "
        "that one, or give this object another name"
    )
    return Verdict(ready=False, reason=Reason.NOT_OURS, message=message)


def refused(message: str) -> Verdict:
    """The API server does not take the template."""
    text = f"the API server refuses the template: {message}"
    return Verdict(ready=False, reason=Reason.REFUSED, message=text)


def verdict(subject: Subject) -> Verdict:
    """Of an object that holds its name, and whose template is as it should be."""
    made = subject.made
    if made.problems:
        message = texts.joined(tuple(map(str, made.problems)), more=made.left_out)
        return Verdict(ready=False, reason=Reason.INVALID, message=message)
    if made.gpu_claim_name:
        message = (
            f"spec.gpuClaimName {made.gpu_claim_name}: a template cannot name the GPU of another "
            "claim: dra-driver convert -f makes one claim of both, from a file with the pod, its "
            "claims and their parameters"
        )
        return Verdict(ready=False, reason=Reason.NEEDS_POD, message=message)
    request = made.request or {}
    devices = "1 device" if request["count"] == 1 else f"{request['count']} devices"
    message = (
        f"ResourceClaimTemplate {subject.name} asks for {devices} of class "
        f"{request['deviceClassName']}"
    )
    return Verdict(ready=True, reason=Reason.WRITTEN, message=message)


def status(
    subject: Subject, found: Verdict, matches: matching.Matches | None, *, time: str
) -> Json:
    """The status of an object; the one that it has where nothing changes. `time` is now.

    `matches` is None where devices were not counted yet.
    """
    generation, listed = subject.generation, subject.status.get("conditions")
    before = {
        each.get("type"): each
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, Mapping)
    }
    ready = _condition(READY, "True" if found.ready else "False", found.reason, found.message)
    body: Json = {
        "observedGeneration": generation,
        "expressions": list(subject.made.expressions[: status_schema.MOST_EXPRESSIONS]),
        "conditions": [
            _dated(each, before.get(each["type"]), generation, time)
            for each in (ready, _matching(subject, matches))
        ],
    }
    if matches is not None and subject.made.request is not None:
        body["matching"] = matches.devices
    return body


def _matching(subject: Subject, matches: matching.Matches | None) -> Json:
    if subject.made.request is None:
        return _condition(MATCHING, "Unknown", Reason.INVALID, "the parameters cannot be used")
    if matches is None:
        return _condition(MATCHING, "Unknown", Reason.NOT_COUNTED, "it is being looked up")
    why_not = matching.reason(subject.made, matches)
    if why_not is None:
        message = f"{matches.devices} of {matches.of} devices of the class match"
        return _condition(MATCHING, "True", Reason.ENOUGH, message)
    return _condition(MATCHING, "False", Reason.TOO_FEW, why_not)


def _condition(of_type: str, value: str, reason: Reason, message: str) -> Json:
    text = texts.told(message, status_schema.LONGEST_MESSAGE)
    return {"type": of_type, "status": value, "reason": reason.value, "message": text}


def _dated(condition: Json, before: Mapping[str, Any] | None, generation: int, time: str) -> Json:
    same = before is not None and before.get("status") == condition["status"]
    since = before.get("lastTransitionTime") if same and before is not None else None
    return {**condition, "observedGeneration": generation, "lastTransitionTime": since or time}
