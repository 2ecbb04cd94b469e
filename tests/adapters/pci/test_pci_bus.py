"""What is read of a `/sys` that was made by hand."""

import errno
import os
import pathlib
import threading

import pci_files
import pytest

from dra_driver import errors
from dra_driver.adapters.pci import host_kernel, pci_bus, pci_kernel
from dra_driver.adapters.system import sysfs
from dra_driver.model import pci

H200 = pci_files.H200
SOUND = "0000:41:00.1"
DISK = "0000:42:00.0"


class NoKernel:
    """Nothing is asked of it that a test does not say; then it says that it is done."""

    def __init__(self):
        self.written = []

    def write(self, path, text, seconds):
        self.written.append((path, text, seconds))

    def load(self, module, seconds):
        self.written.append((module, seconds))

    def hanging(self, _address):
        return ()


@pytest.fixture
def kernel():
    return NoKernel()


@pytest.fixture
def files(tmp_path):
    return pci_files.PciFiles(tmp_path)


@pytest.fixture
def bus(files, tmp_path, kernel):
    return pci_bus.PciBus(kernel, sysfs=files.sys, host_root=tmp_path / "host")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_gpu_is_read_with_all_that_the_kernel_tells(files, bus, tmp_path):
    device = files.add(driver="vfio-pci", group=17, driver_override="vfio-pci", numa_node="1")
    (device / "vfio-dev/vfio3").mkdir(parents=True)
    write(
        tmp_path / "host/usr/share/misc/pci.ids",
        "10de  NVIDIA Corporation\n\t2335  GH100 [H200 SXM 141GB]\n",
    )

    assert bus.function(H200) == pci.Function(
        address=H200,
        vendor=0x10DE,
        device=0x2335,
        kind=0x030200,
        modalias="pci:v000010DEd00002335sv000010DEsd000018BFbc03sc02i00",
        driver="vfio-pci",
        group=17,
        memory_bytes=(16 << 20) + (256 << 30) + (32 << 20),
        numa_node=1,
        pcie_root="pci0000:40",
        physical=None,
        virtual_functions=0,
        cdev="vfio3",
        product="GH100 [H200 SXM 141GB]",
    )


def test_what_the_kernel_does_not_tell_is_none(files, bus):
    files.add(driver_override="")

    found = bus.function(H200)

    assert found.driver is found.group is found.numa_node is None
    assert found.cdev is found.product is None


def test_virtual_functions_and_the_one_they_are_of(files, bus):
    physical = files.add()
    virtual = files.add("0000:41:00.4")
    files.link(virtual / "physfn", physical)
    for number in range(4):
        files.link(physical / f"virtfn{number}", virtual)

    assert bus.function(H200).virtual_functions == 4
    assert bus.function("0000:41:00.4").physical == H200


def test_nothing_is_read_for_which_the_kernel_takes_the_lock_of_the_device(files, bus):
    """A driver that does not let go of its device has it: no look at the bus would come back."""
    device = files.add(driver="nvidia", group=17, driver_override=None)
    for name in ("driver_override", "sriov_numvfs"):
        os.mkfifo(device / name)
    found = []
    looker = threading.Thread(target=lambda: found.append(bus.scan()), daemon=True)
    looker.start()

    looker.join(10)

    assert set(found[0].functions) == {H200}


def test_the_nodes_by_which_programs_draw_with_a_gpu(files, bus, tmp_path):
    device = files.add(driver="nvidia")
    for name in ("card1", "renderD129", "controlD65"):
        (device / "drm" / name).mkdir(parents=True)
    files.add(SOUND)

    dri = tmp_path / "host/dev/dri"
    assert bus.screens(H200) == [dri / "card1", dri / "renderD129"]
    assert bus.screens(SOUND) == []


def test_only_memory_counts_and_only_of_bars(files, bus):
    memory, ports, none = "0x000000000014220c", "0x0000000000040101", "0x" + "0" * 16
    lines = [
        f"0x00000000a0000000 0x00000000a0ffffff {memory}",
        f"{none} {none} {none}",
        f"{none} {none} {memory}",
        f"{none} {none} {none}",
        f"{none} {none} {none}",
        f"0x0000000000003000 0x000000000000307f {ports}",
        # The expansion ROM
        f"0x00000000a1000000 0x00000000a107ffff {memory}",
    ]
    files.add(resource="\n".join(lines))

    assert bus.function(H200).memory_bytes == 16 << 20


