"""What the doctor makes of the PCI bus where GPUs are handed to virtual machines."""

import dataclasses

import mig_cards
import pytest

from dra_driver.logic.doctor import passthrough_diagnosis
from dra_driver.model import bindings, devices, pci, prepared

AT, SECOND_AT, DISK_AT = (
    devices.PciAddress(text) for text in ("0000:41:00.0", "0000:42:00.0", "0000:43:00.0")
)
GPU = pci.Function(AT, 0x10DE, 0x2330, 0x030200, "pci:v0", "nvidia", group=12)
SECOND = dataclasses.replace(GPU, address=SECOND_AT, group=13)
DISK = pci.Function(DISK_AT, 0x144D, 0xA808, 0x010802, "pci:v2", "nvme", group=12)
LOADED = passthrough_diagnosis.Module("vfio_pci", "vfio-pci", is_known=True, has_loader=True)


def seen(*functions, has_iommu=True, has_iommufd=True, **facts):
    listed = functions or (GPU, SECOND)
    bus = pci.Bus({one.address: one for one in listed}, has_iommu, has_iommufd)
    return passthrough_diagnosis.Seen(bus, **{"modules": (LOADED,)} | facts)


def told(*functions, **facts):
    """Level, what was looked at (its last part), cause and remedy of what is not fine."""
    return [
        (one.level.value, one.looked_at.rpartition("/")[2], one.cause, one.remedy)
        for one in passthrough_diagnosis.findings(seen(*functions, **facts))
        if one.level != "fine"
    ]


def fine(*functions, **facts):
    found = passthrough_diagnosis.findings(seen(*functions, **facts))
    return [one.cause for one in found if one.level == "fine"]


def test_a_node_that_can_hand_over_all_is_fine():
    assert told() == []
    assert fine() == [
        "it is on",
        "is there",
        "is loaded, with the driver vfio-pci",
        "can be handed over: 0000:41:00.0, 0000:42:00.0",
    ]


def test_without_an_iommu_it_is_told_once_how_to_switch_it_on():
    [(level, looked_at, cause, remedy)] = told(has_iommu=False, has_iommufd=False)
    assert (level, looked_at) == ("problem", "iommu_groups")
    assert cause.startswith("the IOMMU is off")
    assert "intel_iommu=on" in remedy
    assert "amd_iommu=on" in remedy
    assert not any("can be handed over" in text for text in fine(has_iommu=False))


def test_without_iommufd_groups_are_used():
    [(level, looked_at, cause, remedy)] = told(has_iommufd=False)
    assert (level, looked_at) == ("note", "iommu")
    assert "by IOMMU group" in cause
    assert remedy.startswith("modprobe iommufd")


def test_a_module_is_loaded_or_there_to_be_loaded_or_a_problem():
    waiting = dataclasses.replace(LOADED, driver=None)
    assert "is there, and loaded for the first claim" in fine(modules=[waiting])
    unknown = dataclasses.replace(waiting, name="nvgrace_gpu_vfio_pci", is_known=False)
    [(level, looked_at, cause, remedy)] = told(modules=[unknown])
    assert (level, looked_at) == ("problem", "nvgrace_gpu_vfio_pci")
    assert "has no such module" in cause
    assert remedy.startswith("modprobe nvgrace_gpu_vfio_pci on the node")
    bare = dataclasses.replace(waiting, has_loader=False)
    [(_, _, cause, remedy)] = told(modules=[bare])
    assert "no modprobe below --host-root" in cause
    assert "settings.vfio" in remedy


def test_the_node_of_vfio_has_to_be_there_once_its_module_is_loaded():
    assert told(has_api=False)[0][:2] == ("problem", "vfio")
    assert told(has_api=False, modules=[dataclasses.replace(LOADED, driver=None)]) == []


@pytest.mark.parametrize(
    ("functions", "cause", "remedy"),
    [
        (
            (dataclasses.replace(GPU, driver=None),),
            "0000:41:00.0 has no driver",
            "bind it to nvidia (echo 0000:41:00.0 > /sys/bus/pci/drivers/nvidia/bind)",
        ),
        (
            (dataclasses.replace(GPU, driver="nouveau"),),
            "0000:41:00.0 is bound to nouveau",
            "only a GPU that nvidia or a VFIO driver has is handed over",
        ),
        (
            (dataclasses.replace(GPU, physical=SECOND_AT),),
            "0000:41:00.0 is a virtual function of 0000:42:00.0",
            "leave it out by a rule",
        ),
        ((GPU, DISK), "IOMMU group 12 of 0000:41:00.0 has 0000:43:00.0", "move one of the two"),
        (
            (dataclasses.replace(GPU, virtual_functions=4),),
            "4 virtual functions of it are on",
            "echo 0 > /sys/bus/pci/devices/0000:41:00.0/sriov_numvfs",
        ),
    ],
)
def test_why_a_gpu_cannot_be_handed_over_is_told_with_what_to_do(functions, cause, remedy):
    [(level, looked_at, said, todo)] = told(*functions)
    assert (level, looked_at) == ("note", AT)
    assert said.startswith(cause)
    assert todo.startswith(remedy)
    assert "can be handed over" not in " ".join(fine(*functions))


def test_a_gpu_in_mig_mode_and_one_that_is_held_open_are_told():
    [card] = mig_cards.node("h100-80gb-hbm3:1")
    card = dataclasses.replace(card, pci_address=AT, mig_enabled=True)
    holders = {SECOND_AT: "nv-hostengine (pid 7)"}
    mig, held = told(gpus=[card], holders=holders)
    assert mig[1] == AT
    assert mig[2].startswith("GPU 0 is in MIG mode")
    assert held[1] == SECOND_AT
    assert held[2].startswith("it is held open by nv-hostengine (pid 7)")


def record(*, found=False):
    device = prepared.PreparedDevice(
        requests=("r",), pool="n", device="gpu-vfio-0", cdi_ids=(), kind="vfio"
    )
    binding = bindings.Binding(
        device="gpu-vfio-0", gpu="GPU-a", address=AT, group=12, found=found, driver="vfio-pci"
    )
    empty = prepared.Record(
        uid="u",
        namespace="team",
        name="vm",
        phase=prepared.Phase.COMPLETED,
        boot_id="b",
        devices=(device,),
    )
    return bindings.into(empty, (binding,))


def test_a_gpu_of_a_claim_is_fine_and_named_with_it():
    bound = dataclasses.replace(GPU, driver="vfio-pci")
    text = "0000:41:00.0 is bound to vfio-pci for claim team/vm"
    assert text in fine(bound, known=[record()])
    assert f"{text}, as it was found" in fine(bound, known=[record(found=True)])
    assert told(bound, known=[record()]) == []


def test_a_gpu_of_a_claim_that_is_not_bound_is_a_problem():
    [(level, _, cause, remedy)] = told(dataclasses.replace(GPU, driver=None), known=[record()])
    assert level == "problem"
    assert cause == (
        "0000:41:00.0 (10de:2330, no driver) is not bound to vfio-pci, for claim team/vm"
    )
    assert "delete that" in remedy
