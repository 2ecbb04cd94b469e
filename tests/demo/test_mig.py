"""MIG on demand: every manifest on the cards that its README names, and what the README says."""

import collections
import json
import pathlib
import re
import shlex
import threading

import demo_readmes
import pytest
import structlog
import waited_for

from dra_driver import cli, telemetry
from dra_driver.adapters.console import terminal
from dra_driver.sim.cluster import manifests
from dra_driver.sim.demo import demo

pytestmark = pytest.mark.sampled(11)

FOLDER = pathlib.Path(__file__).parents[2] / "demo" / "mig"
MANIFESTS = sorted(FOLDER.glob("*.yaml"))
README = (FOLDER / "README.md").read_text(encoding="utf-8")
TOLD = demo_readmes.told(README)
H100 = "NVIDIA H100 80GB HBM3"
WAVES = {f"wave-1-{number}": ["1g.10gb"] for number in range(1, 8)}


class Played:
    """What the command printed: pods by name."""

    def __init__(self, text):
        self.pods = {pod["name"]: pod for pod in json.loads(text)["pods"]}

    def devices(self, name):
        """The devices of a pod, of all its claims."""
        return [device for claim in self.pods[name]["claims"] for device in claim["devices"]]

    def profiles(self):
        """The profiles of each pod; that of a whole GPU is None."""
        return {name: [each["profile"] for each in self.devices(name)] for name in self.pods}

    def cards(self, name):
        """The names of the cards that a pod has something of."""
        return {re.match(r"gpu-\d+", device["device"])[0] for device in self.devices(name)}

    def outputs(self, name):
        """The output of each container by its name."""
        return {each["name"]: each["output"] for each in self.pods[name]["containers"]}

    def rows(self):
        """The table that people read."""
        return [self._row(pod) for pod in self.pods.values()]

    def _row(self, pod):
        counts = collections.Counter(
            f"{device['profile']} of {device['model']}" if device["profile"] else device["model"]
            for device in self.devices(pod["name"])
        )
        kinds = [kind if count == 1 else f"{count}x {kind}" for kind, count in counts.items()]
        return (
            f"{pod['namespace']}/{pod['name']}",
            demo_readmes.became(pod),
            pod["node"] or "-",
            ", ".join(kinds) or "-",
        )


@pytest.fixture(scope="module")
def play():
    """Runs a manifest, once, on the node that the README has for it."""
    found = {}

    def play(capsys, name):
        if name not in found:
            telemetry.configure(level="error", log_format="console")
            node, _ = TOLD[name]
            asked = demo.Options(
                files=(FOLDER / name,), nodes=(demo.parse_node(node),), output="json"
            )
            with pytest.MonkeyPatch.context() as patch:
                waited_for.end_once_waited_for(patch)
                status = demo.run(asked, threading.Event(), terminal.Terminal())
            structlog.reset_defaults()
            found[name] = status, Played(capsys.readouterr().out)
        return found[name]

    return play


@pytest.fixture
def played(play, capsys):
    """What a manifest came to."""
    return lambda name: play(capsys, name)[1]


@pytest.mark.parametrize("name", [path.name for path in MANIFESTS])
def test_a_manifest_comes_out_as_its_readme_says(play, capsys, name):
    status, played = play(capsys, name)
    ends = {
        f"{pod['namespace']}/{pod['name']}": demo_readmes.became(pod)
        for pod in played.pods.values()
    }
    assert ends == TOLD[name][1]
    assert status == 0


def test_three_sizes_share_a_card_without_overlap(played):
    found = played("1-three-sizes.yaml")
    assert found.profiles() == {
        "pod-1g": ["1g.10gb"], "pod-2g": ["2g.20gb"], "pod-3g": ["3g.40gb"],
    }  # fmt: skip
    assert {card for name in found.pods for card in found.cards(name)} == {"gpu-0"}
    starts = {name: int(found.devices(name)[0]["device"].split("-")[-1]) for name in found.pods}
    sizes = {"pod-1g": 1, "pod-2g": 2, "pod-3g": 4}
    taken = [start + offset for name, start in starts.items() for offset in range(sizes[name])]
    assert len(set(taken)) == len(taken) == 7


def test_a_container_sees_its_partition_alone(played):
    found = played("1-three-sizes.yaml")
    uuids = set()
    for name, [profile] in found.profiles().items():
        gpu, partition = found.outputs(name)["cuda"]
        assert gpu.startswith(f"GPU 0: {H100} (UUID: GPU-")
        uuid = re.fullmatch(rf"  MIG {profile}     Device  0: \(UUID: (MIG-\S+)\)", partition)
        uuids.add(uuid[1])
    assert len(uuids) == 3


