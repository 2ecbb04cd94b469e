"""What the doctor says of GPUs and the driver."""

import dataclasses

import doctor_scene
import hook_programs
import pytest

from dra_driver.adapters.disk import health_records
from dra_driver.adapters.system import sysfs
from dra_driver.apps.doctor import doctor_driver
from dra_driver.logic.doctor import diagnosis
from dra_driver.logic.health import meaning
from dra_driver.model import health
from dra_driver.model import health_records as written
from dra_driver.sim.gpus import gpu_faults, gpu_health_state, gpu_state

H100, T4 = "h100-80gb-hbm3:2", "t4:2"


@pytest.fixture
def node(own_machine):
    return doctor_scene.Node(own_machine, None)


def look(node, cards=H100, **flags):
    """What is found with GPUs that NVML serves."""
    config = node.real(**flags)
    return list(doctor_driver.look(config, node.served(config, cards)).findings)


def unserved(node, **flags):
    config = node.real(**flags)
    return doctor_driver.look(config, node.unserved(config)).findings


def test_an_installed_driver_is_fine(node):
    node.install()
    found = doctor_scene.by_check(look(node))
    assert doctor_scene.not_fine(list(found.values())) == []
    assert {check: finding.cause for check, finding in found.items()} == {
        "driver root": "has /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
        "GPUs": "2 x NVIDIA H100 80GB HBM3; driver 580.159.04",
        "persistence mode": "it is on",
        "health": "the driver complains of no GPU",
        "device nodes": "/dev/nvidia-uvm, /dev/nvidia-uvm-tools, /dev/nvidia0, /dev/nvidia1, "
        "/dev/nvidiactl",
        "driver libraries": "2 of version 580.159.04",
        "nvidia-cdi-hook": "/usr/bin/nvidia-cdi-hook",
        "MIG capabilities": "nvidia-caps has major number 235",
        "time slices": str(node.host / "usr/bin/nvidia-smi"),
        "MPS": str(node.host / "usr/bin/nvidia-cuda-mps-control"),
    }


@pytest.mark.parametrize("place", ["run/nvidia/driver", "home/kubernetes/bin/nvidia"])
def test_a_driver_that_is_installed_elsewhere_is_told_with_the_settings_that_find_it(node, place):
    node.install(place)
    first, *more = unserved(node)
    assert [finding.check for finding in more] == ["device nodes"]
    assert (first.level, first.check, first.looked_at) == ("problem", "driver root", "/")
    assert first.cause.startswith("no libnvidia-ml.so.1 in /usr/local/nvidia/lib64, ")
    assert first.remedy == (
        f"--driver-root /{place}; with the chart: --set settings.driverRoot=/{place}"
    )


def test_a_driver_that_is_nowhere_has_to_be_installed(node):
    first, *_ = unserved(node)
    assert first.level is diagnosis.Level.PROBLEM
    assert first.remedy.startswith("install the NVIDIA driver")


def test_a_library_that_no_link_leads_to_is_told_with_what_makes_the_link(node):
    node.install()
    (node.host / doctor_scene.LIBRARIES / "libnvidia-ml.so.1").unlink()
    first, *_ = unserved(node)
    assert (first.level, first.check) == ("problem", "driver root")
    assert first.remedy == (
        "/usr/lib/x86_64-linux-gnu has libnvidia-ml.so.580.159.04, and no link libnvidia-ml.so.1 "
        "that leads to it: ldconfig on the node, or ln -s libnvidia-ml.so.580.159.04 "
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    )


def test_a_driver_in_directories_of_its_own_is_found_with_the_setting(node):
    node.install("opt/gpu")
    first, *_ = unserved(node)
    assert "name the directory below it that has the library with --library-dirs" in first.remedy
    given = f"/opt/gpu/{doctor_scene.LIBRARIES}"
    first, *_ = unserved(node, library_dirs=(given,))
    assert (first.level, first.cause) == ("fine", f"has {given}/libnvidia-ml.so.1")


def test_a_driver_root_that_is_not_mounted_is_told(node):
    first, *_ = unserved(node, driver_root_seen=node.host / "absent")
    assert first.cause == f"there is no directory {node.host / 'absent'}"


def test_a_library_that_does_not_work_is_a_problem_of_nvml(node):
    node.install()
    found = {finding.check: finding for finding in unserved(node)}
    assert found["driver root"].level is diagnosis.Level.FINE
    assert found["NVML"].level is diagnosis.Level.PROBLEM
    assert found["NVML"].looked_at == "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    # It is no module that is missing.
    assert "cannot be loaded" in found["NVML"].cause
    assert found["NVML"].remedy.startswith("install the library for the architecture of the node")


def test_a_library_that_does_not_fit_the_module_is_told_with_what_to_load(node):
    node.install()
    gpu_faults.inject(node.machine.simulation, function="nvmlInitWithFlags", error=18)
    found = {finding.check: finding for finding in look(node)}
    assert found["NVML"].remedy.startswith("cat /proc/driver/nvidia/version on the node tells ")


def test_a_module_that_is_not_loaded_is_told_as_nvml_tells_it(node):
    node.install()
    gpu_faults.inject(node.machine.simulation, function="nvmlInitWithFlags", error=9)
    found = {finding.check: finding for finding in look(node)}
    assert "NVML error 9 (Driver Not Loaded)" in found["NVML"].cause
    assert found["NVML"].remedy.startswith("modprobe nvidia")
    assert "GPUs" not in found


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [("nvidia1", "nvidia-modprobe -u -c 0 -c 1"), ("nvidiactl", "nvidia-modprobe -u -c 0 -c 1")],
)
def test_a_missing_device_node_is_named_with_what_makes_it(node, missing, remedy):
    node.install("root")
    config = node.real(driver_root="/", driver_root_seen=node.host / "root")
    found = node.served(config, H100)
    (node.host / "root/dev" / missing).unlink()
    findings = doctor_scene.by_check(list(doctor_driver.look(config, found).findings))
    assert findings["device nodes"].level is diagnosis.Level.PROBLEM
    assert f"/dev/{missing}" in findings["device nodes"].cause
    assert findings["device nodes"].remedy == remedy


