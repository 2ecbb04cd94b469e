import pathlib
import types

import pynvml
import pytest
import recorded_nvml

from dra_driver.adapters.nvml import nvml, nvml_codes, nvml_facts
from dra_driver.model import devices
from dra_driver.sim.gpus import gpu_errors, gpu_faults, gpu_state, gpus

CODES = gpu_errors.CODES

needs_a_gpu = pytest.mark.skipif(
    not pathlib.Path("/dev/nvidiactl").exists(), reason="no NVIDIA driver on this machine"
)


@pytest.fixture
def machine(tmp_path):
    return gpus.SimulatedNvml(tmp_path, spec="h100-80gb-hbm3:2,t4:1", node="node-a")


def discover(library):
    return nvml.Nvml(library).discover()


def uuids(state_dir):
    return [gpu.uuid for gpu in gpu_state.open_file(state_dir).read().gpus]


def test_every_fact_of_a_gpu_is_read(machine):
    first = discover(machine).gpus[0]

    assert first == devices.Gpu(
        index=0,
        minor=0,
        uuid=first.uuid,
        product_name="NVIDIA H100 80GB HBM3",
        pci_address=devices.PciAddress("0000:04:00.0"),
        brand="Nvidia",
        architecture="Hopper",
        compute_capability=(9, 0),
        memory_bytes=85520809984,
        driver_version="580.159.04",
        cuda_driver_version=(13, 0),
        addressing_mode="None",
        mig_capable=True,
        mig_enabled=False,
        mig_pending=False,
        virtualization=devices.Virtualization.NONE,
        persistence_mode=True,
        compute_mode=0,
        module_id=1,
        profiles=first.profiles,
    )
    assert len(first.profiles) == 7
    assert first.uuid.startswith("GPU-")


def test_a_recorded_h100_is_read():
    found = discover(recorded_nvml.load("h100-80gb-hbm3-x1"))

    assert found == devices.Discovery(
        gpus=(
            devices.Gpu(
                index=0,
                minor=0,
                uuid=devices.GpuUuid("GPU-c5726ad2-d34b-8cef-760b-3ddf171d7f19"),
                product_name="NVIDIA H100 80GB HBM3",
                pci_address=devices.PciAddress("0000:00:06.0"),
                brand="Nvidia",
                architecture="Hopper",
                compute_capability=(9, 0),
                memory_bytes=85520809984,
                driver_version="580.159.04",
                cuda_driver_version=(13, 0),
                addressing_mode="None",
                mig_capable=True,
                mig_enabled=False,
                mig_pending=False,
                virtualization=devices.Virtualization.PASSTHROUGH,
                persistence_mode=True,
                compute_mode=0,
                module_id=3,
                profiles=found.gpus[0].profiles,
            ),
        )
    )


def test_two_recorded_h200_are_read():
    found = discover(recorded_nvml.load("h200-x2"))

    assert [
        (gpu.index, gpu.minor, gpu.uuid, gpu.product_name, gpu.pci_address, gpu.memory_bytes)
        for gpu in found.gpus
    ] == [
        (
            *(0, 0, "GPU-d0ef7425-2dcb-5584-9cd4-5b19926c86e8"),
            *("NVIDIA H200", "0000:00:06.0", 150754820096),
        ),
        (
            *(1, 1, "GPU-8a6ee75c-5f91-4cbc-6cb5-5274aef3eed0"),
            *("NVIDIA H200", "0000:00:07.0", 150754820096),
        ),
    ]
    assert [gpu.module_id for gpu in found.gpus] == [5, 7]
    assert found.failures == ()


def test_gpus_come_in_the_order_of_their_minor_numbers(machine, tmp_path):
    with gpu_state.open_file(tmp_path).edit() as state:
        for gpu, minor in zip(state.gpus, (2, 0, 1), strict=True):
            gpu.minor = minor

    found = discover(machine).gpus

    assert [(gpu.minor, gpu.index) for gpu in found] == [(0, 1), (1, 2), (2, 0)]


