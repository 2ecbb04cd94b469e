"""What a real kube-apiserver 1.36.2 made of thousands of objects, beside what ours makes of them.

The recording lies beside the repository and not in it; tests that need it skip without it.
"""

import functools
import gzip
import itertools
import json
import pathlib
import re
from typing import Any

import api_objects
import pytest

Json = dict[str, Any]

RECORDING = (
    pathlib.Path(__file__).parents[2] / "shared" / "recordings" / "api-1.36" / "verdicts.jsonl.gz"
)

_STORED: Json = api_objects.claim(
    "stored",
    {
        "devices": {
            "requests": [
                {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
                {
                    "name": "alt",
                    "firstAvailable": [{"name": "s", "deviceClassName": "gpu.nvidia.com"}],
                },
            ]
        }
    },
)
"""The claim that is written to by what is no create."""
_STRICT = "strict decoding error"
_RECORDED_CHARACTERS = 1500
"""Of a message."""
_MAP = re.compile(r"(.*?\.(?:attributes|capacity|counters|nodeAllocatableResourceMappings))(\[.*)?")


class _AnyTime:
    """Equal to each time that a server may have made."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and bool(re.fullmatch(r"[-\d]{10}T[:\d]{8}Z", other))

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "a time"


def load(kind: str) -> list[Json]:
    """The lines about objects of this kind, or the test is skipped."""
    if not RECORDING.exists():
        pytest.skip(f"no recording {RECORDING}")
    return [line for line in _lines() if line["kind"] == kind]


@functools.cache
def _lines() -> list[Json]:
    with gzip.open(RECORDING, "rt") as lines:
        return [json.loads(line, object_hook=_with_any_time) for line in lines]


def _with_any_time(body: Json) -> Json:
    return body | {"timeAdded": _AnyTime()} if body.get("timeAdded") == "NOW" else body


class Replay:
    """Sends the recorded objects again, as dry runs."""

    def __init__(self, api: api_objects.Api) -> None:
        self._api = api
        self._stored = api.create(api_objects.CLAIMS, _STORED)["metadata"]

    def differences(self, lines: list[Json]) -> list[str]:
        """Of each line that is answered otherwise: object, and what is expected and found."""
        return [text for line in lines if (text := self._difference(line))]

    def _difference(self, line: Json) -> str:
        body = line["object"]
        if line["method"] == "PUT":
            identity = {name: self._stored[name] for name in ("uid", "resourceVersion")}
            body = body | {"metadata": body["metadata"] | identity}
        answer = self._api.send(
            line["method"],
            line["path"],
            body,
            dryRun="All",
            fieldValidation=line["validation"],
        )
        expected, found = _as_recorded(line), _as_answered(answer)
        if expected == found:
            return ""
        return f"{line['kind']} {json.dumps(body)}\n expected {expected}\n found {found}"


def _as_recorded(line: Json) -> Json:
    return _verdict(
        line["code"],
        line.get("stored"),
        line.get("reason"),
        line.get("message", ""),
        [tuple(cause) for cause in line.get("causes") or ()],
        line.get("warnings") or [],
    )


def _as_answered(answer: api_objects.Answer) -> Json:
    body = answer.body
    taken = {name: body[name] for name in ("spec", "status") if name in body}
    return _verdict(
        answer.status,
        taken if answer.status < 400 else None,
        body.get("reason"),
        body.get("message", ""),
        [(item["reason"], item["field"]) for item in (body.get("details") or {}).get("causes", ())],
        answer.headers.getlist("warning"),
    )


def _verdict(
    code: int,
    stored: Json | None,
    reason: str | None,
    message: str,
    causes: list[tuple[str, str]],
    warnings: list[str],
) -> Json:
    return {
        "code": code,
        "stored": stored,
        "reason": reason,
        # Of other failures the words may be others, as long as they are about the same.
        "message": message[:_RECORDED_CHARACTERS] if _STRICT in message else "",
        "causes": _in_one_order(causes),
        "warnings": warnings,
    }


def _in_one_order(causes: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The causes with those of each map by its keys: Go takes the keys in any order."""
    ordered: list[tuple[str, str]] = []
    for _, group in itertools.groupby(causes, lambda cause: _place(cause[1])[0]):
        ordered += sorted(group, key=lambda cause: _place(cause[1])[1])
    return ordered


def _place(path: str) -> tuple[str, str]:
    """The map that a path leads through, and the key; without a map the path alone."""
    found = _MAP.fullmatch(path)
    return (found[1], (found[2] or "").partition("]")[0]) if found else (path, "")