def test_a_scan_finds_gpus_and_whatever_shares_a_group_with_one(files, bus):
    files.add(group=17)
    files.add(SOUND, group=17, **{"class": "0x040300", "device": "0x22bc"})
    files.add(DISK, group=17, **{"class": "0x010802", "vendor": "0x144d"})
    files.add("0000:43:00.0", group=18, **{"class": "0x020000", "vendor": "0x15b3"})
    files.add("0000:44:00.0", group=19, **{"class": "0x068000"})
    files.add("0000:45:00.0", **{"class": "0x030000", "vendor": "0x1a03"})

    found = bus.scan()

    assert set(found.functions) == {H200, SOUND, DISK}
    assert [one.address for one in found.gpus] == [H200]
    assert [one.address for one in found.members(17)] == [H200, SOUND, DISK]
    assert found.has_iommu


def test_a_vga_controller_of_nvidia_is_a_gpu_too(files, bus):
    files.add(**{"class": "0x030000"})

    assert [one.address for one in bus.scan().gpus] == [H200]


def test_without_groups_the_iommu_is_off(files, bus, tmp_path):
    files.add()

    assert not bus.scan().has_iommu
    assert not bus.scan().has_iommufd
    write(tmp_path / "host/dev/iommu", "")
    assert bus.scan().has_iommufd


@pytest.mark.parametrize("gone", ["vendor", "device", "class", "modalias", "resource"])
def test_a_function_that_goes_while_it_is_read_is_not_there(files, bus, gone):
    files.add(**{gone: None})
    files.add("0000:43:00.0")

    assert bus.function(H200) is None
    assert set(bus.scan().functions) == {"0000:43:00.0"}


def test_one_that_goes_when_half_of_it_is_read_is_not_there(files, bus, monkeypatch):
    files.add(driver="nvidia", group=17)

    def pulled(_place, _address):
        (files.sys / "bus/pci/devices" / H200).unlink()

    monkeypatch.setattr(sysfs.Sysfs, "numa_node", pulled)

    assert bus.function(H200) is None


@pytest.mark.parametrize("name", ["vendor", "class", "device", "resource"])
def test_what_is_no_number_is_not_there_either(files, bus, name):
    files.add(**{name: "0xzz"})

    assert bus.function(H200) is None
    assert not bus.scan().functions


def test_a_link_that_leads_nowhere_is_left_out(files, bus):
    files.add(group=17)
    (files.sys / "bus/pci/devices" / DISK).symlink_to("../../../devices/gone")
    (files.sys / "kernel/iommu_groups/17/devices" / SOUND).symlink_to("../gone")

    assert set(bus.scan().functions) == {H200}


def test_a_machine_without_a_pci_bus_has_nothing(tmp_path, kernel):
    bus = pci_bus.PciBus(kernel, sysfs=tmp_path / "nothing", host_root=tmp_path)

    assert bus.scan() == pci.Bus()
    assert bus.function(H200) is None
    assert bus.driver_of("vfio_pci") is None


def test_this_machine_can_be_read(kernel):
    root = pathlib.Path("/")

    found = pci_bus.PciBus(kernel, sysfs=root / "sys", host_root=root).scan()

    assert all(one.vendor == pci.NVIDIA for one in found.gpus)


@pytest.mark.parametrize("place", ["usr/share/misc", "usr/share/hwdata"])
def test_products_are_looked_up_on_the_host_and_once(files, bus, tmp_path, place):
    files.add()
    path = tmp_path / "host" / place / "pci.ids"
    write(path, "10de  NVIDIA Corporation\n\t2335  GH100 [H200]\n")

    assert bus.function(H200).product == "GH100 [H200]"
    path.unlink()
    assert bus.scan().functions[H200].product == "GH100 [H200]"


def test_devices_of_others_are_not_called_as_ones_of_nvidia(files, bus, tmp_path):
    files.add(DISK, vendor="0x144d")
    write(tmp_path / "host/usr/share/misc/pci.ids", "10de  NVIDIA\n\t2335  GH100\n")

    assert bus.function(DISK).product is None


@pytest.mark.parametrize("place", ["lib/modules", "usr/lib/modules"])
def test_aliases_are_those_of_the_running_kernel(bus, tmp_path, place):
    lines = ["alias vfio_pci:v*d* vfio_pci", "alias pci:v0* nvidia"]
    assert bus.aliases() == ()
    write(tmp_path / "host" / place / os.uname().release / "modules.alias", "\n".join(lines))
    write(tmp_path / "host" / place / "0.1-other" / "modules.alias", "alias x y\n")

    assert list(bus.aliases()) == lines


@pytest.mark.parametrize("module", ["vfio_pci", "vfio-pci"])
def test_a_driver_is_called_like_its_module_but_for_dashes(files, bus, module):
    files.driver("vfio")
    files.driver("vfio-pci")

    assert bus.driver_of(module) == "vfio-pci"
    assert bus.driver_of("vfio_pci_core") is None


