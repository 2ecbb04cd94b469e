"""What containers need of the host's driver: device nodes of this moment, files of a while ago."""

import pytest

from dra_driver import errors
from dra_driver.apps import injection
from dra_driver.model import devices, driver

VERSION = "580.159.04"


class Root:
    """See `driver_root.DriverRoot`; counts how often the files were looked for."""

    def __init__(self):
        self.asked = []

    def files(self, version):
        self.asked.append(version)
        library = driver.Library(
            "/usr/lib64/libcuda.so.1", "/host/usr/lib64/libcuda.so.1", "libcuda.so.1", ()
        )
        return driver.DriverFiles(version, (library,), (), (), (), None)

    def device_nodes(self, minors):
        names = [f"nvidia{minor}" for minor in minors]
        return tuple(
            driver.DeviceNode(f"/dev/{name}", f"/host/dev/{name}", 195, number, 0o666)
            for number, name in enumerate([*names, "nvidiactl"])
        )


@pytest.fixture
def root():
    return Root()


@pytest.fixture
def host(root):
    return injection.HostDriver(root)


def gpu(minor, version=VERSION):
    return devices.Gpu(
        index=minor,
        minor=minor,
        uuid=devices.GpuUuid(f"GPU-{minor}"),
        product_name="A GPU",
        pci_address=devices.PciAddress("0000:01:00.0"),
        driver_version=version,
    )


def test_each_gpu_brings_its_node_and_all_bring_the_others(host):
    made = host.injection({"gpu-0": gpu(0), "gpu-3": gpu(3)})
    assert {name: [n.path for n in edits.device_nodes] for name, edits in made.devices.items()} == {
        "gpu-0": ["/dev/nvidia0"],
        "gpu-3": ["/dev/nvidia3"],
    }
    assert [node.path for node in made.common.device_nodes] == ["/dev/nvidiactl"]
    assert [mount.host_path for mount in made.common.mounts] == ["/host/usr/lib64/libcuda.so.1"]


def test_files_are_looked_for_once_in_a_while_and_after_an_update_of_the_driver(
    host, root, monkeypatch
):
    for version in (VERSION, VERSION, "590.1.2", "590.1.2"):
        host.injection({"gpu-0": gpu(0, version)})
    assert root.asked == [VERSION, "590.1.2"]
    monkeypatch.setattr(injection, "KEEP_SECONDS", 0.0)
    host.injection({"gpu-0": gpu(0, "590.1.2")})
    assert root.asked == [VERSION, "590.1.2", "590.1.2"]


def test_a_driver_that_does_not_tell_its_version_may_do_so_later(host):
    with pytest.raises(errors.Retryable, match="nvidia-smi"):
        host.injection({"gpu-0": gpu(0, None)})
