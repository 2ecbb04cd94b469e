"""Gauges of a running plugin: what is true of the node now."""

import contextlib
import functools

import polling
import pytest
import reserved_port
import scraping
import sharing_claims

from dra_driver.model import health
from dra_driver.sim.api.serving import options
from dra_driver.sim.gpus import gpu_errors, gpu_event_log, gpu_faults

pytestmark = pytest.mark.sampled(9)


@pytest.fixture
def metrics_port():
    with contextlib.closing(reserved_port.Reserved()) as port:
        yield port.number


@pytest.fixture
def gauges(metrics_port):
    return functools.partial(scraping.plugin, metrics_port)


@pytest.fixture
def started(own_plugin, metrics_port):
    """Starts a plugin; metrics are served once it answers calls."""

    def start(**options):
        plugin = own_plugin(metrics_address=f"127.0.0.1:{metrics_port}", **options).start()
        plugin.kubelet.unprepare()
        return plugin

    return start


def gpus(found):
    states = ("offered", "failed", "lost")
    return {state: found[f'dra_driver_gpus{{state="{state}"}}'] for state in states}


def test_a_gpu_that_does_not_answer_is_failed(started, gauges, own_machine):
    started()
    polling.until(lambda: gpus(gauges()) == {"offered": 2, "failed": 0, "lost": 0})
    gpu_faults.inject(
        own_machine.simulation,
        uuid=own_machine.uuid("gpu-1"),
        error=gpu_errors.CODES["NVML_ERROR_GPU_IS_LOST"],
    )
    polling.until(lambda: gpus(gauges()) == {"offered": 1, "failed": 1, "lost": 1})


def test_an_xid_counts_for_its_gpu_and_its_devices_are_withdrawn(started, gauges, own_machine):
    plugin = started(health_hold_seconds=0)
    plugin.wait_log("listening to GPUs")
    polling.until(lambda: gauges()['dra_driver_devices{health="healthy"}'] == 2)
    told = gpu_event_log.Told(own_machine.uuid("gpu-1"), health.EventKind.XID, 79)
    gpu_event_log.tell(own_machine.simulation, told)
    polling.until(lambda: gauges()['dra_driver_devices{health="withdrawn"}'] == 1)
    found = gauges()
    assert found['dra_driver_gpu_events_total{event="xid",gpu="gpu-1"}'] == 1
    assert found['dra_driver_gpu_xids_total{gpu="gpu-1",xid="79"}'] == 1
    assert found['dra_driver_gpu_events_total{event="xid",gpu="gpu-0"}'] == 0
    withdrawn = 'dra_driver_gpu_health_seconds_total{gpu="gpu-1",health="withdrawn"}'
    polling.until(lambda: gauges()[withdrawn] > 0)
    assert gauges()[withdrawn.replace("gpu-1", "gpu-0")] == 0


def daemons(found):
    return [found[f'dra_driver_mps_daemons{{state="{state}"}}'] for state in ("ready", "down")]


def test_a_gpu_that_falls_off_the_bus_is_lost_until_it_is_back(started, gauges, own_machine):
    started()
    polling.until(lambda: gpus(gauges()) == {"offered": 2, "failed": 0, "lost": 0})
    own_machine.lose_gpus("gpu-1")
    polling.until(lambda: gpus(gauges()) == {"offered": 1, "failed": 0, "lost": 1})
    own_machine.heal_gpus()
    polling.until(lambda: gpus(gauges()) == {"offered": 2, "failed": 0, "lost": 0})


def test_partitions_of_a_gpu_count_as_one_gpu(started, gauges):
    started(gpus="h100-80gb-hbm3:3", mig_mode="dynamic")
    polling.until(lambda: gpus(gauges()) == {"offered": 3, "failed": 0, "lost": 0})


def test_a_daemon_is_ready_while_a_claim_needs_it_and_down_when_it_does_not_run(
    started, gauges, own_machine, own_cluster
):
    plugin = started(shares="memory")
    ref = own_cluster.claim(sharing_claims.share("gpu-0", memory=10) | {"request": "gpu"})
    plugin.kubelet.prepare(ref)
    polling.until(lambda: daemons(gauges()) == [1, 0])
    polling.until(lambda: gauges()["dra_driver_prepared_claims"] == 1)
    [use] = own_machine.record(ref).sharing.mps
    file = own_machine.plugin / "mps" / use.domain / "daemon.json"
    kept = file.rename(file.with_name("kept"))
    polling.until(lambda: daemons(gauges()) == [0, 1])
    kept.rename(file)
    polling.until(lambda: daemons(gauges()) == [1, 0])
    plugin.kubelet.unprepare(ref)
    polling.until(lambda: daemons(gauges()) == [0, 0])
    polling.until(lambda: gauges()["dra_driver_prepared_claims"] == 0)


def test_slices_are_published_once_the_api_server_took_them(started, gauges, own_cluster):
    def rule(call):
        slices = call.resource == "resourceslices" and call.verb == "create"
        return options.Fault(status=503) if slices else None

    with own_cluster.faults.where(rule):
        plugin = started()
        plugin.wait_log("ResourceSlices not published")
        # It is counted after it is logged.
        polling.until(lambda: gauges()["dra_driver_publish_errors_total"] > 0)
        assert gauges()["dra_driver_slices_published"] == 0
    own_cluster.wait_devices("gpu-0", "gpu-1")
    polling.until(lambda: gauges()["dra_driver_slices_published"] == 1)
