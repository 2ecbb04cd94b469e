"""Health: every manifest as its README says that it begins, and what the README says."""

import collections
import json
import pathlib
import re
import shlex
import threading

import pytest
import structlog
import waited_for

from dra_driver import cli, telemetry
from dra_driver.adapters.console import terminal
from dra_driver.logic.health import prospects
from dra_driver.model import taints
from dra_driver.sim.cluster import manifests
from dra_driver.sim.demo import demo, plugin_settings

pytestmark = pytest.mark.sampled(5)

FOLDER = pathlib.Path(__file__).parents[2] / "demo" / "health"
MANIFESTS = sorted(FOLDER.glob("*.yaml"))
README = (FOLDER / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| \[(.*?)\]\((.*?)\) \| .* \| `(--.*?)` \| Running: (.*?) \|$", re.MULTILINE)
OF_DEPLOYMENT = re.compile(r"-[a-z0-9]{10}-[a-z0-9]{5}$")
REPLICAS = collections.Counter({"partition/small": 3})


def told():
    """What the overview has: the options, and pods or Deployments, by manifest."""
    return {
        target: (shlex.split(options), re.findall(r"`(\S+?)`", pods))
        for name, target, options, pods in ROW.findall(README)
        if name == target
    }


@pytest.mark.parametrize("name", [path.name for path in MANIFESTS])
def test_a_manifest_begins_as_its_readme_says(capsys, name):
    telemetry.configure(level="error", log_format="console")
    options, names = told()[name]
    given = cli._parser().parse_args(["demo", *options])
    asked = demo.Options(
        files=(FOLDER / name,),
        nodes=tuple(demo.parse_node(text) for text in given.node),
        plugin_flags=plugin_settings.flags(given.plugin_setting),
        output="json",
    )
    with pytest.MonkeyPatch.context() as patch:
        waited_for.end_once_waited_for(patch)
        status = demo.run(asked, threading.Event(), terminal.Terminal())
    structlog.reset_defaults()
    pods = json.loads(capsys.readouterr().out)["pods"]
    found = [f"{pod['namespace']}/{OF_DEPLOYMENT.sub('', pod['name'])}" for pod in pods]
    assert collections.Counter(found) == {each: REPLICAS[each] or 1 for each in names}
    assert {pod["phase"] for pod in pods} == {"Running"}
    cards = {
        re.match(r"gpu-\d+", device["device"])[0]
        for pod in pods
        for claim in pod["claims"]
        for device in claim["devices"]
    }
    assert cards == {"gpu-0"}, "the fault is put into this card"
    assert status == 0


def test_the_toleration_of_the_last_one_is_for_the_taint_of_the_fault():
    [tolerant] = [
        body
        for body in manifests.load([FOLDER / "5-eviction.yaml"])
        if body["kind"] == "ResourceClaimTemplate" and body["metadata"]["name"] == "tolerant"
    ]
    [request] = tolerant["spec"]["spec"]["devices"]["requests"]
    [toleration] = request["exactly"]["tolerations"]
    assert toleration["effect"] == taints.NO_EXECUTE
    fault = taints.Taint("gpu.nvidia.com/xid", "79", taints.NO_EXECUTE)
    assert taints.parse_toleration(toleration).covers(fault)


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands():
    lines = [line for block in blocks("console") for line in block.splitlines()]
    return [shlex.split(line[2:]) for line in lines if line.startswith("$ ")]


def test_the_readme_has_the_usual_parts():
    assert re.findall(r"^## (.*)$", README, re.MULTILINE) == [
        "Overview",
        "Requirements",
        "How to run",
        "Expected output",
        "What to look at",
        "Clean up",
    ]


def test_the_readme_lists_every_manifest_with_what_makes_its_pods():
    assert {name: set(names) for name, (_, names) in told().items()} == {
        path.name: {
            f"{body['metadata']['namespace']}/{body['metadata']['name']}"
            for body in manifests.load([path])
            if body["kind"] in ("Pod", "Deployment")
        }
        for path in MANIFESTS
    }


def test_the_demo_is_started_with_the_options_of_its_row():
    ours = [command[1:] for command in commands() if command[0].endswith("dra-driver")]
    started = [command for command in ours if command[0] == "demo"]
    assert len(started) == len(MANIFESTS)
    for command, path in zip(started, MANIFESTS, strict=True):
        options, _ = told()[path.name]
        assert command == ["demo", "--keep", "-f", f"demo/health/{path.name}", *options]
        assert cli._parser().parse_args(command).run == cli._demo


def test_faults_are_put_into_the_card_that_the_pods_have():
    ours = [command[1:] for command in commands() if command[0].endswith("dra-driver")]
    faults = [command for command in ours if command[0] == "fault"]
    assert {command[1] for command in faults} == {"hopper/gpu-0"}
    others = [command for command in ours if command[0] != "demo"]
    runs = {cli._parser().parse_args(command).run for command in others}
    assert runs == {cli._fault, cli._status, cli._explain}


def test_what_is_shown_of_a_taint_is_what_is_said_of_it():
    for key, value in (("xid", "79"), ("recovery", "reboot")):
        taint = taints.Taint(f"gpu.nvidia.com/{key}", value, added="2026-11-28T10:00:00Z")
        assert f"gpu-0: {prospects.told(taint, 'gpu.nvidia.com')}\n" in README
    awaited = prospects.awaited(taint, "gpu.nvidia.com")
    assert f"tolerate it, or {awaited}" in re.sub(r"\s+", " ", README)
