"""Which device nodes a virtual machine's container is given.

Sources: Linux, `Documentation/driver-api/vfio.rst` (groups, the container `/dev/vfio/vfio`, devices
through IOMMUFD); the peer's VfioDeviceConfig, whose policy decides between the two.
"""

from dra_driver import errors
from dra_driver.model import pci, sharing

API = "/dev/vfio/vfio"
IOMMUFD = "/dev/iommu"


def of(function: pci.Function, how: sharing.Vfio, *, has_iommufd: bool) -> tuple[str, ...]:
    """The nodes of a function that a VFIO driver has, by path on the host.

    The group, or with IOMMUFD the device; and what the kernel is talked to through, if asked for.

    Raises:
        errors.Retryable: the kernel has IOMMUFD and does not offer the function through it.
    """
    if how.backend_policy is sharing.BackendPolicy.PREFER_IOMMU_FD and has_iommufd:
        if function.cdev is None:
            raise errors.Retryable(
                f"{function.address} has no node in /dev/vfio/devices though the kernel has "
                f"{IOMMUFD}: it needs CONFIG_VFIO_DEVICE_CDEV. Write backendPolicy LegacyOnly"
            )
        own, api = f"/dev/vfio/devices/{function.cdev}", IOMMUFD
    else:
        own, api = group(function.group), API
    return (own, api) if how.api_device else (own,)


def group(number: int | None) -> str:
    """The node of an IOMMU group."""
    return f"/dev/vfio/{number}"
