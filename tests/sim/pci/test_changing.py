"""What people, firmware and boots do to the bus of a simulated machine."""

import pci_scene
import pytest

from dra_driver import errors
from dra_driver.model import pci
from dra_driver.sim.gpus import gpu_operations
from dra_driver.sim.pci import changing, faults, pci_state

H100, L4, SOUND = "0000:04:00.0", "0000:07:00.0", "0000:07:00.1"
SPEC = "h100-80gb-hbm3:1,l4:1"


@pytest.fixture
def scene(tmp_path):
    return pci_scene.Scene(tmp_path, SPEC)


def drivers(scene):
    return {address: one.driver for address, one in scene.bus.scan().functions.items()}


def test_a_restart_of_the_process_changes_nothing(scene):
    scene.passed(H100)
    scene.bus.unbind(SOUND)
    before, identity = scene.bus.scan(), scene.sys.stat().st_ino

    scene.install(SPEC)

    assert scene.bus.scan() == before
    assert scene.sys.stat().st_ino == identity
    assert drivers(scene) == {H100: "vfio-pci", L4: "nvidia", SOUND: None}
    assert scene.bus.driver_of("vfio_pci") == "vfio-pci"


def test_a_tree_that_somebody_left_half_done_is_as_the_bus_is(scene):
    scene.passed(H100)
    before = scene.bus.scan()
    (scene.sys / "bus/pci/devices" / H100 / "driver").unlink()
    (scene.directory / "dev/vfio/20").unlink()
    (scene.directory / "dev/vfio/99").touch()

    scene.install(SPEC)

    assert scene.bus.scan() == before
    assert "vfio/20" in scene.devices
    assert "vfio/99" not in scene.devices


def test_other_hardware_keeps_what_still_fits(scene):
    scene.passed(H100)
    scene.passed(L4)

    scene.install("h100-80gb-hbm3:1,t4:1,l4:1")

    assert drivers(scene) == {
        H100: "vfio-pci",
        L4: "nvidia",
        "0000:0a:00.0": "nvidia",
        "0000:0a:00.1": "snd_hda_intel",
    }
    assert scene.bus.function(L4).device == 0x1EB8
    assert scene.bus.function(H100).cdev == "vfio0"
    scene.install("t4:1")
    assert drivers(scene) == {H100: "nvidia"}
    scene.install("none")
    assert drivers(scene) == {}


def test_after_a_reboot_all_is_as_it_was_built(scene):
    before = scene.bus.scan()
    scene.passed(H100)
    changing.pull(scene.directory, SOUND)
    changing.set_virtual_functions(scene.directory, L4, 2)
    faults.hang(scene.directory, "unbind", address=L4)
    with pytest.raises(errors.Retryable):
        scene.bus.unbind(L4)

    gpu_operations.reboot(scene.directory)

    assert scene.bus.scan() == before
    assert scene.bus.driver_of("vfio_pci") is None
    assert scene.bus.hanging(L4) == ()
    assert scene.listed == {H100, L4}


def test_a_driver_that_is_taken_out_has_nothing_and_takes_back_what_is_free(scene):
    scene.passed(H100)

    gpu_operations.unload_driver(scene.directory)

    assert drivers(scene) == {H100: "vfio-pci", L4: None, SOUND: "snd_hda_intel"}
    assert scene.bus.driver_of("nvidia") is None
    gpu_operations.load_driver(scene.directory)
    assert drivers(scene) == {H100: "vfio-pci", L4: "nvidia", SOUND: "snd_hda_intel"}
    assert scene.listed == {L4}


def test_an_administrator_binds_and_unbinds(scene):
    changing.bind(scene.directory, H100, "vfio-pci")
    changing.bind(scene.directory, SOUND, None)

    assert drivers(scene) == {H100: "vfio-pci", L4: "nvidia", SOUND: None}
    assert scene.override(H100) == "vfio-pci"
    assert scene.listed == {L4}
    changing.bind(scene.directory, H100, "nvidia")
    assert scene.override(H100) is None
    assert scene.listed == {H100, L4}


def test_a_foreign_device_is_in_the_group_of_a_gpu(scene):
    disk = changing.add_foreign(scene.directory, H100)
    bridge = changing.add_foreign(scene.directory, H100, kind=0x060400)

    found = scene.bus.scan()

    assert {one.address for one in found.members(20)} == {H100, disk, bridge}
    assert found.functions[disk].vendor == 0x144D
    assert found.functions[bridge].base_class == pci.BRIDGE
    assert {one.address for one in found.gpus} == {H100, L4}
    scene.install(SPEC)
    assert scene.bus.scan() == found
    scene.install("t4:1,l4:1")
    assert disk not in scene.bus.scan().functions


def test_two_cards_are_in_one_group(scene):
    changing.join(scene.directory, H100, L4)

    found = scene.bus.scan()

    assert {one.address for one in found.members(20)} == {H100, L4, SOUND}
    scene.install(SPEC)
    assert scene.bus.scan() == found


def test_virtual_functions_are_of_their_gpu_and_not_of_nvml(scene):
    made = changing.set_virtual_functions(scene.directory, H100, 5)

    found = scene.bus.scan()

    assert made == [f"0000:04:{place}" for place in ("00.4", "00.5", "00.6", "00.7", "01.0")]
    assert {found.functions[one].physical for one in made} == {H100}
    assert {found.functions[one].driver for one in made} == {"nvidia"}
    assert len({found.functions[one].group for one in [*made, H100, L4]}) == 7
    assert found.functions[H100].virtual_functions == 5
    assert scene.listed == {H100, L4}
    changing.set_virtual_functions(scene.directory, H100, 0)
    assert set(drivers(scene)) == {H100, L4, SOUND}


def test_a_machine_is_repaired(scene):
    before = scene.bus.scan()
    changing.add_foreign(scene.directory, H100)
    changing.set_iommu(scene.directory, on=False, iommufd=False)
    faults.lack(scene.directory, "vfio_pci")

    changing.repair(scene.directory)

    assert scene.bus.scan() == before
    scene.passed(H100)


def test_what_is_not_there_is_told(scene):
    with pytest.raises(errors.Rejected, match=r"'0000:ff:00\.0': the machine has 0000:04:00\.0, "):
        changing.pull(scene.directory, "0000:ff:00.0")
    with pytest.raises(errors.Rejected, match="errno 9999: there is none"):
        faults.fail(scene.directory, "bind", 9999)


def test_a_machine_without_a_bus_is_left_without_one(tmp_path):
    changing.reboot(tmp_path)
    changing.unload(tmp_path, "nvidia")
    changing.load(tmp_path, "nvidia")

    assert not (tmp_path / pci_state.FILE).exists()
    assert not (tmp_path / "sys").exists()
