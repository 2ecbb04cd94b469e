import dataclasses

import pytest

from dra_driver.logic.passthrough import cards, hurdles
from dra_driver.model import devices, pci

AT, AUDIO_AT, OTHER_AT = (
    devices.PciAddress(text) for text in ("0000:41:00.0", "0000:41:00.1", "0000:42:00.0")
)
GPU = pci.Function(
    AT, 0x10DE, 0x2330, 0x030200, "pci:v0", "nvidia", group=12, memory_bytes=2**37, product="GH100"
)
AUDIO = pci.Function(AUDIO_AT, 0x10DE, 0x1AEF, 0x040300, "pci:v1", "snd_hda_intel", group=12)
DISK = pci.Function(OTHER_AT, 0x144D, 0xA808, 0x010802, "pci:v2", "nvme", group=12)
BRIDGE = dataclasses.replace(DISK, kind=0x060400, driver="pcieport")


def bus(*functions, **facts):
    return pci.Bus({one.address: one for one in functions}, **{"has_iommu": True} | facts)


def why_not(gpu=GPU, *others, **facts):
    found = cards.passable(gpu, bus(gpu, *others, **facts))
    assert isinstance(found, str)
    return found


def test_a_gpu_alone_in_its_group_is_passed_through():
    found = cards.passable(GPU, bus(GPU, has_iommufd=True))
    assert found == devices.Passthrough(
        AT, 0x10DE, 0x2330, 12, "pci:v0", (), "GH100", 2**37, iommufd=True
    )


def test_its_other_functions_go_along_and_bridges_do_not():
    found = cards.passable(GPU, bus(GPU, AUDIO, BRIDGE))
    assert found.companions == (AUDIO_AT,)


def test_a_function_of_the_card_in_another_group_stays_where_it_is():
    found = cards.passable(GPU, bus(GPU, dataclasses.replace(AUDIO, group=13)))
    assert found.companions == ()


def test_a_foreign_device_in_the_group_is_named():
    assert "has 0000:42:00.0 (144d:a808, nvme) too" in why_not(GPU, AUDIO, DISK)


def test_another_gpu_in_the_group_is_a_foreign_device():
    other = dataclasses.replace(GPU, address=OTHER_AT)
    assert "has 0000:42:00.0 (10de:2330, nvidia) too" in why_not(GPU, other)


def test_without_an_iommu_it_is_said_how_to_switch_it_on():
    text = why_not(dataclasses.replace(GPU, group=None), has_iommu=False)
    assert "intel_iommu=on" in text
    assert "amd_iommu=on" in text


def test_a_gpu_in_no_group_is_not_isolated():
    assert "0000:41:00.0 is in no IOMMU group" in why_not(dataclasses.replace(GPU, group=None))


def test_a_virtual_function_is_the_hypervisor_s():
    text = why_not(dataclasses.replace(GPU, physical=OTHER_AT))
    assert text.startswith("0000:41:00.0 is a virtual function of 0000:42:00.0")


def test_a_gpu_without_a_driver_is_told_with_the_command_that_binds_it():
    text = why_not(dataclasses.replace(GPU, driver=None))
    assert "echo 0000:41:00.0 > /sys/bus/pci/drivers/nvidia/bind" in text


def test_a_gpu_of_another_driver_is_told_with_its_name():
    assert "bound to nouveau" in why_not(dataclasses.replace(GPU, driver="nouveau"))


@pytest.mark.parametrize("driver", ["vfio-pci", "nvgrace-gpu-vfio-pci", "mlx5_vfio_pci"])
def test_a_gpu_that_somebody_bound_to_a_vfio_driver_is_passed_through_as_it_was_found(driver):
    assert cards.passable(dataclasses.replace(GPU, driver=driver), bus(GPU)).is_found


@pytest.mark.parametrize("driver", ["nvidia", "nouveau", "vfio-platform", None])
def test_other_drivers_are_no_vfio_drivers(driver):
    assert not cards.is_vfio_driver(driver)


@pytest.mark.parametrize(
    ("facts", "bus_facts", "word"),
    [
        ({"driver": None}, {}, "NoDriver"),
        ({"driver": "nouveau"}, {}, "OtherDriver"),
        ({"physical": OTHER_AT}, {}, "VirtualFunction"),
        ({"group": None}, {}, "NoIOMMUGroup"),
        ({"group": None}, {"has_iommu": False}, "IOMMUOff"),
    ],
)
def test_each_reason_has_a_word_that_slices_have_room_for(facts, bus_facts, word):
    reason = why_not(dataclasses.replace(GPU, **facts), **bus_facts)
    assert hurdles.word_of(reason) == word


def test_other_reasons_have_a_word_too():
    assert hurdles.word_of(why_not(GPU, DISK)) == "ForeignDeviceInGroup"
    assert hurdles.word_of("whatever") == "Other"
    assert hurdles.word_of(None) is None
    assert set(hurdles.TEXTS) == set(hurdles.Word)
