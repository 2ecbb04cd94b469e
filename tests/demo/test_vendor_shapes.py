"""The shapes of the demos of NVIDIA's DRA driver, in own words, get the pods that they ask for.

Its manifests: https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu, `demo/specs`, folders
`quickstart/v1` and `consumable-shares`. Those for VFIO and IMEX ask for what is not there.
"""

import collections
import json
import pathlib
import tempfile
import threading

import pytest
import structlog
from demo_manifests import workload

from dra_driver import telemetry
from dra_driver.adapters.console import terminal
from dra_driver.sim.demo import demo

pytestmark = pytest.mark.sampled(3)

A100 = "NVIDIA A100-SXM4-40GB"
GPU = "device.attributes['gpu.nvidia.com']"


def template(name, *requests, **devices):
    spec = {"spec": {"devices": {"requests": list(requests), **devices}}}
    return f"\n---\n{json.dumps(_object('ResourceClaimTemplate', name, spec))}"


def _object(kind, name, spec):
    metadata = {"name": name}
    return {
        "apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec,
    }  # fmt: skip


def request(name, device_class="gpu.nvidia.com", *expressions, **fields):
    selectors = [{"cel": {"expression": text}} for text in expressions]
    exactly = {"deviceClassName": device_class, **fields}
    return {"name": name, "exactly": exactly | ({"selectors": selectors} if selectors else {})}


def config(*requests, **sharing):
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
    opaque = {"driver": "gpu.nvidia.com", "parameters": parameters | {"sharing": sharing}}
    return {"requests": list(requests), "opaque": opaque}


def four_partitions():
    """A Deployment of four pods, each with four partitions of one card, one for each container."""
    profiles = {"small-0": "1g.5gb", "small-1": "1g.5gb", "mid": "2g.10gb", "large": "3g.20gb"}
    requests = [
        request(name, "mig.nvidia.com", f"{GPU}.profile == '{profile}'")
        for name, profile in profiles.items()
    ]
    together = [{"requests": [], "matchAttribute": "gpu.nvidia.com/parentUUID"}]
    containers = [
        {
            "name": name,
            "image": "none",
            "command": ["bash", "-c"],
            "args": ["nvidia-smi -L; trap 'exit 0' TERM; sleep 9999 & wait"],
            "resources": {"claims": [{"name": "mig", "request": name}]},
        }
        for name in profiles
    ]
    return template("mig", *requests, constraints=together) + workload(
        "Deployment", "pod", claims=("mig",), more={"replicas": 4}, containers=containers
    )


def even_cards():
    """A Deployment of four pods, each with a long time slice of a card with an even index."""
    even = " || ".join(f"{GPU}.index == {index}" for index in (0, 2, 4, 6))
    wanted = f"{GPU}.productName.lowerAscii().matches('^.*a100.*$') && ({even})"
    slices = config("gpu", strategy="TimeSlicing", timeSlicingConfig={"interval": "Long"})
    return template("a100", request("gpu", "gpu.nvidia.com", wanted), config=[slices]) + workload(
        "Deployment", "pod", claims=("a100",), more={"replicas": 4}
    )


def two_ways_of_sharing():
    """A pod with four containers: two share a card by time slices, two another by MPS."""
    limits = {"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10Gi"}
    configs = [
        config("ts", strategy="TimeSlicing", timeSlicingConfig={"interval": "Long"}),
        config("mps", strategy="MPS", mpsConfig=limits),
    ]
    containers = [
        {"name": f"{name}-{number}", "image": "none", "command": ["sleep", "infinity"],
         "resources": {"claims": [{"name": "both", "request": name}]}}
        for name in ("ts", "mps")
        for number in (0, 1)
    ]  # fmt: skip
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod"},
        "spec": {
            "containers": containers,
            "resourceClaims": [{"name": "both", "resourceClaimTemplateName": "both"}],
        },
    }
    requests = [request("ts"), request("mps")]
    return template("both", *requests, config=configs) + f"\n---\n{json.dumps(body)}"


def shares(**fields):
    """A Deployment of two pods, each with a share of a card."""
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return template("gpu", request("gpu", **fields)) + workload(
        "Deployment", "sharing", claims=("gpu",), more={"replicas": 2}, tolerations=tolerations
    )


def one_claim_for_a_job():
    """A Job whose pods run side by side on a claim that is there before them."""
    claim = _object("ResourceClaim", "gpu", {"devices": {"requests": [request("gpu")]}})
    return json.dumps(claim) + workload(
        "Job",
        "work",
        ("nvidia-smi",),
        more={"parallelism": 4, "completions": 4, "backoffLimit": 100},
        restartPolicy="OnFailure",
        resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}],
    )


@pytest.fixture
def devices(capsys, monkeypatch, tmp_path):
    """Runs a manifest; of each pod the devices that it had, each as people call it."""

    def play(text, node, *flags):
        path = tmp_path / "manifest.yaml"
        path.write_text(text)
        with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as name:
            monkeypatch.setattr(tempfile, "tempdir", name)
            telemetry.configure(level="error", log_format="console")
            asked = demo.Options(
                files=(pathlib.Path(path),),
                nodes=(demo.parse_node(f"n={node}"),),
                output="json",
                plugin_flags=flags,
            )
            status = demo.run(asked, threading.Event(), terminal.Terminal())
            structlog.reset_defaults()
            monkeypatch.undo()
        pods = json.loads(capsys.readouterr().out)["pods"]
        assert status == 0, pods
        return [[device for claim in pod["claims"] for device in claim["devices"]] for pod in pods]

    return play


def test_four_pods_with_four_partitions_of_one_card_each(devices):
    found = devices(four_partitions(), "a100-40gb-sxm4:4:mig")
    wanted = {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}
    assert [collections.Counter(d["profile"] for d in pod) for pod in found] == [wanted] * 4
    cards = [{device["device"].split("-mig")[0] for device in pod} for pod in found]
    assert all(len(each) == 1 for each in cards)
    assert len(set.union(*cards)) == 4


def test_four_pods_with_cards_by_their_index(devices):
    found = devices(even_cards(), "a100-40gb-sxm4:8")
    assert sorted(device["device"] for pod in found for device in pod) == [
        "gpu-0", "gpu-2", "gpu-4", "gpu-6",
    ]  # fmt: skip
    assert {device["timeSlice"] for pod in found for device in pod} == {"Long"}


def test_one_pod_with_two_ways_of_sharing(devices):
    [pod] = devices(two_ways_of_sharing(), "a100-40gb-sxm4:2")
    assert [device["model"] for device in pod] == [A100, A100]
    assert {device["timeSlice"] for device in pod} == {"Long", None}


@pytest.mark.parametrize(
    ("fields", "setting"),
    [
        ({"capacity": {"requests": {"memory": "4Gi"}}}, "memory"),
        ({}, "4"),
    ],
)
def test_two_pods_with_shares(devices, fields, setting):
    found = devices(shares(**fields), "a100-40gb-sxm4:2", f"--shares={setting}")
    assert [bool(pod[0]["share"]) for pod in found] == [True, True]


def test_a_job_whose_pods_use_one_claim(devices):
    found = devices(one_claim_for_a_job(), "a100-40gb-sxm4:2")
    assert len(found) == 4
