"""What must have been remembered of a GPU that a virtual machine has."""

import dataclasses

import mig_cards
import pytest

from dra_driver.logic.passthrough import recalling
from dra_driver.model import bindings, devices, pci

[CARD] = mig_cards.node("h100-80gb-hbm3:1")
AT = devices.PciAddress("0000:41:00.0")
CARD = dataclasses.replace(CARD, pci_address=AT, persistence_mode=True)
GPU = pci.Function(AT, 0x10DE, 0x2330, 0x030200, "pci:v0", "vfio-pci", group=12)
AUDIO_AT = devices.PciAddress("0000:41:00.1")
AUDIO = pci.Function(AUDIO_AT, 0x10DE, 0x1AEF, 0x040300, "pci:v1", "vfio-pci", group=12)
NODES = ("/dev/vfio/12",)


def recalled(*functions, is_ours):
    bus = pci.Bus({one.address: one for one in functions}, has_iommu=True)
    return recalling.binding("gpu-vfio-0", CARD, bus, is_ours=is_ours, nodes=NODES)


def test_what_this_driver_took_goes_back_to_nvidia_with_all_of_the_card():
    assert recalled(GPU, AUDIO, is_ours=True) == bindings.Binding(
        device="gpu-vfio-0",
        gpu=CARD.uuid,
        address=AT,
        group=12,
        module="vfio_pci",
        driver="vfio-pci",
        functions=(
            bindings.Function(address=AT, driver="nvidia"),
            bindings.Function(address=AUDIO_AT),
        ),
        persistence=True,
        nodes=NODES,
        facts=CARD,
    )


def test_what_is_not_known_to_be_ours_is_never_taken_from_who_has_it():
    found = recalled(GPU, AUDIO, is_ours=False)
    assert (found.found, found.functions, found.persistence) == (True, (), False)
    assert found.driver == "vfio-pci"


@pytest.mark.parametrize("driver", ["nvidia", "nouveau", None])
def test_what_no_vfio_driver_has_and_is_not_ours_is_nothing_of_the_claim_s(driver):
    assert recalled(dataclasses.replace(GPU, driver=driver), is_ours=False) is None


def test_what_is_ours_and_half_way_is_brought_back_all_the_same():
    found = recalled(dataclasses.replace(GPU, driver=None), is_ours=True)
    assert found.functions == (bindings.Function(address=AT, driver="nvidia"),)
    assert (found.found, found.driver) == (False, None)


def test_of_a_gpu_that_is_not_on_the_bus_nothing_is_known():
    assert recalled(is_ours=True) is None
