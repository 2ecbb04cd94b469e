"""What is put into simulated cards, as NVML tells it, and what takes it away again."""

import pytest

from dra_driver import errors
from dra_driver.adapters.nvml import nvml, nvml_health
from dra_driver.model import health
from dra_driver.sim.gpus import (
    gpu_event_log,
    gpu_faults,
    gpu_operations,
    gpu_state,
    gpus,
    injecting,
)

H100, T4 = 0, 1
FINE = {
    H100: health.Facts(
        recovery=0,
        reset_wanted=False,
        drain_and_reset_wanted=False,
        remap_pending=False,
        remap_failed=False,
        uncorrectable_ecc=0,
        thermal_slowdown=False,
        power_brake=False,
        temperature=33,
        fabric=health.Fabric(3, 0, 0x1AA),
        links_down=(),
    ),
    T4: health.Facts(
        retired_pages=0,
        retirement_pending=False,
        uncorrectable_ecc=0,
        thermal_slowdown=False,
        power_brake=False,
        temperature=33,
    ),
}


class Machine:
    """A node with an H100 and a T4, and what is seen and heard of them."""

    def __init__(self, directory):
        self.directory = directory
        self.library = gpus.SimulatedNvml(directory, spec="h100-80gb-hbm3:1,t4:1")
        self.uuids = [card.uuid for card in gpu_state.open_file(directory).read().gpus]
        self._reader = nvml_health.HealthReader(nvml.Nvml(self.library))
        self._told = gpu_event_log.Reader(directory)

    def inject(self, verb, value=None, card=H100, *, instance=None):
        """What is said of it."""
        named = injecting.Card(self.directory, self.uuids[card], f"gpu-{card}")
        return injecting.inject(named, verb, value, instance)

    def reset(self, card=H100):
        gpu_operations.reset(self.directory, self.uuids[card])

    def changed(self, card=H100):
        """What a look finds of a card that is not as it is with a new one."""
        seen = self._reader.facts(self.uuids)[self.uuids[card]]
        if seen.is_lost:
            return "lost"
        return {
            name: getattr(seen, name)
            for name in health.Facts.__dataclass_fields__
            if getattr(seen, name) != getattr(FINE[card], name)
        }

    def heard(self):
        """The events since the last time."""
        self._told.listen(lambda _: True)
        return list(iter(self._told.next, None))


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def told(machine, kind, card=H100, **data):
    return gpu_event_log.Told(machine.uuids[card], kind, **data)


@pytest.mark.parametrize("card", FINE)
def test_a_new_card_is_well(machine, card):
    assert machine.changed(card) == {}


FAULTS = {
    "remap-pending": {"remap_pending": True},
    "remap-failed": {"remap_failed": True},
    "ecc": {"uncorrectable_ecc": 1},
    "thermal": {"thermal_slowdown": True, "temperature": 92},
    "power-brake": {"power_brake": True},
    "fabric": {"fabric": health.Fabric(3, 0, 0x19A)},
    "link-down": {"links_down": (0,)},
    "lost": "lost",
}
OLD = {
    "remap-pending": {"retired_pages": 1, "retirement_pending": True},
    "remap-failed": {"retired_pages": 64},
    "ecc": {"uncorrectable_ecc": 1},
    "thermal": {"thermal_slowdown": True, "temperature": 92},
    "power-brake": {"power_brake": True},
    "lost": "lost",
}


def test_all_faults_are_tried_here():
    assert set(injecting.VERBS) == {*FAULTS, "xid", "recovery", "clear"}


@pytest.mark.parametrize("verb", FAULTS)
def test_a_fault_is_seen_of_its_card_until_it_is_cleared(machine, verb):
    assert machine.inject(verb)
    assert (machine.changed(), machine.changed(T4)) == (FAULTS[verb], {})
    machine.inject("clear", card=T4)
    assert machine.changed() == FAULTS[verb]
    machine.inject("clear")
    assert machine.changed() == {}


