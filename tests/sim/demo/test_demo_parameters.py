"""`dra-driver demo` of parameter objects: templates made of them by the controller as a process."""

import json
import os
import pathlib
import signal
import threading

import pytest
from demo_manifests import pod
from polling import until

from dra_driver import errors
from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster import cluster, runtime
from dra_driver.sim.demo import bringing, observing

pytestmark = pytest.mark.sampled(5)

PARAMETERS = """
apiVersion: gpu.resource.nvidia.com/v1alpha1
kind: GpuClaimParameters
metadata: {name: gpu, namespace: default}
spec: {count: 2, selector: {productName: "*t4*"}}
"""


def parameters(api="gpu.resource.nvidia.com/v1alpha1", kind="GpuClaimParameters"):
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "a"}}


def test_a_pod_waits_for_the_template_of_its_parameters_and_gets_what_they_say(play):
    status, out, err = play(pod("a") + "---" + PARAMETERS, output="json")
    assert status == 0
    ((found,), told) = json.loads(out)["pods"], err
    assert [device["model"] for claim in found["claims"] for device in claim["devices"]] == [
        "Tesla T4",
        "Tesla T4",
    ]
    assert "without effect" not in told


def test_parameters_of_which_no_template_can_be_made_leave_the_pod_waiting(play):
    text = PARAMETERS.replace("spec: {count", "spec: {gpuClaimName: b, profile: 1g.10gb, count")
    text = text.replace("GpuClaim", "MigDeviceClaim").replace("count: 2, ", "")
    text = text.replace(', selector: {productName: "*t4*"}', "")
    status, out, _ = play(text + pod("a", "Unschedulable"), output="json")
    assert status == 0
    (found,) = json.loads(out)["pods"]
    assert found["claims"] == []


def test_parameters_that_the_kind_refuses_are_told_by_their_field(play):
    with pytest.raises(errors.DriverError, match=r"spec\.count"):
        play(PARAMETERS.replace("count: 2", "count: 0") + pod("a"))


def test_parameters_alone_make_no_pod(play):
    with pytest.raises(errors.Rejected, match="they have GpuClaimParameters, and neither a Pod"):
        play(PARAMETERS)


@pytest.mark.parametrize("kind", ["MigClaimParameters", "VfioGpuClaimParameters"])
def test_each_kind_of_parameters_is_known_by_its_name_and_version(kind):
    assert bringing.has_parameters([parameters(kind=kind)])
    assert list(bringing.notes([parameters(kind=kind)])) == []


@pytest.mark.parametrize(
    "body",
    [
        parameters(kind="DeviceClassParameters"),
        parameters(api="gpu.resource.nvidia.com/v1"),
        parameters(api="example.com/v1alpha1"),
    ],
)
def test_what_only_looks_like_it_starts_no_controller(body):
    assert not bringing.has_parameters([body])


# The controller's process


@pytest.fixture
def start(temporary):
    made = []

    def start(**options):
        found = cluster.Cluster(
            (),
            pathlib.Path(temporary),
            runtime_for=lambda cdi, _: runtime.PretendedRuntime(cdi),
            **options,
        )
        made.append(found)
        found.start()
        assert found.wait_ready(threading.Event())
        return found

    yield start
    for found in made:
        found.stop()


def test_a_controller_that_has_ended_is_told_with_the_end_of_its_log(start):
    embedded = start(parameters=True)
    observing.Observer(embedded).check_alive()
    pid = embedded.keeper._process.pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(errors.Fatal, match="the controller ended with status -9; its log ends:"):
        observing.Observer(embedded).check_alive()


def test_it_gives_its_lease_away_when_it_is_stopped(start):
    embedded = start(parameters=True)
    leases = kube.Resource("coordination.k8s.io", "v1", "leases")

    def holders():
        return [body["spec"].get("holderIdentity") for body in embedded.client.list(leases)[0]]

    until(lambda: holders() == ["demo"])
    embedded.keeper.stop()
    assert holders() in ([""], [None], [])


def test_without_parameters_there_are_neither_kinds_nor_a_controller(start):
    embedded = start()
    assert embedded.keeper is None
    with pytest.raises(kube.NotFound):
        embedded.client.list(
            kube.Resource("gpu.resource.nvidia.com", "v1alpha1", "gpuclaimparameters")
        )
