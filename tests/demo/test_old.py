"""Manifests of older systems: the commands of their README, and what pods get by either of them.

By the door `command` a manifest is converted by `dra-driver convert` and then played, by `webhook`
it is played as it is with `--convert`. What a pod got is read from the cluster while it goes on.
"""

import dataclasses
import pathlib
import re
import shlex
import tempfile
import threading

import pytest
import structlog

from dra_driver import cli, errors, telemetry
from dra_driver.adapters.console import terminal
from dra_driver.adapters.kube import kube
from dra_driver.sim.cluster import manifests
from dra_driver.sim.demo import demo, plugin_settings

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "demo" / "old"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (\S+\.yaml)\n(.*?)(?=^##|\Z)", README, re.MULTILINE | re.DOTALL))
TODAY = "today.yaml"
"""What the README calls the manifests that the command writes."""

SHARE = "shared-mps.gpu.nvidia.com"
MIG = "mig.nvidia.com"
GPU = "gpu.nvidia.com"
H100 = "NVIDIA H100 80GB HBM3"
# Of a H100: 81559Mi. A tenth, a quarter and a half of it are whole MiB, rounded down.
GOT = {
    "2-hami.yaml": {
        "two-cards": [f"{SHARE}: {H100}, 10Gi, 30 %", f"{SHARE}: {H100}, 10Gi, 30 %"],
        "half": [f"{SHARE}: {H100}, 40779Mi, 40 %"],
    },
    "1-device-plugin.yaml": {
        "inference": [f"{MIG}: 1g.10gb of {H100}, 9984Mi, 100 %"],
        "notebook": [f"{SHARE}: {H100}, 8155Mi, 10 %"],
    },
    "3-volcano.yaml": {
        "train-tasks-0": [f"{SHARE}: {H100}, 20Gi, 50 %"],
        "train-tasks-1": [f"{SHARE}: {H100}, 20389Mi, 25 %"],
        "isolated": [f"{MIG}: 1g.20gb of {H100}, 20096Mi, 100 %"],
    },
    "4-tencent.yaml": {
        "part": [f"{SHARE}: {H100}, 10Gi, 30 %"],
        "whole": [f"{GPU}: {H100}, 81559Mi, 100 %"],
    },
    "5-aliyun.yaml": {
        "binpack-0": [f"{SHARE}: {H100}, 20Gi, 25 %"],
        "binpack-1": [f"{SHARE}: {H100}, 20Gi, 25 %"],
    },
    "6-kai.yaml": {
        "half": [f"{SHARE}: {H100}, 40779Mi, 50 %"],
        "by-memory": [f"{SHARE}: {H100}, 8Gi, 10 %"],
    },
    "8-parameters.yaml": {
        "whole": [f"{GPU}: {H100}"],
        "part": [f"{MIG}: 1g.10gb of {H100}"],
    },
    "7-dra-v1alpha2.yaml": {
        "one-gpu": [f"{GPU}: {H100}"],
        "two-parts": [f"{MIG}: 1g.10gb of {H100}", f"{MIG}: 2g.20gb of {H100}"],
    },
}
BOTH = [name for name in GOT if not name.startswith("7")]
REPLICAS = {"half": 2, "inference": 2}
"""Of Deployments, in 2-hami.yaml and 1-device-plugin.yaml."""
END_OF_NAME = re.compile(r"(-[b-df-hj-np-tv-z0-9]{7,10})?-[b-df-hj-np-tv-z0-9]{5}$")


@dataclasses.dataclass(frozen=True)
class Pod:
    """A pod by its name without what a controller has added, and what came of what it asked."""

    name: str
    specs: tuple
    """Of its claims, as they were asked."""
    devices: tuple[str, ...]
    cards: tuple[str, ...]
    """The UUIDs of the cards of these devices."""
    environment: tuple[tuple[str, str], ...]
    """What containers of it have for MPS by their manifest."""


@dataclasses.dataclass(slots=True)
class Played:
    status: int = -1
    rows: tuple = ()
    pods: tuple[Pod, ...] = ()

    def named(self, name):
        return [pod for pod in self.pods if pod.name == name]


class Looking(terminal.Terminal):
    """When the cluster is said to go on its pods are looked at, and then it is ended."""

    def __init__(self, played, stop):
        super().__init__()
        self._played, self._stop = played, stop

    def step(self, text):
        super().step(text)
        if found := re.search("KUBECONFIG=(.*)", text):
            self._played.pods = pods_of(pathlib.Path(found[1]))
            self._stop.set()

    def table(self, table):
        if table.title == "Pods":
            self._played.rows = (table.columns, *(tuple(map(plain, row)) for row in table.rows))


def plain(cell):
    return cell if isinstance(cell, str) else cell[0]


def pods_of(kubeconfig):
    client = kube.Client(kubeconfig=kubeconfig, user_agent="test")
    devices = {
        (body["spec"]["pool"]["name"], device["name"]): device
        for body in client.list(kube.SLICES)[0]
        for device in body["spec"].get("devices") or ()
    }
    claims = {
        (body["metadata"]["namespace"], body["metadata"]["name"]): body
        for body in client.list(kube.CLAIMS)[0]
    }
    found = tuple(pod_of(body, claims, devices) for body in client.list(kube.PODS)[0])
    client.close()
    return tuple(sorted(found, key=lambda pod: (pod.name, pod.devices)))


def pod_of(body, claims, devices):
    metadata = body["metadata"]
    name = metadata["name"]
    used = [
        claims[metadata["namespace"], each["resourceClaimName"]]
        for each in body["status"].get("resourceClaimStatuses") or ()
    ]
    granted = [
        (claim, result, devices[result["pool"], result["device"]]["attributes"])
        for claim in used
        for result in allocated(claim)
    ]
    return Pod(
        name=END_OF_NAME.sub("", name) if "generateName" in metadata else name,
        specs=tuple(claim["spec"] for claim in used),
        devices=tuple(sorted(told(*each) for each in granted)),
        cards=tuple(text(has, "parentUUID") or text(has, "uuid") for _, _, has in granted),
        environment=tuple(
            (each["name"], each.get("value"))
            for container in body["spec"]["containers"]
            for each in container.get("env") or ()
            if each["name"].startswith("CUDA_MPS")
        ),
    )


def allocated(claim):
    """What it was given; nothing for one that waits."""
    allocation = (claim.get("status") or {}).get("allocation") or {"devices": {}}
    return allocation["devices"].get("results", ())


def told(claim, result, attributes):
    """A device: its class, what it is, and how much of it the claim has of what is shared."""
    wanted = {each["name"]: each for each in claim["spec"]["devices"]["requests"]}
    main, _, sub = result["request"].partition("/")
    request = wanted[main]
    asked = request.get("exactly") or next(
        each for each in request["firstAvailable"] if each["name"] == sub
    )
    profile, model = text(attributes, "profile"), text(attributes, "productName")
    amounts = result.get("consumedCapacity") or {}
    parts = [f"{profile} of {model}" if profile else model]
    parts += [amounts["memory"], f"{amounts['cores']} %"] if amounts else []
    return f"{asked['deviceClassName']}: {', '.join(parts)}"


def text(attributes, name):
    return attributes.get(name, {}).get("string")


def commands(name):
    """The words of the commands that the README has for a manifest, without the prompt."""
    blocks = re.findall(r"```console\n(.*?)```", SECTIONS[name], re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    found = [shlex.split(line.removeprefix("$ ")) for line in lines]
    assert {words[0] for words in found} == {".venv/bin/dra-driver"}
    return [words[1:] for words in found]


def convert(name, directory, capsys):
    """The file that the README's command writes."""
    [words] = [words for words in commands(name) if words[0] == "convert"]
    assert words[-2:] == [">", TODAY]
    with pytest.raises(SystemExit) as ended:
        cli.main(words[:-2])
    assert ended.value.code in (0, None)
    path = directory / TODAY
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    return path


def run(name, door, directory, capsys, monkeypatch):
    """Do what the README says, with all that it makes in a directory."""
    monkeypatch.chdir(ROOT)
    [words] = [
        words
        for words in commands(name)
        if words[0] == "demo" and ("--convert" in words) == (door == "webhook")
    ]
    given = cli._parser().parse_args(words)
    [file] = given.file
    assert file == pathlib.Path("demo/old", name) or (door == "command" and str(file) == TODAY)
    if str(file) == TODAY:
        file = convert(name, directory, capsys)
    options = demo.Options(
        files=(file,),
        nodes=tuple(map(demo.parse_node, given.node)),
        plugin_flags=plugin_settings.flags(given.plugin_setting),
        convert=given.convert,
        keep=True,
    )
    played, stop = Played(), threading.Event()
    telemetry.configure(level="error", log_format="console")
    played.status = demo.run(options, stop, Looking(played, stop))
    structlog.reset_defaults()
    capsys.readouterr()
    return played


@pytest.fixture(scope="module")
def known():
    return {}


@pytest.fixture
def played(known, capsys, monkeypatch):
    """What a manifest came to by a door."""

    def played(name, door):
        if (name, door) not in known:
            with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as directory:
                monkeypatch.setattr(tempfile, "tempdir", directory)
                path = pathlib.Path(directory)
                known[name, door] = run(name, door, path, capsys, monkeypatch)
        return known[name, door]

    return played


def check_got(found, name):
    assert found.status == 0
    assert {pod.name: list(pod.devices) for pod in found.pods} == GOT[name]
    counts = {pod: len(found.named(pod)) for pod in GOT[name]}
    assert counts == {pod: REPLICAS.get(pod, 1) if name < "3" else 1 for pod in GOT[name]}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", BOTH)
def test_pods_run_and_get_the_same_by_the_command_and_by_the_webhook(played, name):
    command, webhook = played(name, "command"), played(name, "webhook")
    check_got(command, name)
    check_got(webhook, name)
    ours = [(pod.name, pod.specs, pod.devices, pod.environment) for pod in command.pods]
    theirs = [(pod.name, pod.specs, pod.devices, pod.environment) for pod in webhook.pods]
    assert ours == theirs


@pytest.mark.sampled(2)
@pytest.mark.parametrize("door", ["command", "webhook"])
def test_who_asked_for_parts_of_two_cards_has_them_of_different_ones(played, door):
    [pod] = played("2-hami.yaml", door).named("two-cards")
    [spec] = pod.specs
    assert spec["devices"]["constraints"] == [
        {"requests": ["gpu"], "distinctAttribute": "gpu.nvidia.com/uuid"}
    ]
    assert len(pod.cards) == len({*pod.cards}) == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("door", ["command", "webhook"])
def test_a_priority_of_hami_becomes_one_of_mps(played, door):
    found = played("2-hami.yaml", door)
    assert [pod.environment for pod in found.named("half")] == [
        (("CUDA_MPS_CLIENT_PRIORITY", "1"),)
    ] * 2
    [pod] = found.named("two-cards")
    assert pod.environment == ()


@pytest.mark.exhaustive
def test_claims_of_the_first_api_become_those_of_today_by_the_command(played):
    name = "7-dra-v1alpha2.yaml"
    found = played(name, "command")
    check_got(found, name)
    [parts] = found.named("two-parts")
    [spec] = parts.specs
    assert spec["devices"]["constraints"] == [
        {"requests": ["small", "large"], "matchAttribute": "gpu.nvidia.com/parentUUID"}
    ]
    assert len({*parts.cards}) == 1, "both are of the GPU that their third claim was for"
    assert [row[-1] for row in found.rows[1:]] == ["time slice Long", "-"]


def test_no_cluster_of_today_serves_the_first_api():
    options = demo.Options(
        files=(FOLDER / "7-dra-v1alpha2.yaml",),
        nodes=(demo.parse_node("hopper=none"),),
        convert=True,
    )
    with pytest.raises(errors.DriverError) as refused:
        demo.run(options, threading.Event(), terminal.Terminal())
    said = 'no matches for kind "ResourceClaimTemplate" in version "resource.k8s.io/v1alpha2"'
    assert said in str(refused.value)
    assert "dra-driver convert" in str(refused.value)


# What the README says


def test_the_readme_has_the_usual_parts():
    assert re.findall(r"^## (.*)$", README, re.MULTILINE) == [
        "Overview",
        "Requirements",
        "How to run",
        "What to look at",
        "Clean up",
    ]


def test_the_readme_has_every_manifest_in_its_overview_and_how_to_run_it():
    names = sorted(path.name for path in FOLDER.glob("*.yaml"))
    assert re.findall(r"^\| \[(\S+)\]\(\1\) \|", README, re.MULTILINE) == names
    assert list(SECTIONS) == names == sorted(GOT)


def without_variation(rows):
    """The words of a table, without what is random, and whether a pod has waited for a moment."""
    lines = [" ".join([END_OF_NAME.sub("-*", first), *more]) for first, *more in rows]
    return [line.replace(" (was Unschedulable)", "") for line in lines]


def table_of(name):
    """The rows of the README's table, whose cells go on in the next line where they have to."""
    [block] = re.findall(r"```text\nPods\n(.*?)\n(?:\n|```)", SECTIONS[name], re.DOTALL)
    head, _, *lines = block.splitlines()
    starts = [match.start() for match in re.finditer(r"(?<=   )\S|^\S", head)]
    rows = []
    for line in lines:
        cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
        if not cells[1]:
            joined = zip(rows[-1], cells, (True, *[False] * len(cells)), strict=False)
            rows[-1] = [f"{a}{'' if tight else ' '}{b}".strip() for a, b, tight in joined]
        else:
            rows.append(cells)
    return [re.split(" {3,}", head), *rows]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(GOT))
def test_the_table_in_the_readme_is_that_of_the_manifest(played, name):
    shown = without_variation(played(name, "command").rows)
    assert shown == without_variation(table_of(name))


@pytest.mark.parametrize("name", sorted(GOT))
def test_pods_that_are_expected_are_those_of_the_manifest(name):
    made = {
        body["metadata"]["name"]
        for body in manifests.load([FOLDER / name])
        if body["kind"] in ("Pod", "Deployment", "StatefulSet", "Job")
    }
    assert {re.sub(r"-(tasks-)?\d$", "", pod) for pod in GOT[name]} == made