@pytest.mark.parametrize("verb", OLD)
def test_a_card_that_retires_pages_has_the_same_in_its_own_way(machine, verb):
    machine.inject(verb, card=T4)
    assert (machine.changed(T4), machine.changed()) == (OLD[verb], {})
    machine.inject("clear", card=T4)
    assert machine.changed(T4) == {}


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("none", {}),
        ("reset", {"recovery": 1, "reset_wanted": True}),
        ("reboot", {"recovery": 2}),
        ("drain", {"recovery": 3}),
        ("drain-and-reset", {"recovery": 4, "drain_and_reset_wanted": True}),
        ("0", {}),
        ("4", {"recovery": 4, "drain_and_reset_wanted": True}),
        ("255", {"recovery": 255}),
    ],
)
def test_what_the_driver_wants_is_seen_and_told(machine, value, seen):
    assert value in machine.inject("recovery", value)
    assert machine.changed() == seen
    assert [one.kind for one in machine.heard()] == [health.EventKind.RECOVERY_ACTION]


@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        ("remap-pending", health.EventKind.DRAM_RETIREMENT),
        ("remap-failed", health.EventKind.DRAM_RETIREMENT_FAILURE),
        ("ecc", health.EventKind.DOUBLE_BIT_ECC),
    ],
)
def test_trouble_with_memory_is_told_too(machine, verb, kind):
    machine.inject(verb)
    assert machine.heard() == [told(machine, kind)]


@pytest.mark.parametrize(
    ("number", "seen"),
    [(31, {}), (48, {"recovery": 1, "reset_wanted": True}), (79, {"recovery": 2})],
)
def test_an_xid_is_told_and_the_driver_wants_what_it_calls_for(machine, number, seen):
    assert f"XID {number}: " in machine.inject("xid", str(number))
    assert machine.heard() == [told(machine, health.EventKind.XID, data=number)]
    assert machine.changed() == seen


def test_a_card_that_tells_no_wish_tells_an_xid_alone(machine):
    machine.inject("xid", "79", T4)
    assert machine.heard() == [told(machine, health.EventKind.XID, T4, data=79)]
    assert machine.changed(T4) == {}


def test_a_lesser_xid_leaves_what_is_wanted_already(machine):
    machine.inject("xid", "79")
    machine.inject("xid", "48")
    assert machine.changed() == {"recovery": 2}


PARTITION = "gpu-0-mig-1g10gb-19-6"


@pytest.fixture
def gi(machine, tmp_path):
    """The id of the GPU instance that PARTITION is."""
    return gpu_operations.create_instance(tmp_path, machine.uuids[H100], "1g.10gb", 6).id


def test_an_xid_of_an_instance_names_it_and_leaves_its_neighbours_alone(machine, gi):
    for written in (PARTITION, str(gi)):
        assert f"GPU instance {gi}" in machine.inject("xid", "48", instance=written)
        assert machine.heard() == [told(machine, health.EventKind.XID, data=48, gi=gi)]
    assert machine.changed() == {"links_down": None}, "which nobody uses with MIG mode on"


@pytest.mark.parametrize("missing", ["gpu-0-mig-1g10gb-19-5", "gpu-1-mig-1g10gb-19-6", "77", "x"])
def test_an_instance_that_is_not_there_is_refused_with_those_that_are(machine, gi, missing):
    known = rf"instance '{missing}': the GPU has {gi} \(profile 19 at 6\)"
    with pytest.raises(errors.Rejected, match=known):
        machine.inject("xid", "48", instance=missing)
    assert machine.heard() == []


def test_a_card_without_instances_says_so(machine):
    with pytest.raises(errors.Rejected, match="the GPU has no instance; "):
        machine.inject("xid", "48", instance="3")


