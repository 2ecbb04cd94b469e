"""Resets by a plugin that runs: what claims, the slices and the card go through."""

import contextlib
import os
import pathlib
import signal

import api_cluster
import plugin_process
import pytest

from dra_driver.adapters.system import file_holders, processes
from dra_driver.sim.gpus import gpu_clients, gpu_health_state, gpu_state, host_gpu_reset

PROC = pathlib.Path("/proc")

pytestmark = pytest.mark.sampled(2)


def want(machine, name="gpu-0"):
    """From now on the driver wants this card reset."""
    with gpu_health_state.open_file(machine.simulation).edit() as cards:
        cards.of(machine.uuid(name)).recovery = 1


def resets(machine):
    cards = gpu_state.open_file(machine.simulation).read().gpus
    return {f"gpu-{card.minor}": card.resets for card in cards}


def tainted(cluster):
    return {
        (device["name"], taint["key"].partition("/")[2], taint["value"])
        for item in cluster.slices()
        for device in item["spec"].get("devices") or ()
        for taint in device.get("taints") or ()
    }


def at_work(machine):
    """The nvidia-smi that has the card and resets it; here no container ends with its plugin."""
    uuid = machine.uuid("gpu-0")
    node = gpu_clients.file(machine.simulation, uuid)
    begun = processes.Processes(PROC).running("--gpu-reset", uuid)
    return [pid for pid in file_holders.pids(PROC, [node]) if pid in begun]


@contextlib.contextmanager
def running(machine, cluster, *, recovery="reset"):
    """A plugin that listens to its GPUs."""
    plugin = plugin_process.Plugin(machine, cluster, recovery=recovery).start()
    try:
        plugin.wait_log("listening to GPUs")
        cluster.wait_devices("gpu-0", "gpu-1")
        yield plugin
    finally:
        plugin.kill()


def test_a_card_is_reset_once_its_claim_is_gone_and_returns(own_cluster, own_machine):
    cluster, machine = own_cluster, own_machine
    with running(machine, cluster) as plugin:
        mine, neighbour = cluster.claim("gpu-0"), cluster.claim("gpu-1")
        plugin.kubelet.prepare(mine, neighbour)
        listened = len(plugin.log("listening to GPUs"))
        want(machine)
        [waits] = plugin.wait_log("GPU waits for its reset", gpu=machine.uuid("gpu-0"))
        assert waits["reason"].endswith(f"now has: {mine.namespace}/{mine.name}")
        assert tainted(cluster) == {("gpu-0", "recovery", "reset")}
        # It is allocated yet: whoever has it may be about to start another pod with it.
        plugin.kubelet.unprepare(mine)
        assert resets(machine) == {"gpu-0": 0, "gpu-1": 0}
        cluster.delete_claim(mine)
        plugin.wait_log("GPU was reset", gpus=[machine.uuid("gpu-0")])
        assert resets(machine) == {"gpu-0": 1, "gpu-1": 0}
        assert machine.record(neighbour) is not None
        api_cluster.wait_for(lambda: tainted(cluster) == set(), "the taint to go")
        plugin.wait_log("listening to GPUs", count=listened + 1)
        again = cluster.claim("gpu-0")
        plugin.kubelet.prepare(again)
        assert machine.record(again) is not None
        plugin.kubelet.unprepare(again, neighbour)


def test_a_plugin_that_is_killed_during_a_reset_is_followed_by_one_that_ends_it(
    own_cluster, own_machine
):
    cluster, machine = own_cluster, own_machine
    folder = machine.plugin / "resets"
    with running(machine, cluster) as plugin:
        host_gpu_reset.inject(machine.simulation, host_gpu_reset.Fault(hangs=True))
        want(machine)
        api_cluster.wait_for(lambda: at_work(machine), "a reset at work")
        assert tainted(cluster) == {("gpu-0", "recovery", "reset")}
    assert resets(machine) == {"gpu-0": 0, "gpu-1": 0}
    host_gpu_reset.inject(machine.simulation, host_gpu_reset.Fault())
    [program] = at_work(machine)
    os.kill(program, signal.SIGKILL)
    api_cluster.wait_for(lambda: not at_work(machine), "the end of nvidia-smi")
    with running(machine, cluster) as plugin:
        plugin.wait_log("a reset was cut short; put in order")
        plugin.wait_log("GPU was reset", gpus=[machine.uuid("gpu-0")])
        assert resets(machine) == {"gpu-0": 1, "gpu-1": 0}
        assert list(folder.glob("*.json")) == []
        api_cluster.wait_for(lambda: tainted(cluster) == set(), "the taint to go")
        assert gpu_state.open_file(machine.simulation).read().gpus[0].persistence_mode


def test_where_the_setting_is_off_a_card_is_withdrawn_and_not_reset(own_cluster, own_machine):
    cluster, machine = own_cluster, own_machine
    with running(machine, cluster, recovery="off") as plugin:
        want(machine)
        api_cluster.wait_for(
            lambda: tainted(cluster) == {("gpu-0", "recovery", "reset")}, "the taint"
        )
        plugin.kubelet.prepare(other := cluster.claim("gpu-1"))
        plugin.kubelet.unprepare(other)
    assert resets(machine) == {"gpu-0": 0, "gpu-1": 0}
