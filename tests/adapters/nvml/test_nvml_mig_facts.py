"""What discovery tells of MIG: profiles, instances, and what is left out."""

import pynvml
import pytest
import recorded_nvml

from dra_driver import errors
from dra_driver.adapters.nvml import nvml, nvml_mig
from dra_driver.model import mig
from dra_driver.sim.gpus import gpu_errors, gpu_faults, gpu_models, gpu_operations, gpu_state, gpus

CODES = gpu_errors.CODES


@pytest.fixture
def machine(tmp_path):
    return gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:2,a100-40gb-sxm4:1,t4:1")


@pytest.fixture
def uuids(machine, tmp_path):
    return [gpu.uuid for gpu in gpu_state.open_file(tmp_path).read().gpus]


def discover(library):
    return nvml.Nvml(library).discover()


def profiles_of(model):
    """The profiles as the model file has them."""
    return tuple(
        mig.Profile(
            index=fact.nvml_profile,
            id=fact.id,
            name=fact.name,
            slices=fact.slices,
            instances=fact.instances,
            multiprocessors=fact.multiprocessors,
            copy_engines=fact.copy_engines,
            decoders=fact.decoders,
            encoders=fact.encoders,
            jpeg_engines=fact.jpeg_engines,
            ofa_engines=fact.ofa_engines,
            memory_mib=fact.memory_mib,
            placements=tuple(mig.Placement(*place) for place in fact.placements),
        )
        for fact in gpu_models.load(model).gpu_instance_profiles
    )


def test_profiles_are_those_of_the_model(machine):
    first, second, _ampere, t4 = discover(machine).gpus

    assert first.profiles == second.profiles == profiles_of("h100-80gb-hbm3")
    assert first.profiles[0].name == "1g.10gb"
    assert t4.profiles == ()


@pytest.mark.parametrize(
    ("recording", "model"),
    [("h100-80gb-hbm3-x1", "h100-80gb-hbm3"), ("h200-x2", "h200-141gb")],
)
def test_profiles_of_a_recorded_machine_are_read(recording, model):
    found = discover(recorded_nvml.load(recording))

    assert found.failures == ()
    assert {gpu.profiles for gpu in found.gpus} == {profiles_of(model)}


def test_ampere_tells_its_profiles_with_mig_mode_on_only(machine, tmp_path, uuids):
    off = discover(machine).gpus[2]
    with gpu_state.open_file(tmp_path).edit() as state:
        state.gpus[2].mig_pending = True
    pending = discover(machine).gpus[2]
    gpu_operations.reset(tmp_path, uuids[2])
    on = discover(machine).gpus[2]

    assert [(gpu.mig_enabled, gpu.mig_pending) for gpu in (off, pending, on)] == [
        (False, False),
        (False, True),
        (True, True),
    ]
    assert (off.profiles, pending.profiles) == ((), ())
    assert on.profiles == profiles_of("a100-40gb-sxm4")


def test_instances_are_told_with_their_spanning_compute_instance(machine, tmp_path, uuids):
    whole = gpu_operations.create_instance(tmp_path, uuids[0], "1g.10gb", 3)
    gpu_operations.create_instance(tmp_path, uuids[0], "2g.20gb", 4, compute=False)

    first, second, *_rest = discover(machine).gpus

    assert first.instances == (
        mig.Instance(
            gi=0,
            spot=mig.Spot(19, mig.Placement(3, 1)),
            ci=0,
            uuid=mig.MigUuid(whole.compute_instances[0].uuid),
        ),
        mig.Instance(gi=1, spot=mig.Spot(14, mig.Placement(4, 2))),
    )
    assert second.instances == ()


@pytest.mark.parametrize("count", [1, 2])
def test_an_instance_that_is_cut_up_has_no_spanning_compute_instance(
    machine, tmp_path, uuids, count
):
    gpu_operations.create_instance(tmp_path, uuids[0], "2g.20gb", 4, compute=False)
    machine.nvmlInit()
    handle = machine.nvmlDeviceGetHandleByUUID(uuids[0])
    for _ in range(count):
        machine.nvmlGpuInstanceCreateComputeInstance(
            machine.nvmlDeviceGetGpuInstanceById(handle, 0), 0
        )
    machine.nvmlShutdown()

    assert discover(machine).gpus[0].instances == (
        mig.Instance(gi=0, spot=mig.Spot(14, mig.Placement(4, 2))),
    )


def test_as_many_instances_as_there_can_be_are_told(machine, tmp_path, uuids):
    for start in range(7):
        gpu_operations.create_instance(tmp_path, uuids[0], "1g.10gb", start)

    found = discover(machine).gpus[0].instances

    assert [(one.gi, one.spot.placement.start) for one in found] == [(n, n) for n in range(7)]
    assert len({one.uuid for one in found}) == 7


@pytest.mark.parametrize(
    "function",
    [
        "nvmlGpuInstanceGetInfo",
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetComputeInstanceId",
        "nvmlDeviceGetAttributes",
    ],
)
@pytest.mark.parametrize("error", ["NOT_FOUND", "INVALID_ARGUMENT"])
def test_an_instance_that_vanishes_during_a_look_is_no_failure(
    machine, tmp_path, uuids, function, error
):
    gpu_operations.create_instance(tmp_path, uuids[0], "1g.10gb", 0)
    gpu_operations.create_instance(tmp_path, uuids[0], "1g.10gb", 1)
    gpu_faults.inject(tmp_path, function=function, error=CODES[f"NVML_ERROR_{error}"], times=1)

    found = discover(machine)

    assert found.failures == ()
    assert [one.gi for one in found.gpus[0].instances if one.uuid] == [1]


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetGpuInstanceProfileInfo",
        "nvmlDeviceGetGpuInstancePossiblePlacements",
        "nvmlDeviceGetGpuInstances",
        "nvmlGpuInstanceGetInfo",
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMigDeviceHandleByIndex",
        "nvmlDeviceGetAttributes",
    ],
)
def test_a_gpu_that_is_lost_while_mig_is_read_is_a_failure(machine, tmp_path, uuids, function):
    gpu_operations.create_instance(tmp_path, uuids[0], "1g.10gb", 0)
    gpu_faults.inject(
        tmp_path, function=function, uuid=uuids[0], error=CODES["NVML_ERROR_GPU_IS_LOST"]
    )

    found = discover(machine)

    assert [gpu.uuid for gpu in found.gpus] == uuids[1:]
    assert "GPU is lost" in found.failures[0].reason


