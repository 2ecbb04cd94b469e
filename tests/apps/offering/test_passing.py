"""GPUs for virtual machines: what a node sees of them, whatever they are bound to."""

import dataclasses
import pathlib
import tempfile

import passed_cards
import passing_scene
import pytest
import structlog
from passed_cards import OFF, ONLY

from dra_driver import errors
from dra_driver.logic.offering import publishing
from dra_driver.model import devices, ledgers, pci, prepared
from dra_driver.sim.gpus import gpu_faults


@pytest.fixture
def new_scene():
    made, roots = [], []

    def make(*arguments, **options):
        roots.append(tempfile.TemporaryDirectory(dir="/tmp"))
        made.append(passing_scene.Scene(pathlib.Path(roots[-1].name), *arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
    for root in roots:
        root.cleanup()


@pytest.fixture
def scene(new_scene):
    """An H100 and a T4."""
    return new_scene()


@pytest.fixture
def log():
    with structlog.testing.capture_logs() as lines:
        yield lines


def told(log, event):
    return [line for line in log if line["event"] == event]


def card(scene, number):
    [found] = [one for one in scene.node.gpus.snapshot.cards if one.name == f"gpu-{number}"]
    return found


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
    assert scene.look().lost == {}
    assert card(scene, 0).is_bound


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
