from dra_driver.logic.preparing import device_numbers
from dra_driver.model import devices, prepared


def gpu(uuid, minor):
    address = devices.PciAddress(f"0000:{minor:02x}:00.0")
    return devices.Gpu(minor, minor, devices.GpuUuid(f"GPU-{uuid}"), "T4", address)


def record(gpus, minors):
    return prepared.Record(
        uid="u", namespace="n", name="c", phase=prepared.Phase.COMPLETED, boot_id="b", devices=(),
        gpus={name: f"GPU-{uuid}" for name, uuid in gpus.items()}, minors=minors,
    )  # fmt: skip


BOTH = record({"gpu-0": "a", "gpu-1": "b"}, {"gpu-0": 0, "gpu-1": 1})


def test_cards_that_are_there_have_the_numbers_of_now_and_others_those_of_then():
    assert device_numbers.now(BOTH, [gpu("a", 4)]) == {"gpu-0": 4, "gpu-1": 1}
    assert device_numbers.now(BOTH, []) == BOTH.minors


def test_of_a_record_that_tells_no_numbers_none_are_asked_for():
    told = record({"gpu-0": "a"}, {})
    assert device_numbers.now(told, [gpu("a", 4)]) == {}
    assert not device_numbers.are_taken(told, [gpu("b", 0)])


def test_a_number_is_taken_when_another_card_has_it_whether_its_own_is_there_or_not():
    assert not device_numbers.are_taken(BOTH, [gpu("a", 0), gpu("b", 1), gpu("c", 2)])
    assert not device_numbers.are_taken(BOTH, [gpu("a", 5), gpu("c", 2)])
    assert not device_numbers.are_taken(BOTH, [])
    assert device_numbers.are_taken(BOTH, [gpu("a", 5), gpu("c", 0)])
    assert device_numbers.are_taken(BOTH, [gpu("a", 1), gpu("b", 0)])
    assert device_numbers.are_taken(BOTH, [gpu("c", 1)])
