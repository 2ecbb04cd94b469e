import dataclasses

import pytest

from dra_driver import errors
from dra_driver.logic.passthrough import nodes
from dra_driver.model import devices, pci, sharing

BOUND = pci.Function(
    devices.PciAddress("0000:41:00.0"), 0x10DE, 0x2330, 0x030200, "", "vfio-pci", group=12,
    cdev="vfio3",
)  # fmt: skip
LEGACY, FD = sharing.BackendPolicy.LEGACY_ONLY, sharing.BackendPolicy.PREFER_IOMMU_FD


@pytest.mark.parametrize(
    ("policy", "has_iommufd", "api", "expected"),
    [
        (LEGACY, True, False, ("/dev/vfio/12",)),
        (LEGACY, True, True, ("/dev/vfio/12", "/dev/vfio/vfio")),
        (FD, False, True, ("/dev/vfio/12", "/dev/vfio/vfio")),
        (FD, True, False, ("/dev/vfio/devices/vfio3",)),
        (FD, True, True, ("/dev/vfio/devices/vfio3", "/dev/iommu")),
    ],
)
def test_a_container_gets_the_nodes_that_its_config_asks_for(policy, has_iommufd, api, expected):
    how = sharing.Vfio(policy, api_device=api)
    assert nodes.of(BOUND, how, has_iommufd=has_iommufd) == expected


def test_a_kernel_with_iommufd_and_without_device_nodes_is_told():
    bound = dataclasses.replace(BOUND, cdev=None)
    with pytest.raises(errors.Retryable, match="CONFIG_VFIO_DEVICE_CDEV"):
        nodes.of(bound, sharing.Vfio(FD), has_iommufd=True)