def test_a_node_without_gpus_is_no_error(tmp_path):
    assert discover(gpus.SimulatedNvml(tmp_path, spec="none")) == devices.Discovery(gpus=())


def test_a_gpu_that_is_not_mig_capable_says_so(machine):
    t4 = discover(machine).gpus[2]

    assert (t4.product_name, t4.mig_capable, t4.mig_enabled) == ("Tesla T4", False, False)
    assert t4.module_id is None


def test_mig_mode_that_is_on_is_seen(machine, tmp_path):
    with gpu_state.open_file(tmp_path).edit() as state:
        state.gpus[1].mig_enabled = True
        state.gpus[0].mig_pending = True

    assert [(gpu.mig_enabled, gpu.mig_pending) for gpu in discover(machine).gpus] == [
        (False, True),
        (True, False),
        (False, False),
    ]


def test_mig_mode_that_may_not_be_read_is_unknown(machine, tmp_path):
    gpu_faults.inject(
        tmp_path, function="nvmlDeviceGetMigMode", error=CODES["NVML_ERROR_NO_PERMISSION"]
    )

    first = discover(machine).gpus[0]

    assert (first.mig_capable, first.mig_enabled, first.mig_pending) == (None, None, None)


DECIDING = [
    ("nvmlDeviceGetMemoryInfo", "memory_bytes"),
    ("nvmlDeviceGetCudaComputeCapability", "compute_capability"),
    ("nvmlDeviceGetVirtualizationMode", "virtualization"),
]
TOLD = [
    ("nvmlDeviceGetBrand", "brand"),
    ("nvmlDeviceGetModuleId", "module_id"),
    ("nvmlDeviceGetArchitecture", "architecture"),
    ("nvmlDeviceGetAddressingMode", "addressing_mode"),
    ("nvmlDeviceGetPersistenceMode", "persistence_mode"),
    ("nvmlDeviceGetComputeMode", "compute_mode"),
    ("nvmlSystemGetDriverVersion", "driver_version"),
    ("nvmlSystemGetCudaDriverVersion", "cuda_driver_version"),
]
ABSENT = ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NO_PERMISSION"]


@pytest.mark.parametrize(
    ("function", "fact", "error"),
    [
        *((*one, error) for one in DECIDING + TOLD for error in ABSENT),
        *((*one, "UNKNOWN") for one in TOLD),
    ],
)
def test_a_fact_that_nvml_does_not_give_is_unknown(machine, tmp_path, function, fact, error):
    gpu_faults.inject(tmp_path, function=function, error=CODES[f"NVML_ERROR_{error}"])

    found = discover(machine)

    assert len(found.gpus) == 3
    assert [getattr(gpu, fact) for gpu in found.gpus] == [None, None, None]
    assert found.gpus[0].product_name == "NVIDIA H100 80GB HBM3"
    for gpu in found.gpus:
        met = found.answers[gpu.uuid][f"{function}()"]
        assert met.is_odd is (error == "UNKNOWN")
        assert f"NVML error {CODES[f'NVML_ERROR_{error}']}" in met.reason
        assert found.answers[gpu.uuid]["nvmlDeviceGetName()"] is None


@pytest.mark.parametrize("function", [function for function, _ in DECIDING])
def test_an_error_of_the_driver_does_not_pass_for_a_fact_that_there_is_not(
    machine, tmp_path, function
):
    broken = uuids(tmp_path)[1]
    gpu_faults.inject(tmp_path, function=function, uuid=broken, error=CODES["NVML_ERROR_UNKNOWN"])

    found = discover(machine)

    assert [gpu.minor for gpu in found.gpus] == [0, 2]
    assert [(one.uuid, one.is_lost) for one in found.failures] == [(broken, False)]


