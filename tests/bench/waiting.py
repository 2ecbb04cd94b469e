"""`make bench`: what a tenant feels of another one whose claims wait.

70 calls of one tenant wait for what does not come, on one card: a device that another claim keeps,
or an MPS daemon that does not become ready. Meanwhile claims of another tenant come and go, one
after the other, on a second card; and with MPS some of those that it has on the first card go. The
kubelet plugin is a process of its own, called over its unix socket as the kubelet does it: a call
for each pod, 45 s each. Quiet is the same before anybody waits.
"""

import concurrent.futures
import contextlib
import json
import pathlib
import shlex
import signal
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import api_cluster
import plugin_process
import sharing_claims

from dra_driver.adapters.console import terminal
from dra_driver.adapters.mps import mps_control, mps_domain
from dra_driver.adapters.system import pids

WAITING = 70
"""More than there are threads for calls."""
ROUNDS = 200
LEAVING = 8
"""Claims of the other tenant on the first card."""
SECONDS = 30.0
"""Of a measurement at most: less than a call lasts, so that all of them wait for all of it."""
CALL_SECONDS = 45.0
LATE = SECONDS * 1000
"""Milliseconds that stand for a call that was not answered, or refused."""
CARD, OTHER_CARD = "gpu-0", "gpu-1"


def main():
    """Measure, and print a table."""
    shown = terminal.Terminal()
    rows = []
    for text, scene in (("a device", held_device), ("an MPS daemon", mps_daemon)):
        with shown.progress(f"Measuring: {WAITING} claims wait for {text}"):
            rows += _rows(f"{WAITING} wait for {text}", *measure(scene))
    columns = ("WHAT", "MEASURED", "AIM")
    shown.table(terminal.Table("A tenant beside one whose claims wait", columns, tuple(rows)))


@contextlib.contextmanager
def held_device(cluster, plugin):
    """Claims that wait for a device of a claim whose pod does not end; and none on that card."""
    holder = cluster.claim(CARD)
    plugin.kubelet.prepare(holder)
    cluster.delete_claim(holder)
    yield [cluster.claim(CARD) for _ in range(WAITING)], []


@contextlib.contextmanager
def mps_daemon(cluster, plugin):
    """Claims for shares whose daemon does not get ready; and shares of another namespace there."""
    program = plugin.machine.simulation / "driver/usr/bin" / mps_control.PROGRAM
    leaving = [
        cluster.claim(_share(), namespace=api_cluster.ADMIN_NAMESPACE) for _ in range(LEAVING)
    ]
    for ref in leaving:
        plugin.kubelet.prepare(ref)
    works = program.rename(program.with_name("works"))
    running = "|".join(f"{shlex.quote(str(path))}/*" for path in _daemons(plugin.machine))
    program.write_text(
        f'#!/bin/sh\ncase "$CUDA_MPS_PIPE_DIRECTORY/" in {running})\n'
        f'exec {shlex.quote(str(works))} "$@";;\nesac\nexec sleep 60\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    try:
        yield [cluster.claim(_share()) for _ in range(WAITING)], leaving
    finally:
        works.rename(program)


def measure(scene):
    """Milliseconds of prepares and unprepares: quiet, meanwhile, and of those on the first card."""
    cluster, machine = api_cluster.Cluster(), plugin_process.Machine()
    rules = [{"selector": "device.attributes['gpu.nvidia.com'].index == 1", "shares": "off"}]
    plugin = plugin_process.Plugin(
        machine,
        cluster,
        gpus="h100-80gb-hbm3:2",
        shares="memory" if scene is mps_daemon else "off",
        environment={"DRA_DRIVER_GPUS": json.dumps(rules)},
        rescan_seconds=10.0,
        log_level="info",
    ).start()
    try:
        ref = cluster.claim(OTHER_CARD)
        _cycles(plugin, ref)  # The first calls load what later ones have.
        quiet = _cycles(plugin, ref)
        with scene(cluster, plugin) as (waiting, leaving), _calls(plugin, waiting):
            meanwhile = _cycles(plugin, ref)
            left = [_timed(plugin.kubelet.ask_unprepare, one) for one in leaving]
    finally:
        plugin.kill()
        for path in _daemons(machine):
            supervisor = mps_domain.Domain(path).supervisor()
            if supervisor is not None and pids.send(supervisor, signal.SIGTERM):
                pids.wait(supervisor, SECONDS)
        cluster.close()
        machine.close()
    return quiet, meanwhile, left


@contextlib.contextmanager
def _calls(plugin, refs):
    """All of these claims are being prepared, each in a call of its own, for the whole block."""
    pool = concurrent.futures.ThreadPoolExecutor(len(refs))
    kubelet = plugin_process.Kubelet(plugin.service_socket)
    try:
        for ref in refs:
            pool.submit(kubelet.ask_prepare, ref, timeout=CALL_SECONDS)
        time.sleep(3)  # Nothing tells that a call waits which no thread has begun with.
        yield
    finally:
        plugin.kill()  # Else the calls would be waited for.
        kubelet.close()
        pool.shutdown()


def _cycles(plugin, ref):
    """Milliseconds of each prepare and each unprepare, as many as there is time for."""
    prepares, unprepares, end = [], [], time.monotonic() + SECONDS
    for _ in range(ROUNDS):
        if time.monotonic() >= end:
            break
        prepares.append(_timed(plugin.kubelet.ask_prepare, ref))
        unprepares.append(_timed(plugin.kubelet.ask_unprepare, ref))
    return prepares, unprepares


def _timed(action, ref):
    start = time.perf_counter()
    try:
        answer = action(ref, timeout=SECONDS)[ref.uid]
    except Exception:  # noqa: BLE001 - whatever gRPC has for a call without an answer in time
        return LATE
    return LATE if answer.error else (time.perf_counter() - start) * 1000


def _share():
    return sharing_claims.share(CARD, memory=1, cores=1) | {"request": "gpu"}


def _daemons(machine):
    """The directories of MPS daemons."""
    root = machine.plugin / "mps"
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.exists() else []


def _rows(text, quiet, meanwhile, left):
    before, now = (statistics.median(prepares) for prepares, _ in (quiet, meanwhile))
    more = f", {100 * (now / before - 1):+.0f} %" if now < LATE else ""
    yield f"{text}: prepare on another card, p50", f"{_ms(before)} → {_ms(now)}{more}", "< +20 %"
    yield f"{text}: unprepare on another card, p99", _ms(_p99(meanwhile[1])), "< 50 ms"
    if left:
        yield f"{text}: unprepare on the same card, slowest", _ms(max(left)), "< 50 ms"


def _p99(found):
    return statistics.quantiles(found, n=100)[98] if len(found) > 1 else max(found)


def _ms(milliseconds):
    return f"{milliseconds:.1f} ms" if milliseconds < LATE else f"not within {SECONDS:.0f} s"


if __name__ == "__main__":
    main()
