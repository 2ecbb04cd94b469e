"""How GPUs are handed to virtual machines, by the configs of their claims."""

import config_cases
import mig_cards
import pytest

from dra_driver import errors
from dra_driver.logic.offering import catalog
from dra_driver.logic.preparing import sharing_plan
from dra_driver.model import claims, devices, sharing, slices

REF = claims.ClaimRef("team-a", "vm", claims.ClaimUid("0a1b"))
CARD = catalog.passed(
    mig_cards.dynamic("h100-80gb-hbm3:1")[0],
    devices.VfioMode.ON,
    devices.Passthrough(devices.PciAddress("0000:41:00.0"), 0x10DE, 0x2330, 12, "pci:"),
)


def needs(*names, configs=()):
    claimed = [
        sharing_plan.Claimed(
            claims.Result(f"r{number}", slices.DeviceId(mig_cards.DRIVER, "node-1", name)),
            CARD.offers[name],
        )
        for number, name in enumerate(names)
    ]
    given = [claims.OpaqueConfig(mig_cards.DRIVER, one, ("r0",), "FromClaim") for one in configs]
    allocation = claims.Allocation(tuple(one.result for one in claimed), tuple(given))
    body = claims.ResourceClaim(REF, allocation=allocation)
    return sharing_plan.needs(REF, body, mig_cards.DRIVER, claimed, {})


def refusal(*names, configs):
    with pytest.raises(errors.Rejected) as caught:
        needs(*names, configs=configs)
    return str(caught.value)


def test_a_gpu_is_handed_over_as_its_config_says():
    modern = sharing.Vfio(sharing.BackendPolicy.PREFER_IOMMU_FD, api_device=True)
    body = config_cases.vfio({"backendPolicy": "PreferIommuFD", "enableAPIDevice": True})
    found = needs("gpu-vfio-0", "gpu-0", configs=[body])
    assert found.vfio == {"gpu-vfio-0": modern}
    assert not found.remembered


def test_without_a_config_it_is_handed_over_as_the_peer_does():
    assert needs("gpu-vfio-0").vfio == {"gpu-vfio-0": sharing.Vfio()}


def test_mps_on_a_gpu_for_a_virtual_machine_is_refused():
    text = refusal("gpu-vfio-0", configs=[config_cases.gpu({"strategy": "MPS"})])
    assert "GpuConfig cannot be applied to device gpu-vfio-0 of type vfio" in text


def test_a_config_for_virtual_machines_is_refused_on_another_device():
    text = refusal("gpu-0", configs=[config_cases.vfio()])
    assert text.startswith("claim team-a/vm (0a1b): request 'r0', config[0] (FromClaim): Vfio")
