"""GPUs for virtual machines: what a node sees of them, whatever they are bound to."""

import dataclasses

import pytest
import structlog
from passed_cards import OFF, ONLY
from passing_scene import card, told

from dra_driver import errors
from dra_driver.apps.offering import fabric as asking
from dra_driver.logic.offering import publishing
from dra_driver.model import devices, fabric


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


# GPUs that NVML tells of


def test_each_gpu_that_can_be_passed_is_offered_so_too(scene):
    assert scene.names("vfio") == ["gpu-vfio-0", "gpu-vfio-1"]
    assert scene.names("gpu") == ["gpu-0", "gpu-1"]
    device = scene.device("gpu-vfio-0")
    assert device.attributes["gpuUUID"] == card(scene, 0).gpu.uuid
    assert device.attributes["deviceID"] == "0x2330"
    assert [one.is_bound for one in scene.node.gpus.snapshot.cards] == [False, False]


def test_where_it_is_off_the_bus_is_not_looked_at_and_nothing_is_written_of_places(new_scene):
    scene = new_scene(mode=OFF, is_on=False)
    assert scene.bus.scans == 0
    assert scene.names("vfio") == []
    files = list((scene.root / "names").iterdir())
    assert len(files) == 2
    assert not any("more" in path.read_text() for path in files)


def test_gpus_for_virtual_machines_only_are_nothing_else_and_it_is_said_where_they_are(new_scene):
    scene = new_scene(mode=ONLY)
    assert scene.names() == ["gpu-vfio-0", "gpu-vfio-1"]
    assert scene.node.gpus.snapshot.why_missing("gpu-0") == (
        "device 'gpu-0' does not exist on this node. gpu-0: it is handed to virtual machines only, "
        "as gpu-vfio-0"
    )


def test_a_gpu_that_cannot_be_passed_says_why_once(scene, log):
    scene.bus.facts = {"has_iommu": False}
    scene.look()
    snapshot = scene.look()
    assert scene.names("vfio") == []
    assert scene.names("gpu") == ["gpu-0", "gpu-1"]
    lines = told(log, "GPU is not offered to virtual machines")
    assert [(line["device"], line["reason"][:16]) for line in lines] == [
        ("gpu-0", "the IOMMU is off"),
        ("gpu-1", "the IOMMU is off"),
    ]
    assert "gpu-0: the IOMMU is off" in snapshot.why_missing("gpu-vfio-0")
    assert snapshot.why_missing("gpu-0") is None


def test_a_gpu_without_a_function_says_where_none_is(scene):
    del scene.bus.functions[scene.address(1)]
    scene.look()
    assert card(scene, 1).vfio_note == (
        f"no PCI function is at {scene.address(1)} (ls /sys/bus/pci/devices)"
    )
    assert scene.names("vfio") == ["gpu-vfio-0"]


# GPUs that are bound for claims


def states(scene):
    """What a card goes through while a claim gets it, and after."""
    address = scene.address(0)
    known = card(scene, 0)
    yield lambda: scene.record(known)
    yield lambda: scene.unbind(address)
    yield lambda: scene.bind(address)
    yield lambda: scene.bus.change(address, driver=None)
    yield lambda: scene.bus.change(address, driver="nvidia")
    yield lambda: scene.bind_back(address)
    yield scene.forget


def offered_of(contents, number):
    """What is written of one card, and the order of all devices."""
    parsed = publishing.contents(contents)
    listed = [one for content in parsed for one in content.get("devices", ())]
    sets = [one for content in parsed for one in content.get("sharedCounters", ())]
    return (
        [one["name"] for one in listed],
        [one for one in listed if devices.card_of(one["name"]) == f"gpu-{number}"],
        [one for one in sets if one["name"].startswith(f"gpu-{number}-")],
    )


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_offered_of_a_card_stays_the_same_all_the_time(scene, log, restarts):
    before = offered_of(scene.contents, 0)
    for change in states(scene):
        change()
        published = scene.published
        if restarts:
            scene.begin()
            scene.published = published
        snapshot = scene.look()
        # The driver counts other cards anew meanwhile.
        assert offered_of(scene.contents, 0) == before
        assert (snapshot.lost, snapshot.doubts) == ({}, ())
        assert all(one.gone_since is None for one in snapshot.names.values())
    assert not told(log, "GPU is no longer offered")


