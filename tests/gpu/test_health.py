"""The health of real GPUs, looked at and listened to. Nothing is changed on them."""

import ctypes
import subprocess
import sys
import time

import api_cluster
import plugin_process
import pytest

from dra_driver.adapters.kubelet import dra_client
from dra_driver.adapters.nvml import nvml, nvml_events, nvml_health
from dra_driver.model import health

pytestmark = pytest.mark.gpu

IDLE = 3.0
FAULT = 60.0
CLOCK, PSTATE = 0x10, 0x4
PROGRAM = '''
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry bad() {
    .reg .u64 %a; .reg .u32 %v;
    mov.u64 %a, 0x7000000000; mov.u32 %v, 1; st.global.u32 [%a], %v; ret;
}
"""
device, context, module, function = ctypes.c_int(), *(ctypes.c_void_p() for _ in range(3))
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device) == 0
assert cuda.cuModuleLoadData(ctypes.byref(module), PTX) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"bad") == 0
assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0
print(cuda.cuCtxSynchronize())
'''
"""A CUDA program that writes where there is no memory; it prints CUDA's error."""
ILLEGAL_ADDRESS = 700


@pytest.fixture(scope="module")
def adapter():
    return nvml.Nvml()


@pytest.fixture(scope="module")
def uuids(adapter):
    return [one.uuid for one in adapter.discover().gpus]


def test_the_types_that_are_registered_are_those_of_health_alone(adapter, uuids):
    assert nvml_events.WANTED & (CLOCK | PSTATE) == 0
    events = nvml_events.EventSet(adapter, uuids)
    try:
        assert events.unwatched == {}
    finally:
        events.close()


def test_an_idle_gpu_tells_no_event(adapter, uuids):
    events = nvml_events.EventSet(adapter, uuids)
    try:
        deadline = time.monotonic() + IDLE
        heard = []
        while time.monotonic() < deadline:
            heard.append(events.wait(500))
        assert heard
        assert set(heard) == {None}
    finally:
        events.close()


def test_all_facts_are_read_and_the_driver_wants_nothing_done(adapter, uuids):
    for uuid, facts in nvml_health.HealthReader(adapter).facts(uuids).items():
        assert facts.unread == {}, uuid
        assert facts.recovery in {health.Recovery.NONE, None}, uuid
        assert not facts.is_lost, uuid
        assert facts.temperature is not None, uuid
        assert facts.thermal_slowdown is not None, uuid
        # One of the two is how a card repairs its memory.
        assert (facts.remap_pending is None) != (facts.retired_pages is None), uuid


def test_gpus_are_found_while_somebody_listens_to_them(adapter, uuids):
    events = nvml_events.EventSet(adapter, uuids)
    try:
        assert [one.uuid for one in adapter.discover().gpus] == uuids
    finally:
        events.close()


def test_a_program_that_writes_where_it_may_not_is_heard_as_the_applications_xid(adapter, uuids):
    """Its own context is lost by that, and nothing else."""
    assert ctypes.CDLL("libcuda.so.1")
    events = nvml_events.EventSet(adapter, uuids)
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            text=True,
            timeout=FAULT,
            check=True,
        )
        assert int(done.stdout) == ILLEGAL_ADDRESS
        deadline, heard = time.monotonic() + FAULT, None
        while heard is None and time.monotonic() < deadline:
            heard = events.wait(500)
        assert heard is not None
        assert (heard.kind, heard.data, heard.gi) == (health.EventKind.XID, 31, None)
        assert heard.gpu in uuids
    finally:
        events.close()
    for facts in nvml_health.HealthReader(adapter).facts(uuids).values():
        assert facts.recovery in {health.Recovery.NONE, None}


def test_a_plugin_tells_an_applications_xid_and_withdraws_nothing(uuids):
    """From a real fault to the slice and to the kubelet's stream."""
    machine, cluster = plugin_process.Machine(), api_cluster.Cluster()
    plugin = plugin_process.Plugin(machine, cluster, gpus=None, health_hold_seconds=5)

    def taints():
        return {
            (taint["key"], taint.get("value"), taint["effect"])
            for item in cluster.slices()
            for device in item["spec"].get("devices") or ()
            for taint in device.get("taints") or ()
        }

    try:
        plugin.start()
        plugin.wait_log("listening to GPUs", gpus=len(uuids), deaf=0)
        api_cluster.wait_for(cluster.slices, "slices")
        assert taints() == set()
        subprocess.run([sys.executable, "-c", PROGRAM], timeout=FAULT, check=True)
        wanted = {("gpu.nvidia.com/xid", "31", "None")}
        api_cluster.wait_for(lambda: taints() == wanted, lambda: str(taints()))
        with dra_client.Client(str(plugin.service_socket)) as client:
            told = next(client.watch_health("v1.DRAResourceHealth"))
        assert {one.health for one in told} == {"Healthy"}
        assert any(one.message.startswith("XID 31: a page fault") for one in told)
        api_cluster.wait_for(lambda: taints() == set(), "no taint: no claim has it")
    finally:
        plugin.kill()
        cluster.close()
        machine.close()


def test_what_a_look_costs(adapter, uuids, capsys):
    reader = nvml_health.HealthReader(adapter)
    began = time.perf_counter()
    reader.facts(uuids)
    alone = time.perf_counter() - began
    with adapter.session() as library:
        handles = [library.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        began = time.perf_counter()
        found = [nvml_health.read(library, handle) for handle in handles]
        beside = time.perf_counter() - began
    assert len(found) == len(uuids)
    with capsys.disabled():
        print(  # noqa: T201 - it is what the test is for
            f"\na look at the health of {len(uuids)} GPUs: {1000 * alone:.1f} ms, with a session "
            f"open {1000 * beside:.1f} ms"
        )
