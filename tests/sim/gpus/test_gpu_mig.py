"""GPU instances, compute instances and MIG devices of simulated GPUs."""

import ctypes

import mig_scene
import pynvml
import pytest

from dra_driver.sim.gpus import gpu_operations, gpus


@pytest.fixture
def scene(tmp_path):
    return mig_scene.build(tmp_path)


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


def instances(library, handle, profile_id):
    pointers, count = (library.c_nvmlGpuInstance_t * 8)(), ctypes.c_uint()
    library.nvmlDeviceGetGpuInstances(handle, profile_id, pointers, ctypes.byref(count))
    return [library.nvmlGpuInstanceGetInfo(pointer).id for pointer in pointers[: count.value]]


def test_with_mig_mode_off_an_h100_answers_as_the_real_one(tmp_path):
    library = gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:1")
    library.nvmlInit()
    handle = library.nvmlDeviceGetHandleByIndex(0)

    assert instances(library, handle, 19) == []
    assert library.nvmlDeviceGetMaxMigDeviceCount(handle) == 0
    assert library.nvmlDeviceIsMigDeviceHandle(handle).value == 0
    for function, argument in (
        (library.nvmlDeviceGetGpuInstanceById, 0),
        (library.nvmlDeviceGetMigDeviceHandleByIndex, 0),
        (library.nvmlDeviceGetMigDeviceHandleByIndex, 99),
    ):
        with pytest.raises(library.NVMLError_NotFound):
            function(handle, argument)
    for function in (
        library.nvmlDeviceGetGpuInstanceId,
        library.nvmlDeviceGetComputeInstanceId,
        library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle,
    ):
        with pytest.raises(library.NVMLError_InvalidArgument):
            function(handle)
    for profile_id in (6, 10, 21):
        with pytest.raises(library.NVMLError_NotSupported):
            placements(library, handle, profile_id)
        assert instances(library, handle, profile_id) == []
    for profile_id in (1, 99, 65535):
        with pytest.raises(library.NVMLError_InvalidArgument):
            placements(library, handle, profile_id)
        with pytest.raises(library.NVMLError_InvalidArgument):
            instances(library, handle, profile_id)
    with pytest.raises(library.NVMLError_NotSupported):
        library.nvmlDeviceCreateGpuInstance(handle, 19)


def test_a_gpu_that_cannot_do_mig_says_so(tmp_path):
    library = gpus.SimulatedNvml(tmp_path, spec="t4:1")
    library.nvmlInit()
    handle = library.nvmlDeviceGetHandleByIndex(0)

    assert library.nvmlDeviceGetMaxMigDeviceCount(handle) == 0
    for call in (
        lambda: library.nvmlDeviceGetMigMode(handle),
        lambda: library.nvmlDeviceSetMigMode(handle, 1),
        lambda: library.nvmlDeviceGetGpuInstanceProfileInfo(handle, 0),
        lambda: placements(library, handle, 19),
        lambda: instances(library, handle, 19),
        lambda: library.nvmlDeviceGetGpuInstanceById(handle, 0),
        lambda: library.nvmlDeviceCreateGpuInstance(handle, 19),
        lambda: library.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0),
    ):
        with pytest.raises(library.NVMLError_NotSupported):
            call()


def test_an_instance_is_where_it_was_asked_for(scene):
    info = scene.library.nvmlGpuInstanceGetInfo(scene.create(14, 2, 2))

    assert (info.id, info.profileId, info.placement.start, info.placement.size) == (2, 14, 2, 2)
    assert info.device == scene.handle
    assert instances(scene.library, scene.handle, 14) == [2]
    assert instances(scene.library, scene.handle, 19) == [0, 1]


def test_ids_are_used_again_and_differ_between_instances_of_a_gpu(scene):
    scene.library.nvmlComputeInstanceDestroy(scene.compute())
    scene.library.nvmlGpuInstanceDestroy(scene.instance(0))

    again = scene.library.nvmlGpuInstanceGetInfo(scene.create(19, 3, 1))

    assert (again.id, again.placement.start) == (0, 3)


@pytest.mark.parametrize(("profile_id", "start", "size"), [(19, 0, 1), (14, 0, 2), (0, 0, 8)])
def test_a_place_that_is_taken_is_refused(scene, profile_id, start, size):
    with pytest.raises(scene.library.NVMLError_InsufficientResources):
        scene.create(profile_id, start, size)


