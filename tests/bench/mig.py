"""`make bench`: preparing and unpreparing claims for MIG instances on a simulated H100.

Measured twice: with a simulated NVML that takes no time, which leaves what the driver itself takes,
and with one that takes as long as a card might. What it took is told apart from the rest.
"""

import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import api_cluster
import plugin_process

from dra_driver.adapters.console import terminal
from dra_driver.sim.gpus import gpu_delays

CYCLES = 60
DELAYED_CYCLES = 20
SMALL = "gpu-0-mig-1g10gb-19-6"
KEEPER = "gpu-0-mig-1g10gb-19-0"
DELAYS = {
    "nvmlDeviceSetMigMode": 0.5,
    "nvmlDeviceCreateGpuInstanceWithPlacement": 0.2,
    "nvmlGpuInstanceCreateComputeInstance": 0.1,
    "nvmlComputeInstanceDestroy": 0.05,
    "nvmlGpuInstanceDestroy": 0.1,
}
"""Seconds, assumed: no card was cut for them."""


def main():
    """Measure, and print a table."""
    shown = terminal.Terminal()
    rows = []
    for text, delays, cycles, keep in (
        ("first and last instance of a card", {}, CYCLES, False),
        ("one more on a card in MIG mode", {}, CYCLES, True),
        ("first and last, slow NVML", DELAYS, DELAYED_CYCLES, False),
        ("one more, slow NVML", DELAYS, DELAYED_CYCLES, True),
    ):
        with shown.progress(f"Measuring: {text}"):
            rows += _rows(text, *_measure(delays, cycles, keep=keep))
    columns = ("WHAT", "P50", "P99", "OF THAT NVML", "DRIVER P50")
    shown.table(terminal.Table("MIG claims on a simulated H100", columns, tuple(rows)))


def _measure(delays, cycles, *, keep):
    """Seconds of each prepare and unprepare, with those that NVML pretended to need."""
    cluster, machine = api_cluster.Cluster(), plugin_process.Machine()
    plugin = plugin_process.Plugin(
        machine,
        cluster,
        gpus="h100-80gb-hbm3:1",
        mig_mode="dynamic",
        rescan_seconds=10.0,
        log_level="info",
    ).start()
    try:
        ref, kept = cluster.claim(SMALL), cluster.claim(KEEPER)
        plugin.kubelet.prepare(ref)
        plugin.kubelet.unprepare(ref)
        if keep:
            plugin.kubelet.prepare(kept)
        gpu_delays.set_delays(machine.simulation, delays)
        found = {"prepare": [], "unprepare": []}
        for _ in range(cycles):
            for name, action in (
                ("prepare", plugin.kubelet.prepare),
                ("unprepare", plugin.kubelet.unprepare),
            ):
                found[name].append(_timed(machine, action, ref))
    finally:
        plugin.stop()
        cluster.close()
        machine.close()
    return found["prepare"], found["unprepare"]


def _timed(machine, action, ref):
    waited = gpu_delays.waited(machine.simulation)
    start = time.perf_counter()
    action(ref)
    return time.perf_counter() - start, gpu_delays.waited(machine.simulation) - waited


def _rows(text, prepare, unprepare):
    for name, pairs in (("prepare", prepare), ("unprepare", unprepare)):
        cuts = statistics.quantiles([whole for whole, _ in pairs], n=100)
        nvml = statistics.median(waited for _, waited in pairs)
        own = statistics.median(whole - waited for whole, waited in pairs)
        yield f"{name}, {text}", _ms(cuts[49]), _ms(cuts[98]), _ms(nvml), _ms(own)


def _ms(seconds):
    return f"{seconds * 1000:.1f} ms"


if __name__ == "__main__":
    main()
