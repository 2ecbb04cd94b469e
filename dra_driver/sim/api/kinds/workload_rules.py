"""Defaults and rules of workloads, as far as what becomes of their pods depends on them.

Sources: Kubernetes 1.36, `pkg/apis/apps/v1/defaults.go`, `pkg/apis/apps/validation/validation.go`,
`pkg/apis/batch/v1/defaults.go`, `pkg/apis/batch/validation/validation.go`,
`pkg/registry/batch/job/strategy.go`.
"""

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dra_driver.sim.api.kinds import (
    core_rules,
    fields,
    label_selectors,
    metadata,
    strategies,
    workload_strategies,
)

Json = dict[str, Any]

_TEMPLATE = "spec.template"
_IMMUTABLE = "field is immutable"
_NEGATIVE = "must be greater than or equal to 0"
JOB_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
JOB_NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")
_ENDING = ("OnFailure", "Never")
_MODES = ("Indexed", "NonIndexed")

_DEPLOYMENT: Json = {
    "replicas": 1,
    "revisionHistoryLimit": 10,
    "progressDeadlineSeconds": 600,
}
_ROLLING: Json = {"maxSurge": "25%", "maxUnavailable": "25%"}
_STATEFUL_SET: Json = {
    "replicas": 1,
    "revisionHistoryLimit": 10,
    "podManagementPolicy": "OrderedReady",
    "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
}
_ALL_OR_PART: Json = {"partition": 0}
_DAEMON_SET: Json = {"revisionHistoryLimit": 10}
_ONE_BY_ONE: Json = {"maxSurge": 0, "maxUnavailable": 1}
_JOB: Json = {
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "suspend": False,
    "manualSelector": False,
    "podReplacementPolicy": "TerminatingOrFailed",
}
_CRON_JOB: Json = {
    "concurrencyPolicy": "Allow",
    "suspend": False,
    "successfulJobsHistoryLimit": 3,
    "failedJobsHistoryLimit": 1,
}


def _defaults(values: Json) -> Callable[[strategies.Write], None]:
    def prepare(write: strategies.Write) -> None:
        spec = write.new.setdefault("spec", {})
        for name, value in values.items():
            spec.setdefault(name, copy.deepcopy(value))
        _default_template(spec)

    return prepare


def _default_template(spec: Json) -> None:
    if "spec" in spec.setdefault("template", {}):
        core_rules.default_pod_spec(spec["template"]["spec"])


def _exchanging(
    values: Json, rolling: Json, field: str = "updateStrategy"
) -> Callable[[strategies.Write], None]:
    """Of what exchanges its pods in the way that the field says."""

    def prepare(write: strategies.Write) -> None:
        _defaults(values)(write)
        workload_strategies.default(write.new["spec"].setdefault(field, {}), rolling)

    return prepare


def _prepare_controller(write: strategies.Write) -> None:
    _defaults({"replicas": 1})(write)
    spec = write.new["spec"]
    labels = (spec["template"].get("metadata") or {}).get("labels")
    if labels:
        spec.setdefault("selector", dict(labels))


