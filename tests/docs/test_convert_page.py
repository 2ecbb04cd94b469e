"""docs/convert.md: what its commands print is what they print."""

import argparse
import pathlib
import re

import pytest

from dra_driver import cli, convert_arguments

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "convert.md").read_text("utf-8")
BEFORE = re.search(r"^```yaml before\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[1]
SHOWN = "".join(re.findall(r"^```console\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[:3])
COMMANDS = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", SHOWN, re.MULTILINE)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """With the file of the page."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inference.yaml").write_text(BEFORE, encoding="utf-8")
    return tmp_path


def test_the_page_shows_what_the_commands_print(folder, capsys):
    file = folder / "inference.yaml"
    seen = []
    for command, wanted in COMMANDS:
        name, *arguments = command.split()
        if name == "sed":
            old, new = re.search("'s/(.*)/(.*)/'", command).groups()
            file.write_text(file.read_text("utf-8").replace(old, new), encoding="utf-8")
            continue
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        printed = capsys.readouterr()
        # The empty line behind a table is the end of the block.
        assert (printed.out + printed.err).rstrip("\n") == wanted.rstrip("\n"), command
        seen.append(ended.value.code)
    assert seen == [0, 0, 2, 1]


def test_the_page_has_all_options():
    parser = convert_arguments.convert(argparse.ArgumentParser().add_subparsers())
    known = set(re.findall(r"--[a-z][a-z-]+", parser.format_help())) - {"--help", "--file"}
    assert known
    assert known <= set(re.findall(r"--[a-z][a-z-]+", PAGE))
