"""Pods as controllers make them of templates, and what they look for in pods."""

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from dra_driver.logic.scheduling import placing

Json = dict[str, Any]

REVISION_LABEL = "controller-revision-hash"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Without vowels and what looks like them, as `k8s.io/apimachinery/pkg/util/rand` has it."""
_HASH_LENGTH = 10
_LONGEST_BASE = 58
"""Leaves room for the five characters that the server adds in a name of 63."""


def made_of(
    owner: Json,
    template: Json,
    *,
    name: str = "",
    base: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Json:
    """The pod that a template gives, controlled by `owner`.

    It is called `name`, or `base`, else the owner's name, with five characters of the server's.
    """
    told = template.get("metadata") or {}
    metadata: Json = {"ownerReferences": [owned_by(owner)]}
    if name:
        metadata["name"] = name
    else:
        base = base or owner["metadata"]["name"]
        metadata["generateName"] = f"{base[: _LONGEST_BASE - 1]}-"
    for field, more in (("labels", labels), ("annotations", annotations)):
        if merged := {**(told.get(field) or {}), **(more or {})}:
            metadata[field] = merged
    if told.get("finalizers"):
        metadata["finalizers"] = list(told["finalizers"])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": copy.deepcopy(template.get("spec") or {}),
    }


def owned_by(owner: Json) -> Json:
    """The reference of what `owner` controls."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(body: Json) -> Json | None:
    """The reference to what controls the object."""
    references = body["metadata"].get("ownerReferences") or ()
    return next((item for item in references if item.get("controller")), None)


def template_hash(template: Json) -> str:
    """A short text, another one for another template. Kubernetes computes another."""
    number = int(hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest(), 16)
    letters = []
    for _ in range(_HASH_LENGTH):
        number, place = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[place])
    return "".join(letters)


def is_deleting(body: Json) -> bool:
    """Whether the object is on its way out."""
    return "deletionTimestamp" in body["metadata"]


def is_active(pod: Json) -> bool:
    """Whether the pod runs or will. Source: `pkg/controller/controller_utils.go`, IsPodActive."""
    return not placing.is_finished(pod) and not is_deleting(pod)


def is_ready(pod: Json) -> bool:
    """Whether all its containers are."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def labels(body: Json) -> Json:
    """The labels of an object."""
    return dict(body["metadata"].get("labels") or {})


def phase(pod: Json) -> str:
    """The phase of a pod."""
    return str((pod.get("status") or {}).get("phase") or "Pending")
