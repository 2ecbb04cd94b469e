"""Which name was meant by one that no device has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic import advice, attributes, candidacy, misnamed
from dra_driver.model import slices

KNOWN = (
    *{name for listed in advice.ALWAYS.values() for name in listed},
    *advice.COMMON,
    *advice.OPTIONAL,
    *advice.CAPACITY[advice._GPU],
    *advice.OPTIONAL_CAPACITY,
)
"""All that this driver publishes."""


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("model", ("productName",)),
        ("product", ("productName",)),
        ("nvidia.com/gpu.product", ("productName",)),
        ("family", ("architecture",)),
        ("computeCapability", ("cudaComputeCapability",)),
        ("vram", ("memory",)),
        ("gpumem", ("memory",)),
        ("numa", ("numaNode",)),
        ("pcieBusID", (attributes.PCI_BUS_ID,)),
        ("pciRoot", (attributes.PCIE_ROOT,)),
        ("migProfile", ("profile",)),
    ],
)
def test_what_other_drivers_write_is_translated(written, meant):
    assert misnamed.nearest(written, KNOWN) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("PRODUCTNAME", ("productName",)),
        ("numa_node", ("numaNode",)),
        ("gpu.nvidia.com/pcieRoot", (attributes.PCIE_ROOT,)),
        ("productNmae", ("productName",)),
        ("addressingMod", ("addressingMode",)),
        ("cudaComputCapabilty", ("cudaComputeCapability",)),
        ("uuids", ("uuid",)),
        ("decoder", ("decoders",)),
    ],
)
def test_a_slip_is_mended(written, meant):
    assert misnamed.nearest(written, KNOWN) == meant


@pytest.mark.parametrize(
    "written", ["zone", "node", "health", "nvlink", "bandwidth", "mode", "x", "", "memorySlice9"]
)
def test_a_name_that_is_like_none_or_like_many_gets_no_hint(written):
    assert misnamed.nearest(written, KNOWN) == ()


def test_a_name_of_this_driver_is_translated_for_one_that_has_a_model():
    assert misnamed.nearest("productName", ["model", "uuid"]) == ("model",)


def test_a_translation_that_no_device_has_is_none():
    assert misnamed.nearest("model", ["uuid", "numaNode"]) == ()


def test_every_translation_ends_at_a_name_that_is_published_here_or_at_a_model():
    last = {name.rpartition("/")[2] for name in KNOWN} | {"model"}
    assert {name for names in misnamed.ALIASES.values() for name in names} <= last


def test_two_names_that_are_as_near_are_both_told():
    assert misnamed.nearest("xcoder", ["decoder", "encoder"]) == ("decoder", "encoder")


@given(st.sampled_from(KNOWN), st.data())
def test_a_known_name_is_always_its_own_nearest_whatever_else_is_known(name, data):
    others = data.draw(st.lists(st.sampled_from(KNOWN)))
    assert misnamed.nearest(name.upper(), [*others, name]) == (name,)


@given(st.text(max_size=12), st.lists(st.text(max_size=12), max_size=6))
def test_only_known_names_are_told(name, known):
    assert set(misnamed.nearest(name, known)) <= set(known)


def test_the_path_is_that_of_the_table_and_domain_where_devices_have_it():
    device = slices.Device("x", {"productName": "T4", attributes.PCIE_ROOT: "r"}, {})
    (candidate,) = candidacy.of_slice(
        slices.ResourceSlice("s", "gpu.example.com", "pool", 1, 1, "a", (device,))
    )
    assert misnamed.elsewhere("no such key: model", [candidate]) == (
        'device.attributes["gpu.example.com"].productName',
    )
    assert misnamed.elsewhere("no such key: PcieRoot", [candidate]) == (
        'device.attributes["resource.kubernetes.io"].pcieRoot',
    )
    assert misnamed.elsewhere("division by zero", [candidate]) == ()
