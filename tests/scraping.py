"""Metrics, read over HTTP as Prometheus does."""

import urllib.request

COMMON = 'driver="gpu.nvidia.com",node="node-1"'


def plugin(port: int) -> dict[str, float]:
    """A kubelet plugin's metrics, by series without the labels that all have."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    samples = [line.rpartition(" ") for line in text.splitlines() if COMMON in line]
    return {
        name.replace(COMMON, "").replace("{,", "{").replace("{}", ""): float(value)
        for name, _, value in samples
    }
