"""GPUs that somebody else has bound for virtual machines, and those that nobody can have."""

import dataclasses

import passed_cards
import passing_scene
import pytest
import structlog
from passed_cards import OFF
from passing_scene import card, told

from dra_driver import errors
from dra_driver.logic.offering import publishing
from dra_driver.model import devices, ledgers, pci, prepared
from dra_driver.sim.gpus import gpu_faults


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


# GPUs that somebody else has bound


def test_a_card_that_somebody_has_bound_is_for_virtual_machines_alone_and_the_same(scene):
    uuid = card(scene, 0).gpu.uuid
    scene.bind(scene.address(0))
    snapshot = scene.look()
    assert [name for name in scene.names() if name != "gpu-1"] == ["gpu-vfio-0", "gpu-vfio-1"]
    assert scene.device("gpu-vfio-0").attributes["gpuUUID"] == uuid
    assert (card(scene, 0).is_bound, snapshot.doubts) == (True, ())
    assert card(scene, 0).offers["gpu-vfio-0"].vfio.is_found
    scene.begin()
    assert scene.device("gpu-vfio-0").attributes["gpuUUID"] == uuid


def test_after_a_boot_it_has_its_number_and_nobody_says_which_card_it_is(scene):
    address = scene.address(0)
    uuid = card(scene, 0).gpu.uuid
    scene.bind(address)
    scene.look()
    scene.reboot()
    scene.begin()
    assert "gpuUUID" not in scene.device("gpu-vfio-0").attributes
    scene.bind_back(address)
    scene.look()
    assert card(scene, 0).gpu.uuid == uuid


def test_another_kind_of_card_in_its_place_is_another_card(scene):
    address = scene.address(0)
    scene.bind(address)
    scene.reboot()
    scene.bus.put(address, device=0x2331, driver=passing_scene.VFIO)
    snapshot = scene.begin()
    assert scene.numbers()[address] == 2
    assert snapshot.names["gpu-0"].gone_since is not None


def test_a_card_that_is_elsewhere_by_nvml_is_not_taken_for_the_one_in_its_old_place(scene):
    address, uuid = scene.address(0), scene.state()[0].uuid
    scene.reboot()
    with passing_scene.mig_node.gpu_state.open_file(scene.root / "simulation").edit() as state:
        state.gpus[0].pci_address = "0000:99:00.0"
    scene.bus.put("0000:99:00.0")
    scene.bus.change(address, driver=passing_scene.VFIO)
    snapshot = scene.begin()
    assert snapshot.names["gpu-0"].gpu == uuid
    assert scene.numbers() == {"0000:99:00.0": 0, scene.address(1): 1, address: 2}


def test_a_card_that_is_bound_at_first_sight_keeps_its_number_when_nvml_tells_of_it(new_scene):
    scene = new_scene("t4:2")
    address = scene.address(0)
    for path in (scene.root / "names").iterdir():
        path.unlink()
    scene.api.published = []
    scene.bind(address)
    scene.begin()
    assert scene.numbers() == {scene.address(0): 0, address: 1}
    key = pci.unseen_gpu(address, pci.NVIDIA, passed_cards.T4)
    assert card(scene, 1).gpu.uuid == key
    assert "gpuUUID" not in scene.device("gpu-vfio-1").attributes
    scene.bind_back(address)
    snapshot = scene.look()
    uuid = card(scene, 1).gpu.uuid
    assert uuid.startswith("GPU-")
    assert scene.numbers()[address] == 1
    assert snapshot.lost == {}
    files = {path.name for path in (scene.root / "names").iterdir()}
    assert (f"{uuid}.json" in files, f"{key}.json" in files) == (True, False)
    scene.begin()
    assert scene.numbers()[address] == 1


def test_where_nvml_tells_nothing_what_others_have_bound_is_offered(scene, log):
    scene.bind(scene.address(0))
    scene.look()
    passing_scene.mig_node.gpu_operations.remove_card(
        scene.root / "simulation", scene.state()[0].uuid
    )
    gpu_faults.inject(scene.root / "simulation", error=9, function="nvmlInitWithFlags")
    scene.node.gpus._patience = 0.0
    snapshot = scene.look()
    assert [one.name for one in snapshot.cards] == ["gpu-0"]
    assert snapshot.problem is None
    assert any("Driver Not Loaded" in text for text in snapshot.failures)
    assert scene.names() == ["gpu-vfio-0"]


def test_where_it_is_off_for_a_card_that_is_bound_nothing_is_offered_of_it(scene):
    off = scene.address(0)
    scene.mode_of = lambda gpu: OFF if gpu.pci_address == off else passed_cards.ON
    scene.bind(off)
    snapshot = scene.look()
    assert scene.names() == ["gpu-1", "gpu-vfio-1"]
    [reason] = snapshot.failures
    assert reason.startswith(f"the GPU at {off}: is not offered: a VFIO driver has it, and `vfio`")
    assert snapshot.names["gpu-0"].gone_since is None


def test_a_rule_that_cannot_be_answered_leaves_out_that_card_alone(scene):
    bound = scene.address(0)

    def mode_of(gpu):
        if gpu.architecture is None:
            raise errors.Rejected("setting gpus[0].selector: no such key: architecture")
        return passed_cards.ON

    scene.mode_of = mode_of
    scene.bind(bound)
    snapshot = scene.look()
    assert scene.names() == ["gpu-1", "gpu-vfio-1"]
    assert "no such key: architecture" in snapshot.failures[0]
    assert snapshot.doubts == ()


