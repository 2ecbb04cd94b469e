"""Which GPUs of virtual machines are not where they should be."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.passthrough import standing
from dra_driver.model import bindings, devices, pci, prepared

AT, AUDIO_AT = devices.PciAddress("0000:41:00.0"), devices.PciAddress("0000:41:00.1")
GPU = pci.Function(AT, 0x10DE, 0x2330, 0x030200, "pci:v0", "nvidia", group=12)
AUDIO = pci.Function(AUDIO_AT, 0x10DE, 0x1AEF, 0x040300, "pci:v1", None, group=12)
BINDING = bindings.Binding(
    device="gpu-vfio-0",
    gpu="GPU-a",
    address=AT,
    group=12,
    module="vfio_pci",
    driver="vfio-pci",
    functions=(
        bindings.Function(address=AT, driver="nvidia"),
        bindings.Function(address=AUDIO_AT),
    ),
)
DONE, BEGUN = prepared.Phase.COMPLETED, prepared.Phase.STARTED


def record(*cards, phase=DONE):
    device = prepared.PreparedDevice(
        requests=("r",), pool="n", device="gpu-vfio-0", cdi_ids=(), kind="vfio"
    )
    return bindings.into(
        prepared.Record(
            uid="u",
            namespace="team",
            name="vm",
            phase=phase,
            boot_id="b",
            devices=(device,),
            gpus={"gpu-0": "GPU-a"},
        ),
        cards or (BINDING,),
    )


def bus(gpu="nvidia", audio=None):
    """What the two functions are bound to."""
    listed = dataclasses.replace(GPU, driver=gpu), dataclasses.replace(AUDIO, driver=audio)
    return pci.Bus({one.address: one for one in listed}, has_iommu=True)


def stands(known, there, *, served=("GPU-a",), **facts):
    return standing.of(known, there, served=served, **facts)


def test_a_gpu_that_is_bound_as_its_claim_has_it_is_where_it_should_be():
    assert stands([record()], bus("vfio-pci", "vfio-pci"), served=()) == standing.Standing()


@pytest.mark.parametrize(
    ("there", "named"),
    [
        (bus(None, "vfio-pci"), "0000:41:00.0 (10de:2330, no driver)"),
        (bus("nouveau", "vfio-pci"), "0000:41:00.0 (10de:2330, nouveau)"),
        (bus("nvidia", "vfio-pci"), "0000:41:00.0 (10de:2330, nvidia)"),
        (bus("vfio-pci", "snd_hda_intel"), "0000:41:00.1 (10de:1aef, snd_hda_intel)"),
    ],
)
def test_a_function_that_is_not_bound_as_the_claim_has_it_is_named(there, named):
    reason = stands([record()], there).stranded["GPU-a"]
    assert reason.startswith(f"a virtual machine is to have the GPU by vfio-pci, and {named} is")
    assert reason.endswith("(claim team/vm)")


@pytest.mark.parametrize("phase", [DONE, BEGUN])
def test_a_gpu_that_could_not_be_brought_back_is_told(phase):
    found = stands([record(phase=phase)], bus(None), leaving={"u"}).stranded
    assert "could not be brought back: 0000:41:00.0 (10de:2330, no driver)" in found["GPU-a"]
    found = stands([record(phase=phase)], bus("vfio-pci"), leaving={"u"}).stranded
    assert "(10de:2330, vfio-pci) is to be bound to nvidia" in found["GPU-a"]


def test_a_gpu_whose_prepare_ended_half_way_is_told_and_one_that_is_where_it_was_is_not():
    half_way = record(phase=BEGUN)
    assert "is to be bound to nvidia" in stands([half_way], bus(None)).stranded["GPU-a"]
    assert stands([half_way], bus("nvidia")).stranded == {}


def test_a_gpu_that_nvidia_has_again_is_back_once_nvml_lists_it():
    back = [record()], bus("nvidia")
    assert stands(*back, leaving={"u"}).stranded == {}
    assert "NVML does not list it" in stands(*back, leaving={"u"}, served=()).stranded["GPU-a"]
    assert stands(*back, leaving={"u"}, served=None).stranded == {}


def test_a_function_that_is_gone_from_the_bus_is_told():
    found = stands([record()], pci.Bus({}, has_iommu=True)).stranded
    assert "0000:41:00.0 is not on the PCI bus any more" in found["GPU-a"]


def test_a_gpu_that_somebody_else_has_bound_is_theirs():
    found = BINDING.model_copy(update={"found": True, "functions": ()})
    assert stands([record(found)], bus(None)) == standing.Standing()


def test_of_a_gpu_that_somebody_is_at_work_on_nothing_is_said():
    found = stands([record()], bus(None), busy={"u"})
    assert found == standing.Standing({}, frozenset({"GPU-a"}))


def test_a_record_whose_bindings_cannot_be_read_is_told_for_its_gpu():
    part = prepared.Part(version=bindings.VERSION, content={"kind": "bindings", "cards": 7})
    damaged = record().model_copy(update={"parts": {bindings.PART: part}})
    assert "that is not known: claim team/vm" in stands([damaged], bus()).stranded["GPU-a"]


def test_a_gpu_that_was_taken_and_that_no_record_tells_of_is_told_until_it_is_back():
    taken = {"GPU-a": AT}
    assert "no driver" in stands([], bus(None), taken=taken).stranded["GPU-a"]
    assert "vfio-pci) is to be" in stands([], bus("vfio-pci"), taken=taken).stranded["GPU-a"]
    assert stands([], bus("nvidia"), taken=taken).stranded == {}
    assert stands([record()], bus("vfio-pci", "vfio-pci"), taken=taken).stranded == {}


DRIVERS = st.sampled_from([None, "nvidia", "vfio-pci", "nouveau"])


@given(DRIVERS, DRIVERS, st.sampled_from([DONE, BEGUN]), st.booleans())
def test_a_gpu_is_where_its_record_has_it_or_told(gpu, audio, phase, is_leaving):
    found = stands([record(phase=phase)], bus(gpu, audio), leaving={"u"} if is_leaving else ())
    is_had = phase is DONE and not is_leaving
    is_right = {gpu, audio} == {"vfio-pci"} if is_had else gpu == "nvidia"
    assert bool(found.stranded) is not is_right


def test_why_nvml_does_not_tell_of_a_gpu_names_driver_and_claim():
    assert standing.told("GPU-a", [record()]) == (
        "bound to vfio-pci for claim team/vm: NVML does not see it"
    )
    assert standing.told("GPU-b", [record()]) == (
        "bound to a VFIO driver by somebody else: NVML does not see it"
    )
