"""Metrics, read over HTTP as Prometheus does."""

import pathlib
import random
import socket
import urllib.request

COMMON = 'driver="gpu.nvidia.com",node="node-1"'


def free_port() -> int:
    """A port that nobody has, below those that the kernel gives to whoever asks for any."""
    range_file = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")
    lowest = int(range_file.read_text(encoding="ascii").split()[0])
    while True:
        port = random.randrange(10_000, max(lowest, 20_000))
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue


def plugin(port: int) -> dict[str, float]:
    """A kubelet plugin's metrics, by series without the labels that all have."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    samples = [line.rpartition(" ") for line in text.splitlines() if COMMON in line]
    return {
        name.replace(COMMON, "").replace("{,", "{").replace("{}", ""): float(value)
        for name, _, value in samples
    }
