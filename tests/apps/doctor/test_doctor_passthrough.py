"""What the doctor looks at where GPUs are handed to virtual machines, on a simulated bus."""

import api_cluster
import doctor_scene
import pytest

from dra_driver import settings
from dra_driver.adapters.disk import records
from dra_driver.apps.doctor import doctor_passthrough
from dra_driver.model import bindings, prepared
from dra_driver.sim.gpus import gpu_clients, gpu_state, hardware
from dra_driver.sim.pci import changing


@pytest.fixture
def config(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "boot_id").write_text("boot-1\n")
    return settings.KubeletPlugin.model_validate(
        {
            "node_name": api_cluster.NODE,
            "simulate_gpus": "h100-80gb-hbm3:2",
            "simulation_dir": tmp_path / "simulation",
            "kubelet_root": tmp_path / "kubelet",
            "proc_root": tmp_path / "proc",
            "boot_id_file": tmp_path / "boot_id",
            "vfio": "on",
        }
    )


@pytest.fixture
def found(config):
    """The hardware of the node."""
    return hardware.simulated(config)


def look(config, found):
    return doctor_passthrough.findings(config, found, found.nvml.discover().gpus)


def claim(config, boot_id):
    """A claim had the first GPU for a virtual machine, in that boot."""
    device = prepared.PreparedDevice(
        requests=("r",), pool="n", device="gpu-vfio-0", cdi_ids=(), kind="vfio"
    )
    record = prepared.Record(
        uid="u",
        namespace="team",
        name="vm",
        phase=prepared.Phase.COMPLETED,
        boot_id=boot_id,
        devices=(device,),
    )
    binding = bindings.Binding(
        device="gpu-vfio-0",
        gpu=first(config).uuid,
        address=first(config).pci_address,
        group=1,
        driver="vfio-pci",
    )
    config.state.mkdir(parents=True, exist_ok=True)
    records.Records(config.state / "claims").write(bindings.into(record, (binding,)))


def first(config):
    return gpu_state.open_file(config.simulation).read().gpus[0]


def test_where_no_gpu_is_handed_over_nothing_is_looked_at(config, found):
    assert look(config.model_copy(update={"vfio": "off"}), found) == []


def test_a_node_with_all_of_it_is_fine(config, found):
    assert doctor_scene.not_fine(look(config, found)) == []
    [last] = [one for one in look(config, found) if one.check == "VFIO"]
    assert last.cause.startswith("can be handed over: 0000:")


def test_a_node_without_an_iommu_has_a_problem(config, found):
    changing.set_iommu(config.simulation, on=False, iommufd=False)
    assert doctor_scene.not_fine(look(config, found)) == [("problem", "IOMMU")]


def test_a_module_that_nothing_can_load_is_a_problem(config, found, tmp_path):
    real = config.model_copy(update={"simulate_gpus": None, "host_root": tmp_path})
    assert doctor_scene.not_fine(look(real, found)) == [("problem", "VFIO module")]
    (tmp_path / "usr/sbin").mkdir(parents=True)
    (tmp_path / "usr/sbin/modprobe").touch()
    assert doctor_scene.not_fine(look(real, found)) == []


def test_who_holds_a_gpu_open_is_named_and_the_driver_itself_is_not(config, found):
    node = gpu_clients.file(config.simulation, first(config).uuid)
    for pid, name in ((7, "nv-hostengine"), (8, "dra-driver")):
        folder = config.proc_root / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "comm").write_text(f"{name}\n")
        (folder / "fd" / "3").symlink_to(node)
    [held] = [one for one in look(config, found) if one.level == "note"]
    assert held.cause.startswith("it is held open by nv-hostengine (pid 7):")


def test_a_gpu_without_a_driver_is_told_and_one_of_a_claim_is_named_with_it(config, found):
    changing.bind(config.simulation, first(config).pci_address, None)
    [note] = [one for one in look(config, found) if one.level == "note"]
    assert "has no driver" in note.cause
    changing.bind(config.simulation, first(config).pci_address, "vfio-pci")
    claim(config, "boot-1")
    causes = [one.cause for one in look(config, found)]
    assert f"{first(config).pci_address} is bound to vfio-pci for claim team/vm" in causes
    assert doctor_scene.not_fine(look(config, found)) == []


def test_what_a_claim_had_before_the_node_was_started_anew_is_nothing_that_lacks_now(config, found):
    claim(config, "boot-0")
    assert doctor_scene.not_fine(look(config, found)) == []
    [last] = [one for one in look(config, found) if one.check == "VFIO"]
    assert first(config).pci_address in last.cause


def test_a_boot_id_that_cannot_be_read_is_told_elsewhere(config, found):
    claim(config, "boot-1")
    config.boot_id_file.unlink()
    assert doctor_scene.not_fine(look(config, found)) == []
