"""What docs/health.md says of XIDs and causes is what the code does."""

import pathlib
import re

from dra_driver.logic.health import xids
from dra_driver.model import health

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "health.md"


def numbers(cell):
    found = set()
    for part in re.findall("\\d+\u2013\\d+|\\d+", cell):
        first, _, last = part.partition("\u2013")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def test_the_table_of_xids_is_that_of_the_code():
    rows = {
        row[0]: (numbers(row[1]), numbers(row[2]))
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if len(row := [cell.strip() for cell in line.strip("|").split("|")]) == 3
        and row[0] in set(health.Fault)
    }
    assert rows == {
        fault: tuple(
            {
                number
                for number, xid in xids.TABLE.items()
                if xid.fault is fault and xid.withdraws is withdraws
            }
            for withdraws in (False, True)
        )
        for fault in health.Fault
    }


def test_every_cause_has_a_row():
    text = PAGE.read_text(encoding="utf-8").partition("### Other effects")[0]
    for key in health.Key:
        assert f"`{key}" in text, key
    for text_of in ("memory=ecc", "recovery=drain-and-reset", "thermal=power-brake"):
        assert f"`{text_of}`" in text