def test_a_card_is_bound_from_when_nvml_does_not_tell_of_it_until_it_does(scene):
    seen = []
    for change in states(scene):
        change()
        scene.look()
        seen.append(card(scene, 0).is_bound)
    assert seen == [False, True, True, True, True, False, False]


def test_a_card_is_not_lost_to_a_claim_that_comes_or_goes_in_the_middle_of_a_look(scene):
    address, known = scene.address(0), card(scene, 0)
    discover = scene.node.gpus._looking_at.source.discover
    meanwhile = []

    class Source:
        def discover(self):
            while meanwhile:
                meanwhile.pop(0)()
            return discover()

    looking = dataclasses.replace(scene.node.gpus._looking_at, source=Source())
    scene.node.gpus._looking_at = looking
    meanwhile += [lambda: scene.record(known), lambda: scene.bind(address)]
    assert scene.look().lost == {}
    assert card(scene, 0).is_bound
    # It was bound still when NVML was asked, and the record is gone now.
    looks = []

    class Late:
        def discover(self):
            looks.append(discover())
            scene.bind_back(address)
            scene.forget()
            return looks[-1]

    scene.node.gpus._looking_at = dataclasses.replace(looking, source=Late())
    before = scene.contents
    assert scene.look().lost == {}
    assert card(scene, 0).is_bound
    assert offered_of(scene.contents, 0) == offered_of(before, 0)


def test_a_card_stays_where_nvml_tells_of_nothing_at_all_as_all_are_bound(scene):
    for number, address in enumerate([scene.address(0), scene.address(1)]):
        scene.record(card(scene, number), f"uid-{number}")
        scene.bind(address)
    snapshot = scene.look()
    assert [one.name for one in snapshot.cards] == ["gpu-0", "gpu-1"]
    assert snapshot.lost == {}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_card_stays_bound_when_it_is_switched_off_meanwhile(scene, restarts):
    scene.record(card(scene, 0))
    scene.bind(scene.address(0))
    scene.mode_of, scene.is_on = (lambda _: OFF), not restarts
    if restarts:
        scene.begin()
    scene.look()
    assert scene.names("vfio") == ["gpu-vfio-0"]
    assert card(scene, 0).is_bound
    scene.bind_back(next(iter(scene.out)))
    scene.forget()
    # The files of the simulated bus are those of the start.
    scene.node.gpus._patience = 0.0
    scene.look()
    scans = scene.bus.scans
    scene.look()
    assert scene.names("vfio") == []
    assert (scene.bus.scans == scans) is restarts


def test_a_record_of_an_earlier_boot_binds_nothing(scene):
    scene.record(card(scene, 0))
    scene.reboot()
    scene.begin()
    assert not card(scene, 0).is_bound
    scene.bind(scene.address(0))
    scene.look()
    assert card(scene, 0).offers.keys() == {"gpu-vfio-0"}


def test_a_claim_s_device_is_listed_also_where_slices_were_lost(scene):
    scene.record(card(scene, 0))
    scene.bind(scene.address(0))
    scene.look()
    scene.published = []
    scene.look()
    assert "gpu-vfio-0" in scene.names()


def test_a_bus_that_cannot_be_read_changes_nothing(scene, log):
    scene.record(card(scene, 0))
    scene.bind(scene.address(0))
    scene.look()
    before = scene.contents
    scene.bus.trouble = OSError(5, "Input/output error")
    scene.look()
    snapshot = scene.look()
    assert publishing.contents(scene.contents) == publishing.contents(before)
    assert snapshot.lost == {}
    assert len(told(log, "which GPUs virtual machines have is not known")) == 1