# GPUs that nobody can have


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        (None, "has no driver: bind it to nvidia"),
        ("nouveau", "is bound to nouveau: only a GPU that nvidia or a VFIO driver has"),
    ],
)
def test_a_card_with_another_driver_or_none_is_not_offered_and_not_gone(scene, log, driver, reason):
    address = scene.address(0)
    scene.unbind(address)
    scene.bus.change(address, driver=driver)
    snapshot = scene.look()
    scene.look()
    assert [one.name for one in snapshot.cards] == ["gpu-1"]
    [text] = snapshot.failures
    assert f"the GPU at {address} is not offered: {address} {reason}" in text
    assert len(told(log, "GPU is not offered")) == 1
    assert snapshot.names["gpu-0"].gone_since is None


def test_nobody_is_missed_while_a_card_without_a_driver_may_be_anybody(scene):
    scene.bus.put("0000:99:00.0", driver=None)
    scene.unbind(scene.address(0))
    del scene.bus.functions[next(iter(scene.out))]
    assert scene.look().names["gpu-0"].gone_since is None
    del scene.bus.functions["0000:99:00.0"]
    assert scene.look().names["gpu-0"].gone_since is not None


def test_virtual_functions_are_told_of_once_for_each_card(scene):
    address = scene.address(0)
    for number in range(4, 8):
        scene.bus.put(f"{address[:-1]}{number}", driver=None, physical=address)
    snapshot = scene.look()
    [text] = snapshot.failures
    assert text.startswith(f"virtual functions of {address} are not offered: ")
    assert text.endswith("(so are 3 more)")
    assert len(snapshot.cards) == 2


def test_a_card_in_a_group_with_others_is_not_offered(scene):
    scene.bind(scene.address(0))
    scene.bus.change(next(iter(scene.out)), group=40)
    scene.bus.put("0000:77:00.0", group=40, driver="vfio-pci")
    snapshot = scene.look()
    assert [one.name for one in snapshot.cards] == ["gpu-1"]
    assert len(snapshot.failures) == 2
    assert "IOMMU group 40" in snapshot.failures[0]


def test_a_card_that_was_taken_and_that_no_claim_has_any_more_is_no_find(scene):
    known, address = card(scene, 0), scene.address(0)
    page = ledgers.Ledger(gpu=known.gpu.uuid, boot_id=scene.boot, handed_over=address, is_page=True)
    scene.node.books._store.write(page)
    scene.bind(address)
    snapshot = scene.look()
    assert [one.name for one in snapshot.cards] == ["gpu-1"]
    assert "no claim has it any more, and it is brought back to nvidia" in snapshot.failures[0]
    assert snapshot.names["gpu-0"].gone_since is None


def test_while_a_record_is_damaged_nobody_knows_whose_a_card_is(scene):
    scene.record(card(scene, 0))
    scene.bind(scene.address(0))
    scene.look()
    path = scene.node.store.records.path("uid-1")
    path.write_text("damaged")
    snapshot = scene.look()
    assert [one.name for one in snapshot.cards] == ["gpu-1"]
    assert "the record of a claim cannot be read" in snapshot.failures[0]
    # What is published of it stays.
    assert "gpu-vfio-0" in scene.names()


def test_a_part_of_a_newer_driver_is_not_taken_for_a_find(scene):
    known = card(scene, 0)
    scene.record(known)
    record = scene.node.store.records.get("uid-1")
    later = {"vfio": prepared.Part(version=2, content={"bound": [known.gpu.pci_address]})}
    scene.node.store.records.write(record.model_copy(update={"parts": later}))
    scene.bind(scene.address(0))
    snapshot = scene.look()
    assert not any(devices.is_vfio(name) for one in snapshot.cards for name in one.offers if
                   one.name == "gpu-0")  # fmt: skip


def during_the_next_look(scene, change):
    """Before NVML is asked, and after the bus was scanned."""
    discover = scene.node.gpus._looking_at.source.discover

    class Source:
        def discover(self):
            change()
            return discover()

    scene.node.gpus._looking_at = dataclasses.replace(scene.node.gpus._looking_at, source=Source())


def test_a_card_that_somebody_binds_in_the_middle_of_a_look_is_not_lost(scene):
    during_the_next_look(scene, lambda: scene.bind(scene.address(0)))
    assert scene.look().lost.keys().isdisjoint({"gpu-vfio-0"})
    assert card(scene, 0).offers.keys() == {"gpu-vfio-0"}


def test_a_record_that_was_damaged_when_the_look_began_may_have_had_the_card(scene):
    scene.record(card(scene, 0))
    scene.bind(scene.address(0))
    scene.look()
    path = scene.node.store.records.path("uid-1")
    path.write_text("damaged")
    during_the_next_look(scene, path.unlink)
    assert [one.name for one in scene.look().cards] == ["gpu-1"]


def test_a_card_that_was_found_bound_is_offered_as_it_is_while_a_claim_has_it(scene):
    scene.bind(scene.address(0))
    scene.look()
    before = publishing.contents(scene.contents)
    scene.record(card(scene, 0), found=True)
    scene.look()
    assert publishing.contents(scene.contents) == before
