"""A driver that is replaced under a plugin that runs, and one whose parts do not fit each other."""

import contextlib
import dataclasses

import doctor_scene
import pytest

from dra_driver import errors
from dra_driver.adapters.disk import ledgers
from dra_driver.adapters.nvml import nvml
from dra_driver.adapters.system import sysfs
from dra_driver.apps.node import host
from dra_driver.apps.offering import inventory
from dra_driver.model import devices, mig, prepared
from dra_driver.sim.gpus import gpu_faults

pytestmark = pytest.mark.sampled(9)

MISMATCH = 18
DRIVER_NOT_LOADED = 9


def replace(machine, error=MISMATCH):
    """From now on NVML answers as if the library that is loaded did not fit the kernel module."""
    gpu_faults.inject(machine.simulation, function="nvmlInitWithFlags", error=error)


def versions(cluster):
    return {
        body["metadata"]["name"]: body["metadata"]["resourceVersion"] for body in cluster.slices()
    }


def test_the_process_ends_and_the_next_one_goes_on_with_all_that_was_prepared(
    own_plugin, own_cluster, own_machine
):
    plugin = own_plugin().start()
    ref = own_cluster.claim("gpu-1")
    devices_before = plugin.kubelet.prepare(ref)
    own_cluster.wait_devices("gpu-0", "gpu-1")
    slices, writes = versions(own_cluster), len(own_cluster.slice_writes())
    files = own_machine.contents()

    replace(own_machine)
    status = plugin.wait_exit()

    assert status == 1
    assert "NVML error 18" in plugin.log_text().splitlines()[-1]
    assert "the next one works on" in plugin.log_text().splitlines()[-1]
    assert versions(own_cluster) == slices
    assert own_machine.contents() == files

    own_machine.heal_gpus()
    plugin.start()
    assert plugin.kubelet.prepare(ref) == devices_before
    plugin.kubelet.prepare(own_cluster.claim("gpu-0"))

    assert versions(own_cluster) == slices
    assert own_cluster.slice_writes()[writes:] == []
    assert own_machine.contents().items() >= files.items()


def test_a_module_that_is_not_loaded_for_a_while_ends_nothing(own_plugin, own_cluster, own_machine):
    plugin = own_plugin().start()
    own_cluster.wait_devices("gpu-0", "gpu-1")

    replace(own_machine, DRIVER_NOT_LOADED)
    plugin.wait_log("no GPU can be seen; looking again")
    own_machine.heal_gpus()
    own_cluster.wait_devices("gpu-0", "gpu-1")

    assert plugin.is_running()


def test_where_a_new_process_meets_it_at_once_it_waits_and_says_so_once(
    own_plugin, own_cluster, own_machine
):
    """Another one would meet it too: the module of the library is not loaded yet."""
    replace(own_machine)
    plugin = own_plugin().start()
    [line] = plugin.wait_log("not ready")
    assert "NVML error 18" in line["reason"]
    assert "load the module of the library, or reboot the node" in line["reason"]
    told = plugin.kubelet.refusal(own_cluster.claim("gpu-0"), timeout=4)
    assert "NVML error 18" in told

    own_machine.heal_gpus()
    own_cluster.wait_devices("gpu-0", "gpu-1")

    assert plugin.is_running()
    assert len(plugin.log("no GPU can be seen; looking again")) == 1
    plugin.kubelet.prepare(own_cluster.claim("gpu-0"))


def test_a_claim_that_meets_it_first_ends_the_process_too(own_plugin, own_cluster, own_machine):
    """Looks at the GPUs are an hour apart here."""
    plugin = own_plugin(rescan_seconds=3600, mig_mode="dynamic", gpus="h100-80gb-hbm3:1").start()
    plugin.kubelet.unprepare()
    ref = own_cluster.claim("gpu-0-mig-1g10gb-19-0")
    replace(own_machine)

    with contextlib.suppress(errors.Retryable):
        plugin.kubelet.ask_prepare(ref, timeout=4)

    assert plugin.wait_exit() == 1
    assert own_machine.record(ref).phase is prepared.Phase.STARTED


class Replaced:
    """A source that tells that it is of no use any more, once it was looked at."""

    def __init__(self):
        self.looks = 0

    def discover(self):
        self.looks += 1
        if self.looks > 1:
            raise nvml.Outdated("replaced")
        return devices.Discovery((GPU,))


GPU = devices.Gpu(0, 0, devices.GpuUuid("GPU-1"), "A GPU", devices.PciAddress("0000:01:00.0"))


def test_what_was_seen_before_stays_seen_until_the_process_has_ended(tmp_path):
    """No device gets a taint, or leaves the slices."""
    changes = []
    looking = inventory.Looking(
        Replaced(), sysfs.Sysfs(tmp_path), ledgers.Ledgers(tmp_path, boot_id="1"),
        lambda _: mig.Mode.OFF,
    )  # fmt: skip
    seen = inventory.Inventory(looking, interval=1.0, on_change=lambda: changes.append(1))

    first, second = seen.look(), seen.look()

    assert [card.name for card in first.cards] == ["gpu-0"]
    assert second is first is seen.snapshot
    assert changes == [1]


def test_libraries_of_another_version_than_the_module_are_told_with_both(own_machine):
    node = doctor_scene.Node(own_machine, None)
    node.install()
    config = node.real()
    gpu = dataclasses.replace(GPU, driver_version=doctor_scene.VERSION)
    root = host.installed_driver(config)
    assert host.missing(root, [gpu]) is None
    libraries = node.host / doctor_scene.LIBRARIES
    (libraries / f"libcuda.so.{doctor_scene.VERSION}").rename(libraries / "libcuda.so.590.1")

    told = host.missing(root, [gpu])

    assert f"no libcuda.so.{doctor_scene.VERSION} in " in told
    assert told.endswith(
        "; there is that of 590.1: kernel module and libraries are of different versions. Load the "
        "module of the libraries (or reboot the node), or install the libraries of 580.159.04"
    )
    assert host.missing(root, []) is None
