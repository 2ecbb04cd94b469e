"""Cards as the driver publishes them, and what a scheduler gives of them for converted claims."""

import dataclasses
import functools
import re

import api_cluster
import converting_scene as scene
import dra_objects
import mig_cards

from dra_driver.logic.converting import conversion, fleet_slices
from dra_driver.logic.offering import catalog, classes, publishing
from dra_driver.model import claims, mig, nodes, shares, slices

BY_MEMORY, BY_FOUR = shares.Shares(), shares.Shares(4)
NODE = nodes.Node(api_cluster.NODE, {"kubernetes.io/hostname": api_cluster.NODE})
OWNER = publishing.Owner(mig_cards.DRIVER, api_cluster.NODE, "uid")
CLASSES = [claims.parse_class(body) for body in classes.device_classes(mig_cards.DRIVER)]
H100, T4 = "h100-80gb-hbm3", "t4"
ON_PARTITIONS = {"nvidia.com/vgpu-mode": "mig"}
MIB = 2**20


@functools.cache
def published(spec, kind=BY_MEMORY, *, on_demand=True, **facts):
    """The slices of a node whose cards are shared in one way, or not at all."""
    mode = mig.Mode.DYNAMIC if on_demand else mig.Mode.OFF
    cards = []
    for number, found in enumerate(mig_cards.node(spec)):
        more = {name: values[number] for name, values in facts.items()}
        card = catalog.card(dataclasses.replace(found, **more), mode)
        cards.append(dataclasses.replace(card, division=kind))
    contents = mig_cards.offer(cards)
    return sent(contents)


def sent(contents):
    """The slices that are made of these contents, in their order, as an API server names them."""
    bodies = publishing.reconcile(OWNER, publishing.contents(contents), []).create
    return tuple(
        slices.parse({**body, "metadata": {"name": f"slice-{number:03}"}})
        for number, body in enumerate(bodies)
    )


def policy(listed, **more):
    """With the fleet that these slices tell of."""
    fleet = fleet_slices.together(map(fleet_slices.of_slice, listed))
    return conversion.Policy(mig_cards.DRIVER, conversion.Door.WEBHOOK, scene.SHARED, fleet, **more)


def pending(listed, *limits, annotations=None, whole_gpus=False, **spec):
    """The claims of pods whose only container asks for that."""
    found = []
    for number, asked in enumerate(limits):
        body = scene.pod(
            scene.container(limits=asked), metadata={"annotations": annotations or {}}, **spec
        )
        made = scene.converted(body, policy(listed, whole_gpus=whole_gpus))
        [claim] = scene.specs(made).values()
        metadata = {"name": f"c{number}", "namespace": "default", "uid": f"uid-{number}"}
        found.append(claims.parse({"metadata": metadata, "spec": claim}))
    return found


def allocated(listed, *limits, **fields):
    """What each gets, as `(device, MiB, cores)`; None if there is not enough for all."""
    asked = pending(listed, *limits, **fields)
    outcome = dra_objects.allocate(asked, *listed, node=NODE, classes=CLASSES)
    if outcome.allocations is None:
        return None
    return [[_told(result) for result in one.results] for one in outcome.allocations]


def _told(result):
    consumed = result.consumed_capacity
    memory, cores = consumed.get("memory"), consumed.get("cores")
    return (
        result.device.device,
        memory.value // MIB if memory else None,
        cores.value if cores else None,
    )


def devices(found):
    return [[device for device, _, _ in results] for results in found]


def is_apart(found):
    """Whether each of two claims has a card of its own."""
    return sorted(devices(found)) == [["gpu-0"], ["gpu-1"]]


def profile(device):
    return re.sub(r"^gpu-\d+-mig-|-\d+-\d+$", "", device)


def size(listed, name):
    """MiB of a device."""
    return next(
        one.capacity["memory"].value // MIB
        for each in listed
        for one in each.devices
        if one.name == name
    )