def _prepare_job(write: strategies.Write) -> None:
    _defaults(_JOB)(write)
    spec, meta = write.new["spec"], write.new["metadata"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    if spec["manualSelector"] or write.old is not None:
        return
    labels = dict.fromkeys(JOB_LABELS, meta["uid"]) | dict.fromkeys(JOB_NAME_LABELS, meta["name"])
    made = spec["template"].setdefault("metadata", {})
    made["labels"] = {**(made.get("labels") or {}), **labels}
    spec.setdefault("selector", {"matchLabels": {JOB_LABELS[0]: meta["uid"]}})


def _prepare_cron_job(write: strategies.Write) -> None:
    spec = write.new.setdefault("spec", {})
    for name, value in _CRON_JOB.items():
        spec.setdefault(name, value)
    _default_template(spec.setdefault("jobTemplate", {}).setdefault("spec", {}))


def _validate_replicated(write: strategies.Write) -> fields.Errors:
    """Of what has a selector and makes pods that run for ever."""
    if write.status:
        return []
    spec = write.new["spec"]
    found = _counts(spec, "spec", "replicas") + _selector_errors(write)
    found += workload_strategies.errors(write.new["kind"], spec)
    found += _template_errors(spec["template"], _TEMPLATE)
    policy = (spec["template"].get("spec") or {}).get("restartPolicy", "Always")
    if policy != "Always":
        path = f"{_TEMPLATE}.spec.restartPolicy"
        found.append(fields.not_supported(path, policy, ("Always",)))
    return found


def _selector_errors(write: strategies.Write) -> fields.Errors:
    spec, path = write.new["spec"], "spec.selector"
    selector = spec.get("selector")
    is_plain = write.new["kind"] == "ReplicationController"
    if selector is None or (is_plain and not selector):
        return [fields.required(path)]
    terms = {"matchLabels": selector} if is_plain else selector
    if not terms.get("matchLabels") and not terms.get("matchExpressions"):
        kind = write.new["kind"].lower()
        return [fields.invalid(path, {}, f"empty selector is invalid for {kind}")]
    if problems := label_selectors.errors(terms, path):
        return problems
    found = []
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    if not label_selectors.matches(terms, labels):
        detail = "`selector` does not match template `labels`"
        found.append(fields.invalid(f"{_TEMPLATE}.metadata.labels", labels, detail))
    # A ReplicationController may be given another one.
    if write.old and not is_plain and selector != write.old["spec"].get("selector"):
        found.append(fields.invalid(path, selector, _IMMUTABLE))
    return found


def _template_errors(template: Json, path: str) -> fields.Errors:
    found = metadata.validate_labels(template.get("metadata") or {}, f"{path}.metadata")
    return found + core_rules.pod_spec_errors(template.get("spec") or {}, f"{path}.spec")


def _counts(spec: Json, path: str, *names: str) -> fields.Errors:
    return [
        fields.invalid(f"{path}.{name}", spec[name], _NEGATIVE)
        for name in names
        if spec.get(name, 0) < 0
    ]


def _validate_job(write: strategies.Write) -> fields.Errors:
    spec = write.new["spec"]
    if write.old is not None:
        return _job_update_errors(spec, write.old["spec"])
    return _job_errors(spec, "spec")


def _job_errors(spec: Json, path: str) -> fields.Errors:
    found = _counts(spec, path, "parallelism", "completions", "backoffLimit")
    mode = spec.get("completionMode", "NonIndexed")
    if mode not in _MODES:
        found.append(fields.not_supported(f"{path}.completionMode", mode, _MODES))
    if mode == "Indexed" and "completions" not in spec:
        detail = "when completion mode is Indexed"
        found.append(fields.required(f"{path}.completions", detail))
    found += _template_errors(spec["template"], f"{path}.template")
    place = f"{path}.template.spec.restartPolicy"
    policy = (spec["template"].get("spec") or {}).get("restartPolicy", "Always")
    if policy == "Always":
        found.append(fields.required(place, 'valid values: "OnFailure", "Never"'))
    elif policy not in _ENDING:
        found.append(fields.not_supported(place, policy, _ENDING))
    return found


def _job_update_errors(spec: Json, old: Json) -> fields.Errors:
    found = _counts(spec, "spec", "parallelism", "backoffLimit")
    fixed = ["selector", "completionMode", "completions"]
    elastic = spec.get("completionMode") == "Indexed"
    if elastic and spec.get("completions") == spec.get("parallelism"):
        fixed.remove("completions")
    if not old.get("suspend"):
        fixed.append("template")
    return found + [
        fields.invalid(f"spec.{name}", spec.get(name), _IMMUTABLE)
        for name in fixed
        if spec.get(name) != old.get(name)
    ]


def _validate_cron_job(write: strategies.Write) -> fields.Errors:
    spec = write.new["spec"]
    found = [] if spec.get("schedule") else [fields.required("spec.schedule")]
    if len(write.new["metadata"].get("name", "")) > _LONGEST_CRON_JOB:
        name = write.new["metadata"]["name"]
        detail = f"must be no more than {_LONGEST_CRON_JOB} characters"
        found.append(fields.invalid("metadata.name", name, detail))
    return found + _job_errors(spec["jobTemplate"]["spec"], "spec.jobTemplate.spec")


_LONGEST_CRON_JOB = 52
"""Leaves room for the time in the names of its Jobs."""

BY_RESOURCE: Mapping[str, strategies.Strategy] = MappingProxyType(
    {
        "deployments.apps": strategies.Strategy(
            _exchanging(_DEPLOYMENT, _ROLLING, "strategy"), _validate_replicated
        ),
        "replicasets.apps": strategies.Strategy(_defaults({"replicas": 1}), _validate_replicated),
        "statefulsets.apps": strategies.Strategy(
            _exchanging(_STATEFUL_SET, _ALL_OR_PART), _validate_replicated
        ),
        "daemonsets.apps": strategies.Strategy(
            _exchanging(_DAEMON_SET, _ONE_BY_ONE), _validate_replicated
        ),
        "replicationcontrollers": strategies.Strategy(_prepare_controller, _validate_replicated),
        "jobs.batch": strategies.Strategy(_prepare_job, _validate_job),
        "cronjobs.batch": strategies.Strategy(_prepare_cron_job, _validate_cron_job),
    }
)
