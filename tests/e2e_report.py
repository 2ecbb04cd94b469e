"""What end-to-end cases report: the cluster, what was counted, and what each case is for."""

import re
import threading
import time
from typing import Any

import e2e_site
import pytest

from dra_driver.adapters.kube import informer, kube

COUNTS: "pytest.StashKey[Counts]" = pytest.StashKey()
_GATE = re.compile(r'kubernetes_feature_enabled\{name="(DRA\w+)",stage="(\w*)"\} ([01])')


class Counts:
    """What the driver writes, and how long pods take to start, from `start` to `stop`."""

    def __init__(self, site: e2e_site.Site) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._seen: dict[str, str] = {}
        self._writes = 0
        self._begun = time.monotonic()
        self._seconds = 0.0
        self.facts: dict[str, str] = {}
        """Lines of the report, after `stop`."""
        self._generations: dict[str, int] = {}
        self._informer = informer.Informer(
            site.client,
            kube.SLICES,
            on_change=self._on_slice,
            field_selector=f"spec.driver={e2e_site.DRIVER}",
        )

    def start(self) -> None:
        self._generations = self._newest()
        self._begun = time.monotonic()
        self._informer.start()

    def stop(self) -> None:
        self._seconds = time.monotonic() - self._begun
        self._informer.stop()
        self.facts = self._facts()

    def _facts(self) -> dict[str, str]:
        minutes = max(self._seconds / 60, 1e-9)
        grown = {
            pool: newest - self._generations.get(pool, 0) for pool, newest in self._newest().items()
        }
        longest, pod = max(self._site.starts, default=(0.0, "none"))
        return {
            "Kubernetes": self._site.version,
            "Feature gates": self._gates(),
            "Slices written": f"{self._writes}, {self._writes / minutes:.1f} a minute",
            "Generations of pools": ", ".join(f"{p} +{n}" for p, n in sorted(grown.items())),
            "Pods started": str(len(self._site.starts)),
            "Longest start": f"{longest:.1f} s, {pod}",
        }

    def _on_slice(self, _kind: str, body: e2e_site.Json) -> None:
        metadata = body["metadata"]
        with self._lock:
            if self._seen.get(metadata["uid"]) != metadata["resourceVersion"]:
                # The first look at those that were there is no write.
                self._writes += metadata["uid"] in self._seen
                self._seen[metadata["uid"]] = metadata["resourceVersion"]

    def _newest(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for body in self._site.slices():
            pool = body["spec"]["pool"]
            found[pool["name"]] = max(found.get(pool["name"], 0), pool["generation"])
        return found

    def _gates(self) -> str:
        """Of DRA, with those that are off; what the API server tells to who may read metrics."""
        found = _GATE.findall(self._site.metrics())
        if not found:
            return "not told: /metrics of the API server is not served, or not to this user"
        return ", ".join(f"{name}={'on' if value == '1' else 'off'}" for name, _, value in found)


def show(terminal: Any, counts: Counts | None) -> None:
    """Print the table."""
    rows = []
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminal.stats.get(outcome, ()):
            if report.when == "call" or outcome in ("error", "skipped"):
                name = report.nodeid.rpartition("e2e/")[2].replace("cluster-", "")
                covers = [value for key, value in report.user_properties if key == "covers"]
                rows.append((outcome, f"{report.duration:.1f}", name, "; ".join(covers)))
    if not rows:
        return
    terminal.section("end-to-end cases")
    widths = [max(len(row[at]) for row in rows) for at in range(3)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        terminal.line(f"{cells[0]}  {cells[1]} s  {cells[2]}  {row[3]}".rstrip())
    if counts is not None:
        terminal.line("")
        for name, value in counts.facts.items():
            terminal.line(f"{name + ':':22}{value}")
