"""An AdmissionReview -> the answer: refused is what cannot work, warned is of what will surprise.

Configs go through the code that the kubelet plugin uses, so that the plugin refuses later what
nobody refused here. Only entries for the driver are looked at, when an object is made and when an
update changes its spec: what lets an old object go (finalizers, status) is never in the way.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dra_driver import errors
from dra_driver.logic.admission import admitted, advice
from dra_driver.logic.offering import classes
from dra_driver.logic.preparing import config_choice, configs
from dra_driver.model import claims, sharing, slices, texts

Json = dict[str, Any]

API_VERSION = "admission.k8s.io/v1"
INVALID = 422
_LONGEST_CAUSE = 1024
_LONGEST_NAME = 253
"""Characters of a name in Kubernetes; a UID has 36."""


class MalformedReview(errors.Rejected):
    """What was sent is no AdmissionReview that can be answered."""


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What is said of one object. `problems` have fields from the root of the object.

    They are at most `texts.MOST_PROBLEMS`; `left_out` is how many more there are.
    """

    uid: str
    resource: str = "other"
    kind: str = ""
    name: str = ""
    problems: tuple[configs.Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    left_out: int = 0

    @property
    def allowed(self) -> bool:
        """Whether the object may be stored."""
        return not self.problems


def decide(review: object, driver: str) -> Decision:
    """What to answer to a decoded AdmissionReview.

    Raises:
        MalformedReview: it is none.
    """
    request = requested(review)
    decision = Decision(uid=str(request["uid"]), name=_name(request.get("name")))
    resource = admitted.record(request.get("resource"))
    plural, version = admitted.text(resource.get("resource")), resource.get("version")
    if resource.get("group") != admitted.GROUP or plural not in admitted.DEVICES:
        text = f"the webhook does not check {plural or 'this'}: its rules name more than it is for"
        return dataclasses.replace(decision, warnings=(text,))
    kind = _name(admitted.record(request.get("kind")).get("kind")) or plural
    decision = dataclasses.replace(decision, resource=plural, kind=kind)
    if request.get("subResource") or request.get("operation") not in ("CREATE", "UPDATE"):
        return decision
    if version not in admitted.VERSIONS:
        known = ", ".join(admitted.VERSIONS)
        problem = f"{version} is not known here: write one of {known}, or use a newer driver"
        found = (configs.Problem("apiVersion", f"apiVersion: {admitted.GROUP}/{problem}"),)
        return dataclasses.replace(decision, problems=found)
    return _of_object(decision, request, driver)


def answer(decision: Decision) -> Json:
    """The AdmissionReview to answer with."""
    response: Json = {"uid": decision.uid, "allowed": decision.allowed}
    if decision.warnings:
        response["warnings"] = [texts.told(text) for text in decision.warnings]
    if decision.problems:
        response["status"] = {
            "status": "Failure",
            "code": INVALID,
            "reason": "Invalid",
            "message": message(decision),
            # kubectl writes these one on a line.
            "details": {
                "group": admitted.GROUP,
                "kind": decision.kind,
                "name": decision.name,
                "causes": [
                    {
                        "reason": "FieldValueInvalid",
                        "field": problem.field,
                        "message": texts.told(
                            problem.message.removeprefix(f"{problem.field}: "), _LONGEST_CAUSE
                        ),
                    }
                    for problem in decision.problems
                ],
            },
        }
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


def message(decision: Decision) -> str:
    """The problems in one text."""
    count = len(decision.problems) + decision.left_out
    head = "1 problem" if count == 1 else f"{count} problems"
    told = texts.joined(tuple(map(str, decision.problems)), more=decision.left_out)
    return texts.told(f"{head} in configs: {told}")


def requested(review: object) -> Mapping[str, Any]:
    """The request of a decoded AdmissionReview.

    Raises:
        MalformedReview: it is none.
    """
    body = admitted.record(review)
    if body.get("kind") != "AdmissionReview" or body.get("apiVersion") != API_VERSION:
        shown = f"{body.get('apiVersion')!r}, {body.get('kind')!r}"[:200]
        raise MalformedReview(f"apiVersion, kind: {shown} is not allowed: send {API_VERSION}")
    request = admitted.record(body.get("request"))
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise MalformedReview("request.uid: missing: send a review with a request")
    if len(uid) > _LONGEST_NAME:
        raise MalformedReview(f"request.uid: longer than the {_LONGEST_NAME} that are allowed")
    return request


def _of_object(decision: Decision, request: Mapping[str, Any], driver: str) -> Decision:
    body = admitted.record(request.get("object"))
    old = admitted.record(request.get("oldObject"))
    is_update = request["operation"] == "UPDATE"
    if is_update and body.get("spec") == old.get("spec"):
        return decision
    new = admitted.read(decision.resource, body, driver)
    decided = tuple(_decoded(new))
    changed = not is_update or _checked(new) != _checked(
        admitted.read(decision.resource, old, driver)
    )
    problems = (*_invalid(decided), *_misapplied(new, decided, driver)) if changed else ()
    told = problems[: texts.MOST_PROBLEMS]
    left_out = len(problems) - len(told) + sum(one.left_out for one in decided if changed)
    name = decision.name or _name(new.name) or _name(_generated_name(body))
    return dataclasses.replace(
        decision,
        name=name,
        problems=told,
        left_out=left_out,
        warnings=() if problems else advice.warnings(new, _entries(decided), driver),
    )


def _name(value: object) -> str:
    """A name, of which the answer has no more than there may be: it fits into one piece."""
    return admitted.text(value)[:_LONGEST_NAME]


def _generated_name(body: Mapping[str, Any]) -> object:
    return admitted.record(body.get("metadata")).get("generateName")


def _checked(body: admitted.Admitted) -> object:
    """What problems are looked for in."""
    return body.configs, [(one.name, one.device_class) for one in body.asked]


@dataclasses.dataclass(frozen=True, slots=True)
class _Decoded:
    """A config, and what is wrong with it. Without an `entry` not even its kind is known."""

    config: admitted.Config
    entry: config_choice.Entry | None
    problems: tuple[configs.Problem, ...] = ()
    left_out: int = 0


def _decoded(body: admitted.Admitted) -> Iterator[_Decoded]:
    source = claims.FROM_CLASS if body.resource == admitted.CLASSES else claims.FROM_CLAIM
    for one in body.configs:
        path = f"{one.path}.opaque.parameters"
        config: sharing.Config | None = None
        problems: tuple[configs.Problem, ...] = ()
        left_out = 0
        try:
            config = configs.decode(one.parameters, path=path)
        except configs.InvalidConfig as error:
            problems = tuple(_rooted(problem, path) for problem in error.problems)
            left_out = error.left_out
            named = admitted.text(admitted.record(one.parameters).get("kind"))
            if named in set(sharing.Kind):
                config = sharing.Config(sharing.Kind(named))
        entry = None
        if config is not None:
            entry = config_choice.Entry(config, source, one.position, one.requests)
        yield _Decoded(one, entry, problems, left_out)


def _rooted(problem: configs.Problem, path: str) -> configs.Problem:
    """The problem of a field of the parameters, as one of the object."""
    field = f"{path}.{problem.field}" if problem.field else path
    said = problem.message.removeprefix(f"{problem.field}: ") if problem.field else problem.message
    return configs.Problem(field, f"{field}: {said}")


def _invalid(decoded: Sequence[_Decoded]) -> tuple[configs.Problem, ...]:
    return tuple(problem for one in decoded for problem in one.problems)


def _entries(decoded: Sequence[_Decoded]) -> tuple[config_choice.Entry, ...]:
    return tuple(one.entry for one in decoded if one.entry is not None)


def _misapplied(
    body: admitted.Admitted, decoded: Sequence[_Decoded], driver: str
) -> Iterator[configs.Problem]:
    """Configs that name a request of a class, one of the driver's own, with another type of device.

    As in `config_choice.for_result`: one that a later entry stands before is in nobody's way.
    """
    if body.beyond or any(one.entry is None for one in decoded):
        # Which config is in force depends on the one whose kind cannot be read.
        return
    entries = _entries(decoded)
    paths = {one.config.position: one.config.path for one in decoded}
    types = classes.types(driver)
    for asked in body.asked:
        device_type = types.get(asked.device_class)
        if device_type is None:
            continue
        result = claims.Result(asked.name, slices.DeviceId(driver, "", ""))
        entry = config_choice.in_force(entries, result, device_type)
        if entry is None or entry.config.kind is sharing.Kind.of(device_type):
            continue
        field, named = f"{paths[entry.position]}.requests", texts.quoted(asked.name)
        yield configs.Problem(
            field,
            f"{field}: {entry.config.kind} cannot be applied to request {named}: devices of "
            f"class {asked.device_class} are of type {device_type}: write a "
            f"{sharing.Kind.of(device_type)}, or take the request out of `requests`",
        )
