"""A writer of device status on an API server, and what it is told."""

import threading

import api_cluster

from dra_driver.apps.preparing import fetching
from dra_driver.apps.telling import device_status

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
NIC = {"driver": "nic.example.com", "device": "nic-0", "request": "nic"}
NIC_ENTRY = {
    "driver": "nic.example.com",
    "pool": api_cluster.NODE,
    "device": "nic-0",
    "data": {"mtu": 9000},
    "conditions": None,
}


class Source(fetching.ApiClaims):
    """Reads claims; what `between` holds happens once after a read, before its result is used."""

    def __init__(self, client):
        super().__init__(client, threading.Event())
        self.between = []

    def read(self, ref, deadline):
        body = super().read(ref, deadline)
        if self.between:
            self.between.pop(0)()
        return body


class Scene:
    """A writer on an API server."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.source = Source(cluster.client)
        self.now = EARLY
        self.writer = device_status.DeviceStatusWriter(
            cluster.client,
            self.source,
            api_cluster.DRIVER,
            pool=api_cluster.NODE,
            now=lambda: self.now,
        )

    def report(self, ref, *reports, served=None):
        """Report, and wait until all is written."""
        self.writer.report(ref, reports, served)
        assert self.writer.wait_idle(api_cluster.DEADLINE)

    def entries(self, ref):
        return (self.cluster.get_claim(ref).get("status") or {}).get("devices") or []

    def told(self, ref):
        """What is told of the driver's devices, in short: name, status, UUID."""
        return [
            (
                entry["device"],
                entry["conditions"][0]["status"],
                entry.get("data", {}).get("uuid", {}).get("string"),
            )
            for entry in self.entries(ref)
            if entry["driver"] == api_cluster.DRIVER
        ]

    def version(self, ref):
        return self.cluster.get_claim(ref)["metadata"]["resourceVersion"]

    def write_nic(self, ref):
        """What the other driver writes, as a list that it has read."""
        body = self.cluster.get_claim(ref)
        body["status"]["devices"] = [NIC_ENTRY, *(body["status"].get("devices") or ())]
        self.cluster.client.replace_status(self.cluster.claims, body, ref.namespace)

    def refusing(self, *faults):
        """Inside the block the next writes of the status of claims meet these faults, one each."""
        left = iter(faults)

        def rule(call):
            hit = call.resource == "resourceclaims" and call.verb == "patch"
            return next(left, None) if hit else None

        return self.cluster.faults.where(rule)


def report(device="gpu-0", *, ready=True, uuid="GPU-1", share_id=None):
    return device_status.DeviceReport(
        pool=api_cluster.NODE,
        device=device,
        ready=ready,
        reason="Prepared" if ready else "Lost",
        message="as the claim asks",
        share_id=share_id,
        data={"uuid": uuid, "gpuInstanceId": None},
    )
