"""What all MIG functions of the simulated NVML have in common: sessions, faults, fields."""

import ctypes
import json

import mig_scene
import pynvml
import pytest

from dra_driver.sim.gpus import gpu_errors, gpu_faults, gpu_mig, gpu_mig_devices, gpu_mig_types

UNKNOWN = gpu_errors.CODES["NVML_ERROR_UNKNOWN"]
LOST = gpu_errors.CODES["NVML_ERROR_GPU_IS_LOST"]
FUNCTIONS = sorted(
    name
    for name in vars(gpu_mig.MigFunctions) | vars(gpu_mig_devices.MigDevices)
    if name.startswith("nvml")
)


@pytest.fixture
def scene(tmp_path):
    return mig_scene.build(tmp_path)


def test_the_functions_are_found():
    assert len(FUNCTIONS) > 20


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_works_after_nvml_was_closed(scene, name):
    arguments = scene.arguments(name)
    scene.library.nvmlShutdown()

    with pytest.raises(scene.library.NVMLError_Uninitialized):
        getattr(scene.library, name)(*arguments)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_handles_end_with_their_session(scene, name):
    arguments = scene.arguments(name)
    scene.library.nvmlShutdown()
    scene.library.nvmlInit()

    for bad in (arguments[0], None, type(arguments[0])):
        with pytest.raises(scene.library.NVMLError_InvalidArgument):
            getattr(scene.library, name)(bad, *arguments[1:])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_fails_on_demand_under_its_own_name(scene, name):
    arguments = scene.arguments(name)
    gpu_faults.inject(scene.directory, function=name, uuid=scene.uuid, error=UNKNOWN, times=1)

    with pytest.raises(scene.library.NVMLError_Unknown):
        getattr(scene.library, name)(*arguments)

    assert json.loads((scene.directory / "faults.json").read_text()) == {"faults": []}
    getattr(scene.library, name)(*arguments)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_gpu_that_falls_off_the_bus_fails_in_every_function(scene, name):
    arguments = scene.arguments(name)
    gpu_faults.remove(scene.directory, scene.uuid)

    with pytest.raises(scene.library.NVMLError_GpuIsLost):
        getattr(scene.library, name)(*arguments)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_fault_of_another_gpu_hits_nobody_here(scene, name):
    arguments = scene.arguments(name)
    gpu_faults.inject(scene.directory, uuid=scene.other, error=LOST)

    getattr(scene.library, name)(*arguments)


@pytest.mark.parametrize(
    ("name", "version", "structure"),
    [
        ("nvmlDeviceGetGpuInstanceProfileInfo", 2, pynvml.c_nvmlGpuInstanceProfileInfo_v2_t),
        ("nvmlDeviceGetGpuInstanceProfileInfo", 1, pynvml.c_nvmlGpuInstanceProfileInfo_t),
        (
            "nvmlGpuInstanceGetComputeInstanceProfileInfo",
            2,
            pynvml.c_nvmlComputeInstanceProfileInfo_v2_t,
        ),
        (
            "nvmlGpuInstanceGetComputeInstanceProfileInfo",
            1,
            pynvml.c_nvmlComputeInstanceProfileInfo_t,
        ),
        ("nvmlGpuInstanceGetInfo", None, pynvml.c_nvmlGpuInstanceInfo_t),
        ("nvmlComputeInstanceGetInfo", None, pynvml.c_nvmlComputeInstanceInfo_t),
        ("nvmlDeviceGetAttributes", None, pynvml.c_nvmlDeviceAttributes),
    ],
)
def test_answers_have_the_fields_of_the_bindings(scene, name, version, structure):
    versions = [] if version is None else [version]

    answer = getattr(scene.library, name)(*scene.arguments(name), *versions)

    assert vars(answer).keys() == {field for field, _ in structure._fields_}


