"""Writes to a claim's finalizer and status, as scheduler and claim controller make them.

Each is a replacement of what was read: a change by anybody else in between is a Conflict.
"""

import datetime as dt
from collections.abc import Collection
from typing import Any

from dra_driver.adapters.kube import kube
from dra_driver.model import claims

Json = dict[str, Any]

FINALIZER = "resource.kubernetes.io/delete-protection"
"""Keeps an allocated claim from vanishing before its devices are given back."""


def reserve(
    client: kube.Client, claim: Json, allocation: claims.Allocation | None, pod: Json
) -> Json:
    """Record the allocation, if there is a new one, and that the pod uses the claim.

    Raises:
        kube.ApiError: a Conflict, or another refusal.
    """
    namespace = claim["metadata"]["namespace"]
    if allocation is not None and FINALIZER not in claim["metadata"].get("finalizers", ()):
        held = [*claim["metadata"].get("finalizers", ()), FINALIZER]
        claim = client.replace(kube.CLAIMS, _with_finalizers(claim, held), namespace)
    status = dict(claim.get("status") or {})
    if allocation is not None:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status["allocation"] = claims.format_allocation(allocation) | {"allocationTimestamp": now}
    uid = pod["metadata"]["uid"]
    users = status.get("reservedFor") or []
    if all(user["uid"] != uid for user in users):
        status["reservedFor"] = [
            *users, {"resource": "pods", "name": pod["metadata"]["name"], "uid": uid}
        ]  # fmt: skip
    if status == claim.get("status"):
        return claim
    return client.replace_status(kube.CLAIMS, claim | {"status": status}, namespace)


def release(client: kube.Client, claim: Json, keep: Collection[str]) -> Json:
    """Keep only these users, by UID; without any, give the devices and the finalizer back.

    Raises:
        kube.ApiError: a Conflict, or another refusal.
    """
    namespace = claim["metadata"]["namespace"]
    status = dict(claim.get("status") or {})
    users = [user for user in status.pop("reservedFor", None) or () if user["uid"] in keep]
    if users:
        status["reservedFor"] = users
    else:
        status.pop("allocation", None)
    if status != (claim.get("status") or {}):
        claim = client.replace_status(kube.CLAIMS, claim | {"status": status}, namespace)
    held = claim["metadata"].get("finalizers", [])
    if not users and FINALIZER in held:
        rest = [name for name in held if name != FINALIZER]
        claim = client.replace(kube.CLAIMS, _with_finalizers(claim, rest), namespace)
    return claim


def _with_finalizers(claim: Json, finalizers: list[str]) -> Json:
    return claim | {"metadata": claim["metadata"] | {"finalizers": finalizers}}
