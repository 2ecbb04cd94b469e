"""How findings are shown: problems with what to do about them first; JSON for a program."""

import dataclasses
import json
from collections.abc import Sequence

from dra_driver.adapters.console import terminal
from dra_driver.logic.doctor import diagnosis

_STYLES = {diagnosis.Level.PROBLEM: "bold red", diagnosis.Level.NOTE: "bold yellow"}


def show(
    findings: Sequence[diagnosis.Finding], screen: terminal.Terminal, *, node: str, driver: str
) -> None:
    """Print what is to be done, then a table of what is fine."""
    for level, style in _STYLES.items():
        for finding in diagnosis.of_level(findings, level):
            screen.block(_block(finding, style))
            screen.say("")
    rows = tuple(
        (finding.check, finding.looked_at, finding.cause)
        for finding in diagnosis.of_level(findings, diagnosis.Level.FINE)
    )
    if rows:
        screen.table(terminal.Table("Fine", ("check", "looked at", "found"), rows))
    screen.say(f"Node {node}, driver {driver}: {diagnosis.summary(findings)}")


def show_json(
    findings: Sequence[diagnosis.Finding], screen: terminal.Terminal, *, node: str, driver: str
) -> None:
    """Print one object with `node`, `driver`, `works` and `findings`."""
    body = {
        "node": node,
        "driver": driver,
        "works": diagnosis.works(findings),
        "findings": [dataclasses.asdict(finding) for finding in findings],
    }
    screen.document(json.dumps(body, indent=2, ensure_ascii=False))


def _block(finding: diagnosis.Finding, style: str) -> terminal.Block:
    return terminal.Block(
        ((f"{finding.level.capitalize()}: ", style), (finding.check, "bold")),
        (
            f"looked at: {finding.looked_at}",
            f"cause:     {finding.cause}",
            f"remedy:    {finding.remedy}",
        ),
    )
