import pathlib
import socket
import stat

import elf_objects
import pytest

from dra_driver import errors
from dra_driver.adapters.driver import driver_root
from dra_driver.model import driver

VERSION = "580.159.04"
HOST = "/run/nvidia/driver"
LIBRARIES = "usr/lib/x86_64-linux-gnu"


@pytest.fixture
def root(tmp_path):
    return driver_root.Root(HOST, tmp_path)


def put(path, content=b"", mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    return path


def put_library(directory, name, soname=None, links=()):
    """A versioned library, and links that form a chain to it."""
    put(directory / f"{name}.{VERSION}", elf_objects.shared_object(soname))
    target = f"{name}.{VERSION}"
    for link in links:
        (directory / link).symlink_to(target)
        target = link


@pytest.fixture
def installed(tmp_path):
    """A driver as distributions install it."""
    directory = tmp_path / LIBRARIES
    put_library(directory, "libcuda.so", "libcuda.so.1", ["libcuda.so.1"])
    put_library(directory, "libnvidia-ml.so", "libnvidia-ml.so.1", ["libnvidia-ml.so.1"])
    put_library(directory, "libnvidia-glcore.so", f"libnvidia-glcore.so.{VERSION}")
    put(directory / "libc.so.6", elf_objects.shared_object("libc.so.6"))
    put(directory / "libcuda.so.535.1", elf_objects.shared_object("libcuda.so.1"))
    for name in ("nvidia-smi", "nvidia-cuda-mps-control", "bash"):
        put(tmp_path / "usr" / "bin" / name, mode=0o755)
    return tmp_path


def files(root, **options):
    return driver_of(root, **options).files(VERSION)


def driver_of(root, library_dirs=(), **options):
    return driver_root.DriverRoot(driver_root.Layout(root, library_dirs), **options)


def test_libraries_of_the_driver_version_are_found_with_their_names(installed, root):
    assert files(root).libraries == (
        driver.Library(
            path=f"/{LIBRARIES}/libcuda.so.{VERSION}",
            host_path=f"{HOST}/{LIBRARIES}/libcuda.so.{VERSION}",
            file_name=f"libcuda.so.{VERSION}",
            links=("libcuda.so", "libcuda.so.1"),
        ),
        driver.Library(
            path=f"/{LIBRARIES}/libnvidia-glcore.so.{VERSION}",
            host_path=f"{HOST}/{LIBRARIES}/libnvidia-glcore.so.{VERSION}",
            file_name=f"libnvidia-glcore.so.{VERSION}",
            links=(),
        ),
        driver.Library(
            path=f"/{LIBRARIES}/libnvidia-ml.so.{VERSION}",
            host_path=f"{HOST}/{LIBRARIES}/libnvidia-ml.so.{VERSION}",
            file_name=f"libnvidia-ml.so.{VERSION}",
            links=("libnvidia-ml.so.1",),
        ),
    )


def test_the_soname_counts_where_no_link_was_made(tmp_path, root):
    put_library(tmp_path / "usr/lib64", "libcuda.so", "libcuda.so.1")

    (library,) = files(root).libraries

    assert library.links == ("libcuda.so", "libcuda.so.1")


def test_every_link_of_a_chain_counts(tmp_path, root):
    put_library(tmp_path / "usr/lib64", "libcuda.so")
    put_library(
        tmp_path / "usr/lib64", "libEGL_nvidia.so", None, ["libEGL_nvidia.so.0", "libEGL_nvidia.so"]
    )

    egl = files(root).libraries[0]

    assert egl.file_name == f"libEGL_nvidia.so.{VERSION}"
    assert egl.links == ("libEGL_nvidia.so", "libEGL_nvidia.so.0")


def test_a_library_is_found_once_however_many_directories_lead_to_it(installed, root, tmp_path):
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "usr/lib64").symlink_to("lib/x86_64-linux-gnu")

    found = files(root).libraries

    assert len(found) == 3
    assert {library.host_path.rpartition("/")[0] for library in found} == {f"{HOST}/{LIBRARIES}"}