@pytest.mark.parametrize(
    "name",
    ["nvmlDeviceGetGpuInstanceProfileInfo", "nvmlGpuInstanceGetComputeInstanceProfileInfo"],
)
def test_a_version_that_the_bindings_do_not_know_is_no_function(scene, name):
    with pytest.raises(scene.library.NVMLError_FunctionNotFound):
        getattr(scene.library, name)(*scene.arguments(name), 3)


def test_types_are_laid_out_as_in_the_bindings():
    ours, real = gpu_mig_types.c_nvmlGpuInstancePlacement_t, pynvml.c_nvmlGpuInstancePlacement_t

    assert list(ours._fields_) == list(real._fields_)
    for name in vars(gpu_mig_types.Types):
        if "nvml" in name:
            assert ctypes.sizeof(getattr(gpu_mig_types.Types, name)) == ctypes.sizeof(
                getattr(pynvml, name)
            )


def test_placements_are_written_through_every_kind_of_reference(scene):
    library, count = scene.library, ctypes.c_uint(99)
    ask = library.nvmlDeviceGetGpuInstancePossiblePlacements
    kind = pynvml.c_nvmlGpuInstancePlacement_t
    wanted = [(0, 2), (2, 2), (4, 2)]

    ask(scene.handle, 14, None, ctypes.pointer(count))
    assert count.value == 3
    for refer in (
        lambda places: places,
        ctypes.byref,
        ctypes.pointer,
        lambda places: ctypes.byref(places[0]),
        lambda places: ctypes.cast(places, ctypes.POINTER(kind)),
    ):
        places = (kind * 3)()
        ask(scene.handle, 14, refer(places), ctypes.byref(count))
        assert [(place.start, place.size) for place in places] == wanted


def test_an_array_that_is_too_short_is_not_overrun(scene):
    places, count = (pynvml.c_nvmlGpuInstancePlacement_t * 2)(), ctypes.c_uint(2)

    for refer in (lambda places: places, ctypes.byref):
        with pytest.raises(IndexError, match="room for 2 of 3"):
            scene.library.nvmlDeviceGetGpuInstancePossiblePlacements(
                scene.handle, 14, refer(places), ctypes.byref(count)
            )


def test_a_placement_by_value_is_refused(scene):
    place = pynvml.c_nvmlGpuInstancePlacement_t(1, 1)

    with pytest.raises(ctypes.ArgumentError):
        scene.library.nvmlDeviceCreateGpuInstanceWithPlacement(scene.handle, 19, place)
    with pytest.raises(scene.library.NVMLError_InvalidArgument):
        scene.library.nvmlDeviceCreateGpuInstanceWithPlacement(scene.handle, 19, None)


@pytest.mark.parametrize(
    "name",
    [
        "nvmlDeviceGetGpuInstancePossiblePlacements",
        "nvmlDeviceGetGpuInstances",
        "nvmlGpuInstanceGetComputeInstances",
    ],
)
def test_a_count_must_have_a_place(scene, name):
    *arguments, _count = scene.arguments(name)

    with pytest.raises(scene.library.NVMLError_InvalidArgument):
        getattr(scene.library, name)(*arguments, None)


@pytest.mark.parametrize(
    "name", ["nvmlDeviceGetGpuInstances", "nvmlGpuInstanceGetComputeInstances"]
)
def test_instances_must_have_a_place(scene, name):
    first, profile, _instances, count = scene.arguments(name)

    with pytest.raises(scene.library.NVMLError_InvalidArgument):
        getattr(scene.library, name)(first, profile, None, count)


def test_a_pointer_that_nvml_never_gave_is_refused(scene):
    library = scene.library
    wild = ctypes.cast(ctypes.c_void_p(7), library.c_nvmlGpuInstance_t)

    for bad in (wild, library.c_nvmlGpuInstance_t(), scene.compute(), 7):
        with pytest.raises(library.NVMLError_InvalidArgument):
            library.nvmlGpuInstanceGetInfo(bad)