def test_a_bus_that_was_never_read_leaves_cards_as_nvml_and_records_tell(scene):
    scene.record(card(scene, 0))
    scene.bind(scene.address(0))
    scene.bus.trouble = OSError(5, "Input/output error")
    published = scene.published
    scene.begin()
    scene.published = published
    snapshot = scene.look()
    assert [one.is_bound for one in snapshot.cards] == [True, False]
    assert "the PCI bus cannot be looked at" in card(scene, 1).vfio_note
    # What the claim has stays.
    assert scene.names("vfio") == ["gpu-vfio-0"]


def test_a_card_that_an_older_instance_hands_over_is_there_for_one_that_hands_over_none(new_scene):
    scene = new_scene(mode=OFF, is_on=False)
    address = scene.address(0)
    scene.record(card(scene, 0))
    scene.bind(address)
    assert scene.look().lost == {}
    assert card(scene, 0).is_bound
    assert scene.names("vfio") == ["gpu-vfio-0"]
    scene.bind_back(address)
    scene.forget()
    assert scene.look().lost == {}
    assert scene.names("vfio") == []
    scans = scene.bus.scans
    scene.look()
    assert scene.bus.scans == scans


# The NVLink fabric

FABRIC = ("gpuModuleID", "partition1", "partition2", "partition4", "partition8")


def in_fabric(scene, *answers):
    """Fabric Manager is asked, and gives these answers; None is none."""
    left = list(answers)

    def ask():
        if (answer := left.pop(0)) is None:
            raise errors.Retryable("it does not answer")
        return [
            fabric.Partition(number, tuple(fabric.Member(one) for one in gpus))
            for number, gpus in answer
        ]

    subject = asking.Fabric(ask)
    looking = dataclasses.replace(scene.node.gpus._looking_at, in_fabric=subject.placed)
    scene.node.gpus._looking_at = looking
    return subject


def fabric_of(scene, name):
    known = scene.device(name).attributes
    return {one: known[one] for one in FABRIC if one in known}


def test_what_belongs_together_is_told_of_gpus_whole_and_for_virtual_machines(new_scene):
    scene = new_scene("h100-80gb-hbm3:2,t4:1")
    subject = in_fabric(scene, [(0, (1, 2)), (4, (1,)), (5, (2,))])
    assert [fabric_of(scene, name) for name in scene.names("gpu")] == [{}, {}, {}]
    subject.ask()
    scene.look()
    second = {"gpuModuleID": 2, "partition1": 5, "partition2": 0}
    assert fabric_of(scene, "gpu-1") == fabric_of(scene, "gpu-vfio-1") == second
    assert fabric_of(scene, "gpu-0")["partition1"] == 4
    assert fabric_of(scene, "gpu-2") == fabric_of(scene, "gpu-vfio-2") == {}
    assert not any(fabric_of(scene, name) for name in scene.names("mig"))


def test_a_gpu_that_a_virtual_machine_has_keeps_its_partitions_through_a_restart(scene):
    in_fabric(scene, [(4, (1,))]).ask()
    scene.look()
    told = {"gpuModuleID": 1, "partition1": 4}
    assert fabric_of(scene, "gpu-vfio-0") == told
    scene.record(card(scene, 0))
    scene.bind(scene.address(0))
    scene.look()
    assert fabric_of(scene, "gpu-vfio-0") == told
    scene.begin()
    subject = in_fabric(scene, None, [(6, (1,))])
    for expected in (4, 6):
        subject.ask()
        scene.look()
        assert fabric_of(scene, "gpu-vfio-0") == {"gpuModuleID": 1, "partition1": expected}
    in_fabric(scene)
    scene.node.gpus._looking_at = dataclasses.replace(
        scene.node.gpus._looking_at, in_fabric=asking.Unasked().placed
    )
    scene.look()
    assert fabric_of(scene, "gpu-vfio-0") == {}


def test_a_vgpu_is_offered_to_no_virtual_machine(scene):
    def fill(gpus):
        return [
            dataclasses.replace(gpu, virtualization=devices.Virtualization.VGPU) for gpu in gpus
        ]

    scene.node.gpus._looking_at = dataclasses.replace(scene.node.gpus._looking_at, fill=fill)
    scene.look()
    assert scene.names() == ["gpu-0", "gpu-1"]
    assert card(scene, 0).vfio_note.endswith("no virtual machine can be given it")
