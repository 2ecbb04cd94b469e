"""What `explain` and `status` tell of pods with extended resources in an embedded cluster."""

import json

import pytest
import structlog

from dra_driver import telemetry
from dra_driver.adapters.console import terminal
from dra_driver.apps.looking import explain, status
from dra_driver.logic.explaining import explaining

GPU = "example.com/gpu"


def container(name="main", count=1):
    return {"name": name, "image": "none", "resources": {"limits": {GPU: count}}}


def gpu(number):
    texts = {"type": "gpu", "uuid": f"GPU-{number}", "productName": "Tesla T4"}
    attributes = {name: {"string": text} for name, text in texts.items()}
    return {"name": f"gpu-{number}", "attributes": attributes}


@pytest.fixture
def serving(plane):
    """A plane with a node of two devices, whose class serves `GPU`."""
    # What the scheduler logs would stand among what is printed.
    telemetry.configure(level="error", log_format="console")
    plane.add_class(name="serving", extendedResourceName=GPU)
    plane.add_node("node-a")
    plane.add_slice("node-a", gpu(0), gpu(1))
    yield plane.start_scheduler()
    structlog.reset_defaults()


@pytest.fixture
def explained(tmp_path, capsys):
    """The explanation of a stored pod, or of the only one in a manifest."""

    def explained(target=None, manifest=None):
        options = explain.Options(target, manifest, (), tmp_path / "kubeconfig", output="json")
        explain.run(options, terminal.Terminal(), user_agent="test")
        [found] = json.loads(capsys.readouterr().out)["explanations"]
        return found

    return explained


def test_a_pod_is_explained_before_it_is_applied_and_gets_that(serving, explained, tmp_path):
    spec = {"containers": [container(count=2)], "initContainers": [container("load")]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": spec}
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(pod), encoding="utf-8")
    before = explained(manifest=path)
    serving.add_pod("train", **spec)
    serving.node_of("train")
    after = explained("pod/train")
    assert (before["verdict"], after["verdict"]) == (explaining.FITS, explaining.ALLOCATED)
    mapped = [
        f"request container-1-request-0 is {GPU} of container {name}" for name in ("load", "main")
    ]
    assert before["notes"][:2] == mapped
    assert sorted(after["notes"]) == mapped
    assert f"{GPU} is served by class serving" in before["notes"][2]
    expected = [pick["device"] for pick in before["options"][0]["picks"]]
    assert [each["device"] for each in after["allocated"]] == expected


def test_a_pod_that_waits_is_told_who_has_the_devices(serving, explained):
    serving.add_pod("first", containers=[container()])
    serving.node_of("first")
    serving.add_pod("second", containers=[container(count=2)])
    serving.refusal_of("second")
    about = explained("pod/second")
    assert about["verdict"] == explaining.DOES_NOT_FIT
    [claim] = serving.claims()
    assert f"free once pod first ends (claim default/{claim})" in [
        each["change"] for each in about["nearest"]
    ]


def test_the_claim_is_shown_with_its_pod(serving, tmp_path, capsys):
    serving.add_pod("train", containers=[container(count=2)])
    serving.node_of("train")
    options = status.Options(kubeconfig=tmp_path / "kubeconfig", output="json")
    status.run(options, terminal.Terminal(), user_agent="test")
    shown = json.loads(capsys.readouterr().out)
    [claim] = serving.claims()
    [node] = shown["nodes"]
    held = [user for each in node["gpus"] for part in each["parts"] for user in part["held_by"]]
    assert [(user["claim"], [pod["name"] for pod in user["pods"]]) for user in held] == [
        (claim, ["train"])
    ] * 2