def test_else_the_module_tells_which_driver_is_its(files, bus):
    folder = files.sys / "module/nv_odd/drivers"
    folder.mkdir(parents=True)
    for bus_name, driver in (("platform", "nv_platform"), ("pci", "nv-strange")):
        files.link(folder / f"{bus_name}:{driver}", files.driver(driver))

    assert bus.driver_of("nv-odd") == "nv-strange"


def test_a_module_that_is_loaded_is_not_loaded_again(files, bus, kernel):
    files.driver("vfio-pci")

    assert bus.load("vfio_pci") == "vfio-pci"
    assert kernel.written == []


def test_a_module_that_has_no_driver_of_pci_is_refused(bus, kernel):
    with pytest.raises(pci_kernel.Refused, match=r"kernel module vfio_pci: it is loaded, and"):
        bus.load("vfio_pci")

    assert kernel.written == [("vfio_pci", pci_bus.LOAD_SECONDS)]


def test_what_is_written_and_where_to(files, bus, kernel):
    files.add(driver="nvidia")
    drivers = files.sys / "bus/pci/drivers"

    bus.allow(H200, "vfio-pci")
    bus.allow(H200, None)
    bus.unbind(H200)

    override = files.sys / "bus/pci/devices" / H200 / "driver_override"
    assert kernel.written == [
        (override, "vfio-pci\n", pci_bus.SECONDS),
        (override, "\n", pci_bus.SECONDS),
        (drivers / "nvidia/unbind", H200, pci_bus.SECONDS),
    ]


def test_nothing_is_written_where_it_is_so_already(files, bus, kernel):
    files.add(driver="nvidia")
    files.add("0000:43:00.0")

    bus.bind(H200, "nvidia")
    bus.unbind("0000:43:00.0")

    assert kernel.written == []


@pytest.mark.parametrize("is_quicker", [True, False])
def test_a_function_from_which_somebody_else_took_the_driver_has_none(
    files, bus, kernel, monkeypatch, is_quicker
):
    device = files.add(driver="nvidia")

    def refuse(_path, _text, _seconds):
        if is_quicker:
            (device / "driver").unlink()
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(kernel, "write", refuse)
    if is_quicker:
        bus.unbind(H200)
    else:
        with pytest.raises(pci_kernel.Refused, match="taking it from nvidia: the kernel says ENOD"):
            bus.unbind(H200)


def test_a_driver_that_is_not_there_after_all_is_told(files, bus):
    files.add()

    with pytest.raises(
        pci_kernel.Refused,
        match=rf"{H200}: giving it to nvidia: the kernel says that it is done, and its driver is "
        "none: see dmesg",
    ):
        bus.bind(H200, "nvidia")


@pytest.mark.parametrize("name", ["../nvidia", "a/b", "", "nvidia\n"])
def test_a_name_that_is_a_path_is_not_written(files, bus, kernel, name):
    files.add()
    (files.sys / "bus/pci/devices" / H200 / "driver").unlink(missing_ok=True)

    for change in (
        lambda: bus.bind(H200, name),
        lambda: bus.load(name),
        lambda: bus.unbind(name),
        lambda: bus.allow(name, None),
    ):
        with pytest.raises(errors.Rejected, match="it has to match"):
            change()

    assert kernel.written == []


def test_device_nodes_are_those_of_the_host(bus, tmp_path, kernel, files):
    real = pci_bus.PciBus(kernel, sysfs=files.sys, host_root=pathlib.Path("/"))

    [null, zero] = real.nodes(["/dev/null", "/dev/zero"])

    assert (null.path, null.host_path, null.major, null.minor) == ("/dev/null", "/dev/null", 1, 3)
    assert zero.minor == 5
    assert bus.seen("/dev/vfio/17") == tmp_path / "host/dev/vfio/17"
    write(tmp_path / "host/dev/vfio/17", "")
    with pytest.raises(errors.Retryable, match=r"/dev/vfio/17, /dev/vfio/vfio, looked for below"):
        bus.nodes(["/dev/vfio/17", "/dev/vfio/vfio"])


def test_the_files_of_a_real_kernel_are_written_by_its_own_processes(files, tmp_path):
    device = files.add(driver="nvidia")
    kernel = host_kernel.HostKernel(pathlib.Path("/"), pathlib.Path("/proc"))
    bus = pci_bus.PciBus(kernel, sysfs=files.sys, host_root=tmp_path)

    bus.allow(H200, "vfio-pci")
    bus.unbind(H200)

    assert (device / "driver_override").read_text() == "vfio-pci\n"
    assert (files.sys / "bus/pci/drivers/nvidia/unbind").read_text() == H200
