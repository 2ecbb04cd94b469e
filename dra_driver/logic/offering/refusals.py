"""What an API server refuses of a slice: which parts are to blame, so that the rest is published.

Sources: Kubernetes 1.36, `apimachinery/pkg/api/errors/errors.go` (NewInvalid: one cause for each
field), `pkg/apis/resource/validation/validation.go` (paths, `spec.devices[3].attributes[x]`).
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from dra_driver.model import slices

Json = dict[str, Any]

_PART = re.compile(r"spec\.(devices|sharedCounters)\[(\d+)\]")


def names_a_part(fields: Iterable[str]) -> bool:
    """Whether the server says which device or counter set is wrong."""
    return any(map(_PART.match, fields))


def blamed(content: Mapping[str, Any], fields: Iterable[str]) -> dict[str, str]:
    """The devices and counter sets that are to blame, as the mark of each and its name.

    `content` is that part of the spec that says what is offered (of `publishing.contents`);
    `fields` are the paths that the server names. Where it names no part of it, a webhook or a
    policy may be against any: all are to blame.
    """
    found = [
        content[match[1]][int(match[2])]
        for match in map(_PART.match, fields)
        if match and int(match[2]) < len(content.get(match[1]) or ())
    ]
    parts = found or [*(content.get("sharedCounters") or ()), *(content.get("devices") or ())]
    return {mark(part): str(part["name"]) for part in parts}


def mark(part: Json) -> str:
    """What tells one device or counter set from another: all of it but the times of its taints."""
    return json.dumps(slices.without_times(part), sort_keys=True)
