"""The pods that an object of a manifest describes: itself, or those that a workload makes."""

from collections.abc import Iterator
from typing import Any

from dra_driver.logic.converting import objects, reading

Json = dict[str, Any]

_USUAL = (("spec", "template"), ("spec", "jobTemplate", "spec", "template"))
"""Where kinds that are not known here have a pod template, as a rule."""
_COUNTS = ("parallelism", "replicas")


def of(body: Json) -> Iterator[Json]:
    """A pod for each pod template, with the name of the object; it has its own if it is a pod.

    `count` is there where more than one is made, and `part` where the object has a list of
    templates: the name of the one.
    """
    if body["kind"] == "Pod":
        yield body
        return
    for path in objects.templates(body, _USUAL):
        template = objects.at(body, path)
        if "containers" not in template["spec"]:
            continue
        of_pods = reading.mapping(template.get("metadata"))
        own = {name: of_pods.get(name) or {} for name in ("labels", "annotations")}
        pod = {"kind": body["kind"], "metadata": body["metadata"] | own, "spec": template["spec"]}
        yield pod | _many(body, path)


def _many(body: Json, path: objects.Path) -> Json:
    """How many pods are made of the template, and which of several it is."""
    found: Json = {}
    count = 1
    for end, step in enumerate(path):
        around = objects.at(body, path[:end])
        if isinstance(step, int):
            inner = reading.mapping(around[step]).get("name")
            found["part"] = inner if isinstance(inner, str) else f"{path[end - 1]}[{step}]"
        elif end:
            numbers = (around.get(name) for name in _COUNTS)
            count *= next((each for each in numbers if isinstance(each, int) and each), 1)
    return found | ({"count": count} if count > 1 else {})
