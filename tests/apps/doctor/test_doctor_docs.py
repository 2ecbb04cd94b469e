"""docs/doctor.md: the example is what the command prints, and its commands are understood."""

import dataclasses
import pathlib
import re
import shlex

import doctor_scene
import pytest

from dra_driver import cli
from dra_driver.adapters.console import terminal
from dra_driver.apps.doctor import doctor_view
from dra_driver.logic.doctor import diagnosis

PAGE = (pathlib.Path(__file__).parents[3] / "docs" / "doctor.md").read_text(encoding="utf-8")
BOOT, UID = "0b5c3a0e-6a56-4f0e-9d1c-3f6a3b1f2c11", "73fc0d57-7c00-41d4-8d34-aea5ff0f8640"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def example(own_machine, cluster):
    """What is found in a pod without hostPID, with the driver of the GPU Operator; as on a node."""
    node = doctor_scene.Node(own_machine, cluster.kubeconfig)
    own_machine.boot(BOOT)
    own_machine.plugin.mkdir(parents=True)
    (node.proc / "2" / "comm").write_text("sh\n")
    node.install("run/nvidia/driver")
    node.make_nodes()
    config = node.real()
    places = {
        str(own_machine.cdi): "/var/run/cdi",
        str(own_machine.kubelet): "/var/lib/kubelet",
        str(own_machine.boot_id): str(type(config).model_fields["boot_id_file"].default),
        str(node.proc): "/proc",
        str(node.host): "/driver-root",
        str(cluster.kubeconfig): "service account of the pod",
        cluster.node_uid(): UID,
        "-sim": "",
    }

    def on_a_node(text):
        for here, there in places.items():
            text = text.replace(here, there)
        return text

    return [
        dataclasses.replace(
            finding,
            looked_at=on_a_node(finding.looked_at),
            cause=on_a_node(finding.cause),
            remedy=on_a_node(finding.remedy),
        )
        for finding in doctor_scene.examine(config, node.unserved(config))
    ]


def test_the_example_is_what_the_command_prints(example, capsys):
    doctor_view.show(example, terminal.Terminal(), node="node-1", driver="gpu.nvidia.com")
    assert blocks("text") == [capsys.readouterr().out]


def test_every_finding_that_can_be_is_in_the_table(example):
    told = re.findall(r"^\| `?([^|`]+?)`? \|", PAGE, re.MULTILINE)
    assert {finding.check for finding in example} <= set(told)
    assert not diagnosis.works(example)


def test_the_commands_are_understood():
    block, _ = blocks("console")
    commands = [shlex.split(line[2:], comments=True) for line in block.splitlines()]
    assert len(commands) == 3
    for command in commands:
        name = len(command) - 1 - command[::-1].index("dra-driver")
        ours = command[name + 1 :]
        assert cli._parser().parse_args(ours).run == cli._doctor
