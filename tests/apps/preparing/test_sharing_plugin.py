"""Sharing with the real plugin: sockets, API server, daemons that outlive the process."""

import json

import api_cluster
import plugin_process
import polling
import pytest
import sharing_claims
import sharing_node

from dra_driver.adapters.mps import mps_domain
from dra_driver.adapters.system import pids
from dra_driver.sim.gpus import cuda_program, gpu_state

pytestmark = pytest.mark.sampled(13)

LIMITED = sharing_claims.mps_gpu(
    defaultActiveThreadPercentage=30, defaultPinnedDeviceMemoryLimit="4Gi"
)
LONG = sharing_claims.time_slicing("Long")
CHEATING = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}


@pytest.fixture
def machine(own_machine):
    """Daemons that a failed test leaves are ended."""
    yield own_machine
    for path in daemons(own_machine):
        process = mps_domain.Domain(path).supervisor()
        if process is not None:
            sharing_node.kill(process)


@pytest.fixture
def plugin(machine, own_plugin):
    return own_plugin().start()


def daemons(machine):
    directory = machine.plugin / "mps"
    return sorted(directory.iterdir()) if directory.is_dir() else []


def domain(machine):
    [directory] = daemons(machine)
    return mps_domain.Domain(directory)


def daemon(machine):
    """The process of the only daemon, which is ready."""
    ready = polling.until(domain(machine).ready, what="a ready daemon")
    return pids.Process(ready.pid, ready.start_time)


def gets(machine, ref):
    """What a program in a container of the claim may take that asks for all."""
    [device] = machine.spec(ref)["devices"]
    variables = dict(text.split("=", 1) for text in device["containerEdits"]["env"])
    [pipe] = [
        one["hostPath"]
        for one in device["containerEdits"]["mounts"]
        if one["containerPath"] == variables["CUDA_MPS_PIPE_DIRECTORY"]
    ]
    client = cuda_program.connect({**variables, **CHEATING, "CUDA_MPS_PIPE_DIRECTORY": pipe})
    client.close()
    assert client.server is not None, "it runs without MPS"
    return client.caps.percentage, client.caps.memory / sharing_node.GIB


def card(machine):
    return gpu_state.open_file(machine.simulation).read().gpus[0]


def is_clean(machine):
    assert machine.files() == []
    assert list((machine.plugin / "gpus").iterdir()) == []
    assert daemons(machine) == []
    assert (card(machine).compute_mode, card(machine).time_slice) == (0, 0)
    return True


def test_a_claim_with_limits_has_them_and_leaves_nothing(plugin, own_cluster, machine):
    ref = own_cluster.claim("gpu-0", config=[LIMITED])
    assert plugin.kubelet.prepare(ref) == [plugin_process.device(ref, "gpu-0")]
    assert gets(machine, ref) == (30, 4)
    assert card(machine).compute_mode == sharing_node.EXCLUSIVE
    process = daemon(machine)
    plugin.kubelet.unprepare(ref)
    assert not pids.is_alive(process)
    assert is_clean(machine)


def test_a_claim_with_a_time_slice_has_it_and_gives_it_back(plugin, own_cluster, machine):
    ref = own_cluster.claim("gpu-0", config=[LONG])
    plugin.kubelet.prepare(ref)
    assert card(machine).time_slice == sharing_node.LONG
    plugin.kubelet.unprepare(ref)
    assert is_clean(machine)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_daemon_and_its_clients_outlive_the_plugin(plugin, own_cluster, machine, end):
    ref = own_cluster.claim("gpu-0", config=[LIMITED])
    plugin.kubelet.prepare(ref)
    process = daemon(machine)
    getattr(plugin, end)()
    assert pids.is_alive(process)
    assert gets(machine, ref) == (30, 4)
    plugin.start().kubelet.prepare(ref)
    assert daemon(machine) == process
    plugin.kubelet.unprepare(ref)
    assert not pids.is_alive(process)
    assert is_clean(machine)


def test_a_daemon_that_ended_with_its_supervisor_while_no_plugin_ran_is_back_after_the_start(
    plugin, own_cluster, machine
):
    ref = own_cluster.claim("gpu-0", config=[LIMITED])
    plugin.kubelet.prepare(ref)
    plugin.kill()
    old = daemon(machine)
    sharing_node.kill(domain(machine).supervisor())
    assert pids.wait(old, 60)
    plugin.start()
    polling.until(lambda: daemon(machine) != old, what="another daemon")
    assert gets(machine, ref) == (30, 4)
    plugin.kubelet.unprepare(ref)
    assert is_clean(machine)


