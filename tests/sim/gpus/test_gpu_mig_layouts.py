"""What simulated GPUs can be cut into: profiles, places, and what fits side by side."""

import ctypes
import json
import pathlib
import subprocess
import sys

import effort
import pynvml
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dra_driver.sim.gpus import gpu_mig_rules, gpu_models, gpu_state, gpus

RECORDINGS = pathlib.Path(__file__).parents[4] / "shared" / "gpus" / "recorded"
MIG_MODELS = [name for name in gpu_models.names() if gpu_models.load(name).mig_capable]


def placements(library, handle, profile_id):
    count = ctypes.c_uint()
    library.nvmlDeviceGetGpuInstancePossiblePlacements(
        handle, profile_id, None, ctypes.byref(count)
    )
    places = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    library.nvmlDeviceGetGpuInstancePossiblePlacements(
        handle, profile_id, places, ctypes.byref(count)
    )
    return [(place.start, place.size) for place in places]


def profile_answers(library, handle, indices):
    answers = {}
    for index in indices:
        try:
            info = library.nvmlDeviceGetGpuInstanceProfileInfo(handle, index)
        except library.NVMLError as error:
            answers[str(index)] = error.value
        else:
            answers[str(index)] = (vars(info), placements(library, handle, info.id))
    return answers


def put(gpu, profile, place):
    number = gpu_mig_rules.smallest_free([there.id for there in gpu.gpu_instances])
    gpu.gpu_instances.append(
        gpu_state.GpuInstance(id=number, profile_id=profile.id, start=place[0], size=place[1])
    )


def empty(name):
    return gpu_state.Gpu(model=name, minor=0, uuid="GPU-0", serial="", pci_address="")


@pytest.mark.parametrize(
    ("recording", "model"),
    [("h100-80gb-hbm3-x1", "h100-80gb-hbm3"), ("h200-x2", "h200-141gb")],
)
def test_profiles_are_answered_as_the_recorded_machine_did(tmp_path, recording, model):
    path = RECORDINGS / f"{recording}.nvml.json"
    if not path.exists():
        pytest.skip(f"no recording {path}")
    recorded = json.loads(path.read_text())["devices"][0]["gpuInstanceProfiles"]
    library = gpus.SimulatedNvml(tmp_path, spec=f"{model}:1")
    library.nvmlInit()

    answers = profile_answers(
        library, library.nvmlDeviceGetHandleByIndex(0), [int(index) for index in recorded]
    )
    for index, wanted in recorded.items():
        if "nvmlError" in wanted["info"]:
            assert answers[index] == wanted["info"]["nvmlError"], index
        else:
            info, places = answers[index]
            assert info == wanted["info"]
            assert places == [(place["start"], place["size"]) for place in wanted["placements2v"]]


def test_an_engine_that_is_used_up_leaves_no_room():
    plain = gpu_models.load("h100-80gb-hbm3")
    # A second profile that takes the only OFA engine.
    greedy = plain.profile(15).model_copy(update={"ofa_engines": 1, "instances": 1})
    others = [profile for profile in plain.gpu_instance_profiles if profile.id != 15]
    model = plain.model_copy(update={"gpu_instance_profiles": (*others, greedy)})
    gpu = empty("h100-80gb-hbm3")

    assert gpu_mig_rules.has_room(model, gpu, greedy, (6, 2))
    put(gpu, model.profile(20), (0, 1))

    assert not gpu_mig_rules.has_room(model, gpu, greedy, (6, 2))
    assert gpu_mig_rules.has_room(model, gpu, model.profile(19), (6, 1))


def test_a_profile_has_no_more_instances_than_it_says():
    plain = gpu_models.load("h100-80gb-hbm3")
    rare = plain.profile(14).model_copy(update={"instances": 1})
    others = [profile for profile in plain.gpu_instance_profiles if profile.id != 14]
    model = plain.model_copy(update={"gpu_instance_profiles": (*others, rare)})
    gpu = empty("h100-80gb-hbm3")

    put(gpu, rare, (0, 2))

    assert not gpu_mig_rules.has_room(model, gpu, rare, (2, 2))
    assert gpu_mig_rules.has_room(plain, gpu, plain.profile(14), (2, 2))


CREATE = """
import pathlib, sys
from dra_driver.sim.gpus import gpus
library = gpus.SimulatedNvml(pathlib.Path(sys.argv[1]))
library.nvmlInit()
handle = library.nvmlDeviceGetHandleByIndex(0)
made = 0
for _ in range(7):
    try:
        instance = library.nvmlDeviceCreateGpuInstance(handle, 19)
    except library.NVMLError_InsufficientResources:
        break
    library.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    made += 1
print(made)
"""


def test_processes_never_take_one_place_twice(tmp_path):
    library = gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:1")
    library.nvmlInit()
    library.nvmlDeviceSetMigMode(library.nvmlDeviceGetHandleByIndex(0), 1)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", CREATE, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    made = [int(worker.communicate(timeout=60)[0]) for worker in workers]

    there = gpu_state.open_file(tmp_path).read().gpus[0].gpu_instances
    assert sum(made) == 7
    assert sorted(instance.start for instance in there) == list(range(7))
    assert sorted(instance.id for instance in there) == list(range(7))
    assert len({instance.compute_instances[0].uuid for instance in there}) == 7


@pytest.mark.parametrize("name", MIG_MODELS)
@given(data=st.data())
@settings(
    max_examples=effort.examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
def test_no_layout_has_more_than_the_gpu(name, data):
    model = gpu_models.load(name)
    gpu = empty(name)
    for _ in range(data.draw(st.integers(1, 8))):
        profile = data.draw(st.sampled_from(model.gpu_instance_profiles))
        place = data.draw(st.sampled_from(profile.placements))
        if gpu_mig_rules.has_room(model, gpu, profile, place):
            put(gpu, profile, place)

    slices = [there.start + offset for there in gpu.gpu_instances for offset in range(there.size)]
    used = [model.profile(there.profile_id) for there in gpu.gpu_instances]
    assert len(slices) == len(set(slices))
    assert len({there.id for there in gpu.gpu_instances}) == len(gpu.gpu_instances)
    whole = model.profile(0)
    assert sum(profile.memory_mib for profile in used) <= whole.memory_mib
    assert sum(profile.multiprocessors for profile in used) <= whole.multiprocessors


@pytest.mark.parametrize("name", MIG_MODELS)
def test_a_gpu_holds_as_many_instances_of_a_profile_as_the_profile_says(name):
    model = gpu_models.load(name)
    for profile in model.gpu_instance_profiles:
        gpu = empty(name)
        while (place := gpu_mig_rules.free_placement(model, gpu, profile)) is not None:
            put(gpu, profile, place)
        assert len(gpu.gpu_instances) == profile.instances, profile.name