def test_libraries_behind_alternatives_are_found(tmp_path, root):
    hidden = tmp_path / LIBRARIES / "nvidia" / "current"
    put_library(hidden, "libcuda.so", "libcuda.so.1", ["libcuda.so.1"])
    put_library(hidden, "libnvidia-ptxjitcompiler.so", "libnvidia-ptxjitcompiler.so.1")
    (tmp_path / "etc/alternatives").mkdir(parents=True)
    (tmp_path / "etc/alternatives/cuda").symlink_to(f"/{LIBRARIES}/nvidia/current/libcuda.so.1")
    (tmp_path / LIBRARIES / "libcuda.so.1").symlink_to("/etc/alternatives/cuda")

    assert [library.host_path for library in files(root).libraries] == [
        f"{HOST}/{LIBRARIES}/nvidia/current/libcuda.so.{VERSION}",
        f"{HOST}/{LIBRARIES}/nvidia/current/libnvidia-ptxjitcompiler.so.{VERSION}",
    ]


def test_links_are_followed_inside_the_root(tmp_path, root):
    """A bind mount is resolved by the host, where an absolute link would lead elsewhere."""
    put_library(tmp_path / "opt/driver", "libcuda.so", "libcuda.so.1")
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / f"usr/lib64/libcuda.so.{VERSION}").symlink_to(f"/opt/driver/libcuda.so.{VERSION}")

    (library,) = files(root).libraries

    assert library.path == f"/usr/lib64/libcuda.so.{VERSION}"
    assert library.host_path == f"{HOST}/opt/driver/libcuda.so.{VERSION}"


def test_a_loop_of_links_is_no_library(installed, root, tmp_path):
    directory = tmp_path / LIBRARIES
    (directory / f"liba.so.{VERSION}").symlink_to(f"libb.so.{VERSION}")
    (directory / f"libb.so.{VERSION}").symlink_to(f"liba.so.{VERSION}")
    (directory / f"libc.so.{VERSION}").symlink_to("nowhere")

    assert len(files(root).libraries) == 3


def test_32_bit_libraries_are_not_given(installed, root, tmp_path):
    old = b"\x7fELF\x01\x01\x01".ljust(52, b"\0")
    put(tmp_path / f"usr/lib/libcuda.so.{VERSION}", old)
    put(tmp_path / f"usr/lib/libonly32.so.{VERSION}", old)

    found = files(root).libraries

    assert [library.file_name for library in found] == [
        f"libcuda.so.{VERSION}",
        f"libnvidia-glcore.so.{VERSION}",
        f"libnvidia-ml.so.{VERSION}",
    ]
    assert found[0].path.startswith(f"/{LIBRARIES}/")


def test_vdpau_libraries_lie_one_folder_down(installed, root, tmp_path):
    put_library(tmp_path / LIBRARIES / "vdpau", "libvdpau_nvidia.so", "libvdpau_nvidia.so.1")

    assert files(root).libraries[-1].path == f"/{LIBRARIES}/vdpau/libvdpau_nvidia.so.{VERSION}"


def test_directories_can_be_added_and_come_first(installed, root, tmp_path):
    put_library(tmp_path / "opt/gpu", "libcuda.so", "libcuda.so.1")

    found = files(root, library_dirs=["/opt/gpu"]).libraries

    assert [library.path for library in found if "libcuda" in library.path] == [
        f"/opt/gpu/libcuda.so.{VERSION}"
    ]
    assert len(found) == 3


def test_libraries_of_another_version_are_no_driver(installed, root):
    with pytest.raises(errors.Retryable) as caught:
        driver_of(root).files("590.1.2")

    assert "libcuda.so.590.1.2" in str(caught.value)
    assert f"'{HOST}'" in str(caught.value)
    assert "/usr/lib/x86_64-linux-gnu" in str(caught.value)


