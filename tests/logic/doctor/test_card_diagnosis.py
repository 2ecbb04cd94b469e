"""What the doctor says of each GPU."""

import dataclasses

import mig_cards

from dra_driver.logic.doctor import card_diagnosis, diagnosis
from dra_driver.model import devices

H100 = dataclasses.replace(mig_cards.gpu(mig_cards.H100), persistence_mode=True)
OTHER = dataclasses.replace(H100, index=1, minor=1, uuid="GPU-1", product_name="NVIDIA GB10")
NAMED = "GPU 1 (NVIDIA GB10)"


def notes(*gpus):
    """What is not fine, by check."""
    found = card_diagnosis.findings(gpus, "NVML")
    return {one.check: one for one in found if one.level is not diagnosis.Level.FINE}


def other(**facts):
    return dataclasses.replace(OTHER, **facts)


def test_gpus_like_most_are_fine():
    found = card_diagnosis.findings([H100, OTHER], "NVML")
    assert found == [diagnosis.fine("persistence mode", "NVML", "it is on")]


def test_of_no_gpu_nothing_is_said():
    assert card_diagnosis.findings([], "NVML") == []


def test_persistence_mode_that_is_off_is_a_note_with_what_turns_it_on():
    [note] = notes(H100, other(persistence_mode=False)).values()
    assert (note.level, note.check) == (diagnosis.Level.NOTE, "persistence mode")
    assert note.cause.startswith(f"off for {NAMED}: ")
    assert "slow" in note.cause
    assert "nvidia-persistenced" in note.remedy


def test_persistence_mode_that_nobody_knows_is_no_note():
    assert notes(other(persistence_mode=None)) == {}


def test_memory_that_is_not_known_is_a_note():
    note = notes(H100, other(memory_bytes=None))["memory"]
    assert note.cause.startswith(f"{NAMED}: NVML does not tell how much memory it has")
    assert "not shared" in note.cause
    assert "`productName`" in note.remedy


def test_vgpus_are_noted_and_gpus_that_are_passed_through_are_not():
    vgpu = other(virtualization=devices.Virtualization.VGPU)
    whole = dataclasses.replace(H100, virtualization=devices.Virtualization.PASSTHROUGH)
    note = notes(whole, vgpu)["vGPU"]
    assert note.cause.startswith(f"{NAMED}: a part of a GPU that the hypervisor has cut")


def test_a_gpu_that_no_cuda_program_may_use_is_noted():
    assert notes(other(compute_mode=2))["compute mode"].cause.startswith(f"{NAMED}: ")
    assert notes(other(compute_mode=3)) == {}


def test_time_slices_are_fine_where_the_driver_says_of_no_gpu_that_it_has_none():
    for gpus in ([H100, other(time_slices=True)], [other(time_slices=None)], []):
        found = card_diagnosis.time_slices(gpus, "/", "/usr/bin/nvidia-smi")
        assert found == diagnosis.fine("time slices", "/", "/usr/bin/nvidia-smi")


def test_a_gpu_without_time_slices_is_noted():
    found = card_diagnosis.time_slices([H100, other(time_slices=False)], "/", "/usr/bin/nvidia-smi")
    assert found.level is diagnosis.Level.NOTE
    assert f"{NAMED} has none to set: `timeSliceCapable` is false" in found.cause


def test_a_gpu_of_which_nvml_does_not_tell_enough_is_no_matter_of_a_reset():
    silent = devices.GpuFailure(0, None, None, "NVML error 15")
    lacking = devices.GpuFailure(1, None, None, "no PCI address", missing=("PCI address",))
    first, second = diagnosis.gpus(devices.Discovery((), (silent, lacking)), "NVML")
    assert first.remedy.startswith("reset the GPU")
    assert "Jetson" in second.remedy
    assert "reset" not in second.remedy
