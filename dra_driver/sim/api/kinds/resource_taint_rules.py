"""Defaults and rules for DeviceTaintRules.

Sources: Kubernetes 1.37, `pkg/apis/resource/validation/validation.go` and
`pkg/registry/resource/devicetaintrule/strategy.go`.
"""

from typing import Any

from dra_driver.sim.api.kinds import (
    fields,
    resource_slices,
    resource_status,
    strategies,
    syntax,
)

Json = dict[str, Any]


def _prepare(write: strategies.Write) -> None:
    taint = write.new.setdefault("spec", {}).setdefault("taint", {})
    old = ((write.old or {}).get("spec") or {}).get("taint") or {}
    changed = bool(old) and taint.get("effect") != old.get("effect")
    if changed and taint.get("timeAdded") == old.get("timeAdded"):
        # Another effect is another taint, unless the writer says since when it is there.
        taint.pop("timeAdded", None)
    taint.setdefault("timeAdded", write.around.now)


def _validate(write: strategies.Write) -> fields.Errors:
    if write.status:
        conditions = (write.new.get("status") or {}).get("conditions") or ()
        return resource_status.conditions_errors(conditions, "status.conditions")
    spec = write.new["spec"]
    selector, path = spec.get("deviceSelector") or {}, "spec.deviceSelector"
    found: fields.Errors = []
    if "driver" in selector:
        found += syntax.driver(selector["driver"], f"{path}.driver")
    if "pool" in selector:
        found += syntax.pool(selector["pool"], f"{path}.pool")
    if "device" in selector:
        found += syntax.label(selector["device"], f"{path}.device")
    return found + resource_slices.taint_errors(spec["taint"], "spec.taint")


STRATEGY = strategies.Strategy(_prepare, _validate)
