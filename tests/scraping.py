"""Metrics, read over HTTP as Prometheus does."""

import re
import urllib.request

COMMON = {"driver": "gpu.nvidia.com", "node": "node-1"}


def plugin(port: int) -> dict[str, float]:
    """A kubelet plugin's metrics, by series without the labels that all have."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    samples = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {_without_common(name): float(value) for name, _, value in samples}


def _without_common(series: str) -> str:
    """The rest of the labels, in the order of their names."""
    name, _, labels = series.rstrip("}").partition("{")
    found = dict(re.findall(r'(\w+)="(.*?)"', labels))
    assert found.items() >= COMMON.items(), series
    rest = ",".join(f'{key}="{value}"' for key, value in found.items() if key not in COMMON)
    return f"{name}{{{rest}}}" if rest else name
