"""Device health in a pod's status: what its containers have of devices, and how these are."""

from collections.abc import Mapping
from typing import Any

from dra_driver.model import prepared as prepared_claims
from dra_driver.sim.cluster import claim_cache, device_health

Json = dict[str, Any]


def allocated(
    container: Json, prepared: Mapping[str, claim_cache.PreparedClaim], cache: device_health.Cache
) -> list[Json]:
    """A container's `allocatedResourcesStatus`: an entry for each claim, or request of one, that it
    uses and that has devices.

    What it has for extended resources is not told of (kubernetes/kubernetes#139939).

    Source: UpdateAllocatedResourcesStatus in `pkg/kubelet/cm/dra/manager.go`.
    """
    entries = []
    for use in (container.get("resources") or {}).get("claims") or ():
        claim, request = prepared.get(use["name"]), use.get("request")
        resources: dict[str, Json] = {}
        for driver, device in claim.of(request) if claim else ():
            resource = device.cdi_ids[0] if device.cdi_ids else _name(driver, device)
            health, message = cache.health(driver, device.pool, device.device)
            told = {"message": message} if message else {}
            # Of several devices with one name the first is told of.
            resources.setdefault(resource, {"resourceID": resource, "health": health, **told})
        if resources:
            name = f"claim:{use['name']}" + (f"/{request}" if request else "")
            entries.append({"name": name, "resources": list(resources.values())})
    return entries


def _name(driver: str, device: prepared_claims.PreparedDevice) -> str:
    return f"{driver}/{device.pool}/{device.device}"
