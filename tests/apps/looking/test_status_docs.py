"""docs/status.md: the example is what the command prints, and its commands are understood."""

import pathlib
import re
import shlex

import pytest
import status_scene
import yaml

from dra_driver import cli

PAGE = (pathlib.Path(__file__).parents[3] / "docs" / "status.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_example_is_what_the_command_prints(tmp_path, capsys):
    items = [*status_scene.hopper(), *status_scene.mixed()]
    path = tmp_path / "scene.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))
    with pytest.raises(SystemExit) as ended:
        cli.main(["status", "--from", str(path)])
    assert ended.value.code == 0
    assert blocks("text") == [capsys.readouterr().out]


def test_the_commands_are_understood():
    [block] = blocks("console")
    commands = [shlex.split(line[2:], comments=True) for line in block.splitlines()]
    assert len(commands) == 4
    for command in commands:
        assert command[0] == "dra-driver"
        assert cli._parser().parse_args(command[1:]).run == cli._status
