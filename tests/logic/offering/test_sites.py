"""How cards are called that another driver has: by what is remembered of their places."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.offering import attributes, naming, sites
from dra_driver.model import card_names, devices, pci, slices

NOW = "2026-11-28T10:00:00Z"
H100, H200 = 0x2330, 0x2335
BOOT, NEXT = "boot-1", "boot-2"


def address(place):
    return devices.PciAddress(f"0000:{place:02x}:00.0")


def site(place, model=H100, boot=BOOT):
    return devices.Site(address(place), pci.NVIDIA, model, boot)


def key(place, model=H100):
    return pci.unseen_gpu(address(place), pci.NVIDIA, model)


def told(uuid, place, minor=None):
    minor = place if minor is None else minor
    return devices.Gpu(minor, minor, devices.GpuUuid(f"GPU-{uuid}"), "H100", address(place))


def bound(place, model=H100):
    return devices.Gpu(-1, -1, key(place, model), "", address(place))


def look(*gpus, boot=BOOT, models=None, failing=()):
    """What a look sees, with the sites of all: those of `models` by place are not H100."""
    models = models or {}
    where = {}
    for gpu in gpus:
        place = int(gpu.pci_address[5:7], 16)
        where[gpu.uuid] = site(place, models.get(place, H100), boot)
    for place in failing:
        where[key(place)] = site(place, boot=boot)
    failures = tuple(devices.GpuFailure(-1, key(place), address(place), "x") for place in failing)
    return devices.Discovery(gpus, failures, sites=where)


def after(memory, seen):
    """What is remembered after a look, as `apps.offering.names` has it."""
    memory = sites.seated(memory, seen)
    memory = naming.given(memory, seen.gpus, (), seen.sites)
    return naming.missed(sites.seated(memory, seen), seen, NOW)


def called(memory, seen):
    """The number and the UUID of each card, by its place."""
    return {
        int(gpu.pci_address[5:7], 16): (devices.number_of(gpu.name), gpu.uuid)
        for gpu in naming.applied(memory, seen.gpus, seen.sites)
    }


def remembered(*looks):
    memory = {}
    for seen in looks:
        memory = after(memory, seen)
    return memory


def test_a_card_that_is_bound_in_the_same_boot_is_certainly_the_same():
    memory = remembered(look(told("a", 0), told("b", 1)))
    seen = look(bound(0), told("b", 1))
    memory = after(memory, seen)
    assert called(memory, seen) == {0: (0, "GPU-a"), 1: (1, "GPU-b")}
    assert [one.gone_since for one in memory.values()] == [None, None]
    [gpu] = [one for one in naming.applied(memory, seen.gpus, seen.sites) if one.uuid == "GPU-a"]
    assert gpu.product_name == "H100"


def test_in_another_boot_it_has_the_number_and_no_uuid():
    memory = remembered(look(told("a", 0)))
    seen = look(bound(0), boot=NEXT)
    memory = after(memory, seen)
    assert called(memory, seen) == {0: (0, key(0))}
    # NVML tells that it is the same, or another one.
    same, other = look(told("a", 0), boot=NEXT), look(told("x", 0), boot=NEXT)
    assert called(after(memory, same), same) == {0: (0, "GPU-a")}
    assert called(after(memory, other), other) == {0: (1, "GPU-x")}


def test_another_kind_of_card_is_another_card():
    memory = remembered(look(told("a", 0)))
    seen = look(bound(0, H200), models={0: H200})
    memory = after(memory, seen)
    assert called(memory, seen) == {0: (1, key(0, H200))}
    assert memory["gpu-0"].gone_since == NOW


def test_a_card_that_nvml_tells_of_elsewhere_is_not_the_one_in_its_old_place():
    memory = remembered(look(told("a", 0)))
    seen = look(told("a", 5, minor=0), bound(0), boot=NEXT)
    memory = after(memory, seen)
    assert called(memory, seen) == {5: (0, "GPU-a"), 0: (1, key(0))}


def test_also_where_the_bus_does_not_tell_where_that_is():
    memory = remembered(look(told("a", 0)))
    seen = look(told("a", 5, minor=0), bound(0), boot=NEXT)
    known = {uuid: where for uuid, where in seen.sites.items() if uuid != "GPU-a"}
    seen = dataclasses.replace(seen, sites=known)
    assert called(after(memory, seen), seen) == {5: (0, "GPU-a"), 0: (1, key(0))}


def test_a_card_whose_place_another_had_since_is_not_expected_there_any_more():
    memory = remembered(look(told("a", 0)), look(told("b", 0), boot=NEXT))
    seen = look(told("b", 5), bound(0), boot="boot-3")
    assert called(after(memory, seen), seen) == {5: (1, "GPU-b"), 0: (2, key(0))}


def test_the_last_card_in_a_place_is_the_one_that_is_meant():
    memory = remembered(look(told("a", 0)), look(told("b", 0), boot=NEXT))
    seen = look(bound(0), boot=NEXT)
    assert called(after(memory, seen), seen) == {0: (1, "GPU-b")}


def test_a_card_that_is_bound_at_first_sight_has_the_lowest_number_that_is_free():
    seen = look(bound(3), told("b", 1), told("a", 0), bound(2))
    memory = remembered(seen)
    numbers = {place: number for place, (number, _) in called(memory, seen).items()}
    assert {numbers[0], numbers[1]} == {0, 1}
    assert {numbers[2], numbers[3]} == {2, 3}
    backwards = dataclasses.replace(seen, gpus=seen.gpus[::-1])
    assert remembered(backwards) == memory


def test_it_keeps_that_when_nvml_tells_who_it_is():
    memory = remembered(look(bound(3), told("a", 0)))
    seen = look(told("c", 3, minor=1), told("a", 0))
    memory = after(memory, seen)
    assert called(memory, seen) == {0: (0, "GPU-a"), 3: (1, "GPU-c")}
    assert {one.gpu for one in memory.values()} == {"GPU-a", "GPU-c"}
    assert memory["gpu-1"].product == "H100"


def test_a_card_that_has_a_name_already_does_not_get_that_of_its_place():
    memory = remembered(look(told("a", 0)), look(bound(3), boot=NEXT))
    seen = look(told("a", 3), boot=NEXT)
    memory = after(memory, seen)
    assert called(memory, seen) == {3: (0, "GPU-a")}
    assert memory["gpu-1"].gone_since == NOW


def test_a_card_without_a_driver_is_not_gone():
    memory = remembered(look(told("a", 0), told("b", 1)))
    assert after(memory, look(told("b", 1), failing=[0]))["gpu-0"].gone_since is None
    # Of one that nobody knows it may be any.
    assert after(memory, look(told("b", 1), failing=[7]))["gpu-0"].gone_since is None
    assert after(memory, look(told("b", 1)))["gpu-0"].gone_since == NOW


def test_where_nothing_tells_of_places_nothing_is_remembered_of_them():
    seen = devices.Discovery((told("a", 0),))
    assert [one.site for one in remembered(seen).values()] == [None]


# What is published


def vfio(place, number, uuid=None):
    known = told(uuid, place) if uuid else bound(place)
    gpu = dataclasses.replace(known, device=f"gpu-{number}")
    found = devices.Passthrough(gpu.pci_address, pci.NVIDIA, H100, place, "pci:x", product="GH100")
    return attributes.vfio(devices.Offer(gpu, vfio=found))


def test_what_is_published_tells_of_places_too():
    whole = attributes.device(dataclasses.replace(told("a", 0), device="gpu-4"))
    memory = naming.published([whole, vfio(0, 4, "a"), vfio(3, 7)])
    assert memory == {
        "gpu-4": card_names.CardName(
            gpu="GPU-a", device="gpu-4", product="H100", site=site(0, boot="")
        ),
        "gpu-7": card_names.CardName(gpu=key(3), device="gpu-7", product="GH100"),
    }


def test_a_card_that_is_bound_has_its_number_of_what_is_published_alone():
    memory = naming.published([vfio(0, 4, "a"), vfio(3, 7)])
    seen = look(bound(0), bound(3))
    assert called(after(memory, seen), seen) == {0: (4, key(0)), 3: (7, key(3))}


@pytest.mark.parametrize("lacking", ["vendorID", "deviceID", attributes.PCI_BUS_ID])
@pytest.mark.parametrize("value", [None, 7, "0xzz"])
def test_a_device_that_does_not_tell_its_place_tells_none(lacking, value):
    device = vfio(0, 4)
    told_ = {name: known for name, known in device.attributes.items() if name != lacking}
    if value is not None and not (lacking == attributes.PCI_BUS_ID and value == "0xzz"):
        told_[lacking] = value
    changed = slices.Device(device.name, told_, {})
    assert sites.published(changed) is None
    assert naming.published([changed]) == {}


# Whatever happens

PLACES = st.integers(0, 3)
CARDS = [(uuid, model) for uuid, model in zip("abcdef", [H100, H100, H200] * 2, strict=True)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("bind"), PLACES),
        st.tuples(st.just("boot"), st.permutations(range(6))),
    ),
    max_size=14,
)


class History:
    """Cards that are moved and exchanged while the node is off, and bound while it is on."""

    def __init__(self):
        self.boot, self.memory = 1, {}
        self.places = dict(enumerate(CARDS[:4]))
        self.bound = set()
        self.names, self.sure = {}, {}

    def bind(self, place):
        self.bound ^= {place}

    def boot_with(self, order):
        self.boot += 1
        self.sure = {}
        self.places = {place: CARDS[card] for place, card in enumerate(order[:4])}

    def look(self):
        gpus, models = [], {}
        for place, (uuid, model) in self.places.items():
            models[place] = model
            gpus.append(bound(place, model) if place in self.bound else told(uuid, place))
        seen = look(*gpus, boot=f"boot-{self.boot}", models=models)
        self.memory = after(self.memory, seen)
        self.holds(called(self.memory, seen))

    def holds(self, found):
        assert len(found) == len(self.places)
        assert len({number for number, _ in found.values()}) == len(found)
        assert len({uuid for _, uuid in found.values()}) == len(found)
        for place, (number, uuid) in found.items():
            card = f"GPU-{self.places[place][0]}"
            # No UUID is told but that of the card.
            assert uuid == card or pci.is_unseen(uuid)
            if place not in self.bound:
                assert uuid == card
                self.sure[place] = number
                # A name is of one card, and a card has one name.
                assert self.names.setdefault(number, card) == card
                assert [n for n, who in self.names.items() if who == card] == [number]
            # One that NVML has told of in this boot is that card, whatever has it now.
            if place in self.sure:
                assert (number, uuid) == (self.sure[place], card)


@given(STEPS)
def test_in_any_history_a_name_is_of_one_card_and_a_card_keeps_it_whatever_has_it(steps):
    history = History()
    history.look()
    for name, argument in steps:
        if name == "bind":
            history.bind(argument)
        else:
            history.boot_with(argument)
        history.look()
