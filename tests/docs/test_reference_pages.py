"""docs/settings.md and docs/values.md are what the code and the chart are."""

import argparse
import importlib.util
import re

import chart
import pytest
import yaml

from dra_driver import cli, settings

DOCS = chart.DEPLOY.parent / "docs"


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def texts(generate):
    return generate.texts()


def rows(text, command):
    """The cells of the table of a command, by flag."""
    [part] = re.findall(
        rf"^## dra-driver {command}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    lines = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in part.splitlines()
        if line.startswith("| `--")
    ]
    return {line[0].strip("`"): line for line in lines}


def commands():
    """The parsers of all subcommands, by name."""
    [action] = [
        action
        for action in cli._parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    return action.choices


def flags(parser):
    return {option for action in parser._actions for option in action.option_strings}


@pytest.mark.parametrize("name", ["settings.md", "values.md"])
def test_the_pages_are_as_generated(texts, name):
    assert (DOCS / name).read_text("utf-8") == texts[name], "run `make docs`"


def test_every_command_that_has_settings_is_there_with_all_of_them(texts, generate):
    told = {
        command: command if command in generate.COMMANDS else "kubelet-plugin"
        for command, parser in commands().items()
        if "--config" in flags(parser)
    }
    assert set(generate.COMMANDS) <= set(told)
    for command, section in told.items():
        assert f"dra-driver {command}" in texts["settings.md"]
        shown = set(rows(texts["settings.md"], section))
        assert shown <= flags(commands()[command])
        if command == section:
            assert flags(commands()[command]) - shown == {"--config", "-h", "--help"}


def test_each_value_below_settings_is_that_of_a_setting_of_the_plugin_by_its_name(texts):
    values = yaml.safe_load((chart.PATH / "values.yaml").read_text("utf-8"))["settings"]
    cells = rows(texts["settings.md"], "kubelet-plugin").values()
    handed_on = {
        key.strip("`")
        for *_, origin, _, key in cells
        if re.split("[`,]", origin)[1:2] == [f"settings.{key.strip('`')}"]
    }
    assert handed_on == set(values)


@pytest.mark.parametrize(
    ("command", "flag", "expected"),
    [
        ("kubelet-plugin", "--mig-mode", "`settings.migMode`"),
        ("kubelet-plugin", "--mps-launcher", "`settings.mpsLauncher`, by default `pod`"),
        ("kubelet-plugin", "--gpus", "`settings.gpus`"),
        ("kubelet-plugin", "--node-name", "set by the chart"),
        (
            "kubelet-plugin",
            "--metrics-address",
            "set by the chart: `:8080` (`metrics.enabled`, `metrics.port`)",
        ),
        ("kubelet-plugin", "--state-dir", "—"),
        ("webhook", "--driver-name", "`settings.driverName`"),
        ("webhook", "--certificate-dir", "set by the chart (`webhook.certManager.enabled`)"),
    ],
)
def test_what_the_chart_does_with_a_setting_is_found_out(texts, command, flag, expected):
    assert rows(texts["settings.md"], command)[flag][4] == expected


@pytest.mark.parametrize(
    ("flag", "allowed", "default"),
    [
        ("--mig-mode", "`dynamic`, `static`, `off`", "`dynamic`"),
        ("--shares", "`off`, `memory`, or a whole number", "`off`"),
        ("--mps-memory", "bytes, at least `1Mi`", "`128Mi`"),
        ("--mps-cpu", "quantity above 0", "`10m`"),
        ("--rescan-seconds", "number above 0 to 3600", "`10`"),
        ("--node-name", "DNS name, at most 253 characters", "required"),
        ("--cdi-hook", "file", ""),
        ("--adopt-foreign-mig", "`true`, `false`", "`false`"),
    ],
)
def test_what_a_setting_may_be_follows_from_its_type(texts, flag, allowed, default):
    assert rows(texts["settings.md"], "kubelet-plugin")[flag][2:4] == [allowed, default]


def test_the_variables_of_a_setting_are_those_that_are_read(texts):
    cells = rows(texts["settings.md"], "kubelet-plugin")["--node-name"]
    first, second = re.findall(r"`(\w+)`", cells[5])
    for variable in (first, second):
        config = settings.resolve(
            settings.KubeletPlugin, environment={variable: "node-1"}, flags={}
        )
        assert config.node_name == "node-1"


def test_every_value_that_is_no_setting_is_there_with_its_comment(texts):
    told = re.findall(r"^\| `([\w.]+)` \| (.*?) \| (.*?) \|$", texts["values.md"], re.MULTILINE)
    assert all(comment for _, _, comment in told)
    names = {name for name, _, _ in told}

    def look(values, path):
        for key, value in values.items():
            name = f"{path}{key}"
            if name == "settings" or name in names:
                continue
            assert isinstance(value, dict), name
            look(value, f"{name}.")

    look(yaml.safe_load((chart.PATH / "values.yaml").read_text("utf-8")), "")
    assert ("metrics.port", "`8080`") in {line[:2] for line in told}


def test_a_chart_that_cannot_be_rendered_is_an_error_and_no_empty_column(generate, monkeypatch):
    monkeypatch.setattr(generate, "CHART", DOCS)
    generate.origins.cache_clear()
    with pytest.raises((OSError, generate.helm_python.HelmError)):
        generate.settings_page()
    generate.origins.cache_clear()
