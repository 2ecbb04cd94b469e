"""How workloads exchange their pods: defaults of the fields that say so, and what they may be.

Sources: Kubernetes 1.36, `pkg/apis/apps/v1/defaults.go`, `pkg/apis/apps/validation/validation.go`.
"""

import re
from typing import Any

from dra_driver.sim.api.kinds import fields

Json = dict[str, Any]

_ROLLING = "RollingUpdate"
_ROLLING_FIELD = "rollingUpdate"
_SHARES = ("maxSurge", "maxUnavailable")
_STRATEGY = "spec.strategy"
_UPDATE = "spec.updateStrategy"
_POLICIES = ("OrderedReady", "Parallel")
_NEGATIVE = "must be greater than or equal to 0"
_NO_PERCENTAGE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)


def default(strategy: Json, rolling: Json) -> None:
    """Sets the type, and what a rolling update says of itself: `rolling` where it says nothing."""
    if not strategy.get("type"):
        strategy["type"] = _ROLLING
    if strategy["type"] == _ROLLING:
        strategy[_ROLLING_FIELD] = rolling | (strategy.get(_ROLLING_FIELD) or {})


def errors(kind: str, spec: Json) -> fields.Errors:
    """What is wrong with it in the spec of a workload of that kind; its counts are whole numbers.

    A kind that does not exchange its pods has nothing to say.
    """
    checks = {"Deployment": _deployment, "DaemonSet": _daemon_set, "StatefulSet": _stateful_set}
    return checks[kind](spec) if kind in checks else []


def _deployment(spec: Json) -> fields.Errors:
    found = _counts(spec, "spec", "revisionHistoryLimit")
    strategy = spec["strategy"]
    rolling, path = strategy.get(_ROLLING_FIELD), f"{_STRATEGY}.{_ROLLING_FIELD}"
    if strategy["type"] == "Recreate":
        detail = "may not be specified when strategy `type` is 'Recreate'"
        return found + ([fields.forbidden(path, detail)] if rolling is not None else [])
    if found := found + _type(strategy, _STRATEGY, ("Recreate", _ROLLING)):
        return found
    if found := _shares(rolling, path):
        return found
    if not any(_is_some(rolling[name]) for name in _SHARES):
        detail = "may not be 0 when `maxSurge` is 0"
        return [fields.invalid(f"{path}.maxUnavailable", rolling["maxUnavailable"], detail)]
    return []


def _daemon_set(spec: Json) -> fields.Errors:
    found = _counts(spec, "spec", "revisionHistoryLimit")
    strategy = spec["updateStrategy"]
    found += _type(strategy, _UPDATE, ("OnDelete", _ROLLING))
    if found or strategy["type"] != _ROLLING:
        return found
    rolling, path = strategy[_ROLLING_FIELD], f"{_UPDATE}.{_ROLLING_FIELD}"
    if found := _shares(rolling, path):
        return found
    told = [name for name in _SHARES if _is_some(rolling[name])]
    if not told:
        return [fields.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")]
    if len(told) > 1:
        detail = "may not be set when maxUnavailable is non-zero"
        return [fields.invalid(f"{path}.maxSurge", rolling["maxSurge"], detail)]
    return []


def _stateful_set(spec: Json) -> fields.Errors:
    found = _counts(spec, "spec", "revisionHistoryLimit")
    policy = spec["podManagementPolicy"]
    if policy not in _POLICIES:
        detail = f"must be '{_POLICIES[0]}' or '{_POLICIES[1]}'"
        found.append(fields.invalid("spec.podManagementPolicy", policy, detail))
    found += _counts(spec.get("ordinals") or {}, "spec.ordinals", "start")
    strategy = spec["updateStrategy"]
    found += _type(strategy, _UPDATE, ("OnDelete", _ROLLING))
    rolling = strategy.get(_ROLLING_FIELD) or {}
    return found + _counts(rolling, f"{_UPDATE}.{_ROLLING_FIELD}", "partition")


def _type(strategy: Json, path: str, allowed: tuple[str, ...]) -> fields.Errors:
    if strategy["type"] in allowed:
        return []
    return [fields.not_supported(f"{path}.type", strategy["type"], allowed)]


def _counts(holder: Json, path: str, name: str) -> fields.Errors:
    if holder.get(name, 0) >= 0:
        return []
    return [fields.invalid(f"{path}.{name}", holder[name], _NEGATIVE)]


def _shares(rolling: Json, path: str) -> fields.Errors:
    found = []
    for name in _SHARES:
        value, place = rolling[name], f"{path}.{name}"
        if type(value) is int:
            found += _counts(rolling, path, name)
        elif not (isinstance(value, str) and re.fullmatch("[0-9]+%", value, re.ASCII)):
            found.append(fields.invalid(place, value, _NO_PERCENTAGE))
        elif name == "maxUnavailable" and int(value.removesuffix("%")) > 100:
            found.append(fields.invalid(place, value, "must not be greater than 100%"))
    return found


def _is_some(value: Any) -> bool:
    return int(str(value).removesuffix("%")) > 0