@pytest.mark.parametrize(
    ("profile_id", "start", "size"), [(14, 1, 2), (19, 7, 1), (19, 2, 2), (99, 0, 1)]
)
def test_a_place_that_does_not_exist_is_refused(scene, profile_id, start, size):
    with pytest.raises(scene.library.NVMLError_InvalidArgument):
        scene.create(profile_id, start, size)


def test_a_profile_of_other_gpus_is_not_supported(scene):
    with pytest.raises(scene.library.NVMLError_NotSupported):
        scene.create(21, 0, 1)


def test_a_profile_has_no_more_instances_than_it_says(scene):
    scene.create(20, 1, 1)

    with pytest.raises(scene.library.NVMLError_InsufficientResources):
        scene.create(20, 2, 1)


def test_without_a_place_the_first_free_one_is_taken(scene):
    starts = [
        scene.library.nvmlGpuInstanceGetInfo(
            scene.library.nvmlDeviceCreateGpuInstance(scene.handle, 19)
        ).placement.start
        for _ in range(5)
    ]

    assert starts == [1, 2, 3, 4, 5]
    with pytest.raises(scene.library.NVMLError_InsufficientResources):
        scene.library.nvmlDeviceCreateGpuInstance(scene.handle, 19)


@pytest.mark.parametrize(
    ("profile_id", "start", "size", "slices_by_index"),
    [
        (19, 1, 1, {0: 1}),
        (14, 2, 2, {0: 1, 1: 2}),
        (9, 0, 4, {0: 1, 1: 2, 2: 3}),
        (5, 0, 4, {0: 1, 1: 2, 2: 3, 3: 4}),
        (0, 0, 8, {0: 1, 1: 2, 2: 3, 3: 4, 4: 7, 6: 6}),
    ],
)
def test_compute_profiles_are_those_that_fit_the_instance(
    scene, profile_id, start, size, slices_by_index
):
    gpu_operations.reset(scene.directory, scene.uuid)
    instance = scene.create(profile_id, start, size)

    found = {}
    for index in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            info = scene.library.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, index, 0)
        except scene.library.NVMLError_NotSupported:
            continue
        found[index] = info.sliceCount
        assert info.id == index

    assert found == slices_by_index
    for profile, engine in ((9, 0), (-1, 0), (0, 1)):
        with pytest.raises(scene.library.NVMLError_InvalidArgument):
            scene.library.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, profile, engine)


def test_the_spanning_compute_profile_has_all_multiprocessors_and_the_plain_name(scene):
    gpu_operations.reset(scene.directory, scene.uuid)
    instance = scene.create(9, 0, 4)
    ask = scene.library.nvmlGpuInstanceGetComputeInstanceProfileInfo

    part, whole = ask(instance, 0, 0), ask(instance, 2, 0)

    assert (part.name, part.multiprocessorCount, part.instanceCount) == ("MIG 1c.3g.40gb", 16, 3)
    assert (whole.name, whole.multiprocessorCount, whole.instanceCount) == ("MIG 3g.40gb", 60, 1)


def test_a_compute_instance_is_a_mig_device(scene):
    library = scene.library
    device = library.nvmlDeviceGetMigDeviceHandleByIndex(scene.handle, 0)
    uuid = library.nvmlDeviceGetUUID(device)

    assert uuid.startswith("MIG-")
    assert library.nvmlDeviceGetName(device) == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    assert library.nvmlDeviceIsMigDeviceHandle(device).value == 1
    assert library.nvmlDeviceGetGpuInstanceId(device) == 0
    assert library.nvmlDeviceGetComputeInstanceId(device) == 0
    assert library.nvmlDeviceGetIndex(device) == 0
    assert library.nvmlDeviceGetMemoryInfo(device).total == 9984 << 20
    assert library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device) == scene.handle
    assert library.nvmlDeviceGetHandleByUUID(uuid) == device
    assert library.nvmlDeviceGetMaxMigDeviceCount(scene.handle) == 7
    attributes = library.nvmlDeviceGetAttributes(device)
    assert attributes.gpuInstanceSliceCount == attributes.computeInstanceSliceCount == 1
    with pytest.raises(library.NVMLError_NotFound):
        library.nvmlDeviceGetMigDeviceHandleByIndex(scene.handle, 1)


