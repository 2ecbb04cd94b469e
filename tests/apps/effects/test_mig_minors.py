"""A switch of MIG mode may give a card another minor number: containers get the nodes of this one.

NVML says so of `nvmlDeviceSetMigMode`; the last look at the GPUs knows nothing of it.
"""

import mig_node
import pytest

from dra_driver.adapters.driver import capabilities, driver_root
from dra_driver.apps.node import injection
from dra_driver.model import devices, driver
from dra_driver.sim.gpus import gpu_faults, gpu_state

FIRST, SECOND, OTHER_CARD = mig_node.FIRST, mig_node.SECOND, mig_node.OTHER_CARD
WHOLE = "gpu-0"


def renumber(node, minor, number=0):
    """The next switch gives the card this number, and the card that has it the old one."""
    gpu_faults.renumber(node.simulation, node.uuid(number), minor)


def variable(node, number, minor, uuid):
    return f"SIMULATED_MIG_{minor}_0=NVIDIA H100 80GB HBM3|{node.uuid(number)}|1g.10gb|{uuid}"


@pytest.mark.parametrize("minor", [5, 1])
def test_a_partition_is_given_by_the_number_that_the_switch_gave_its_card(node, api, minor):
    renumber(node, minor)
    ref = api.make(FIRST)
    node.prepare(ref)
    assert node.card().minor == minor
    [uuid] = node.mig_uuids()
    assert node.variables(ref) == [variable(node, 0, minor, uuid)]
    assert node.prepare(ref)
    assert node.variables(ref) == [variable(node, 0, minor, uuid)]


def test_so_is_one_on_a_card_that_was_switched_for_another_claim(node, api):
    renumber(node, 1)
    node.prepare(api.make(FIRST))
    ref = api.make(SECOND)
    node.prepare(ref)
    [instance] = [one for one in node.card().gpu_instances if one.start == 0]
    [compute] = instance.compute_instances
    assert node.variables(ref) == [
        f"SIMULATED_MIG_1_{instance.id}=NVIDIA H100 80GB HBM3|{node.uuid()}|1g.10gb|{compute.uuid}"
    ]


def test_a_card_is_given_as_a_whole_by_the_number_that_the_way_back_gave_it(node, api):
    part = api.make(FIRST)
    node.prepare(part)
    renumber(node, 1)
    node.unprepare(part)
    ref = api.make(WHOLE)
    node.prepare(ref)
    assert node.card().minor == 1
    assert node.variables(ref) == [f"SIMULATED_GPU_1=NVIDIA H100 80GB HBM3|{node.uuid()}"]


class Root:
    """See `driver_root.DriverRoot`."""

    def files(self, version):
        return driver.DriverFiles(version, (), (), (), (), None)

    def device_nodes(self, minors):
        names = [f"nvidia{minor}" for minor in sorted(set(minors))]
        return tuple(
            driver.DeviceNode(f"/dev/{name}", f"/dev/{name}", 195, number, 0o666)
            for number, name in enumerate([*names, "nvidiactl"])
        )


def test_device_nodes_are_those_of_the_card_as_it_is_numbered_now(node, api, tmp_path):
    caps = tmp_path / "dev/nvidia-caps"
    caps.mkdir(parents=True)
    (tmp_path / "devices").write_text("Character devices:\n  1 nvidia-caps\n")
    # Those of the number that the card had are of the other card.
    for minor, path, capability in ((0, "gi0", 7), (1, "gi0", 3), (1, "gi0/ci0", 5)):
        access = tmp_path / f"driver/nvidia/capabilities/gpu{minor}/mig" / path / "access"
        access.parent.mkdir(parents=True, exist_ok=True)
        access.write_text(f"DeviceFileMinor: {capability}\n")
    for capability, name in ((3, "null"), (5, "zero"), (7, "full")):
        (caps / f"nvidia-cap{capability}").symlink_to(f"/dev/{name}")
    dev = driver_root.Root("/", tmp_path)
    host = injection.HostDriver(
        Root(), capabilities.Capabilities(lambda: dev, tmp_path), lambda _: None
    )
    renumber(node, 1)
    ref = api.make(FIRST)
    node.prepare(ref)
    [partition] = node.record(ref).partitions
    offer = node.gpus.snapshot.offered[FIRST]
    assert offer.gpu.minor == 0
    numbered = node.partitioner.numbered(offer.gpu)
    grant = devices.Grant(numbered, partition.instance, partition.profile)
    found = host.injection({FIRST: grant})
    assert [each.path for each in found.devices[FIRST].device_nodes] == [
        "/dev/nvidia1",
        "/dev/nvidia-caps/nvidia-cap3",
        "/dev/nvidia-caps/nvidia-cap5",
    ]


def test_a_card_that_changes_its_mode_with_a_reset_only_is_not_asked(new_node, api):
    node = new_node("a100-40gb-sxm4:1", mode="off")
    gpu_faults.inject(node.simulation, function="nvmlDeviceGetMinorNumber", error=999)
    node.prepare(api.make(WHOLE))


def test_nvml_is_not_opened_once_more_for_a_card_that_kept_its_number(node, api, monkeypatch):
    def asked(_gpu):
        raise AssertionError("what was read when the card was looked at is enough")

    monkeypatch.setattr(node.nvml, "minor", asked)
    for device in (FIRST, OTHER_CARD):
        node.prepare(api.make(device))


def test_a_number_that_changed_otherwise_is_found_by_the_next_look(node, api):
    ref = api.make(WHOLE)
    node.prepare(ref)
    node.unprepare(ref)
    with gpu_state.open_file(node.simulation).edit() as state:
        state.gpus[0].minor, state.gpus[1].minor = 1, 0
    admin = api.make("gpu-1", admin=True)
    node.gpus.look()
    node.prepare(admin)
    [variable] = node.variables(admin)
    gpu = node.gpus.snapshot.offered["gpu-1"].gpu
    minors = {card.uuid: card.minor for card in gpu_state.open_file(node.simulation).read().gpus}
    assert variable == f"SIMULATED_GPU_{minors[gpu.uuid]}=NVIDIA H100 80GB HBM3|{gpu.uuid}"