def test_a_daemon_that_no_record_has_is_gone_when_the_plugin_answers(plugin, own_cluster, machine):
    ref = own_cluster.claim("gpu-0", config=[LIMITED])
    plugin.kubelet.prepare(ref)
    process = daemon(machine)
    plugin.kill()
    for path in (machine.record_path(ref), machine.spec_path(ref)):
        path.unlink()
    plugin.start()
    assert plugin.kubelet.ask_prepare() == {}
    api_cluster.wait_for(lambda: daemons(machine) == [], "no daemons")
    assert not pids.is_alive(process)


def test_after_a_reboot_the_claim_is_prepared_anew(plugin, own_cluster, machine):
    ref = own_cluster.claim("gpu-0", config=[LIMITED])
    plugin.kubelet.prepare(ref)
    plugin.kill()
    old = daemon(machine)
    sharing_node.kill(domain(machine).supervisor())
    machine.boot("boot-2")
    plugin.start().kubelet.prepare(ref)
    assert daemon(machine) != old
    assert gets(machine, ref) == (30, 4)
    plugin.kubelet.unprepare(ref)
    assert daemons(machine) == []
    assert machine.files() == []


def test_shares_that_are_too_much_together_are_an_answer_with_numbers(
    own_plugin, own_cluster, machine
):
    plugin = own_plugin(shares="memory").start()
    one, other = (
        own_cluster.claim(sharing_claims.share(memory=memory, cores=20) | {"request": "gpu"})
        for memory in (50, 40)
    )
    plugin.kubelet.prepare(one)
    assert gets(machine, one) == (20, 50)
    error = plugin.kubelet.refusal(other)
    assert "capacity memory" in error
    assert "90Gi" in error
    plugin.kubelet.unprepare(one)
    plugin.kubelet.prepare(other)
    assert gets(machine, other) == (20, 40)
    plugin.kubelet.unprepare(other)
    assert is_clean(machine)


def test_who_holds_shares_to_their_limits_may_differ_from_card_to_card(
    own_plugin, own_cluster, machine
):
    second = "device.attributes['gpu.nvidia.com'].index == 1"
    rules = [{"selector": second, "shareEnforcement": "None"}]
    plugin = own_plugin(
        shares="memory", gpus="h100-80gb-hbm3:2", mig_mode="off",
        environment={"DRA_DRIVER_GPUS": json.dumps(rules)},
    )  # fmt: skip
    plugin.start()
    slices = own_cluster.wait_devices("gpu-0", "gpu-1")
    published = {
        device["name"]: device["attributes"]["enforcement"]["string"]
        for item in slices
        for device in item["spec"]["devices"]
    }
    assert published == {"gpu-0": "MPS", "gpu-1": "None"}
    held, free = (
        own_cluster.claim(sharing_claims.share(device, memory=10, cores=20) | {"request": "gpu"})
        for device in ("gpu-0", "gpu-1")
    )
    plugin.kubelet.prepare(free)
    assert daemons(machine) == []
    plugin.kubelet.prepare(held)
    assert gets(machine, held) == (20, 10)
    plugin.kubelet.unprepare(held)
    plugin.kubelet.unprepare(free)
    assert is_clean(machine)


def set_card(machine, **fields):
    with gpu_state.open_file(machine.simulation).edit() as state:
        for name, value in fields.items():
            setattr(state.gpus[0], name, value)


def test_what_a_gpu_forgot_while_no_plugin_ran_is_set_again_when_the_plugin_answers(
    plugin, own_cluster, machine
):
    ref = own_cluster.claim("gpu-0", config=[LIMITED])
    plugin.kubelet.prepare(ref)
    plugin.kill()
    set_card(machine, compute_mode=0)
    plugin.start()
    assert plugin.kubelet.ask_prepare() == {}
    assert card(machine).compute_mode == sharing_node.EXCLUSIVE
    plugin.kubelet.unprepare(ref)
    assert is_clean(machine)


def test_a_mode_that_somebody_changes_while_the_claim_is_there_is_set_again(
    plugin, own_cluster, machine
):
    ref = own_cluster.claim("gpu-0", config=[LIMITED])
    plugin.kubelet.prepare(ref)
    set_card(machine, compute_mode=0)
    api_cluster.wait_for(
        lambda: card(machine).compute_mode == sharing_node.EXCLUSIVE, "the mode is set again"
    )
    plugin.kubelet.unprepare(ref)
    assert is_clean(machine)
