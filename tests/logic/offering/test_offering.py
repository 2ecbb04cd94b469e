import dataclasses

import mig_cards

from dra_driver.logic.offering import attributes, catalog, offering
from dra_driver.model import devices, mig, slices

DRIVER = "gpu.nvidia.com"


def gpu(minor):
    uuid, address = devices.GpuUuid(f"GPU-{minor}"), devices.PciAddress(f"0000:{minor:02x}:00.0")
    return devices.Gpu(99 - minor, minor, uuid, "T4", address)


def cards(*minors):
    return [catalog.card(gpu(minor), mig.Mode.DYNAMIC) for minor in minors]


def gone(*minors):
    return {f"gpu-{minor}": devices.Offer(gpu(minor)) for minor in minors}


def lost(device):
    taint = {"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}
    return slices.Device(device.name, device.attributes, device.capacity, {"taints": [taint]})


def offer(offered, lost_devices=None, held=(), published=()):
    state = offering.State(lost_devices or {}, held, published)
    contents = offering.offer(offering.listing(offered), state, offering.Policy(DRIVER))
    assert not any(content.counter_sets for content in contents)
    return [device for content in contents for device in content.devices]


def test_gpus_are_offered_by_the_numbers_of_their_names_and_not_as_texts():
    assert offer(cards(10, 2, 0)) == [attributes.device(gpu(minor)) for minor in (0, 2, 10)]


def test_gpus_whose_minors_have_changed_keep_names_and_places_and_tell_their_minors():
    moved = [
        catalog.card(dataclasses.replace(gpu(minor), device=name), mig.Mode.DYNAMIC)
        for minor, name in ((0, "gpu-1"), (1, "gpu-9"), (7, "gpu-0"))
    ]
    found = offer(moved)
    assert [(device.name, device.attributes["minor"]) for device in found] == [
        ("gpu-0", 7), ("gpu-1", 0), ("gpu-9", 1),
    ]  # fmt: skip


def test_partitions_and_counters_of_a_card_have_its_name_whatever_its_minor():
    before = mig_cards.dynamic("h100-80gb-hbm3:2")
    named = [
        catalog.card(
            dataclasses.replace(
                card.gpu, device=card.name, minor=1 - card.gpu.minor, index=1 - card.gpu.index
            ),
            mig.Mode.DYNAMIC,
        )
        for card in reversed(before)
    ]

    def parts(offered):
        found = mig_cards.offer(offered)
        return [
            *(device for device in mig_cards.devices_of(found) if "minor" not in device.attributes),
            *(one for content in found for one in content.counter_sets),
        ]

    assert parts(named) == parts(before)


def test_nothing_is_offered_where_nothing_is():
    assert offer([]) == []


def test_a_lost_gpu_that_nobody_holds_is_no_longer_listed():
    assert offer(cards(0), gone(1)) == [attributes.device(gpu(0))]


def test_a_lost_gpu_that_a_claim_holds_stays_listed_with_a_taint():
    assert offer(cards(0, 2), gone(1), held={"gpu-1"}) == [
        attributes.device(gpu(0)), lost(attributes.device(gpu(1))), attributes.device(gpu(2)),
    ]  # fmt: skip


def test_a_held_gpu_that_was_lost_before_the_driver_started_is_listed_as_published():
    before = slices.Device("gpu-1", {"minor": 1, "uuid": "GPU-old"}, {}, {"bindsToNode": True})
    assert offer(cards(0), held=["gpu-1"], published=[before]) == [
        attributes.device(gpu(0)),
        slices.Device(
            "gpu-1", {"minor": 1, "uuid": "GPU-old"}, {},
            {
                "bindsToNode": True,
                "taints": [{"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}],
            },
        ),
    ]  # fmt: skip


def test_the_taint_of_a_lost_gpu_is_put_on_once():
    before = lost(attributes.device(gpu(1)))
    assert offer([], held=["gpu-1"], published=[before]) == [before]


def test_what_is_remembered_goes_before_what_is_published():
    stale = slices.Device("gpu-1", {"minor": 1, "uuid": "GPU-stale"}, {})
    assert offer([], gone(1), held=["gpu-1"], published=[stale]) == [
        lost(attributes.device(gpu(1)))
    ]


def test_a_held_gpu_that_is_there_has_no_taint():
    before = lost(attributes.device(gpu(1)))
    assert offer(cards(1), held=["gpu-1"], published=[before]) == [attributes.device(gpu(1))]


def test_a_held_device_of_which_nothing_is_known_cannot_be_listed():
    assert offer(cards(0), held=["gpu-9"]) == [attributes.device(gpu(0))]


def test_the_order_does_not_depend_on_the_order_of_what_is_held():
    published = [slices.Device(f"gpu-{n}", {"minor": n} if n else {}, {}) for n in (3, 1, 0, 2)]
    one = offer([], held=["gpu-2", "gpu-0", "gpu-3", "gpu-1"], published=published)
    other = offer([], held=["gpu-0", "gpu-1", "gpu-2", "gpu-3"], published=published[::-1])
    assert one == other
    assert [device.name for device in one] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
