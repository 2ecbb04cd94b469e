"""`dra-driver fault` as a process of its own, with an embedded cluster that runs."""

import pathlib
import subprocess
import sys
import tempfile
import threading

import pytest
from polling import until

from dra_driver.sim.cluster import cluster, runtime

HELD = ("--health-hold-seconds", "0")


def pretended(cdi_dir, _directory):
    return runtime.PretendedRuntime(cdi_dir)


@pytest.fixture(scope="module")
def running():
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as name:
        specs = (
            cluster.NodeSpec("one", "h100-80gb-hbm3:2", HELD),
            cluster.NodeSpec("two", "t4:1", HELD),
        )
        made = cluster.Cluster(specs, pathlib.Path(name), runtime_for=pretended)
        try:
            made.start()
            assert made.wait_ready(threading.Event())
            yield made
        finally:
            made.stop()


def fault(running, *arguments):
    """What the command says."""
    done = subprocess.run(
        [sys.executable, "-m", "dra_driver", "fault", *arguments],
        env={"KUBECONFIG": str(running.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def taints(running):
    """What is published to be wrong with whole GPUs."""
    return {
        (node, name): {
            f"{taint['key'].partition('/')[2]}={taint.get('value', '')}"
            for taint in device["taints"]
        }
        for (_, node, name), device in running.devices().items()
        if device.get("taints") and "-mig-" not in name
    }


def wait(running, wanted):
    until(lambda: taints(running) == wanted, what=f"taints {wanted}")


def test_a_fault_becomes_a_taint_of_its_card_until_it_is_cleared(running):
    assert fault(running, "one/gpu-1", "xid", "79").startswith("one/gpu-1: told XID 79: ")
    wait(running, {("one", "gpu-1"): {"xid=79", "recovery=reboot"}})
    fault(running, "two/gpu-0", "remap-pending")
    until(lambda: taints(running).get(("two", "gpu-0")) == {"memory=remap-pending"})
    fault(running, "one/gpu-1", "clear")
    wait(running, {("two", "gpu-0"): {"memory=remap-pending"}})
    fault(running, "two/gpu-0", "clear")
    wait(running, {})


def cards(running):
    """The whole GPUs of the first node."""
    return {name for _, node, name in running.devices() if node == "one" and "-mig-" not in name}


def test_a_card_that_is_lost_and_nobody_has_is_not_offered_until_it_is_back(running):
    fault(running, "one/gpu-0", "lost")
    until(lambda: cards(running) == {"gpu-1"}, what="gpu-0 withdrawn")
    fault(running, "one/gpu-0", "clear")
    until(lambda: cards(running) == {"gpu-0", "gpu-1"}, what="gpu-0 offered")
    wait(running, {})