def test_by_memory_the_smallest_partition_with_enough_is_given(played):
    # A 1g.10gb has 9984Mi, which is less than 10Gi.
    assert played("2-by-memory.yaml").profiles() == {
        "pod-10gi": ["1g.20gb"], "pod-30gi": ["3g.40gb"],
    }  # fmt: skip


def test_partitions_and_whole_gpus_come_from_opposite_ends(played):
    found = played("3-with-whole-gpu.yaml")
    assert found.profiles() == {
        "small": ["1g.10gb"], "large": ["3g.40gb"], "whole": [None], "whole-too-many": [],
    }  # fmt: skip
    assert found.cards("small") == found.cards("large") == {"gpu-0"}
    assert found.cards("whole") == {"gpu-1"}
    assert "1 in use, 1 no room beside what is in use" in found.pods["whole-too-many"]["reason"]


def test_one_claim_has_partitions_of_one_card_or_of_different_ones(played):
    found = played("4-one-claim-many.yaml")
    assert found.profiles() == {
        "two-alike": ["1g.10gb"] * 2,
        "same-card": ["1g.10gb", "2g.20gb"],
        "different-cards": ["1g.10gb"] * 2,
    }
    assert all(len(pod["claims"]) == 1 for pod in found.pods.values())
    assert len(found.cards("same-card")) == 1
    assert found.cards("different-cards") == {"gpu-0", "gpu-1"}


def test_each_container_sees_the_partition_of_its_request(played):
    found = played("4-one-claim-many.yaml")

    def partitions(pod, container):
        return [line.split()[1] for line in found.outputs(pod)[container] if "  MIG " in line]

    assert partitions("two-alike", "cuda") == ["1g.10gb"] * 2
    assert partitions("same-card", "first") == ["1g.10gb"]
    assert partitions("same-card", "second") == ["2g.20gb"]
    first, second = found.outputs("different-cards").values()
    assert first[0] != second[0]


def test_waves_of_pods_take_the_same_memory_slices_in_other_cuts(played):
    found = played("5-churn.yaml")
    assert found.profiles() == WAVES | {
        "wave-2-4g": ["4g.40gb"], "wave-2-3g": ["3g.40gb"], "wave-3-7g": ["7g.80gb"],
    }  # fmt: skip
    assert {card for name in found.pods for card in found.cards(name)} == {"gpu-0"}


def test_a_pod_that_needs_the_whole_card_gets_it_when_the_small_ones_have_ended(played):
    assert played("6-waiting.yaml").profiles() == {
        "small-1": ["1g.10gb"], "small-2": ["1g.10gb"], "big": ["7g.80gb"],
    }  # fmt: skip


# What the README says


def readme_blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands():
    lines = [line for block in readme_blocks("console") for line in block.splitlines()]
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


def test_the_readme_lists_every_manifest_with_its_pods():
    assert {name: set(ends) for name, (_, ends) in TOLD.items()} == {
        path.name: {
            f"{body['metadata']['namespace']}/{body['metadata']['name']}"
            for body in manifests.load([path])
            if body["kind"] == "Pod"
        }
        for path in MANIFESTS
    }


def test_the_tables_in_the_readme_are_those_of_the_manifests(played):
    [text] = [block for block in readme_blocks("text") if block.startswith("Pods\n")]
    tables = re.findall(r"^Pods\nPOD .*\n-+\n((?:\S.*\n)+)", text, re.MULTILINE)
    assert len(tables) == len(MANIFESTS)
    for path, table in zip(MANIFESTS, tables, strict=True):
        shown = [tuple(re.split(r" {3,}", line)) for line in table.splitlines()]
        assert shown == played(path.name).rows()


def test_the_commands_of_the_readme_are_understood_and_their_files_are_there():
    parser = cli._parser()
    words = [word for command in commands() for word in command]
    paths = [word for word in words if word.startswith("demo/mig")]
    assert len(paths) >= 8
    assert [path for path in paths if not (FOLDER.parents[1] / path).exists()] == []
    plain = [command[1:] if command[0] == "sudo" else command for command in commands()]
    ours = [command[1:] for command in plain if command[0].endswith("dra-driver")]
    assert {parser.parse_args(command).run for command in ours} == {cli._demo, cli._status}
    nodes = {(demo.parse_node(node), path) for path, (node, _) in TOLD.items()}
    for command in [parser.parse_args(each) for each in ours if each[0] == "demo"]:
        [node], [path] = command.node, command.file
        other_card = (demo.parse_node("big=h200-141gb:1"), path.name)
        assert (demo.parse_node(node), path.name) in nodes | {other_card}
