"""docs/compatibility.md: which feature is on in which Kubernetes, as the embedded server has it."""

import re

import chart
import pytest

from dra_driver.apps.node import counter_support
from dra_driver.logic.preparing import config_checks
from dra_driver.sim.api.kinds import resource_gates
from dra_driver.sim.gpus import gpu_models

PAGE = (chart.DEPLOY.parent / "docs" / "compatibility.md").read_text("utf-8")
MINORS = range(32, 37)
ROWS = {
    cells[0]: cells
    for line in PAGE.splitlines()
    if len(cells := re.split(r"\s*\|\s*", line)[1:-1]) == 8
}
GATES = {
    gate: cells[2:7]
    for cells in ROWS.values()
    for gate in re.findall(r"^`(DRA\w+|Resource\w+)`", cells[1])
    if gate in resource_gates.ON_SINCE
}


@pytest.mark.parametrize("gate", GATES)
def test_a_gate_is_on_from_the_version_on_that_the_embedded_server_has(gate):
    told = {minor: cell == "on" for minor, cell in zip(MINORS, GATES[gate], strict=True)}
    assert told == {minor: minor >= resource_gates.ON_SINCE[gate] for minor in MINORS}


def test_the_gates_that_the_driver_meets_are_there():
    not_used = {
        "DRADerivedAttributes",
        "DRADeviceBindingConditions",
        "DRADeviceCompatibilityGroups",
        "DRAFractionalCapacityRange",
        "DRANodeAllocatableResources",
        "DRAOptionalNodeOperations",
        "DRAPartitionableDevicesType",
    }
    assert set(GATES) == set(resource_gates.ON_SINCE) - not_used


def test_a_gate_is_never_off_again():
    for cells in GATES.values():
        assert [cell for cell in ("no", "gate", "on") for _ in range(cells.count(cell))] == cells


def test_the_layout_of_counters_is_the_one_of_the_code():
    [cells] = [cells for name, cells in ROWS.items() if name.startswith("layout")]
    for minor, cell in zip(MINORS, cells[2:7], strict=True):
        split, combined = counter_support._SPLIT_MINOR, counter_support._COMBINED_MINOR
        assert cell == ("split" if minor >= split else "combined" if minor >= combined else "no")


def test_surge_is_told_as_the_chart_has_it():
    [cells] = [cells for name, cells in ROWS.items() if "surge" in name]
    helper = (chart.PATH / "templates" / "_helpers.tpl").read_text("utf-8")
    [since] = set(re.findall(r'semverCompare ">=1\.(\d+)\.0-0"', helper))
    assert cells[2:7] == ["on" if minor >= int(since) else "no" for minor in MINORS]


def test_compute_capabilities_are_those_of_the_checks():
    volta = ".".join(map(str, config_checks._VOLTA))
    assert f"| time slices | compute capability {volta} " in PAGE
    mps = ".".join(map(str, config_checks._MPS))
    assert f"| MPS | {mps} and newer; with limits, hence shares with enforcement, {volta} " in PAGE


def test_the_simulated_models_are_those_of_the_package():
    [told] = re.findall(r"^\| simulated \| (.*) \|$", PAGE, re.MULTILINE)
    kinds = {model.partition("-")[0].upper() for model in gpu_models.names()}
    assert kinds == set(re.findall(r"\b[AHLTV]\d+\b", told))


def test_links_and_files_are_there():
    root = chart.DEPLOY.parent
    for target in re.findall(r"\]\(([\w./-]+\.md)", PAGE):
        assert (root / "docs" / target).exists(), target
    for path in re.findall(r"`(tests/[\w./]+)`", PAGE):
        assert (root / path).exists(), path
