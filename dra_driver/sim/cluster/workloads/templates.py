"""Objects of kinds that are known here by name only: one pod of each template of pods in them.

What their own controllers would make of them is theirs to know; how many pods, for example.
"""

import re
from collections.abc import Iterator
from typing import Any

from dra_driver.sim.cluster.workloads import plans, pods

Json = dict[str, Any]

MARK = "demo.dra-driver/template"
"""Annotation of such a pod: where in the object its template is."""
_STRUCTURE = ("spec", "template")
"""Names that say nothing of what a template is for."""


def found_in(body: Json) -> dict[str, Json]:
    """The templates in the spec of an object by their path: `spec.workerGroupSpecs[0].template`."""
    return dict(_search(body.get("spec"), "spec"))


def plan(family: plans.Family) -> plans.Plan:
    """Makes a pod of each template that has none; one that has ended is not made again."""
    held = {
        (pod["metadata"].get("annotations") or {}).get(MARK)
        for pod in family.children
        if not pods.is_deleting(pod)
    }
    return plans.Plan(
        create=tuple(
            pods.made_of(
                family.owner, template, base=_base(family.name, path), annotations={MARK: path}
            )
            for path, template in found_in(family.owner).items()
            if path not in held
        )
    )


def _search(value: Any, path: str) -> Iterator[tuple[str, Json]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _search(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        if _is_template(value):
            yield path, value
            return
        for key, item in value.items():
            yield from _search(item, f"{path}.{key}")


def _is_template(value: Json) -> bool:
    spec = value.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(containers, list) or not containers:
        return False
    named = (isinstance(item, dict) and isinstance(item.get("name"), str) for item in containers)
    return all(named) and _is_metadata(value.get("metadata"))


def _is_metadata(value: Any) -> bool:
    if not isinstance(value, dict):
        return value is None
    maps = (value.get("labels"), value.get("annotations"))
    return all(item is None or isinstance(item, dict) for item in maps)


def _base(name: str, path: str) -> str:
    """The owner's name and what the template is for, as `ray-workergroupspecs-0`."""
    parts = re.findall(r"[A-Za-z0-9]+", path)
    return "-".join([name, *(part.lower() for part in parts if part not in _STRUCTURE)])
