"""docs/migration.md: the command makes each `after` of its `before`, as they stand."""

import pathlib
import re

import pytest

from dra_driver import cli

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "migration.md"
PAIR = re.compile(
    r"^```yaml before (\S+)\n(.*?)^```\n\nbecomes\n\n```yaml after \1\n(.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
PAIRS = {name: (before, after) for name, before, after in PAIR.findall(PAGE.read_text("utf-8"))}
SYSTEMS = ["hami", "volcano", "tencent", "aliyun", "kai", "dra"]


def converted(text, tmp_path, capsys, *more):
    """What the command makes of it, and its exit status."""
    file = tmp_path / "manifest.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        cli.main(["convert", "-f", str(file), *more])
    return capsys.readouterr().out, ended.value.code


def test_the_page_has_a_before_and_an_after_for_each_system():
    assert list(PAIRS) == SYSTEMS


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_command_makes_the_after_of_the_before(system, tmp_path, capsys):
    before, after = PAIRS[system]
    assert converted(before, tmp_path, capsys) == (after, 0)


@pytest.mark.parametrize("system", SYSTEMS)
def test_nothing_is_left_to_convert_in_the_after(system, tmp_path, capsys):
    _, after = PAIRS[system]
    assert converted(after, tmp_path, capsys, "--check") == ("", 0)
