"""What of an object stays as it is when another takes its place."""

import copy
from typing import Any

from dra_driver.sim.api.kinds import kinds, problems

Json = dict[str, Any]

SYSTEM_METADATA = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
"""What only the server writes."""
_KEPT_BY_STATUS_WRITES = ("resourceclaims.resource.k8s.io",)


def check_identity(kind: kinds.Kind, new: Json, old: Json) -> None:
    """Refuse an object that is said to be another one, or an older state of this.

    Raises:
        problems.ApiError: 400 or 409.
    """
    before, after = old["metadata"], new["metadata"]
    name = before["name"]
    if after.setdefault("name", name) != name:
        message = (
            f"the name of the object ({after['name']}) does not match the name on the URL ({name})"
        )
        raise problems.bad_request(message)
    if (
        kind.namespaced
        and after.setdefault("namespace", before["namespace"]) != before["namespace"]
    ):
        message = (
            f"the namespace of the object ({after['namespace']}) does not match the namespace on "
            f"the URL ({before['namespace']})"
        )
        raise problems.bad_request(message)
    if not kind.namespaced:
        after.pop("namespace", None)
    if after.get("resourceVersion") not in (None, "", before["resourceVersion"]):
        raise problems.conflict(kind, name)
    if after.get("uid") not in (None, "", before["uid"]):
        why = (
            f"Precondition failed: UID in precondition: {after['uid']}, "
            f"UID in object meta: {before['uid']}"
        )
        raise problems.conflict(kind, name, why)


def keep_system_fields(kind: kinds.Kind, new: Json, old: Json, *, status: bool) -> None:
    """Put back what writers have no say in; with `status` all but that."""
    before = old["metadata"]
    if status:
        kept = {key: value for key, value in old.items() if key not in ("status", "metadata")}
        for key in set(new) - {"status", "metadata"}:
            del new[key]
        new.update(copy.deepcopy(kept))
        if kind.storage in _KEPT_BY_STATUS_WRITES:
            managed = {k: v for k, v in new["metadata"].items() if k == "managedFields"}
            new["metadata"] = copy.deepcopy(before) | managed
    after = new["metadata"]
    after.pop("selfLink", None)
    if "managedFields" in before:
        after.setdefault("managedFields", before["managedFields"])
    for name in (*SYSTEM_METADATA, "resourceVersion"):
        after.pop(name, None)
        if name in before:
            after[name] = before[name]
    new["apiVersion"], new["kind"] = old["apiVersion"], old["kind"]


def keep_status(new: Json, old: Json) -> None:
    """Put back the status, of which those who write the object have no say."""
    new.pop("status", None)
    if "status" in old:
        new["status"] = copy.deepcopy(old["status"])
