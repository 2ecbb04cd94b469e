"""Devices and slices to publish, and a server that keeps slices as the API does."""

import copy
import itertools

from dra_driver.logic.offering import publishing
from dra_driver.model import quantities, slices

OWNER = publishing.Owner("gpu.nvidia.com", "node-1", "node-uid-1")
TAINT = {"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}


def device(number, **extra):
    return slices.Device(
        f"gpu-{number}", {"minor": number}, {"memory": quantities.parse("80Gi")}, extra
    )


def devices(count, **extra):
    return [device(number, **extra) for number in range(count)]


def content(*numbers):
    """The desired content of a slice with these devices."""
    return {"devices": [{"name": f"gpu-{n}"} for n in numbers]} if numbers else {}


class Server:
    """Stores slices as the API does; counts what it was asked for."""

    def __init__(self, *bodies, gives_times=False):
        """With `gives_times` a taint without a time gets one."""
        self._gives_times = gives_times
        self._names = itertools.count()
        self.slices = {}
        for body in bodies:
            self.put(copy.deepcopy(body))

    def put(self, body):
        metadata = body["metadata"]
        metadata.setdefault("name", f"{metadata.get('generateName')}{next(self._names):05d}")
        metadata["resourceVersion"] = str(next(self._names))
        if self._gives_times:
            for device in body["spec"].get("devices", ()):
                for taint in device.get("taints", ()):
                    taint.setdefault("timeAdded", TIME)
        self.slices[metadata["name"]] = body

    def existing(self):
        return [self.slices[name] for name in sorted(self.slices)]

    def apply(self, changes):
        for body in changes.delete:
            assert self.slices[body["metadata"]["name"]] == body
            del self.slices[body["metadata"]["name"]]
        for body in changes.update:
            assert body["metadata"] == self.slices[body["metadata"]["name"]]["metadata"]
            self.put(copy.deepcopy(body))
        for body in changes.create:
            assert "name" not in body["metadata"]
            self.put(copy.deepcopy(body))

    def reconcile(self, desired, accepted=None):
        before = copy.deepcopy(self.existing())
        changes = publishing.reconcile(OWNER, desired, self.existing(), accepted or {})
        assert self.existing() == before
        self.apply(changes)
        return tuple(
            [body["metadata"].get("name") or body["metadata"]["generateName"] for body in part]
            for part in (changes.delete, changes.update, changes.create)
        )

    def pool(self):
        """(generation, count, device names) of each slice."""
        return [
            (
                body["spec"]["pool"]["generation"],
                body["spec"]["pool"]["resourceSliceCount"],
                [item["name"] for item in body["spec"].get("devices", ())],
            )
            for body in self.existing()
        ]


def stored(name, body, *, generation=1, count=1, pool="node-1"):
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": "node-1",
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"},
        "spec": spec | copy.deepcopy(body),
    }


PREFIX = "00000-gpu.nvidia.com-node-1-"


def tainted(number, *taints):
    return {"name": f"gpu-{number}", "taints": [dict(taint) for taint in taints]}


TIME = "2026-07-01T12:00:00Z"
