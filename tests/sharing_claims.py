"""Claims whose devices are shared: their configs, and their shares of devices."""

import uuid

import mig_node

from dra_driver.model import claims

GPU, OTHER_GPU, PARTITION = "gpu-0", "gpu-1", mig_node.FIRST
FOR_VM = "gpu-vfio-2"


def config(kind, requests=(), **sharing_fields):
    """An entry of an allocation's configs."""
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind}
    return {
        "source": "FromClaim",
        "requests": list(requests),
        "opaque": {
            "driver": mig_node.DRIVER,
            "parameters": parameters | {"sharing": sharing_fields},
        },
    }


def time_slicing(interval, *requests):
    fields = {"interval": interval}
    return config("GpuConfig", requests, strategy="TimeSlicing", timeSlicingConfig=fields)


def mps_gpu(*requests, **fields):
    return config("GpuConfig", requests, strategy="MPS", mpsConfig=fields)


def mps_mig(*requests, **fields):
    return config("MigDeviceConfig", requests, strategy="MPS", mpsConfig=fields)


def share(device=GPU, *, memory=None, **capacity):
    """A result that is a share of a device; `memory` in GiB."""
    amounts = {"memory": f"{memory}Gi"} if memory else {}
    amounts |= {name: str(amount) for name, amount in capacity.items()}
    return {"device": device, "shareID": str(uuid.uuid4()), "consumedCapacity": amounts}


class Claims(mig_node.Claims):
    """Claims with configs, namespaces and shares."""

    def give(self, *results, namespace="default", configs=()):
        """A claim that is allocated to these, each a device or a share, as requests r0, r1, …"""
        number = next(self._numbers)
        ref = claims.ClaimRef(namespace, f"claim-{number}", claims.ClaimUid(f"uid-{number}"))
        self.give_anew(ref, *results, configs=configs)
        return ref

    def give_anew(self, ref, *results, configs=()):
        found = [
            {"request": f"r{number}", "driver": mig_node.DRIVER, "pool": mig_node.POOL}
            | ({"device": result} if isinstance(result, str) else result)
            for number, result in enumerate(results)
        ]
        devices = {"results": found, "config": list(configs)}
        self.known[ref.name] = claims.parse(
            {
                "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid},
                "status": {"allocation": {"devices": devices}},
            }
        )

    def share(self, *, namespace="default", **amounts):
        """A claim with one share."""
        return self.give(share(**amounts), namespace=namespace)
