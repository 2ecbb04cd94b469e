from dra_driver.model import devices


def test_a_gpu_is_named_after_the_minor_number_of_its_node():
    assert devices.gpu_device_name(7) == "gpu-7"


def test_a_failure_tells_which_gpu_with_all_that_is_known_of_it():
    uuid, address = devices.GpuUuid("GPU-1"), devices.PciAddress("0000:01:00.0")
    assert str(devices.GpuFailure(3, uuid, address, "GPU is lost")) == (
        "GPU 3 (GPU-1, 0000:01:00.0): GPU is lost"
    )
    assert str(devices.GpuFailure(3, None, address, "lost")) == "GPU 3 (0000:01:00.0): lost"
    assert str(devices.GpuFailure(3, None, None, "lost")) == "GPU 3: lost"


def test_what_is_not_known_of_a_gpu_is_none():
    gpu = devices.Gpu(0, 1, devices.GpuUuid("GPU-1"), "T4", devices.PciAddress("0000:01:00.0"))
    assert (gpu.brand, gpu.memory_bytes, gpu.mig_capable, gpu.numa_node) == (None,) * 4
