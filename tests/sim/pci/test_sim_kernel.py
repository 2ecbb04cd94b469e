"""The simulated kernel does what Linux does, and NVML sees what NVIDIA's driver has."""

import errno
import pathlib
import threading

import pci_scene
import polling
import pytest

from dra_driver.adapters.pci import pci_kernel
from dra_driver.sim.gpus import gpu_clients, gpu_errors, gpu_operations
from dra_driver.sim.pci import changing, faults, pci_state

H100, L4, SOUND = "0000:04:00.0", "0000:07:00.0", "0000:07:00.1"
NODES = {"iommu", "vfio/vfio"}
GROUP = 20


@pytest.fixture
def scene(tmp_path):
    return pci_scene.Scene(tmp_path)


def refused(scene, where, text):
    """The errno with which a text is refused."""
    path = scene.sys / "bus/pci" / where
    with pytest.raises(OSError) as caught:
        scene.kernel.write(path, text, pci_scene.SECONDS)
    return errno.errorcode[caught.value.errno]


def test_the_tree_is_one_of_a_machine(scene):
    found = scene.bus.scan()

    gpu = found.functions[H100]
    assert (gpu.vendor, gpu.device, gpu.driver) == (0x10DE, 0x2330, "nvidia")
    assert scene.override(H100) is None
    assert gpu.modalias == "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"
    assert gpu.memory_bytes == (16 << 20) + (128 << 30) + (32 << 20)
    assert gpu.product == "GH100 [H100 SXM5 80GB]"
    assert (gpu.numa_node, gpu.pcie_root, gpu.cdev) == (0, "pci0000:02", None)
    assert [one.driver for one in found.members(gpu.group)] == ["nvidia"]
    assert found.has_iommu
    assert found.has_iommufd
    assert scene.devices == NODES


def test_a_card_with_sound_has_both_in_one_group(scene):
    found = scene.bus.scan()

    [gpu, sound] = found.members(found.functions[L4].group)
    assert (gpu.address, sound.address, sound.driver) == (L4, SOUND, "snd_hda_intel")
    assert sound.kind == 0x040300
    assert {one.address for one in found.gpus} == {H100, L4}


def test_a_gpu_goes_to_vfio_and_comes_back(scene):
    scene.passed(H100)

    found = scene.bus.function(H100)
    assert (found.driver, scene.override(H100), found.cdev) == ("vfio-pci", "vfio-pci", "vfio0")
    assert scene.links(H100) == {"vfio-pci"}
    assert scene.devices == NODES | {f"vfio/{GROUP}", "vfio/devices/vfio0"}
    assert scene.listed == {L4}

    scene.returned(H100)

    found = scene.bus.function(H100)
    assert (found.driver, scene.override(H100), found.cdev) == ("nvidia", None, None)
    assert scene.links(H100) == {"nvidia"}
    assert scene.devices == NODES
    assert scene.listed == {H100, L4}


def test_nodes_are_given_with_the_paths_where_they_are(scene, tmp_path):
    scene.passed(H100)

    [group, common] = scene.bus.nodes([f"/dev/vfio/{GROUP}", "/dev/vfio/vfio"])

    assert (group.path, group.host_path) == (
        f"/dev/vfio/{GROUP}",
        str(tmp_path / f"dev/vfio/{GROUP}"),
    )
    assert pathlib.Path(common.host_path).is_file()


def test_each_function_has_a_device_of_its_own_and_a_group_one_for_all(scene):
    scene.passed(L4)
    scene.passed(SOUND)
    scene.passed(H100)

    assert [scene.bus.function(one).cdev for one in (L4, SOUND, H100)] == [
        "vfio0",
        "vfio1",
        "vfio2",
    ]
    scene.returned(L4)
    assert scene.devices == NODES | {
        f"vfio/{GROUP}",
        "vfio/23",
        "vfio/devices/vfio1",
        "vfio/devices/vfio2",
    }
    scene.returned(SOUND, "snd_hda_intel")
    assert scene.devices == NODES | {f"vfio/{GROUP}", "vfio/devices/vfio2"}


def test_a_kernel_without_iommufd_has_groups_alone(scene):
    changing.set_iommu(scene.directory, on=True, iommufd=False)

    scene.passed(H100)

    assert scene.bus.function(H100).cdev is None
    assert scene.devices == {"vfio/vfio", f"vfio/{GROUP}"}
    assert not scene.bus.scan().has_iommufd


def test_without_an_iommu_no_vfio_driver_takes_a_function(scene):
    changing.set_iommu(scene.directory, on=False)

    with pytest.raises(pci_kernel.Refused, match="EINVAL"):
        scene.passed(H100)

    assert not scene.bus.scan().has_iommu
    assert scene.bus.function(H100).group is None
    assert scene.bus.function(H100).driver is None


