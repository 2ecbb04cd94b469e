"""What the kubelets of the releases do with claims that the next one's do not."""

import pytest
import scripted_plugin

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.adapters.kubelet import dra_grpc, dra_protocol
from dra_driver.logic.scheduling import emulation
from dra_driver.sim.api.kinds import resource_gates
from dra_driver.sim.cluster import kubelet_release

OTHER = "net.example.com"


def test_a_release_that_is_not_known_is_refused():
    known = r"known: 1\.34, 1\.35, 1\.36\.2, 1\.37, 1\.38"
    with pytest.raises(errors.Rejected, match=rf"--emulate 1\.2: .*{known}"):
        kubelet_release.of_release("1.2")


@pytest.mark.parametrize("release", emulation.RELEASES)
def test_device_health_is_asked_for_where_its_gate_is_on(release):
    found = kubelet_release.of_release(release).health_service(dra_protocol.HEALTH_SERVICES)
    minor = int(release.split(".")[1])
    assert (found is not None) == (minor >= resource_gates.ON_SINCE[resource_gates.HEALTH_STATUS])


@pytest.mark.parametrize(
    ("release", "times"), [(None, 1), ("1.35", 2), ("1.36.2", 2), ("1.37", 1), ("1.38", 1)]
)
def test_devices_of_a_claim_stand_twice_in_1_36_2_after_another_driver_failed(node, release, times):
    node.start_kubelet(release)
    gpu, net = node.add_plugin(), node.add_plugin(name=OTHER)
    answers = iter([dra_grpc.Answer(error="not yet")])
    prepared = net.on_prepare
    net.on_prepare = lambda ref: next(answers, None) or prepared(ref)
    results = [
        {"request": "gpu", "driver": driver, "pool": "node-1", "device": "gpu-0"}
        for driver in (scripted_plugin.DRIVER, OTHER)
    ]
    claim = node.add_claim("both", *results)["metadata"]["uid"]
    node.run_pod("train", {"gpu": "both"})
    node.wait_phase("train", "Running")
    assert gpu.names("prepare") == [["both"]] * 2
    [started] = node.engine.started
    own = f"k8s.{scripted_plugin.DRIVER}/claim={claim}-gpu-0"
    assert started.asked.cdi_ids == (*[own] * times, f"k8s.{OTHER}/claim={claim}-gpu-0")


@pytest.mark.parametrize(("release", "calls"), [(None, 0), ("1.36.2", 1), ("1.37", 0), ("1.38", 0)])
def test_a_pod_that_never_started_takes_a_claim_of_the_same_name_with_it_in_1_36_2(
    node, release, calls
):
    node.start_kubelet(release)
    plugin = node.add_plugin()
    node.add_claim("one")
    node.run_pod("first", {"gpu": "one"})
    node.wait_phase("first", "Running")
    node.client.delete(kube.CLAIMS, "one", "default")
    node.add_claim("one")
    node.run_pod("second", {"gpu": "one"})
    assert "old ResourceClaim" in node.wait_event("second", "FailedPrepareDynamicResources")
    node.delete_pod("second")
    node.wait_gone("second")
    assert plugin.names("unprepare") == [["one"]] * calls
    assert node.phase("first") == "Running"
    assert not node.engine.started[0].stopped.is_set()
