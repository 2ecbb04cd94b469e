"""Which name was meant by one that no device has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.admission import advice
from dra_driver.logic.offering import attributes
from dra_driver.logic.scheduling import candidacy, misnamed
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
        ("numa", ("numaNode", attributes.NUMA_NODE)),
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
        ("numa_node", ("numaNode", attributes.NUMA_NODE)),
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


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("gpu.nvidia.con", ("gpu.nvidia.com",)),
        ("gpus.nvidia.com", ("gpu.nvidia.com",)),
        ("vfoi.gpu.nvidia.com", ("vfio.gpu.nvidia.com",)),
        ("mps.nvidia.com", ()),
        ("nvidia.com", ()),
        ("gpu.amd.com", ()),
    ],
)
def test_a_class_is_like_another_in_all_labels_but_one(written, meant):
    known = ["gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"]
    assert misnamed.nearest_class(written, known) == meant


def test_two_names_that_are_as_near_are_both_told():
    assert misnamed.nearest("xcoder", ["decoder", "encoder"]) == ("decoder", "encoder")


@given(st.sampled_from(KNOWN), st.data())
def test_a_known_name_is_always_its_own_nearest_whatever_else_is_known(name, data):
    others = data.draw(st.lists(st.sampled_from(KNOWN)))
    # Names may differ in their domain alone.
    same = {each for each in (*others, name) if each.rpartition("/")[2] == name.rpartition("/")[2]}
    assert set(misnamed.nearest(name.upper(), [*others, name])) in ({name}, same)


@given(st.text(max_size=12), st.lists(st.text(max_size=12), max_size=6))
def test_only_known_names_are_told(name, known):
    assert set(misnamed.nearest(name, known)) <= set(known)


def test_the_path_is_that_of_the_table_and_domain_where_devices_have_it():
    device = slices.Device("x", {"productName": "T4", attributes.PCIE_ROOT: "r"}, {})
    (candidate,) = candidacy.of_slice(
        slices.ResourceSlice("s", "gpu.example.com", "pool", 1, 1, "a", (device,))
    )
    places = misnamed.places([candidate])
    assert misnamed.paths("model", places) == ('device.attributes["gpu.example.com"].productName',)
    assert misnamed.paths("PcieRoot", places) == (
        'device.attributes["resource.kubernetes.io"].pcieRoot',
    )


def test_a_name_is_compared_only_with_those_that_it_may_be_a_slip_of(monkeypatch):
    compared = []
    slips = misnamed._slips
    monkeypatch.setattr(
        misnamed, "_slips", lambda one, other: compared.append(other) or slips(one, other)
    )
    assert misnamed.nearest("memroy", ["memory", "sm", "cudaComputeCapability"]) == ("memory",)
    assert compared == ["memory"]


@pytest.mark.parametrize("name", ["x" * 65, f"gpu.nvidia.com/{'x' * 100_000}"])
def test_a_name_that_is_longer_than_any_is_compared_with_none(monkeypatch, name):
    monkeypatch.setattr(misnamed, "_folded", lambda _name: pytest.fail("it is looked at"))
    assert misnamed.nearest(name, [*KNOWN, name]) == ()
