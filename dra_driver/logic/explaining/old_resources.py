"""Pods that ask as older systems had it: what conversion makes of them in this cluster."""

import dataclasses
from typing import Any

from dra_driver.logic.converting import conversion, converting, fleet_slices
from dra_driver.logic.offering import classes
from dra_driver.logic.picturing import snapshots

Json = dict[str, Any]


def converted(pod: Json, snapshot: snapshots.Snapshot) -> conversion.Conversion | None:
    """What the command makes of a pod, or why it makes nothing; None if there is nothing to make.

    `nvidia.com/gpu` alone is left where a class or a device plugin serves it.
    """
    found = converting.convert(pod, _policy(snapshot))
    return found if found.lines or found.problems else None


def with_templates(
    snapshot: snapshots.Snapshot, namespace: str, made: conversion.Conversion
) -> snapshots.Snapshot:
    """The snapshot with the templates that conversion makes."""
    templates = {
        (namespace, template.name): {
            "metadata": {"namespace": namespace, "name": template.name},
            "spec": {"spec": template.spec},
        }
        for template in made.templates
    }
    return dataclasses.replace(snapshot, templates={**snapshot.templates, **templates})


def how(pod: Json, *, is_stored: bool) -> tuple[str, ...]:
    """What to do so that a pod is converted."""
    more, when = (", and make the pod again", "again") if is_stored else ("", "after that")
    metadata = pod["metadata"]
    label = f"`kubectl label namespace {metadata['namespace']} {'='.join(conversion.NAMESPACE)}`"
    name, value = conversion.IGNORED
    if (metadata.get("labels") or {}).get(name) == value:
        label += f", take the label {name}={value} from the pod"
    return (
        f"`dra-driver convert -f FILE` writes the manifest so: apply that{more}",
        f"or, where the webhook converts: {label}, and have the pod made {when}",
    )


def _policy(snapshot: snapshots.Snapshot) -> conversion.Policy:
    resource, found = classes.EXTENDED_RESOURCE, snapshot.published
    is_offered = any(resource in (node.offered or {}) for node in snapshot.nodes)
    return conversion.Policy(
        driver=snapshots.DRIVER,
        door=conversion.Door.COMMAND,
        share_class=f"shared-mps.{snapshots.DRIVER}",
        fleet=fleet_slices.together(map(fleet_slices.of_slice, found)) if found else None,
        whole_gpus=snapshot.extended.of(resource) is None and not is_offered,
    )
