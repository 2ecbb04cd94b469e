"""The settings of a command: one frozen object from defaults < file < environment < flags.

A field is one setting: `--node-name` on the command line, `DRA_DRIVER_NODE_NAME` in the
environment, `nodeName` in the file. Its description is its help text. An empty variable counts as
one that is not set.
"""

import argparse
import enum
import pathlib
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

import pydantic
from pydantic.alias_generators import to_camel

from dra_driver import errors
from dra_driver.settings import base, types

ENVIRONMENT_PREFIX = "DRA_DRIVER_"
CONFIG_VARIABLE = f"{ENVIRONMENT_PREFIX}CONFIG"
_SERVICE_VARIABLE = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_\d+_.*)")
"""What the kubelet sets for a Service that happens to be called `dra-driver-...`."""

_COMMON_VARIABLES = {
    "node_name": "NODE_NAME",
    "pod_namespace": "POD_NAMESPACE",
    "kubeconfig": "KUBECONFIG",
}
"""Variables of common use that serve where ours is not set."""


T = TypeVar("T", bound=base.Settings)
Given = tuple[str, Any, str]
"""A setting by its name in Python, its value, and where that comes from, as in messages."""


def add_flags(parser: argparse.ArgumentParser, model: type[base.Settings]) -> None:
    """Give the parser `--config` and a flag for each setting."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=f"YAML file with settings, in camelCase. [env: {CONFIG_VARIABLE}]",
    )
    for name, field in model.model_fields.items():
        # `--switch` alone is `--switch true`.
        shape: dict[str, Any] = {"nargs": "?", "const": "true"} if field.annotation is bool else {}
        plain = field.is_required() or field.default in (None, (), "")
        shown = "" if plain else f" Default: {field.default}."
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            metavar=_metavar(name, field.annotation),
            dest=name,
            default=None,
            **shape,
            help=f"{field.description}{shown} [env: {_variables(name)}]".replace("%", "%%"),
        )


def resolve(
    model: type[T],
    *,
    file: Any = None,
    environment: Mapping[str, str],
    flags: Mapping[str, str | None],
    translated: Iterable[Given] = (),
) -> T:
    """The settings of an app.

    Args:
        model: what settings there are.
        file: the decoded content of the settings file, if there is one.
        environment: variables.
        flags: the flags that were given, by the names of the settings.
        translated: what another program's variables mean; ours go before them.

    Raises:
        errors.Fatal: a key is unknown, or a value is not allowed; the text names its source.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, value, source in (
        *_from_file(model, file),
        *translated,
        *_from_environment(model, environment),
        *((n, v, f"flag --{n.replace('_', '-')}") for n, v in flags.items() if v is not None),
    ):
        values[name], sources[name] = value, source
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        raise errors.Fatal("; ".join(_explain(e, sources) for e in error.errors())) from error


def _from_file(model: type[base.Settings], file: Any) -> Iterator[Given]:
    if file is None:
        return
    if not isinstance(file, dict):
        raise errors.Fatal(f"settings file: a mapping is needed, not {type(file).__name__}")
    names = {to_camel(name): name for name in model.model_fields}
    for key, value in file.items():
        if key not in names:
            raise errors.Fatal(
                f"settings file: {key!r} is unknown; known are {', '.join(sorted(names))}"
            )
        yield names[key], value, f"{key} in the settings file"


def _from_environment(
    model: type[base.Settings], environment: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    for name, variable in _COMMON_VARIABLES.items():
        if name in model.model_fields and environment.get(variable):
            yield name, environment[variable], f"environment variable {variable}"
    known = {_variable(name): name for name in model.model_fields}
    for variable, value in sorted(environment.items()):
        if variable in known and not value:
            continue
        if variable in known:
            yield known[variable], value, f"environment variable {variable}"
        elif (
            variable.startswith(ENVIRONMENT_PREFIX)
            and variable != CONFIG_VARIABLE
            and not _SERVICE_VARIABLE.fullmatch(variable)
        ):
            raise errors.Fatal(
                f"environment variable {variable} is unknown; "
                f"known are {', '.join(sorted({*known, CONFIG_VARIABLE}))}"
            )


def _explain(error: Any, sources: Mapping[str, str]) -> str:
    outer, *inside = error["loc"]
    name = str(outer).replace("-", "_")
    name = next((field for field in sources if name in (field, to_camel(field))), name)
    if error["type"] == "missing" and not inside:
        snake = re.sub(r"([A-Z])", lambda match: "_" + match[1].lower(), name)
        return f"{snake} is not set: give --{snake.replace('_', '-')} or {_variable(snake)}"
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in inside)
    place = f", at {path}" if path else ""
    source = sources.get(name, f"default of --{name.replace('_', '-')}")
    return f"{source}{place}: {error['input']!r}: {types.problem(error)}"


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper()


def _variables(name: str) -> str:
    common = _COMMON_VARIABLES.get(name)
    return f"{_variable(name)}, or else {common}" if common else _variable(name)


def _metavar(name: str, annotation: Any) -> str:
    for kind in (annotation, *typing.get_args(annotation)):
        if typing.get_origin(kind) is Literal:
            return "|".join(typing.get_args(kind))
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return "|".join(member.value for member in kind)
        if kind is bool:
            return "true|false"
        if kind is pathlib.Path:
            return "FILE" if name.endswith(("file", "config", "hook")) else "DIR"
        if kind is float:
            return "SECONDS"
    return {
        "metrics_address": "HOST:PORT",
        "health_address": "HOST:PORT",
        "simulate_gpus": "SPEC",
        "gpus": "JSON",
        "shares": "off|memory|N",
    }.get(name, name.rpartition("_")[2].upper())
