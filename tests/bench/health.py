"""How soon a sick GPU is told: from the event to the slice, and to the kubelet.

A plugin with 32 simulated H100 runs against the embedded API server on loopback. One event after
the other is told by a card, each with an XID that was not there before; the times are those at
which a watch of the slices, and a client of the health stream, have it. Between two events there is
more than the half second that is between two changes of slices at least.
"""

import argparse
import contextlib
import pathlib
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import api_cluster
import plugin_process

from dra_driver import errors
from dra_driver.adapters.console import terminal
from dra_driver.adapters.kube import informer, kube
from dra_driver.adapters.kubelet import dra_client
from dra_driver.model import health
from dra_driver.sim.gpus import gpu_event_log, gpu_health_state

EVENTS = 100
CARDS = 32
"""So many that no message about one grows longer than the kubelet keeps."""
FIRST = 2000
"""XIDs that nobody knows, so that each withdraws its card."""
APART = 0.7
"""Seconds between two events."""
DEADLINE = 30.0


class Seen:
    """When each XID was seen, by whom."""

    def __init__(self):
        self._changed = threading.Condition()
        self._times = {}

    def see(self, number):
        with self._changed:
            self._times.setdefault(number, time.monotonic())
            self._changed.notify_all()

    def wait(self, number):
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._times, DEADLINE):
                raise SystemExit(f"XID {number} was not seen within {DEADLINE:g} s")
            return self._times[number]


def main():
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    count = parser.parse_args().events
    machine, cluster = plugin_process.Machine(), api_cluster.Cluster()
    plugin = plugin_process.Plugin(machine, cluster, gpus=f"h100-80gb-hbm3:{CARDS}")
    try:
        plugin.start()
        plugin.wait_log("listening to GPUs")
        slices, kubelet = measured(machine, cluster, plugin, count)
    finally:
        plugin.kill()
        cluster.close()
        machine.close()
    rows = tuple(
        (
            what,
            *(
                f"{1000 * value:.0f} ms"
                for value in (statistics.median(found), p99(found), max(found))
            ),
        )
        for what, found in (
            ("event → taint in the slice", slices),
            ("event → health stream", kubelet),
        )
    )
    columns = ("WHAT", "P50", "P99", "SLOWEST")
    terminal.Terminal().table(terminal.Table(f"{count} events, {CARDS} GPUs", columns, rows))


def measured(machine, cluster, plugin, count):
    """Seconds from each event to the slice, and to the stream."""
    in_slices, in_stream = Seen(), Seen()
    client = kube.Client(kubeconfig=cluster.kubeconfig, user_agent="bench")
    watch = informer.Informer(
        client,
        kube.SLICES,
        on_change=lambda _kind, body: _taints(body, in_slices),
        on_error=lambda _: None,
    )
    watch.start()
    stream = dra_client.Client(str(plugin.service_socket))
    threading.Thread(target=_follow, args=[stream, in_stream], daemon=True).start()
    with gpu_health_state.open_file(machine.simulation).edit() as cards:
        # The driver wants something done, so that no event of the run is over before its end.
        for number in range(CARDS):
            cards.of(machine.uuid(f"gpu-{number}")).recovery = 1
    found = [], []
    time.sleep(2)
    for number in range(count):
        uuid = machine.uuid(f"gpu-{number % CARDS}")
        told = gpu_event_log.Told(uuid, health.EventKind.XID, FIRST + number)
        begin = time.monotonic()
        gpu_event_log.tell(machine.simulation, told)
        found[0].append(in_slices.wait(FIRST + number) - begin)
        found[1].append(in_stream.wait(FIRST + number) - begin)
        time.sleep(APART)
    return found


def _taints(body, seen):
    for device in (body or {}).get("spec", {}).get("devices") or ():
        for taint in device.get("taints") or ():
            if taint["key"].endswith("/xid"):
                seen.see(int(taint["value"]))


def _follow(client, seen):
    # At the end of the run it ends with an error, as the plugin does.
    with contextlib.suppress(errors.Retryable):
        for told in client.watch_health("v1.DRAResourceHealth"):
            for one in told:
                for word in one.message.replace(":", " ").split():
                    if word.isdecimal():
                        seen.see(int(word))


def p99(values):
    """The value that 99 of 100 do not exceed."""
    return sorted(values)[max(round(0.99 * len(values)) - 1, 0)]


if __name__ == "__main__":
    main()