def test_what_each_gpu_does_not_answer_is_told_of_it_alone(machine, tmp_path):
    gpu_faults.inject(tmp_path, function="nvmlDeviceGetBrand", uuid=uuids(tmp_path)[1], error=3)

    found = discover(machine)

    answers = [found.answers[gpu.uuid]["nvmlDeviceGetBrand()"] for gpu in found.gpus]
    assert [answer is None for answer in answers] == [True, False, True]


def test_a_function_that_the_bindings_do_not_have_is_an_unknown_fact(monkeypatch, machine):
    monkeypatch.delattr(gpus.SimulatedNvml, "nvmlDeviceGetAddressingMode")

    assert [gpu.addressing_mode for gpu in discover(machine).gpus] == [None, None, None]


@pytest.mark.parametrize(
    ("function", "fact"),
    [
        ("nvmlDeviceGetBrand", "brand"),
        ("nvmlDeviceGetArchitecture", "architecture"),
        ("nvmlDeviceGetAddressingMode", "addressing_mode"),
        ("nvmlDeviceGetVirtualizationMode", "virtualization"),
    ],
)
def test_an_enum_value_from_a_newer_driver_is_unknown(monkeypatch, machine, function, fact):
    monkeypatch.setattr(machine, function, lambda _handle: 4711)

    assert getattr(discover(machine).gpus[0], fact) is None


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetMinorNumber",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetName",
        "nvmlDeviceGetPciInfo",
        "nvmlDeviceGetHandleByIndex",
    ],
)
def test_a_gpu_without_an_identity_is_reported_and_the_others_are_found(
    machine, tmp_path, function
):
    broken = uuids(tmp_path)[1]
    gpu_faults.inject(
        tmp_path, function=function, uuid=broken, error=CODES["NVML_ERROR_NOT_SUPPORTED"]
    )

    found = discover(machine)

    assert [gpu.minor for gpu in found.gpus] == [0, 2]
    assert [failure.index for failure in found.failures] == [1]


def test_a_lost_gpu_is_reported_with_a_remedy_and_the_others_are_found(machine, tmp_path):
    lost = uuids(tmp_path)[1]
    gpu_faults.inject(tmp_path, function="nvmlDeviceGetMemoryInfo", uuid=lost, error=15, times=1)

    found = discover(machine)

    assert [gpu.minor for gpu in found.gpus] == [0, 2]
    assert found.failures == (
        devices.GpuFailure(
            index=1,
            uuid=devices.GpuUuid(lost),
            pci_address=devices.PciAddress("0000:07:00.0"),
            reason="NVML error 15 (GPU is lost): look for Xid messages in the kernel log; "
            "reset the GPU or reboot the node",
            is_lost=True,
        ),
    )
    assert str(found.failures[0]).startswith(f"GPU 1 ({lost}, 0000:07:00.0): NVML error 15")
    assert len(discover(machine).gpus) == 3


def test_a_gpu_that_answers_nothing_is_reported_by_its_index(machine, tmp_path):
    gpu_faults.inject(tmp_path, uuid=uuids(tmp_path)[0], error=CODES["NVML_ERROR_GPU_IS_LOST"])

    found = discover(machine)

    assert [gpu.minor for gpu in found.gpus] == [1, 2]
    assert str(found.failures[0]).startswith("GPU 0: NVML error 15 (GPU is lost)")


def test_a_gpu_whose_answers_make_no_sense_is_reported(monkeypatch, machine):
    real = machine.nvmlDeviceGetPciInfo

    def garbled(handle):
        if machine.nvmlDeviceGetIndex(handle) == 0:
            return types.SimpleNamespace(busId="../../etc/passwd")
        return real(handle)

    monkeypatch.setattr(machine, "nvmlDeviceGetPciInfo", garbled)

    found = discover(machine)

    assert [gpu.minor for gpu in found.gpus] == [1, 2]
    assert found.failures[0].pci_address is None
    assert "'../../etc/passwd'" in found.failures[0].reason


