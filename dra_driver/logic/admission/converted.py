"""An AdmissionReview of a pod -> a patch that has it ask with claims, or why that cannot be.

Nothing is known here of templates that exist: they are made before this is answered.
"""

import base64
import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dra_driver.logic.admission import admission, admitted, json_patches
from dra_driver.logic.converting import conversion, converting, fleet
from dra_driver.model import texts

Json = dict[str, Any]

PODS = "pods"
CONVERTED_FROM = "dra-driver.dev/converted-from"
"""Annotation of a pod: what it asked for, as JSON: a list of texts."""
FAILED = 500
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LONGEST_NAME = 253
_LONGEST_CAUSE = 1024
_LONGEST_WARNING = 512
_MOST_CONTAINERS = 512
"""Containers of a pod: who sends reviews chooses how much there is to do."""
_MOST_TEMPLATES = 32
"""Different asks of a pod: each is a template that has to be made while its review waits."""
_MOST_ASKED = 2048
"""Bytes of the annotation: those of a pod have 256 KiB together."""
_PROBE = fleet.of(
    [
        fleet.CardKind("", 2**50, "count"),
        fleet.CardKind("", 2**50, "memory"),
        fleet.CardKind("", 2**51, "memory"),
    ]
)
"""Cards that no ask is too large for, of two sizes: what depends on sizes differs with them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a pod. `pod` is None where the review is of something else."""

    uid: str
    name: str = ""
    namespace: str = ""
    dry_run: bool = False
    pod: Json | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What is answered, once the templates are there.

    `failure` is why nothing can be said now. Of `problems` and `warnings` at most
    `texts.MOST_PROBLEMS` are told.
    """

    asked: Asked
    patch: tuple[Json, ...] = ()
    templates: tuple[conversion.Template, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[conversion.Problem, ...] = ()
    failure: str = ""

    @property
    def allowed(self) -> bool:
        """Whether the pod may be made."""
        return not (self.problems or self.failure)

    def failed(self, reason: str) -> "Decision":
        """The same where something that is needed failed: nothing is changed."""
        return Decision(self.asked, failure=reason)

    def refused(self, *problems: conversion.Problem) -> "Decision":
        """The same with problems: nothing is changed."""
        return Decision(self.asked, problems=problems)


def read(review: object) -> Asked:
    """What a decoded AdmissionReview asks.

    Raises:
        admission.MalformedReview: it is none, or one of a pod that is in no namespace.
    """
    request = admission.requested(review)
    asked = Asked(str(request["uid"]))
    resource = admitted.record(request.get("resource"))
    pod = request.get("object")
    if (
        (resource.get("group"), resource.get("resource")) != ("", PODS)
        or request.get("subResource")
        or request.get("operation") != "CREATE"
        or not isinstance(pod, dict)
    ):
        return asked
    namespace = request.get("namespace")
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise admission.MalformedReview(
            f"request.namespace: {texts.quoted(namespace)} is not allowed: write the pod's, at "
            "most 63 letters a-z, digits and `-`"
        )
    return Asked(
        asked.uid, _name(request, pod), namespace, request.get("dryRun") not in (None, False), pod
    )


def wants_fleet(asked: Asked, policy: conversion.Policy) -> bool:
    """Whether the pod is to be converted if the cards of the cluster allow it."""
    if asked.pod is None or _is_large(asked.pod):
        return False
    probed = dataclasses.replace(policy, fleet=_PROBE)
    return converting.convert(asked.pod, probed).is_converted


def decide(asked: Asked, policy: conversion.Policy, *, no_fleet: str = "") -> Decision:
    """What is to be answered.

    `no_fleet` is why the cards of the cluster are not known: an ask that depends on them fails.
    """
    if asked.pod is None:
        return Decision(asked)
    if _is_large(asked.pod):
        rule = f"at most {_MOST_CONTAINERS} containers of a pod are looked at: make several pods"
        return _too_many(asked, "more than that", rule)
    made = converting.convert(asked.pod, policy)
    if no_fleet and _depends_on_cards(asked.pod, made, policy):
        reason = f"the sizes of the cluster's GPUs are not known: {no_fleet}"
        return Decision(asked, failure=reason)
    return _of(asked, asked.pod, made)


def _of(asked: Asked, pod: Json, made: conversion.Conversion) -> Decision:
    if made.problems:
        return Decision(asked, problems=made.problems)
    warnings = tuple(f"{line.where}: {line.asked}: {line.becomes}" for line in made.warnings)
    if not made.is_converted:
        return Decision(asked, warnings=warnings)
    if (count := len(made.templates)) > _MOST_TEMPLATES:
        rule = f"at most {_MOST_TEMPLATES} different asks of a pod are converted: make several pods"
        return _too_many(asked, str(count), rule)
    patch = json_patches.difference(pod, _told(made))
    return Decision(asked, tuple(patch), made.templates, warnings)


def _too_many(asked: Asked, count: str, rule: str) -> Decision:
    problem = conversion.Problem("pod", "spec.containers", count, rule)
    return Decision(asked, problems=(problem,))


def answer(decision: Decision) -> Json:
    """The AdmissionReview to answer with."""
    response: Json = {"uid": decision.asked.uid, "allowed": decision.allowed}
    if decision.warnings:
        response["warnings"] = _few_warnings(decision.warnings)
    if decision.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(decision.patch).encode()).decode()
    if not decision.allowed:
        response["status"] = _status(decision)
    return {"apiVersion": admission.API_VERSION, "kind": "AdmissionReview", "response": response}


def message(decision: Decision) -> str:
    """Why the pod is refused, in one text."""
    if decision.failure:
        return texts.told(
            f"the pod cannot be converted now: {decision.failure}. Create it again later; a pod "
            "that asks with claims needs no conversion"
        )
    count = len(decision.problems)
    head = "1 problem" if count == 1 else f"{count} problems"
    told = texts.joined(tuple(map(str, decision.problems)))
    return texts.told(f"{head} in what the pod asks for: {told}")


def _status(decision: Decision) -> Json:
    status: Json = {
        "status": "Failure",
        "code": FAILED if decision.failure else admission.INVALID,
        "reason": "InternalError" if decision.failure else "Invalid",
        "message": message(decision),
    }
    if decision.problems:
        # kubectl writes these one on a line.
        status["details"] = {
            "group": "",
            "kind": "Pod",
            "name": decision.asked.name,
            "causes": [_cause(one) for one in decision.problems[: texts.MOST_PROBLEMS]],
        }
    return status


def _cause(problem: conversion.Problem) -> Json:
    return {
        "reason": "FieldValueInvalid",
        "field": texts.told(f"{problem.where}: {problem.field}", _LONGEST_NAME),
        "message": texts.told(f"{problem.value}: {problem.rule}", _LONGEST_CAUSE),
    }


def _few_warnings(warnings: Sequence[str]) -> list[str]:
    told = [texts.told(text, _LONGEST_WARNING) for text in warnings[: texts.MOST_PROBLEMS]]
    left = len(warnings) - len(told)
    return [*told, *([f"{left} more warnings are left out"] if left else [])]


def _is_large(pod: Json) -> bool:
    spec = admitted.record(pod.get("spec"))
    lists = (spec.get(name) for name in ("initContainers", "containers", "ephemeralContainers"))
    return sum(len(each) for each in lists if isinstance(each, list)) > _MOST_CONTAINERS


def _depends_on_cards(pod: Json, without: conversion.Conversion, policy: conversion.Policy) -> bool:
    probed = converting.convert(pod, dataclasses.replace(policy, fleet=_PROBE))
    return (without.templates, without.problems) != (probed.templates, probed.problems)


def converted_from(pod: Json) -> tuple[str, ...]:
    """What a converted pod asked for, as its annotation says: `container main: nvidia.com/gpu: 1`.

    Anybody may write such an annotation: one that is not as it is written here says nothing.
    """
    annotations = admitted.record(admitted.record(pod.get("metadata")).get("annotations"))
    text = annotations.get(CONVERTED_FROM)
    if not isinstance(text, str) or len(text) > 2 * _MOST_ASKED:
        return ()
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    is_ours = isinstance(told, list) and all(isinstance(each, str) for each in told)
    return tuple(told) if is_ours else ()


def _told(made: conversion.Conversion) -> Json:
    """The converted pod, which says what it was.

    One that gets a container after it was converted, from another webhook, comes a second time.
    """
    metadata = admitted.record(made.pod.get("metadata"))
    annotations = {**admitted.record(metadata.get("annotations"))}
    asked = (f"{line.where}: {line.asked}" for line in made.lines)
    annotations[CONVERTED_FROM] = _asked(dict.fromkeys((*converted_from(made.pod), *asked)))
    return {**made.pod, "metadata": {**metadata, "annotations": annotations}}


def _asked(lines: Iterable[str]) -> str:
    told: list[str] = []
    room = _MOST_ASKED
    for text in lines:
        room -= len(json.dumps(text)) + 2
        if room < 0:
            told.append("…")
            break
        told.append(text)
    return json.dumps(told)


def _name(request: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    metadata = admitted.record(pod.get("metadata"))
    named = (request.get("name"), metadata.get("name"), metadata.get("generateName"))
    return next((text[:_LONGEST_NAME] for one in named if (text := admitted.text(one))), "")