@pytest.mark.parametrize("version", ["", "..", "580.159.04/../..", "*"])
def test_a_version_is_numbers(installed, root, version):
    with pytest.raises(errors.Rejected, match="driver version"):
        driver_of(root).files(version)


def test_programs_of_the_driver_are_found(installed, root):
    assert files(root).binaries == (
        driver.HostFile(
            "/usr/bin/nvidia-cuda-mps-control", f"{HOST}/usr/bin/nvidia-cuda-mps-control"
        ),
        driver.HostFile("/usr/bin/nvidia-smi", f"{HOST}/usr/bin/nvidia-smi"),
    )


def test_a_directory_of_the_driver_alone_comes_first(installed, root, tmp_path):
    put(tmp_path / "usr/local/nvidia/bin/nvidia-smi", mode=0o755)

    assert files(root).binaries == (
        driver.HostFile(
            "/usr/bin/nvidia-cuda-mps-control", f"{HOST}/usr/bin/nvidia-cuda-mps-control"
        ),
        driver.HostFile(
            "/usr/local/nvidia/bin/nvidia-smi", f"{HOST}/usr/local/nvidia/bin/nvidia-smi"
        ),
    )


def test_a_directory_is_no_program(installed, root, tmp_path):
    (tmp_path / "opt/bin/nvidia-smi").mkdir(parents=True)

    assert files(root).binaries[-1].path == "/usr/bin/nvidia-smi"


def test_sockets_are_found_if_they_are_sockets(installed, root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "run/nvidia-fabricmanager/socket")
    (tmp_path / "run/nvidia-persistenced").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        # Relative, because the path of a socket may have 107 bytes only.
        server.bind("run/nvidia-persistenced/socket")

        assert files(root).sockets == (
            driver.HostFile(
                "/run/nvidia-persistenced/socket", f"{HOST}/run/nvidia-persistenced/socket"
            ),
        )


def test_firmware_of_the_driver_version_is_found(installed, root, tmp_path):
    (tmp_path / "lib").symlink_to("usr/lib")
    for name in (f"{VERSION}/gsp_tu10x.bin", f"{VERSION}/gsp_ga10x.bin", "535.1/gsp_ga10x.bin"):
        put(tmp_path / "usr/lib/firmware/nvidia" / name)

    assert files(root).firmware == (
        driver.HostFile(
            f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
            f"{HOST}/usr/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
        ),
        driver.HostFile(
            f"/lib/firmware/nvidia/{VERSION}/gsp_tu10x.bin",
            f"{HOST}/usr/lib/firmware/nvidia/{VERSION}/gsp_tu10x.bin",
        ),
    )


def test_what_a_node_does_not_have_is_left_out(installed, root):
    found = files(root)

    assert (found.version, found.sockets, found.firmware, found.cdi_hook) == (VERSION, (), (), None)


def test_the_cdi_hook_is_found_or_given(installed, root, tmp_path):
    put(tmp_path / "usr/bin/nvidia-cdi-hook", mode=0o755)

    assert files(root).cdi_hook == f"{HOST}/usr/bin/nvidia-cdi-hook"
    assert files(root, cdi_hook="/opt/hook").cdi_hook == "/opt/hook"

    put(tmp_path / "usr/local/nvidia/toolkit/nvidia-cdi-hook", mode=0o755)
    assert files(root).cdi_hook == f"{HOST}/usr/local/nvidia/toolkit/nvidia-cdi-hook"


def test_the_root_of_the_host_gives_plain_paths(installed, tmp_path):
    found = files(driver_root.Root("/", tmp_path))

    assert found.libraries[0].host_path == f"/{LIBRARIES}/libcuda.so.{VERSION}"
    assert found.binaries[1].host_path == "/usr/bin/nvidia-smi"


NODES = ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