def test_text_that_cannot_be_decoded_is_reported(monkeypatch, machine):
    monkeypatch.setattr(machine, "nvmlDeviceGetName", lambda _handle: b"\xff\xfe")

    found = discover(machine)

    assert found.gpus == ()
    assert [failure.index for failure in found.failures] == [0, 1, 2]


def test_a_uuid_that_cannot_be_decoded_is_reported_by_its_address(monkeypatch, machine):
    monkeypatch.setattr(machine, "nvmlDeviceGetUUID", lambda _handle: b"\xff\xfe")

    failure = discover(machine).failures[0]

    assert (failure.uuid, failure.pci_address) == (None, "0000:04:00.0")


def test_bytes_from_older_bindings_are_decoded(monkeypatch, machine):
    before = discover(machine)
    for function in ("nvmlDeviceGetName", "nvmlDeviceGetUUID"):
        real = getattr(machine, function)
        monkeypatch.setattr(machine, function, lambda handle, real=real: real(handle).encode())
    real_version = machine.nvmlSystemGetDriverVersion
    monkeypatch.setattr(machine, "nvmlSystemGetDriverVersion", lambda: real_version().encode())

    assert discover(machine) == before


@pytest.mark.parametrize(
    ("bus_id", "address"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        (b"00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3B:00.0", "0000:3b:00.0"),
        ("00000007:01:1F.7", "0007:01:1f.7"),
        ("00010000:01:00.0", "10000:01:00.0"),
    ],
)
def test_pci_addresses_are_written_as_sysfs_writes_them(monkeypatch, machine, bus_id, address):
    info = types.SimpleNamespace(busId=bus_id)
    monkeypatch.setattr(machine, "nvmlDeviceGetPciInfo", lambda _handle: info)

    assert discover(machine).gpus[0].pci_address == address


@pytest.mark.parametrize(
    ("number", "version"), [(13000, (13, 0)), (12080, (12, 8)), (11040, (11, 4)), (12110, (12, 11))]
)
def test_the_cuda_version_is_taken_apart(monkeypatch, machine, number, version):
    monkeypatch.setattr(machine, "nvmlSystemGetCudaDriverVersion", lambda: number)

    assert discover(machine).gpus[0].cuda_driver_version == version


def test_texts_and_codes_are_those_of_the_bindings():
    names = {value: name for name, value in vars(pynvml).items() if name.startswith("NVML_BRAND_")}
    assert nvml_facts._BRANDS.keys() == set(range(17))
    assert names.keys() >= nvml_facts._BRANDS.keys()
    for value, text in nvml_facts._BRANDS.items():
        spelled = names[value].removeprefix("NVML_BRAND_").replace("_", "").lower()
        # The bindings have a second name for 11, and none of the numbers moved.
        assert spelled in {text.lower(), "nvidiavgaming"}
    architectures = {
        value: name.removeprefix("NVML_DEVICE_ARCH_").lower()
        for name, value in vars(pynvml).items()
        if name.startswith("NVML_DEVICE_ARCH_")
    }
    for value, text in nvml_facts._ARCHITECTURES.items():
        assert text.lower().split()[0] == architectures[value]
    for code in nvml_codes.Code:
        assert getattr(pynvml, f"NVML_ERROR_{code.name}") == code


@pytest.mark.gpu
@needs_a_gpu
def test_a_real_gpu_answers_like_the_recordings():
    found = nvml.Nvml().discover()

    assert found.failures == ()
    assert {gpu.product_name for gpu in found.gpus} <= {"NVIDIA H100 80GB HBM3", "NVIDIA H200"}
    memory = {"NVIDIA H100 80GB HBM3": 85520809984, "NVIDIA H200": 150754820096}
    for gpu in found.gpus:
        assert gpu.brand == "Nvidia"
        assert gpu.architecture == "Hopper"
        assert gpu.compute_capability == (9, 0)
        assert gpu.memory_bytes == memory[gpu.product_name]
        assert gpu.addressing_mode == "None"
        assert (gpu.mig_capable, gpu.mig_enabled) == (True, False)