def test_bind_is_refused_as_linux_refuses_it(scene):
    scene.bus.load("vfio_pci")
    vfio, nvidia = "drivers/vfio-pci/bind", "drivers/nvidia/bind"

    # It has a driver; nobody has allowed another one; there is no such function.
    assert refused(scene, nvidia, H100) == "EBUSY"
    assert refused(scene, vfio, H100) == "ENODEV"
    assert refused(scene, nvidia, "0000:ff:00.0") == "ENODEV"
    scene.bus.unbind(H100)
    assert refused(scene, vfio, H100) == "ENODEV"
    scene.bus.allow(H100, "vfio-pci")
    assert refused(scene, nvidia, H100) == "ENODEV"
    scene.bus.bind(H100, "vfio-pci")
    assert refused(scene, vfio, H100) == "EBUSY"
    # NVIDIA's driver does not take what is no GPU, whatever is allowed.
    scene.bus.unbind(SOUND)
    scene.bus.allow(SOUND, "nvidia")
    assert refused(scene, nvidia, SOUND) == "ENODEV"


def test_unbind_is_refused_as_linux_refuses_it(scene):
    scene.bus.load("vfio_pci")

    assert refused(scene, "drivers/vfio-pci/unbind", H100) == "ENODEV"
    assert refused(scene, "drivers/nvidia/unbind", "nonsense") == "ENODEV"
    assert refused(scene, "drivers/mlx5_core/unbind", H100) == "ENOENT"
    assert refused(scene, f"devices/{H100}/vendor", "0x1") == "EACCES"
    assert refused(scene, "devices/0000:ff:00.0/driver_override", "x") == "ENOENT"


def test_a_newline_alone_takes_an_override_back(scene):
    path = scene.sys / "bus/pci/devices" / H100 / "driver_override"

    scene.bus.allow(H100, "vfio-pci")
    assert path.read_text() == "vfio-pci\n"
    assert scene.bus.function(H100).driver == "nvidia"
    scene.bus.allow(H100, None)
    assert path.read_text() == "(null)\n"


def test_what_is_told_has_function_driver_error_and_next_step(scene):
    scene.bus.load("vfio_pci")
    scene.bus.unbind(H100)

    with pytest.raises(
        pci_kernel.Refused,
        match=rf"^{H100} \(no driver\): giving it to vfio-pci: the kernel says ENODEV \(No such "
        r"device\): see dmesg on the node$",
    ):
        scene.bus.bind(H100, "vfio-pci")


def test_modules_are_loaded_once_and_unknown_ones_not_at_all(scene):
    assert scene.bus.driver_of("vfio_pci") is None
    assert scene.bus.load("vfio_pci") == scene.bus.load("vfio-pci") == "vfio-pci"
    assert scene.bus.load("nvgrace_gpu_vfio_pci") == "nvgrace-gpu-vfio-pci"
    with pytest.raises(pci_kernel.Refused, match="Module mlx5_vfio_pci not found"):
        scene.bus.load("mlx5_vfio_pci")


def test_unbinding_makes_the_driver_forget_what_was_set(scene):
    gpu_operations.create_instance(scene.directory, scene.gpu(H100).uuid, "1g.10gb", 0)
    scene.edit(H100, compute_mode=3, time_slice=2)

    scene.passed(H100)
    scene.returned(H100)

    gpu = scene.gpu(H100)
    assert (gpu.compute_mode, gpu.time_slice, gpu.persistence_mode) == (0, 0, False)
    assert (gpu.gpu_instances, gpu.mig_enabled) == ([], False)


@pytest.mark.parametrize("facts", [{"persistence_mode": True}, {"processes": "one"}])
def test_a_gpu_that_is_kept_open_is_not_given_up_before_it_is_closed(scene, facts):
    uuid = scene.gpu(H100).uuid
    if "processes" in facts:
        gpu_operations.start_process(scene.directory, uuid, 4711)
    else:
        scene.edit(H100, **facts)

    with pytest.raises(pci_kernel.Hung, match=rf"{H100}: taking it from nvidia: .*within 0\.05 s"):
        scene.bus.unbind(H100)

    # Its links go first, and the driver itself only then.
    assert scene.bus.function(H100).driver is None
    assert scene.bus.scan().functions[H100].driver is None
    assert len(scene.bus.hanging(H100)) == 1
    scene.edit(H100, persistence_mode=False, processes=[])
    assert scene.bus.hanging(H100) == ()
    assert scene.bus.function(H100).driver is None


def test_nobody_opens_what_is_to_be_given_up_and_those_who_have_it_go_on(scene):
    scene.library.nvmlInit()
    handle = scene.library.nvmlDeviceGetHandleByUUID(scene.gpu(H100).uuid)
    with pytest.raises(pci_kernel.Hung):
        scene.bus.unbind(H100)

    assert scene.library.nvmlDeviceGetMinorNumber(handle) == 0
    assert scene.library.present() == {L4}
    assert scene.bus.hanging(L4) == ()
    with pytest.raises(pci_kernel.Hung, match="an earlier change of its driver hangs"):
        scene.bus.allow(H100, "vfio-pci")

    scene.library.nvmlShutdown()

    assert scene.bus.hanging(H100) == ()
    assert scene.links(H100) == set()


