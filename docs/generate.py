"""Write docs/settings.md and docs/values.md beside this file: `make docs`.

What the chart makes of its values is not read from its templates: each value is changed, and what
that does to the flags and variables of the containers is looked at.
"""  # noqa: INP001

import argparse
import contextlib
import copy
import dataclasses
import functools
import json
import pathlib
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import helm_python
import yaml

from dra_driver import settings
from dra_driver.settings import controller as controller_settings
from dra_driver.settings import types as setting_types
from dra_driver.settings import webhook as webhook_settings

HERE = pathlib.Path(__file__).parent
CHART = HERE.parent / "deploy" / "helm" / "dra-driver"
COMMANDS: Mapping[str, tuple[type[settings.Settings], str]] = {
    "kubelet-plugin": (
        settings.KubeletPlugin,
        "One on each node; for `dra-driver doctor`, `dra-driver probe`, `dra-driver fault`, too.",
    ),
    "webhook": (webhook_settings.Webhook, "See [webhook.md](webhook.md)."),
    "controller": (controller_settings.Controller, "See [controller.md](controller.md)."),
}
"""Settings of each command, and what is said of it."""
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The same, many times faster, where PyYAML comes with libyaml."""

_HEAD = """<!-- Written by `make docs`. -->
# Settings

A setting is a flag, an environment variable and a key of a YAML file (`--config FILE`, or
`DRA_DRIVER_CONFIG`) at once; of several the flag wins, then the variable, then the file. A variable
that is empty counts as one that is not set. An unknown flag or key is an error, and so is an
unknown variable that begins with `DRA_DRIVER_`. `--adopt-foreign-mig` and `--device-metadata`
alone are `true`.
YAML reads a bare `off` as false: in a file write `"off"`. Files are understood as kubectl
understands manifests, and have at most 1 MiB.

With the chart a setting is a value, or is set by the chart, since it follows from how the pod is
made; the values that it follows from are in brackets. "—": it is not set, and the default stands.
The other values of the chart are in [values.md](values.md). Commands that are not here have flags
alone: `dra-driver COMMAND --help`.
"""
_VALUES_HEAD = """<!-- Written by `make docs`. -->
# Values of the chart

