import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model import devices, mig


def test_a_gpu_is_named_after_the_minor_number_of_its_node():
    assert devices.gpu_device_name(7) == "gpu-7"


def test_a_failure_tells_which_gpu_with_all_that_is_known_of_it():
    uuid, address = devices.GpuUuid("GPU-1"), devices.PciAddress("0000:01:00.0")
    assert str(devices.GpuFailure(3, uuid, address, "GPU is lost")) == (
        "GPU 3 (GPU-1, 0000:01:00.0): GPU is lost"
    )
    assert str(devices.GpuFailure(3, None, address, "lost")) == "GPU 3 (0000:01:00.0): lost"
    assert str(devices.GpuFailure(3, None, None, "lost")) == "GPU 3: lost"


def test_what_is_not_known_of_a_gpu_is_none():
    gpu = devices.Gpu(0, 1, devices.GpuUuid("GPU-1"), "T4", devices.PciAddress("0000:01:00.0"))
    assert (gpu.brand, gpu.memory_bytes, gpu.mig_capable, gpu.numa_node) == (None,) * 4


@pytest.mark.parametrize(
    ("profile", "profile_id", "start", "name"),
    [
        ("1g.5gb", 19, 0, "gpu-0-mig-1g5gb-19-0"),
        ("1g.10gb+me", 20, 6, "gpu-0-mig-1g10gb-me-20-6"),
        ("1g.24gb-me", 67, 0, "gpu-0-mig-1g24gb-me-67-0"),
        ("1g.12gb+me.all", 65, 3, "gpu-0-mig-1g12gb-meall-65-3"),
        ("1G.12GB+GFX", 12, 3, "gpu-0-mig-1g12gb-gfx-12-3"),
        ("7g.80gb+", 0, 0, "gpu-0-mig-7g80gb-0-0"),
    ],
)
def test_a_partition_is_named_as_the_peer_names_it(profile, profile_id, start, name):
    spot = mig.Spot(profile_id, mig.Placement(start, 1))
    assert devices.mig_device_name("gpu-0", profile, spot) == name


@given(
    st.integers(0, 99), st.from_regex(r"[1-7]g\.\d{1,3}gb([+-][a-z.]{1,8})?", fullmatch=True),
    st.integers(0, 99), st.integers(0, 15),
)  # fmt: skip
def test_the_name_of_a_partition_is_a_label_and_tells_what_was_put_into_it(
    number, profile, profile_id, start
):
    card = devices.gpu_device_name(number)
    name = devices.mig_device_name(card, profile, mig.Spot(profile_id, mig.Placement(start, 1)))
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)
    assert devices.parse_mig_device_name(name) == devices.ParsedName(card, profile_id, start)
    assert devices.card_of(name) == card
    assert devices.number_of(card) == number
    assert devices.number_of(name) is None


@pytest.mark.parametrize(
    "name", ["gpu-0", "gpu-0-mig", "gpu-0-mig-1g5gb-19", "gpu-x-mig-1g5gb-19-0", "",
             "gpu-0-mig-1g5gb-19-0-", "xgpu-0-mig-1g5gb-19-0", "gpu-vfio-", "gpu-vfio-00"],
)  # fmt: skip
def test_other_names_are_no_partition_s(name):
    assert devices.parse_mig_device_name(name) is None
    assert devices.card_of(name) == name


@given(st.integers(0, 999))
def test_the_device_for_virtual_machines_has_the_number_of_its_card(number):
    card = devices.gpu_device_name(number)
    name = devices.vfio_device_name(card)
    assert name == f"gpu-vfio-{number}"
    assert devices.is_vfio(name)
    assert devices.card_of(name) == card
    assert not devices.is_vfio(card)


def test_a_gpu_that_has_no_minor_number_is_locked_by_its_name_alone():
    gpu = devices.Gpu(
        -1, -1, devices.GpuUuid("GPU-1"), "T4", devices.PciAddress("0000:01:00.0"), device="gpu-2"
    )
    assert gpu.locks == {"gpu-2"}


def test_a_card_goes_by_its_minor_number_until_it_has_a_name():
    gpu = devices.Gpu(0, 5, devices.GpuUuid("GPU-1"), "T4", devices.PciAddress("0000:01:00.0"))
    assert (gpu.name, gpu.locks) == ("gpu-5", {"gpu-5"})
    named = dataclasses.replace(gpu, device="gpu-2")
    assert (named.name, devices.Offer(named).card) == ("gpu-2", "gpu-2")


def test_a_card_is_locked_by_its_minor_number_too_as_an_older_driver_locks_it():
    gpu = devices.Gpu(
        0, 5, devices.GpuUuid("GPU-1"), "T4", devices.PciAddress("0000:01:00.0"), device="gpu-2"
    )
    assert gpu.locks == {"gpu-2", "gpu-5"}


def test_cards_are_ordered_by_their_numbers():
    names = ["gpu-10", "gpu-9", "vfio", "gpu-0"]
    assert sorted(names, key=devices.by_number) == ["vfio", "gpu-0", "gpu-9", "gpu-10"]


def test_an_offer_belongs_to_the_card_of_its_gpu():
    gpu = devices.Gpu(0, 5, devices.GpuUuid("GPU-1"), "T4", devices.PciAddress("0000:01:00.0"))
    assert devices.Offer(gpu).card == "gpu-5"
    assert devices.Offer(gpu, spot=mig.Spot(19, mig.Placement(0, 1))).card == "gpu-5"
