"""A false comparison is told with the value that was met."""

import pytest

from dra_driver.logic.cel import selection
from dra_driver.logic.explaining import comparisons
from dra_driver.model import quantities, slices

D = "gpu.nvidia.com"
A, C = f'device.attributes["{D}"]', f'device.capacity["{D}"]'
T4 = slices.Device(
    "gpu-0",
    {
        "architecture": "Turing",
        "index": 3,
        "migCapable": False,
        "cudaComputeCapability": slices.Version("7.5.0"),
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
    },
    {"memory": quantities.parse("15Gi")},
)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (f"{C}.memory.compareTo(quantity('16Gi')) >= 0", "memory 15Gi < 16Gi"),
        (f"{C}.memory.compareTo(quantity('15Gi')) > 0", "memory 15Gi <= 15Gi"),
        (f'{C}["memory"].isGreaterThan(quantity("16Gi"))', "memory 15Gi <= 16Gi"),
        (
            f"{A}.cudaComputeCapability.isLessThan(semver('7.0.0'))",
            "cudaComputeCapability 7.5.0 >= 7.0.0",
        ),
        (f"{A}.architecture == 'Hopper'", 'architecture "Turing" != "Hopper"'),
        (f"{A}.index < 2", "index 3 >= 2"),
        (f"{A}.migCapable == true", "migCapable false != true"),
        (f"{A}.migCapable", "migCapable false"),
        (f"{A}.architecture.startsWith('Ho')", 'architecture "Turing"'),
        (f"{A}.index == 1 || {A}.migCapable", "index 3, migCapable false"),
        (
            "device.attributes['resource.kubernetes.io'].pcieRoot == 'x'",
            'pcieRoot "pci0000:00" != "x"',
        ),
    ],
)
def test_what_was_met(expression, text):
    (part,) = selection.compile(expression).explain(T4, D)
    assert part.outcome is False
    assert comparisons.told(part.source, part.reads) == text.replace(
        'device.capacity["x"]', "memory"
    )


def test_a_comparison_of_two_values_lists_both():
    reads = (("device.attributes.a", "1"), ("device.attributes.b", "2"))
    assert comparisons.told("device.attributes.a == device.attributes.b", reads) == "a 1, b 2"


def test_a_comparison_that_read_more_than_one_value_lists_them():
    reads = (("device.driver", '"d"'), ('device.attributes["d"].index', "3"))
    assert comparisons.told("device.attributes[device.driver].index == 1", reads) == (
        'driver "d", index 3'
    )