def test_a_client_that_lets_go_in_time_is_waited_for(scene):
    opened = gpu_clients.attach(scene.directory, [scene.gpu(H100).uuid])
    asked = []

    class Impatient(type(scene.kernel._drivers["nvidia"])):
        def is_used(self, address):
            if asked:
                return super().is_used(address)
            asked.append(address)
            used = super().is_used(address)
            gpu_clients.detach(opened)
            return used

    scene.kernel._drivers["nvidia"] = Impatient(scene.directory)

    scene.bus.unbind(H100)

    assert asked == [H100]
    assert scene.bus.function(H100).driver is None


def test_the_session_that_is_open_learns_that_a_gpu_is_gone(scene):
    scene.library.nvmlInit()
    handle = scene.library.nvmlDeviceGetHandleByUUID(scene.gpu(H100).uuid)

    changing.pull(scene.directory, H100)

    with pytest.raises(gpu_errors.NVMLError) as caught:
        scene.library.nvmlDeviceGetMinorNumber(handle)
    assert caught.value.value == gpu_errors.CODES["NVML_ERROR_GPU_IS_LOST"]
    assert scene.library.nvmlDeviceGetCount() == 2
    scene.library.nvmlShutdown()
    assert scene.listed == {L4}
    changing.put_back(scene.directory, H100)
    assert scene.listed == {H100, L4}


def test_a_bind_fails_as_often_as_it_is_told_to(scene):
    faults.fail(scene.directory, "bind", errno.EIO, address=H100, driver="vfio-pci", times=2)

    scene.passed(L4)
    for _ in range(2):
        with pytest.raises(pci_kernel.Refused, match="EIO"):
            scene.passed(H100)
        assert scene.bus.function(H100).driver is None
    scene.passed(H100)

    assert scene.bus.function(H100).driver == "vfio-pci"


@pytest.mark.parametrize("action", ["bind", "unbind"])
def test_what_hangs_is_done_once_it_does_not_hang_any_more(scene, action):
    scene.bus.load("vfio_pci")
    if action == "bind":
        scene.bus.unbind(H100)
        scene.bus.allow(H100, "vfio-pci")
    faults.hang(scene.directory, action, address=H100)

    with pytest.raises(pci_kernel.Hung, match="it may be done yet"):
        scene.passed(H100)

    before = pci_state.open_file(scene.directory).read().find(H100).driver
    told = scene.bus.function(H100).driver
    [pid] = scene.bus.hanging(H100)
    assert scene.bus.hanging(L4) == ()
    again = pci_scene.gpu_driver.kernel(scene.directory)
    assert again.hanging(H100) == (pid,)
    faults.clear(scene.directory)
    assert again.hanging(H100) == ()
    after = scene.bus.function(H100).driver
    assert (before, after) == ((None, "vfio-pci") if action == "bind" else ("nvidia", None))
    # Links come before the driver, and go before it.
    assert told == after


@pytest.mark.parametrize("file", ["driver_override", "sriov_numvfs"])
def test_who_reads_what_the_kernel_tells_with_the_lock_of_the_device_waits_for_it(scene, file):
    path = scene.sys / "bus/pci/devices" / H100 / file
    told = path.read_text()
    faults.hang(scene.directory, "unbind", address=H100)
    with pytest.raises(pci_kernel.Hung):
        scene.bus.unbind(H100)
    found = []
    reader = threading.Thread(target=lambda: found.append(path.read_text()), daemon=True)
    reader.start()

    assert set(scene.bus.scan().functions) == {H100, L4, SOUND}
    assert found == []
    faults.clear(scene.directory)
    polling.until(lambda: scene.bus.hanging(H100) == () and not reader.is_alive())
    assert found == [told]
    assert path.read_text() == told


def test_a_module_that_is_not_there_cannot_be_loaded(scene):
    faults.lack(scene.directory, "vfio_pci")

    with pytest.raises(pci_kernel.Refused, match="Module vfio_pci not found"):
        scene.bus.load("vfio_pci")

    faults.clear(scene.directory)
    assert scene.bus.load("vfio_pci") == "vfio-pci"


def test_a_module_that_does_not_come_is_told(scene):
    faults.hang(scene.directory, "load", driver="vfio-pci")

    with pytest.raises(pci_kernel.Hung, match="modprobe vfio_pci did not end"):
        scene.bus.load("vfio_pci")


@pytest.mark.parametrize("action", ["override", "unbind", "bind"])
def test_a_function_may_go_in_the_middle_of_things(scene, action):
    faults.vanish(scene.directory, action, address=H100)
    if action == "unbind":
        scene.bus.unbind(H100)
    else:
        with pytest.raises(pci_kernel.Refused, match="ENODEV"):
            scene.passed(H100)

    assert scene.bus.function(H100) is None
    assert set(scene.bus.scan().functions) == {L4, SOUND}
    assert scene.listed == {L4}
    with pytest.raises(pci_kernel.Refused, match="ENOENT"):
        scene.bus.allow(H100, None)
    changing.put_back(scene.directory, H100)
    assert scene.bus.function(H100).driver == "nvidia"