def test_what_is_about_whole_gpus_refuses_a_mig_device(scene):
    device = scene.library.nvmlDeviceGetMigDeviceHandleByIndex(scene.handle, 0)

    for function in (scene.library.nvmlDeviceGetMinorNumber, scene.library.nvmlDeviceGetMigMode):
        with pytest.raises(scene.library.NVMLError_InvalidArgument):
            function(device)
    with pytest.raises(scene.library.NVMLError_NotSupported):
        scene.library.nvmlDeviceGetAttributes(scene.handle)


def test_an_instance_is_cut_into_compute_instances_until_it_is_full(scene):
    library = scene.library
    instance = scene.create(14, 2, 2)

    made = [library.nvmlGpuInstanceCreateComputeInstance(instance, 0) for _ in range(2)]

    infos = [library.nvmlComputeInstanceGetInfo(compute) for compute in made]
    assert [(info.id, info.placement.start, info.placement.size) for info in infos] == [
        (0, 0, 1),
        (1, 1, 1),
    ]
    for profile in (0, 1):
        with pytest.raises(library.NVMLError_InsufficientResources):
            library.nvmlGpuInstanceCreateComputeInstance(instance, profile)
    with pytest.raises(library.NVMLError_NotSupported):
        library.nvmlGpuInstanceCreateComputeInstance(instance, 2)
    library.nvmlComputeInstanceDestroy(made[0])
    again = library.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    assert library.nvmlComputeInstanceGetInfo(again).placement.start == 0


def test_compute_instances_are_listed_by_profile(scene):
    library = scene.library
    pointers, count = (library.c_nvmlComputeInstance_t * 2)(), ctypes.c_uint()

    library.nvmlGpuInstanceGetComputeInstances(scene.instance(), 0, pointers, ctypes.byref(count))

    assert count.value == 1
    info = library.nvmlComputeInstanceGetInfo(pointers[0])
    assert (info.id, info.profileId) == (0, 0)
    assert library.nvmlGpuInstanceGetInfo(info.gpuInstance).id == 0
    with pytest.raises(library.NVMLError_NotSupported):
        library.nvmlGpuInstanceGetComputeInstances(
            scene.instance(), 1, pointers, ctypes.byref(count)
        )


def test_every_compute_instance_has_a_new_uuid(scene):
    library = scene.library

    def uuid():
        device = library.nvmlDeviceGetMigDeviceHandleByIndex(scene.handle, 0)
        return library.nvmlDeviceGetUUID(device)

    before = uuid()
    library.nvmlComputeInstanceDestroy(scene.compute())
    library.nvmlGpuInstanceCreateComputeInstance(scene.instance(), 0)

    assert uuid() != before
    with pytest.raises(library.NVMLError_NotFound):
        library.nvmlDeviceGetHandleByUUID(before)


def test_a_gpu_instance_with_a_compute_instance_stays(scene):
    with pytest.raises(scene.library.NVMLError_InUse):
        scene.library.nvmlGpuInstanceDestroy(scene.instance(0))

    scene.library.nvmlComputeInstanceDestroy(scene.compute())
    scene.library.nvmlGpuInstanceDestroy(scene.instance(0))
    assert instances(scene.library, scene.handle, 19) == [1]


def test_what_is_gone_is_not_found(scene):
    library = scene.library
    device = library.nvmlDeviceGetMigDeviceHandleByIndex(scene.handle, 0)
    compute, instance = scene.compute(), scene.instance(1)
    library.nvmlComputeInstanceDestroy(compute)
    library.nvmlGpuInstanceDestroy(instance)

    for call in (
        lambda: library.nvmlComputeInstanceDestroy(compute),
        lambda: library.nvmlComputeInstanceGetInfo(compute),
        lambda: library.nvmlGpuInstanceDestroy(instance),
        lambda: library.nvmlGpuInstanceGetInfo(instance),
        lambda: library.nvmlDeviceGetGpuInstanceById(scene.handle, 1),
        lambda: library.nvmlGpuInstanceGetComputeInstanceById(scene.instance(0), 0),
    ):
        with pytest.raises(library.NVMLError_NotFound):
            call()
    with pytest.raises(library.NVMLError_InvalidArgument):
        library.nvmlDeviceGetUUID(device)