Set with `--set NAME=VALUE`, or in a file with `-f`. A schema refuses unknown names and what cannot
work. Those below `settings` are settings of the kubelet plugin, some of the other commands too:
[settings.md](settings.md).
"""
_COLUMNS = (
    "flag",
    "meaning",
    "allowed",
    "default",
    "value of the chart",
    "variable",
    "key in the file",
)
_VALUE_COLUMNS = ("value", "default", "meaning")
_LONG = 60
"""Longest default that is shown in a table."""

Path = tuple[str, ...]
Flags = dict[str, str]
"""Settings of a container by name in Python, as text; "" for one that the pod tells itself."""


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """What the chart does with a setting.

    `same` are values that are handed on as they are, `others` those that it follows from; `shown`
    is what it is with the default values, None if it is not set.
    """

    same: tuple[str, ...]
    others: tuple[str, ...]
    shown: str | None


def texts() -> dict[str, str]:
    """What each file must hold, by its name."""
    return {"settings.md": settings_page(), "values.md": values_page()}


# Settings


def settings_page() -> str:
    """All settings of all commands."""
    parts = [_HEAD]
    for command, (model, note) in COMMANDS.items():
        found = origins().get(command, {})
        rows = [_row(action, model, found) for action in _actions(model)]
        parts.append(f"## dra-driver {command}\n\n{note}\n\n{_table(_COLUMNS, rows)}")
    return "\n".join(parts)


@functools.cache
def _actions(model: type[settings.Settings]) -> list[argparse.Action]:
    """The flags as the command line has them."""
    parser = argparse.ArgumentParser()
    settings.add_flags(parser, model)
    return [action for action in parser._actions if action.dest in model.model_fields]  # noqa: SLF001 - no public name


def _row(
    action: argparse.Action, model: type[settings.Settings], found: Mapping[str, Origin]
) -> list[str]:
    field = model.model_fields[action.dest]
    [variables] = re.findall(r"\[env: (.*)\]", str(action.help))
    return [
        f"`{action.option_strings[0]}`",
        str(field.description),
        _allowed(action, model),
        "required" if field.is_required() else _code(_text(field.default)),
        _chart_cell(found.get(action.dest), _text(field.default)),
        ", ".join(f"`{name}`" for name in variables.split(", or else ")),
        f"`{field.alias}`",
    ]


def _chart_cell(origin: Origin | None, default: str) -> str:
    if origin is None:
        return "—"
    if origin.same:
        names = ", ".join(f"`{name}`" for name in origin.same)
        return (
            names
            if origin.shown in (None, default)
            else f"{names}, by default {_code(origin.shown)}"
        )
    shown = f": {_code(origin.shown)}" if origin.shown else ""
    others = ", ".join(f"`{name}`" for name in origin.others)
    return f"set by the chart{shown}" + (f" ({others})" if others else "")


def _allowed(action: argparse.Action, model: type[settings.Settings]) -> str:
    """Choices, range or form, from the schema and the types of the field."""
    field = model.model_fields[action.dest]
    for kind, text in (
        (setting_types.SharesText, "`off`, `memory`, or a whole number"),
        (setting_types.SizeText, "bytes, at least `1Mi`"),
        (setting_types.AmountText, "quantity above 0"),
    ):
        if all(part in field.metadata for part in typing.get_args(kind)[1:]):
            return text
    schema = model.model_json_schema()["properties"][field.alias]
    schema |= next(iter(schema.get("anyOf", ())), {})
    metavar = str(action.metavar)
    if "|" in metavar:
        return ", ".join(f"`{choice}`" for choice in metavar.split("|"))
    if schema.get("type") in ("number", "integer"):
        whole = "whole number" if schema["type"] == "integer" else "number"
        least = f"from {schema['minimum']}" if "minimum" in schema else "above 0"
        return f"{whole} {least} to {schema['maximum']}"
    if schema.get("type") == "array":
        return "JSON, a list in the file" if metavar == "JSON" else "separated by commas"
    if metavar in ("DIR", "FILE"):
        return "directory" if metavar == "DIR" else "file"
    return _form(schema)


def _form(schema: Mapping[str, Any]) -> str:
    pattern = schema.get("pattern", "")
    if r":\d" in pattern:
        return "`HOST:PORT`"
    limit = f", at most {schema['maxLength']} characters" if "maxLength" in schema else ""
    return ("DNS name" if r"\." in pattern else "text") + limit


# What the chart makes of values


@functools.cache
def origins() -> Mapping[str, Mapping[str, Origin]]:
    """What the chart does with the settings of each command that it runs, by name in Python."""
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    for part in values.values():
        if isinstance(part, dict) and "enabled" in part:
            part["enabled"] = True
    with helm_python.Chart.load(CHART) as chart:
        before = _flags(chart, values)
        changes = [
            (".".join(path), *changed)
            for path, value in _leaves(values)
            if (changed := _changed(chart, values, path, _others(value, schema, path)))
        ]
    return {command: _origins(command, before[command], changes) for command in before}


def _origins(
    command: str, before: Flags, changes: Sequence[tuple[str, Any, Mapping[str, Flags]]]
) -> dict[str, Origin]:
    same: dict[str, list[str]] = {name: [] for name in before}
    others: dict[str, list[str]] = {name: [] for name in before}
    for name, value, after in changes:
        flags = after.get(command, before)
        for setting in {*before, *flags}:
            new = flags.get(setting)
            if new != before.get(setting):
                into = same if new == _text(value) else others
                into.setdefault(setting, []).append(name)
    return {
        setting: Origin(
            # The value of that name before one that it follows from.
            tuple(
                sorted(set(same.get(setting, ())), key=lambda n: (not n.startswith("settings."), n))
            ),
            tuple(dict.fromkeys(others.get(setting, ()))),
            before.get(setting),
        )
        for setting in {**same, **others}
    }


def _leaves(values: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from _leaves(value, (*path, key))
    else:
        yield path, values


def _others(value: Any, schema: Any, path: Path) -> list[Any]:
    """Other values of the kind, not all of which the chart need take."""
    for key in path:
        schema = schema.get("properties", {}).get(key, {})
    choices = [choice for choice in schema.get("enum", ()) if choice != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1]
    if isinstance(value, str):
        return [*choices, f"{value}x", f"/{value}x", "2Mi", "memory", "unix:/x"]
    if isinstance(value, list):
        return [
            ["/x"],
            ["recovery"],
            ["recovery:None"],
            [{"name": "x"}],
            [{"selector": "true", "migMode": "static"}],
        ]
    return [{"x": "y"}]


def _with(values: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(dict(values))
    part = changed
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return changed


def _changed(
    chart: Any, values: Mapping[str, Any], path: Path, others: Sequence[Any]
) -> tuple[Any, dict[str, Flags]] | None:
    """The first other value that the chart takes, and what each command is given then."""
    for other in others:
        with contextlib.suppress(helm_python.HelmError, yaml.YAMLError):
            return other, _flags(chart, _with(values, path, other))
    return None


def _flags(chart: Any, values: Mapping[str, Any]) -> dict[str, Flags]:
    """What each command is given.

    Raises:
        helm_python.HelmError: the chart does not take the values.
        yaml.YAMLError: what it makes of them is no YAML.
    """
    rendered = chart.render(dict(values), name="dra-driver", namespace="dra-driver")
    bodies: list[Any] = [
        body
        for path, text in rendered.items()
        if path.endswith(".yaml") and "containers:" in text
        for body in yaml.load_all(text, Loader=LOADER)
    ]
    found: dict[str, Flags] = {}
    for body in bodies:
        pod = (((body or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
        for container in pod.get("containers", ()):
            program, command, *_ = [*container.get("command", ()), "", ""]
            if program == "dra-driver" and command in COMMANDS:
                found[command] = _of_container(container, COMMANDS[command][0])
    return found


def _of_container(container: Mapping[str, Any], model: type[settings.Settings]) -> Flags:
    flags = {}
    variables = {entry.get("name"): entry for entry in container.get("env", ())}
    for action in _actions(model):
        for name in re.findall(r"\b[A-Z_]{5,}\b", str(action.help).rpartition("[env: ")[2]):
            if name in variables:
                flags[action.dest] = str(variables[name].get("value", ""))
        for argument in (*container["command"], *container.get("args", ())):
            flag, _, value = argument.partition("=")
            if flag in action.option_strings:
                flags[action.dest] = "" if value.startswith("$(") else value
    return flags


# Values


def values_page() -> str:
    """All values of the chart but those that are settings of the plugin under the same name."""
    root: Any = yaml.compose((CHART / "values.yaml").read_text("utf-8"))
    lines = (CHART / "values.yaml").read_text("utf-8").splitlines()
    single, parts = [], []
    for key, node in root.value:
        if key.value == "settings":
            continue
        rows = _value_rows(key, node, lines, (key.value,))
        if rows[0][0] == f"`{key.value}`":
            single += rows
        else:
            head = f"## {key.value}\n\n{_comment(key, lines)}\n"
            parts.append(f"{head}\n{_table(('value', 'default', ''), rows)}")
    general = f"## General\n\n{_table(('value', 'default', ''), single)}"
    return "\n".join([_VALUES_HEAD, general, *parts])


def _value_rows(key: yaml.Node, node: yaml.Node, lines: Sequence[str], path: Path) -> list[Any]:
    inside = node.value if isinstance(node, yaml.MappingNode) else []
    # What is below a value without a comment is Kubernetes' own.
    if not any(_comment(below, lines) for below, _ in inside):
        value = yaml.safe_load(yaml.serialize(node))
        text = _text(value)
        shown = (
            "see [values.yaml](../deploy/helm/dra-driver/values.yaml)"
            if len(text) > _LONG
            else _code(text)
        )
        return [[f"`{'.'.join(path)}`", shown, _comment(key, lines)]]
    rows = [row for k, n in inside for row in _value_rows(k, n, lines, (*path, k.value))]
    if len(path) > 1:
        rows.insert(0, [f"`{'.'.join(path)}`", "", _comment(key, lines)])
    return rows


def _comment(key: yaml.Node, lines: Sequence[str]) -> str:
    """The comment above a key, up to an empty line."""
    found: list[str] = []
    for line in reversed(lines[: key.start_mark.line]):
        if not line.strip().startswith("#"):
            break
        found.insert(0, line.strip().removeprefix("#").strip())
    return " ".join(found)


# Text


def _text(value: Any) -> str:
    """A value as a flag has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if value in (None, (), [], {}):
        return ""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    if isinstance(value, list | dict):
        return json.dumps(value, separators=(",", ":"), sort_keys=True)
    return str(getattr(value, "value", value))


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


if __name__ == "__main__":
    for file_name, content in texts().items():
        (HERE / file_name).write_text(content, encoding="utf-8")
