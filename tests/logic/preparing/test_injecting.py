import dataclasses

import pytest

from dra_driver import errors
from dra_driver.logic.preparing import cdi, injecting
from dra_driver.model import devices, driver, mig

FILES = driver.DriverFiles(
    version="580.65.06",
    libraries=(
        driver.Library(
            "/usr/lib64/libcuda.so.580.65.06",
            "/run/nvidia/driver/usr/lib64/libcuda.so.580.65.06",
            "libcuda.so.580.65.06",
            ("libcuda.so", "libcuda.so.1"),
        ),
        driver.Library(
            "/usr/lib64/vdpau/libvdpau_nvidia.so.580.65.06",
            "/run/nvidia/driver/usr/lib64/vdpau/libvdpau_nvidia.so.580.65.06",
            "libvdpau_nvidia.so.580.65.06",
            (),
        ),
    ),
    binaries=(driver.HostFile("/opt/bin/nvidia-smi", "/run/nvidia/driver/opt/bin/nvidia-smi"),),
    sockets=(
        driver.HostFile(
            "/run/nvidia-persistenced/socket", "/run/nvidia/driver/run/nvidia-persistenced/socket"
        ),
    ),
    firmware=(
        driver.HostFile(
            "/lib/firmware/nvidia/580.65.06/gsp_ga10x.bin",
            "/run/nvidia/driver/lib/firmware/nvidia/580.65.06/gsp_ga10x.bin",
        ),
    ),
    cdi_hook=None,
)
CONTROL = (driver.DeviceNode("/dev/nvidiactl", "/dev/nvidiactl", 195, 255, 0o666),)
NODES = {
    "gpu-0": (driver.DeviceNode("/dev/nvidia0", "/dev/nvidia0", 195, 0, 0o666),),
    "gpu-3": (
        driver.DeviceNode("/dev/nvidia3", "/dev/nvidia3", 195, 3, 0o666),
        driver.DeviceNode(
            "/dev/nvidia-caps/nvidia-cap9", "/dev/nvidia-caps/nvidia-cap9", 9, 9, 292
        ),
    ),
}
HOOK = "/usr/local/nvidia/toolkit/nvidia-cdi-hook"
LIBCUDA = "/run/nvidia/driver/usr/lib64/libcuda.so.580.65.06"
LIBVDPAU = "/run/nvidia/driver/usr/lib64/vdpau/libvdpau_nvidia.so.580.65.06"
SOCKET = cdi.Mount(
    "/run/nvidia/driver/run/nvidia-persistenced/socket", "/run/nvidia-persistenced/socket",
    ("ro", "nosuid", "nodev", "rbind", "rprivate", "noexec"),
)  # fmt: skip
FIRMWARE = cdi.Mount(
    "/run/nvidia/driver/lib/firmware/nvidia/580.65.06/gsp_ga10x.bin",
    "/lib/firmware/nvidia/580.65.06/gsp_ga10x.bin",
)


def with_hook(files=FILES):
    return driver.DriverFiles(
        files.version, files.libraries, files.binaries, files.sockets, files.firmware, HOOK
    )


def test_each_device_brings_its_own_nodes_and_all_share_the_control_nodes():
    for files in (FILES, with_hook()):
        injection = injecting.injection(files, iter(CONTROL), NODES)
        assert injection.common.device_nodes == CONTROL
        assert injection.devices == {
            "gpu-0": cdi.Edits(device_nodes=NODES["gpu-0"]),
            "gpu-3": cdi.Edits(device_nodes=NODES["gpu-3"]),
        }


def test_without_a_hook_libraries_are_mounted_under_each_name_in_one_directory():
    common = injecting.injection(FILES, CONTROL, NODES).common
    assert common.hooks == ()
    assert common.env == {
        "NVIDIA_VISIBLE_DEVICES": "void",
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
    }
    assert common.mounts == (
        cdi.Mount(LIBCUDA, "/usr/local/nvidia/lib64/libcuda.so"),
        cdi.Mount(LIBCUDA, "/usr/local/nvidia/lib64/libcuda.so.1"),
        cdi.Mount(LIBCUDA, "/usr/local/nvidia/lib64/libcuda.so.580.65.06"),
        cdi.Mount(LIBVDPAU, "/usr/local/nvidia/lib64/libvdpau_nvidia.so.580.65.06"),
        cdi.Mount("/run/nvidia/driver/opt/bin/nvidia-smi", "/usr/bin/nvidia-smi"),
        FIRMWARE,
        SOCKET,
    )


