"""This driver in the slot of the GPU operator's GPUCluster for a DRA driver.

What its pod does and has: NVIDIA/gpu-operator a22dbf67, manifests/state-dra-driver/
0500_daemonset.yaml; its validator: manifests/state-dra-validation.
"""

import os
import signal
import subprocess
import sys
import tomllib

import api_cluster
import chart
import health_probe
import neighbour_fleet
import plugin_process
import pytest
from polling import until

from dra_driver.adapters.kube import kube, kube_errors

SCRIPTS = tomllib.loads((chart.DEPLOY.parent / "pyproject.toml").read_text("utf-8"))["project"][
    "scripts"
]
START = """
set -a
source "$0"
set +a
exec gpu-kubelet-plugin -v "${LOG_VERBOSITY}"
"""
"""What the container runs, with the file of the init container as its first argument."""


@pytest.fixture
def programs(tmp_path):
    """A directory with the programs that the package installs."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, target in SCRIPTS.items():
        module, function = target.split(":")
        path = directory / name
        code = f"import sys, {module}; sys.argv[0] = '{name}'; sys.exit({module}.{function}())"
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
        path.chmod(0o755)
    return directory


class Pod:
    """The container of the operator's pod, as a process."""

    def __init__(self, machine, cluster, programs, port):
        self.machine, self.log = machine, machine.root / "log"
        self.ready = machine.root / "driver-ready"
        self.ready.write_text(
            "IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\n"
            "DRIVER_ROOT_CTR_PATH=/driver-root\nNVIDIA_DEV_ROOT=/run/nvidia/driver\n"
            "DEV_ROOT_CTR_PATH=/driver-root\n"
        )
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "HTTP_ENDPOINT": "127.0.0.1:0",
            "METRICS_PATH": "/metrics",
            "LOG_VERBOSITY": "4",
            "MASK_NVIDIA_DRIVER_PARAMS": "",
            "NVIDIA_VISIBLE_DEVICES": "void",
            "CDI_ROOT": str(machine.cdi),
            "HOST_ROOT": "/",
            "NVIDIA_MIG_CONFIG_DEVICES": "all",
            "NODE_NAME": api_cluster.NODE,
            "NAMESPACE": "gpu-operator",
            "IMAGE_NAME": "registry.example/dra-driver:1",
            "KUBELET_REGISTRAR_DIRECTORY_PATH": str(machine.registry),
            "KUBELET_PLUGINS_DIRECTORY_PATH": str(machine.plugin.parent),
            "HEALTHCHECK_PORT": str(port),
            # Those of `spec.draDriver.gpus.kubeletPlugin.env`, and what a pod has from its cluster.
            "KUBECONFIG": str(cluster.kubeconfig),
            "DRA_DRIVER_SIMULATE_GPUS": plugin_process.TWO_GPUS,
            "DRA_DRIVER_SIMULATION_DIR": str(machine.simulation),
            "DRA_DRIVER_BOOT_ID_FILE": str(machine.boot_id),
            "DRA_DRIVER_LOG_FORMAT": "json",
        }
        self.process = None

    def start(self, **environment):
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", START, str(self.ready)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment | environment,
            )
        return self

    def log_text(self):
        return self.log.read_text("utf-8")

    def end(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            return self.process.wait(api_cluster.DEADLINE)
        return None


@pytest.fixture
def pod(own_machine, own_cluster, programs, free_port):
    made = Pod(own_machine, own_cluster, programs, free_port)
    yield made
    made.end()


def wait_serving(port, service):
    until(
        lambda: health_probe.check(port, service) == health_probe.SERVING,
        what=f"service {service!r} serves",
    )


def test_the_operator_s_pod_runs_the_plugin_and_its_probes_pass(
    pod, own_cluster, own_machine, free_port
):
    pod.start(FEATURE_GATES="DynamicMIG=false,MPSSupport=true")
    wait_serving(free_port, "liveness")
    socket = own_machine.registry / f"{api_cluster.DRIVER}-reg.sock"
    plugin_process.register(socket)
    wait_serving(free_port, "")
    own_cluster.wait_devices("gpu-0", "gpu-1")
    ref = own_cluster.claim("gpu-0")
    kubelet = plugin_process.Kubelet(own_machine.plugin / "dra.sock")
    [device] = kubelet.prepare(ref)
    assert device == plugin_process.device(ref, "gpu-0")
    assert own_machine.spec(ref) is not None
    kubelet.unprepare(ref)
    kubelet.close()
    assert "FEATURE_GATES: MPSSupport=true has no effect" in pod.log_text()
    assert pod.end() == 0


def test_a_gate_of_what_is_not_there_ends_the_container_with_what_to_do(pod):
    pod.start(FEATURE_GATES="VGPUSupport=true")
    assert pod.process.wait(api_cluster.DEADLINE) == 1
    assert "Take it out of spec.draDriver.featureGates of the GPUCluster" in pod.log_text()
    assert "Traceback" not in pod.log_text()


def test_a_flag_that_is_unknown_is_refused_with_where_settings_are(programs):
    answer = subprocess.run(
        [programs / "gpu-kubelet-plugin", "-v", "4", "--cdi-root=/etc/cdi"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 2
    assert "unrecognized arguments: --cdi-root=/etc/cdi; settings are variables" in answer.stderr


@pytest.mark.parametrize("name", ["compute-domain-kubelet-plugin", "compute-domain-controller"])
def test_the_containers_of_compute_domains_say_that_there_are_none(programs, name):
    answer = subprocess.run(
        [programs / name, "-v", "4"], check=False, capture_output=True, text=True
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"{name}: dra-driver has no ComputeDomains. Set ")
    assert "spec.draDriver.computeDomains.enabled to false" in answer.stderr


# Its validator


@pytest.fixture(scope="module")
def operator_namespace(fleet):
    labels = {"resource.kubernetes.io/admin-access": "true"}
    body = {"metadata": {"name": "gpu-operator", "labels": labels}}
    fleet.client.create(kube.NAMESPACES, body)
    return "gpu-operator"


def validator_request():
    return {
        "name": "validation-gpu",
        "exactly": {
            "deviceClassName": "gpu.nvidia.com",
            "allocationMode": "ExactCount",
            "count": 1,
            "adminAccess": True,
        },
    }


def test_the_validator_s_pod_sees_a_gpu_although_others_have_them_all(fleet, operator_namespace):
    whole = {"deviceClassName": "exclusive.gpu.nvidia.com", "allocationMode": "All"}
    users = [
        fleet.pod([{"name": "gpu", "exactly": whole}], node=spec.name).wait_running()
        for spec in neighbour_fleet.SPECS
        if "--shares=memory" not in spec.flags
    ]
    for node in ("mig", "plain"):
        validator = fleet.pod([validator_request()], namespace=operator_namespace, node=node)
        validator.wait_running()
        [result] = validator.results()
        assert (result["driver"], result["pool"], result["adminAccess"]) == (
            neighbour_fleet.DRIVER,
            node,
            True,
        )
        [gpu] = validator.output()
        assert gpu.startswith("GPU 0: ")
        validator.delete()
    for user in users:
        user.delete()


def test_without_the_label_of_its_namespace_the_validator_s_claim_is_refused(fleet):
    with pytest.raises(kube_errors.ApiError, match="admin-access"):
        fleet.pod([validator_request()])