def test_device_nodes_are_looked_for_where_nvml_does_not_answer_too(node):
    node.install()
    (node.host / "dev/nvidia-uvm").unlink()
    found = {finding.check: finding for finding in unserved(node)}
    assert "/dev/nvidia-uvm " in found["device nodes"].cause
    assert found["device nodes"].remedy == "nvidia-modprobe -u -c 0"


def test_libraries_of_another_version_are_a_problem(node):
    node.install()
    libraries = node.host / doctor_scene.LIBRARIES
    (libraries / f"libcuda.so.{doctor_scene.VERSION}").rename(libraries / "libcuda.so.535.1")
    found = doctor_scene.by_check(look(node))
    assert found["driver libraries"].level is diagnosis.Level.PROBLEM
    assert "no libcuda.so.580.159.04" in found["driver libraries"].cause
    assert "nvidia-cdi-hook" not in found


@pytest.mark.parametrize(
    ("program", "check"),
    [
        ("nvidia-smi", "time slices"),
        ("nvidia-cuda-mps-control", "MPS"),
        ("nvidia-cdi-hook", "nvidia-cdi-hook"),
    ],
)
def test_a_program_that_is_absent_is_only_a_note(node, program, check):
    node.install()
    (node.host / "usr/bin" / program).unlink()
    assert doctor_scene.not_fine(look(node)) == [("note", check)]


def test_a_hook_that_lacks_commands_is_a_note(node):
    node.install()
    hook_programs.put(node.host / "usr/bin/nvidia-cdi-hook", hook_programs.V1_17_5)
    found = doctor_scene.by_check(look(node))["nvidia-cdi-hook"]
    assert found.level is diagnosis.Level.NOTE
    assert found.cause == (
        "/usr/bin/nvidia-cdi-hook is old: containers are made without "
        "disable-device-node-modification (toolkit 1.18)"
    )
    assert "1.18 or newer" in found.remedy


def test_a_hook_that_the_pod_copies_into_the_plugins_directory_may_not_be_there_yet(node):
    node.install()
    hook = node.machine.plugin / "nvidia-cdi-hook"
    told = doctor_scene.by_check(look(node, cdi_hook=hook))["nvidia-cdi-hook"]
    assert (told.level, told.cause) == ("fine", f"{hook}, once it is copied there")
    hook_programs.put(hook, hook_programs.V1_16)
    told = doctor_scene.by_check(look(node, cdi_hook=hook))["nvidia-cdi-hook"]
    assert told.level is diagnosis.Level.NOTE


def test_capabilities_of_mig_are_needed_by_cards_that_can_be_cut(node):
    node.install()
    (node.proc / "devices").write_text("Character devices:\n195 nvidia\n\nBlock devices:\n")
    assert doctor_scene.not_fine(look(node, H100)) == [("problem", "MIG capabilities")]
    assert doctor_scene.not_fine(look(node, H100, mig_mode="off")) == []
    rule = {"selector": "true", "migMode": "static"}
    assert doctor_scene.not_fine(look(node, H100, mig_mode="off", gpus=[rule])) == [
        ("problem", "MIG capabilities")
    ]


def test_cards_that_cannot_be_cut_need_no_capabilities(node):
    node.install()
    (node.proc / "devices").unlink()
    assert "MIG capabilities" not in doctor_scene.by_check(look(node, T4))


def test_gpus_that_sysfs_does_not_know_are_a_note(node):
    node.install()
    config = node.real(sysfs_root=node.host)
    found = dataclasses.replace(node.served(config, T4), place=sysfs.Sysfs(node.host))
    findings = list(doctor_driver.look(config, found).findings)
    assert doctor_scene.not_fine(findings) == [("note", "sysfs")]
    assert doctor_scene.by_check(findings)["sysfs"].looked_at == str(node.host)


def test_a_sick_gpu_is_told_with_what_the_plugin_remembers_of_it_and_what_is_seen_now(node):
    node.install()
    config = node.real()
    hardware = node.served(config, H100)
    uuid = gpu_state.open_file(node.machine.simulation).read().gpus[1].uuid
    with gpu_health_state.open_file(node.machine.simulation).edit() as cards:
        cards.of(uuid).recovery = 2
    event = health.Event(health.EventKind.XID, uuid, 79)
    finding = meaning.of_event(event, None, meaning.Policy())
    told = health.Condition(finding, "2026-11-30T10:00:00Z", hold=30.0)
    config.state.mkdir(parents=True, exist_ok=True)
    health_records.opened(config.state / "health").write(
        written.Record(gpu=uuid, boot_id="boot-1", conditions=(written.written(told),))
    )
    found = doctor_driver.look(config, hardware).findings
    remembered, seen = (one.cause for one in found if one.check == "health")
    assert remembered == (
        "GPU 1 (NVIDIA H100 80GB HBM3) since 2026-11-30T10:00:00Z: XID 79: the GPU has fallen off "
        "the bus; the node needs a reboot"
    )
    assert seen == "GPU 1 (NVIDIA H100 80GB HBM3): the driver wants the node rebooted"
