"""`make bench`: how fast the kubelet plugin is, and how much it keeps, on this machine.

The plugin runs as a process of its own against the embedded API server on loopback, with eight
simulated GPUs. NVML calls are nearly free here; on a real card each look at the GPUs takes longer.
"""

import concurrent.futures
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import api_cluster
import plugin_process

from dra_driver.adapters.console import terminal
from dra_driver.adapters.kube import kube

GPUS = 8
SEQUENTIAL = 200
ROUNDS = 10
CYCLES = 1000
STARTS = 5


def main():
    """Measure, and print a table."""
    shown = terminal.Terminal()
    rows = []
    for measure in (_starts, _calls, _memory, _wipe):
        with shown.progress(f"Measuring: {measure.__doc__}"):
            rows += measure()
    shown.table(terminal.Table("Kubelet plugin", ("WHAT", "MEASURED", "AIM"), tuple(rows)))


def _starts():
    """start of the process until its sockets answer and its slices are visible"""
    sockets, slices, warm_writes = [], [], []
    for _ in range(STARTS):
        cluster, machine = api_cluster.Cluster(), plugin_process.Machine()
        plugin = _plugin(machine, cluster)
        start = time.perf_counter()
        plugin.spawn()
        _until(plugin.registration_socket.exists)
        with plugin.registration() as client:
            client.get_info(10)
        sockets.append(time.perf_counter() - start)
        _until(cluster.slices)
        slices.append(time.perf_counter() - start)
        plugin.stop()
        before = len(cluster.slice_writes())
        plugin.start()
        plugin.wait_log("publishing", count=2)
        time.sleep(0.5)
        warm_writes.append(len(cluster.slice_writes()) - before)
        plugin.stop()
        cluster.close()
        machine.close()
    return [
        ("start → sockets answer", _median(sockets), "≤ 300 ms"),
        ("start → slices visible", _median(slices), "≤ 800 ms"),
        ("writes of a warm start", str(max(warm_writes)), "0"),
    ]


def _calls():
    """prepare and unprepare"""
    with _Running() as (cluster, plugin):
        refs = [cluster.claim(f"gpu-{index}") for index in range(GPUS)]
        for ref in refs:
            plugin.kubelet.prepare(ref)
            plugin.kubelet.unprepare(ref)
        prepare, again, unprepare = [], [], []
        for index in range(SEQUENTIAL):
            ref = refs[index % GPUS]
            prepare.append(_timed(plugin.kubelet.prepare, ref))
            again.append(_timed(plugin.kubelet.prepare, ref))
            unprepare.append(_timed(plugin.kubelet.unprepare, ref))
        together, one_call = [], []
        with concurrent.futures.ThreadPoolExecutor(GPUS) as pool:
            for _ in range(ROUNDS):
                together.append(_timed(lambda: list(pool.map(plugin.kubelet.prepare, refs))))
                plugin.kubelet.unprepare(*refs)
                one_call.append(_timed(plugin.kubelet.prepare, *refs))
                plugin.kubelet.unprepare(*refs)
    return [
        (f"prepare, {SEQUENTIAL} in a row, p50 / p99", _spread(prepare), "p50 ≤ 3 ms"),
        ("prepare again, p50 / p99", _spread(again), "p50 ≤ 1.5 ms"),
        ("unprepare, p50 / p99", _spread(unprepare), "p50 ≤ 1.5 ms"),
        (f"{GPUS} claims in {GPUS} calls at once", _median(together), "≤ 25 ms"),
        (f"{GPUS} claims in one call", _median(one_call), "≤ 25 ms"),
    ]


def _memory():
    """resident memory, idle and after many cycles"""
    with _Running() as (cluster, plugin):
        time.sleep(1)
        idle = _resident(plugin.pid)
        refs = [cluster.claim(f"gpu-{index}") for index in range(GPUS)]
        marks = []
        for index in range(CYCLES):
            plugin.kubelet.prepare(refs[index % GPUS])
            plugin.kubelet.unprepare(refs[index % GPUS])
            if index + 1 in (CYCLES // 2, CYCLES):
                marks.append(_resident(plugin.pid))
    half, full = (f"{mark:.1f} MB" for mark in marks)
    return [
        ("resident memory, idle", f"{idle:.1f} MB", "≤ 80 MB"),
        (f"after {CYCLES // 2} / {CYCLES} cycles", f"{half} / {full}", "flat"),
    ]


def _wipe():
    """slices removed, as a starting kubelet does, until they are back"""
    times = []
    with _Running() as (cluster, plugin):
        for _ in range(ROUNDS):
            _until(cluster.slices)
            time.sleep(0.3)
            client = kube.Client(kubeconfig=cluster.kubeconfig, user_agent="bench")
            start = time.perf_counter()
            client.delete_collection(
                kube.SLICES, field_selector=f"spec.nodeName={api_cluster.NODE}"
            )
            _until(cluster.slices)
            times.append(time.perf_counter() - start)
            client.close()
        plugin.kubelet.close()
    return [("slices wiped → back", _median(times), "≤ 1 s")]


class _Running:
    """A cluster and a plugin that has published, for the length of a block."""

    def __enter__(self):
        self._cluster, self._machine = api_cluster.Cluster(), plugin_process.Machine()
        self._plugin = _plugin(self._machine, self._cluster).start()
        _until(self._cluster.slices)
        return self._cluster, self._plugin

    def __exit__(self, *_):
        self._plugin.stop()
        self._cluster.close()
        self._machine.close()


def _plugin(machine, cluster):
    return plugin_process.Plugin(
        machine,
        cluster,
        gpus=f"h100-80gb-hbm3:{GPUS}",
        rescan_seconds=10.0,
        log_level="info",
        metrics_address="127.0.0.1:0",
    )


def _timed(action, *arguments):
    start = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - start


def _until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(condition)
        time.sleep(0.001)


def _resident(pid):
    """VmRSS in MB."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def _median(seconds):
    return f"{statistics.median(seconds) * 1000:.1f} ms"


def _spread(seconds):
    cuts = statistics.quantiles(seconds, n=100)
    return f"{cuts[49] * 1000:.1f} / {cuts[98] * 1000:.1f} ms"


if __name__ == "__main__":
    main()