WRONG = {
    "verb": (["xyz"], "fault 'xyz': it is one of xid, recovery, lost, "),
    "xid without number": (["xid"], "fault xid: it needs a number; write NODE/gpu-0 xid 79"),
    "xid 0": (["xid", "0"], "fault xid: '0' is not a number from 1 to 2147483647"),
    "large xid": (["xid", "2147483648"], "fault xid: '2147483648' is not a number"),
    "many digits": (["xid", "9" * 5000], "fault xid: '9{100}'.* is not a number"),
    "negative xid": (["xid", "-1"], "fault xid: '-1' is not a number"),
    "other digits": (["xid", "٧٩"], "fault xid: '٧٩' is not a number"),
    "recovery": (["recovery", "x"], "'x' is not one of none, reset, .*, or a number up to 255"),
    "no recovery": (["recovery"], "fault recovery: it needs one of none, reset"),
    "large recovery": (["recovery", "256"], "fault recovery: '256' is not one of none"),
    "recovery of many digits": (["recovery", "9" * 5000], "fault recovery: '9{100}'.* is not one"),
    "value": (["lost", "1"], "fault lost: it has no value; write NODE/gpu-0 lost"),
}


@pytest.mark.parametrize(("arguments", "text"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_with_what_is_allowed(machine, arguments, text):
    with pytest.raises(errors.Rejected, match=text):
        machine.inject(*arguments)
    assert (machine.changed(), machine.heard()) == ({}, [])


def test_an_instance_is_for_an_xid_alone(machine, gi):
    with pytest.raises(errors.Rejected, match="fault ecc: --instance is for xid alone"):
        machine.inject("ecc", instance=PARTITION)
    assert machine.heard() == []


@pytest.mark.parametrize(
    ("verb", "value", "lack"),
    [
        ("recovery", "reset", "t4 do not tell what they want"),
        ("fabric", None, "t4 is in no NVLink fabric"),
        ("link-down", None, "t4 has no NVLink"),
    ],
)
def test_what_a_card_cannot_have_is_refused(machine, verb, value, lack):
    with pytest.raises(errors.Rejected, match=lack):
        machine.inject(verb, value, T4)
    assert machine.changed(T4) == {}


def test_clearing_one_card_leaves_the_faults_of_others(machine, tmp_path):
    machine.inject("lost")
    machine.inject("lost", card=T4)
    machine.inject("clear")
    assert gpu_faults.lost(tmp_path) == {machine.uuids[T4]}


def test_links_go_down_one_after_the_other(machine):
    for _ in range(2):
        machine.inject("link-down")
    assert machine.changed() == {"links_down": (0, 1)}
    for _ in range(20):
        machine.inject("link-down")
    assert machine.changed() == {"links_down": tuple(range(18))}


def test_errors_add_up_and_a_reset_starts_their_count_anew(machine):
    for _ in range(3):
        machine.inject("ecc")
    assert machine.changed() == {"uncorrectable_ecc": 3}
    machine.reset()
    assert machine.changed() == {}
    machine.library.nvmlInit()
    handle = machine.library.nvmlDeviceGetHandleByUUID(machine.uuids[H100])
    assert machine.library.nvmlDeviceGetTotalEccErrors(handle, 1, 1) == 3


def test_a_reset_mends_all_but_memory_that_cannot_be_mended(machine):
    machine.inject("recovery", "reset")
    for verb in FAULTS:
        if verb != "lost":
            machine.inject(verb)
    machine.reset()
    assert machine.changed() == {"remap_failed": True}
    for verb in ("remap-pending", "remap-failed"):
        machine.inject(verb, card=T4)
    machine.reset(T4)
    assert machine.changed(T4) == {"retired_pages": 64}


def test_a_reset_brings_no_lost_card_back_but_a_boot_does(machine, tmp_path):
    machine.inject("lost")
    with pytest.raises(errors.Rejected, match="fallen off the bus"):
        machine.reset()
    assert machine.changed() == "lost"
    gpu_operations.reboot(tmp_path)
    assert machine.changed() == {}