def test_with_a_hook_files_keep_their_places_and_the_hook_makes_links_and_cache():
    common = injecting.injection(with_hook(), CONTROL, NODES).common
    assert common.env == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert common.mounts == (
        cdi.Mount(LIBCUDA, "/usr/lib64/libcuda.so.580.65.06"),
        cdi.Mount(LIBVDPAU, "/usr/lib64/vdpau/libvdpau_nvidia.so.580.65.06"),
        cdi.Mount("/run/nvidia/driver/opt/bin/nvidia-smi", "/usr/bin/nvidia-smi"),
        FIRMWARE,
        SOCKET,
    )
    quiet = ("NVIDIA_CTK_DEBUG=false",)
    assert common.hooks == (
        cdi.Hook(
            HOOK,
            ("nvidia-cdi-hook", "create-symlinks",
             "--link", "libcuda.so.580.65.06::/usr/lib64/libcuda.so",
             "--link", "libcuda.so.580.65.06::/usr/lib64/libcuda.so.1"),
            quiet,
        ),
        cdi.Hook(
            HOOK,
            ("nvidia-cdi-hook", "enable-cuda-compat", "--host-driver-version=580.65.06"),
            quiet,
        ),
        cdi.Hook(
            HOOK,
            ("nvidia-cdi-hook", "update-ldcache",
             "--folder", "/usr/lib64", "--folder", "/usr/lib64/vdpau"),
            quiet,
        ),
        cdi.Hook(HOOK, ("nvidia-cdi-hook", "disable-device-node-modification"), quiet),
    )  # fmt: skip
    assert {hook.name for hook in common.hooks} == {"createContainer"}


def test_a_name_that_two_libraries_have_is_mounted_once_from_the_first():
    twice = driver.DriverFiles(
        "1.2",
        (
            driver.Library("/a/libnv.so.1", "/host/a/libnv.so.1", "libnv.so.1", ("libnv.so",)),
            driver.Library("/b/libnw.so.1", "/host/b/libnw.so.1", "libnw.so.1", ("libnv.so",)),
        ),
        (), (), (), None,
    )  # fmt: skip
    mounts = injecting.injection(twice, CONTROL, NODES).common.mounts
    assert mounts == (
        cdi.Mount("/host/a/libnv.so.1", "/usr/local/nvidia/lib64/libnv.so"),
        cdi.Mount("/host/a/libnv.so.1", "/usr/local/nvidia/lib64/libnv.so.1"),
        cdi.Mount("/host/b/libnw.so.1", "/usr/local/nvidia/lib64/libnw.so.1"),
    )


@pytest.mark.parametrize(
    ("place", "in_container"),
    [
        ("/usr/bin", "/usr/bin"),
        ("/bin", "/bin"),
        ("/usr/local/nvidia/bin", "/usr/local/nvidia/bin"),
        # Of Flatcar, NixOS and Bottlerocket: no image looks there.
        ("/opt/bin", "/usr/bin"),
        ("/run/current-system/sw/bin", "/usr/bin"),
        ("/usr/libexec/nvidia/tesla/bin", "/usr/bin"),
    ],
)
def test_programs_are_where_containers_look_for_programs(place, in_container):
    smi = driver.HostFile(f"{place}/nvidia-smi", "/host/nvidia-smi")
    files = dataclasses.replace(with_hook(), binaries=(smi,))
    mounts = injecting.injection(files, CONTROL, NODES).common.mounts
    assert cdi.Mount("/host/nvidia-smi", f"{in_container}/nvidia-smi") in mounts


def test_no_two_mounts_have_the_same_place():
    for files in (FILES, with_hook()):
        places = [
            mount.container_path
            for mount in injecting.injection(files, CONTROL, NODES).common.mounts
        ]
        assert len(set(places)) == len(places)


GPU = devices.Gpu(0, 0, devices.GpuUuid("GPU-1"), "A GPU", devices.PciAddress("0000:01:00.0"))
SPOT = mig.Spot(19, mig.Placement(0, 1))
UUID = mig.MigUuid("MIG-1")


def test_a_container_needs_the_compute_instance_that_spans_the_gpu_instance():
    assert injecting.compute_instance("a", GPU, mig.Instance(3, SPOT, 0, UUID)) == (0, UUID)


@pytest.mark.parametrize(("ci", "uuid"), [(None, None), (0, None), (None, UUID)])
def test_an_instance_without_one_is_refused_with_how_to_see_it(ci, uuid):
    with pytest.raises(
        errors.Rejected, match=r"'a': GPU instance 3 of GPU-1 .*nvidia-smi mig -lci"
    ):
        injecting.compute_instance("a", GPU, mig.Instance(3, SPOT, ci, uuid))