@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetGpuInstanceProfileInfo", "nvmlDeviceGetGpuInstancePossiblePlacements"],
)
@pytest.mark.parametrize("error", ["FUNCTION_NOT_FOUND", "NO_PERMISSION", "NOT_SUPPORTED"])
def test_a_driver_that_does_not_tell_of_profiles_has_none(machine, tmp_path, function, error):
    gpu_faults.inject(tmp_path, function=function, error=CODES[f"NVML_ERROR_{error}"])

    found = discover(machine)

    assert len(found.gpus) == 4
    assert [gpu.profiles for gpu in found.gpus] == [(), (), (), ()]


@pytest.mark.parametrize("function", ["nvmlDeviceGetGpuInstances", "nvmlDeviceGetAttributes"])
@pytest.mark.parametrize("error", ["FUNCTION_NOT_FOUND", "NO_PERMISSION", "NOT_SUPPORTED"])
def test_a_driver_that_does_not_tell_of_instances_has_none(
    machine, tmp_path, uuids, function, error
):
    gpu_operations.create_instance(tmp_path, uuids[0], "1g.10gb", 0)
    gpu_faults.inject(tmp_path, function=function, error=CODES[f"NVML_ERROR_{error}"])

    found = discover(machine)

    assert found.failures == ()
    assert [gpu.instances for gpu in found.gpus] == [(), (), (), ()]


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetGpuInstanceProfileInfo",
        "nvmlDeviceGetGpuInstancePossiblePlacements",
        "nvmlDeviceGetGpuInstances",
    ],
)
def test_what_could_not_be_read_of_mig_is_a_failure_and_not_nothing(
    machine, tmp_path, uuids, function
):
    gpu_operations.create_instance(tmp_path, uuids[0], "1g.10gb", 0)
    unknown = CODES["NVML_ERROR_UNKNOWN"]
    gpu_faults.inject(tmp_path, function=function, error=unknown, uuid=uuids[0])

    found = discover(machine)

    assert [failure.uuid for failure in found.failures] == [uuids[0]]
    with pytest.raises(errors.Retryable, match="Unknown Error"):
        nvml_mig.MigNvml(nvml.Nvml(machine)).state(uuids[0])


def test_bindings_without_mig_have_no_profiles(machine, monkeypatch):
    monkeypatch.delattr(
        "dra_driver.sim.gpus.gpu_mig.MigFunctions.nvmlDeviceGetGpuInstanceProfileInfo"
    )

    assert discover(machine).gpus[0].profiles == ()


def test_a_profile_without_a_name_is_left_out_and_bytes_are_decoded(machine, monkeypatch):
    real = machine.nvmlDeviceGetGpuInstanceProfileInfo

    def older(device, profile, version=2):
        info = real(device, profile, version)
        info.name = b"" if profile == 0 else info.name.encode()
        return info

    monkeypatch.setattr(machine, "nvmlDeviceGetGpuInstanceProfileInfo", older)

    assert discover(machine).gpus[0].profiles == profiles_of("h100-80gb-hbm3")[1:]


@pytest.mark.gpu
def test_a_real_gpu_tells_the_profiles_of_its_model():
    models = {gpu_models.load(name).product_name: name for name in gpu_models.names()}

    found = nvml.Nvml().discover()

    assert found.gpus
    for gpu in found.gpus:
        assert gpu.profiles == profiles_of(models[gpu.product_name])
        assert (gpu.mig_enabled, gpu.mig_pending, gpu.instances) == (False, False, ())


@pytest.mark.gpu
def test_a_real_gpu_with_mig_mode_off_answers_as_the_simulated_one(tmp_path):
    simulated = gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:1")
    asked = (
        ("nvmlDeviceGetMaxMigDeviceCount",),
        ("nvmlDeviceGetMigDeviceHandleByIndex", 0),
        ("nvmlDeviceGetMigDeviceHandleByIndex", 99),
        ("nvmlDeviceGetGpuInstanceById", 0),
        ("nvmlDeviceGetGpuInstanceId",),
        ("nvmlDeviceGetComputeInstanceId",),
        ("nvmlDeviceGetDeviceHandleFromMigDeviceHandle",),
        ("nvmlDeviceGetAttributes",),
        *(
            ("nvmlDeviceGetGpuInstancePossiblePlacements", number, None, None)
            for number in (19, 99)
        ),
        *(("nvmlDeviceGetGpuInstances", number, None, None) for number in (19, 99)),
        *(("nvmlDeviceGetGpuInstanceProfileInfo", index) for index in (-1, 5, 16, 18, 99)),
    )

    def answers(library):
        library.nvmlInit()
        handle = library.nvmlDeviceGetHandleByIndex(0)
        found = []
        for function, *arguments in asked:
            try:
                found.append((function, arguments, getattr(library, function)(handle, *arguments)))
            except library.NVMLError as error:
                found.append((function, arguments, error.value))
        library.nvmlShutdown()
        return found

    assert answers(pynvml) == answers(simulated)
