"""GPUs for virtual machines: every manifest on the cards that its README names."""

import json
import pathlib
import re
import threading

import demo_readmes
import pytest
import structlog
import waited_for

from dra_driver import telemetry
from dra_driver.adapters.console import terminal
from dra_driver.sim.demo import demo, plugin_settings

pytestmark = pytest.mark.sampled(4)

FOLDER = pathlib.Path(__file__).parents[2] / "demo" / "vfio"
MANIFESTS = sorted(path.name for path in FOLDER.glob("*.yaml"))
README = (FOLDER / "README.md").read_text(encoding="utf-8")
TOLD = demo_readmes.told(README)
COMMAND = re.compile(
    r"^\$ .*demo -f demo/vfio/(\S+) --node (\S+) --plugin-setting (\S+)$", re.MULTILINE
)


class Played:
    """What the command printed: its exit status, and pods by name."""

    def __init__(self, status, text):
        self.status = status
        self.pods = {pod["name"]: pod for pod in json.loads(text)["pods"]}

    def devices(self, name):
        return [one["device"] for claim in self.pods[name]["claims"] for one in claim["devices"]]

    def outputs(self, name):
        """What each container of the pod saw."""
        return {each["name"]: each["output"] for each in self.pods[name]["containers"]}

    def ends(self):
        return {
            f"{pod['namespace']}/{pod['name']}": demo_readmes.became(pod)
            for pod in self.pods.values()
        }


@pytest.fixture(scope="module")
def play():
    """Runs a manifest, once, as the README has it."""
    found = {}

    def play(capsys, name):
        if name not in found:
            telemetry.configure(level="error", log_format="console")
            node, _ = TOLD[name]
            asked = demo.Options(
                files=(FOLDER / name,),
                nodes=(demo.parse_node(node),),
                output="json",
                plugin_flags=plugin_settings.flags(["vfio=on"]),
            )
            with pytest.MonkeyPatch.context() as patch:
                waited_for.end_once_waited_for(patch)
                status = demo.run(asked, threading.Event(), terminal.Terminal())
            structlog.reset_defaults()
            found[name] = Played(status, capsys.readouterr().out)
        return found[name]

    return play


def test_the_readme_has_every_manifest_and_its_commands_are_those_of_its_rows():
    assert sorted(TOLD) == MANIFESTS
    found = {name: (node, setting) for name, node, setting in COMMAND.findall(README)}
    assert found == {name: (node, "vfio=on") for name, (node, _) in TOLD.items()}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_comes_out_as_its_readme_says(play, capsys, name):
    played = play(capsys, name)
    assert played.ends() == TOLD[name][1]
    assert played.status == 0


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_tables_of_the_readme_are_those_of_the_run(play, capsys, name):
    for pod in play(capsys, name).pods.values():
        [line] = re.findall(rf"^{pod['namespace']}/{pod['name']} +(.*)$", README, re.MULTILINE)[:1]
        assert line.startswith(demo_readmes.became(pod))


def test_a_virtual_machine_sees_the_nodes_of_its_group_and_nothing_else(play, capsys):
    played = play(capsys, "1-virtual-machine.yaml")
    assert played.devices("vm") == ["gpu-vfio-0"]
    group, api = played.outputs("vm")["compute"]
    assert re.fullmatch(r"/dev/vfio/\d+", group)
    assert api == "/dev/vfio/vfio"
    assert f"    {group}\n    {api}\n" in README


def test_the_card_of_a_virtual_machine_that_has_ended_is_a_gpu_again(play, capsys):
    played = play(capsys, "2-comes-back.yaml")
    assert (played.devices("vm"), played.devices("train")) == (["gpu-vfio-0"], ["gpu-0"])
    [line] = played.outputs("train")["cuda"]
    assert line.startswith("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-")


def test_three_cards_of_a_node_are_used_in_three_ways_at_the_same_time(play, capsys):
    played = play(capsys, "3-side-by-side.yaml")
    [partition], [shared], [passed] = map(played.devices, ("small", "sharing", "vm"))
    assert partition.startswith("gpu-0-mig-1g10gb")
    assert {shared, passed} == {"gpu-2", "gpu-vfio-1"}
    assert played.outputs("vm")["compute"] == ["/dev/iommu", "/dev/vfio/devices/vfio0"]