@pytest.fixture
def dev(tmp_path):
    """`dev/` with the nodes of two GPUs. Links to null stand in: making nodes needs root."""
    directory = tmp_path / "dev"
    directory.mkdir()
    for name in NODES:
        (directory / name).symlink_to("/dev/null")
    return directory


def null(path, host=HOST):
    mode = stat.S_IMODE(pathlib.Path("/dev/null").stat().st_mode)
    return driver.DeviceNode(path=path, host_path=host + path, major=1, minor=3, mode=mode)


def test_the_device_nodes_of_gpus_are_described(dev, root):
    assert driver_of(root).device_nodes([1]) == (
        null("/dev/nvidia-uvm"),
        null("/dev/nvidia-uvm-tools"),
        null("/dev/nvidia1"),
        null("/dev/nvidiactl"),
    )


def test_an_optional_node_is_given_if_it_is_there(dev, root):
    (dev / "nvidia-modeset").symlink_to("/dev/null")

    nodes = driver_of(root).device_nodes([0, 1])

    assert [node.path for node in nodes] == [
        "/dev/nvidia-modeset",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia0",
        "/dev/nvidia1",
        "/dev/nvidiactl",
    ]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("nvidia1", "nvidia-modprobe -c 1"),
        ("nvidia-uvm", "nvidia-modprobe -u -c 0"),
        ("nvidia-uvm-tools", "nvidia-modprobe -u -c 0"),
    ],
)
def test_a_missing_node_is_named_with_what_makes_it(dev, root, name, command):
    (dev / name).unlink()

    with pytest.raises(errors.Retryable) as caught:
        driver_of(root).device_nodes([0, 1])

    assert f"{HOST}/dev/{name} (make it with: {command})" in str(caught.value)
    assert "nvidia0" not in str(caught.value)


def test_a_file_in_place_of_a_node_is_missing(dev, root):
    (dev / "nvidia0").unlink()
    (dev / "nvidia0").touch()

    with pytest.raises(errors.Retryable, match="no such character device: /run/nvidia/driver/dev/"):
        driver_of(root).device_nodes([0])


def test_nodes_come_from_the_dev_root_if_there_is_one(dev, tmp_path):
    elsewhere = driver_root.Root("/usr/local/nvidia", tmp_path / "driver")
    dev_root = driver_root.Root("/", tmp_path)

    nodes = driver_of(elsewhere, dev_root=dev_root).device_nodes([0])

    assert null("/dev/nvidia0", host="") in nodes


def test_a_driver_root_without_nodes_leaves_them_to_the_host(tmp_path):
    """An empty `dev` is a mount point of an image, and no root of devices."""
    (tmp_path / "dev").mkdir()
    absent = 251

    with pytest.raises(errors.Retryable, match=f"[ :]/dev/nvidia{absent} "):
        driver_of(driver_root.Root(HOST, tmp_path)).device_nodes([absent])


needs_a_gpu = pytest.mark.skipif(
    not pathlib.Path("/dev/nvidiactl").exists(), reason="no NVIDIA driver on this machine"
)


@pytest.mark.gpu
@needs_a_gpu
def test_the_driver_of_a_real_machine_is_found():
    version = pathlib.Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").split("  ")[1]
    here = driver_of(driver_root.Root("/", pathlib.Path("/")))

    found = here.files(version.split()[0])
    nodes = here.device_nodes([0])

    names = {name for library in found.libraries for name in (library.file_name, *library.links)}
    assert names >= {
        "libcuda.so",
        "libcuda.so.1",
        "libnvidia-ml.so.1",
        "libnvidia-ptxjitcompiler.so.1",
    }
    assert all(pathlib.Path(library.host_path).is_file() for library in found.libraries)
    assert "nvidia-smi" in {pathlib.PurePath(file.path).name for file in found.binaries}
    assert {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"} <= {node.path for node in nodes}
    assert next(node.major for node in nodes if node.path == "/dev/nvidia0") == 195
