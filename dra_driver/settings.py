"""Settings of each app: one frozen object from defaults < file < environment < flags.

A field is one setting: `--node-name` on the command line, `DRA_DRIVER_NODE_NAME` in the
environment, `nodeName` in the file. Its description is its help text. An empty variable counts as
one that is not set.
"""

import argparse
import enum
import json
import pathlib
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from pydantic import Field
from pydantic.alias_generators import to_camel

from dra_driver import errors, setting_types
from dra_driver.model import mig, shares

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

_DNS_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_ObjectName = Annotated[str, Field(pattern=_DNS_NAME, max_length=253)]
_ObjectNameOrNone = Annotated[str, Field(pattern=rf"{_DNS_NAME}|^$", max_length=253)]


T = TypeVar("T", bound="Settings")
_Enforcement = shares.Enforcement
GpuRule = setting_types.GpuRule


class Settings(pydantic.BaseModel):
    """What all apps have."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    kubeconfig: pathlib.Path | None = Field(
        None, description="Kubeconfig file. Default: the service account of the pod."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least important level that is logged."
    )
    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="JSON lines, text, or text on a terminal and JSON elsewhere."
    )

    @pydantic.field_validator("*")
    @classmethod
    def _absolute(cls, value: object) -> object:
        """The kubelet and the container runtime are told paths, and run elsewhere."""
        return value.absolute() if isinstance(value, pathlib.Path) else value


class KubeletPlugin(Settings):
    """Settings of `dra-driver kubelet-plugin`."""

    node_name: Annotated[str, Field(pattern=_DNS_NAME, max_length=253)] = Field(
        description="Name of the Node object of this machine. Required."
    )
    driver_name: Annotated[str, Field(pattern=_DNS_NAME, max_length=63)] = Field(
        "gpu.nvidia.com",
        description="Name of the driver, as in DeviceClasses and slices. Another name lets it run "
        "beside the vendor's driver.",
    )
    kubelet_root: pathlib.Path = Field(
        pathlib.Path("/var/lib/kubelet"), description="The kubelet's --root-dir."
    )
    registry_dir: pathlib.Path | None = Field(
        None,
        description="Where the kubelet looks for plugins. Default: KUBELET_ROOT/plugins_registry.",
    )
    plugin_dir: pathlib.Path | None = Field(
        None,
        description="Where the service socket is. Default: KUBELET_ROOT/plugins/DRIVER_NAME.",
    )
    state_dir: pathlib.Path | None = Field(
        None, description="Where prepared claims are remembered. Default: the plugin directory."
    )
    cdi_dir: pathlib.Path = Field(
        pathlib.Path("/var/run/cdi"),
        description="Where CDI specs are written; the container runtime must look there.",
    )
    driver_root: pathlib.Path = Field(
        pathlib.Path("/"),
        description="Where the NVIDIA driver is installed on the host: /, or for example "
        "/run/nvidia/driver or /home/kubernetes/bin/nvidia.",
    )
    driver_root_seen: pathlib.Path | None = Field(
        None, description="The driver root as this process sees it. Default: the same path."
    )
    library_dirs: tuple[str, ...] = Field(
        (),
        description="Directories under the driver root that hold driver libraries and come before "
        "the usual ones, for NVML, nvidia-smi, MPS and containers; a bin beside one has programs. "
        "Separated by commas.",
    )
    cdi_hook: pathlib.Path | None = Field(
        None,
        description="nvidia-cdi-hook on the host. Default: looked for under the driver root; "
        "without it libraries are found through the environment.",
    )
    sysfs_root: pathlib.Path = Field(pathlib.Path("/sys"), description="Where sysfs is mounted.")
    proc_root: pathlib.Path = Field(pathlib.Path("/proc"), description="Where procfs is mounted.")
    boot_id_file: pathlib.Path = Field(
        pathlib.Path("/proc/sys/kernel/random/boot_id"),
        description="File whose content changes with each boot of the node.",
    )
    rolling_update_uid: Annotated[str, Field(pattern=r"^[0-9A-Za-z-]{1,63}$")] | None = Field(
        None,
        description="UID of the pod (downward API) when the DaemonSet updates with surge: old and "
        "new instance then have sockets of their own. Needs Kubernetes 1.33.",
    )
    mig_mode: setting_types.MigMode = Field(
        mig.Mode.DYNAMIC,
        description="What is done with MIG: dynamic makes instances for claims, static uses those "
        "that an administrator made, off hands out whole GPUs only.",
    )
    gpus: tuple[setting_types.GpuRule, ...] = Field(
        (),
        description="Settings for some of the GPUs: a list of objects with `selector`, a CEL "
        "expression over the attributes of the whole GPU, and `migMode`, `shares` and "
        "`shareEnforcement`, or some of them; of each, the first that matches and has it counts. "
        "As a flag or variable: JSON.",
    )
    shares: setting_types.SharesText = Field(
        "off",
        description="Let many claims consume a GPU or a partition: memory (they ask for memory and "
        "cores), or a number of equal shares; off gives each to one claim.",
    )
    share_enforcement: _Enforcement = Field(
        _Enforcement.MPS,
        description="Who sees to it that a share keeps to its limits: MPS, a daemon for each "
        "namespace and device, or None, nobody.",
    )
    mps_shm_size: setting_types.SizeText = Field(
        "1Gi", description="Shared memory (/dev/shm) of an MPS daemon and its clients, at most."
    )
    mps_launcher: Literal["process", "pod"] = Field(
        "process",
        description="What runs MPS daemons: detached processes, which end with the container that "
        "the driver is in, or pods, which do not.",
    )
    mps_image: str = Field(
        "", description="Image for the pods of MPS daemons: as a rule that of the driver."
    )
    mps_image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="When that image is pulled."
    )
    mps_image_pull_secrets: tuple[_ObjectName, ...] = Field(
        (),
        description="Secrets of the driver's namespace to pull that image with; names separated by "
        "commas.",
    )
    mps_service_account: _ObjectNameOrNone = Field(
        "",
        description="Service account of the pods of MPS daemons, which get no token of it. "
        "Default: the namespace's own, default.",
    )
    mps_priority_class: _ObjectNameOrNone = Field(
        "",
        description="Priority class of the pods of MPS daemons. Pods of the classes system-… evict "
        "others from a full node. Default: none, so that others may evict them.",
    )
    mps_cpu: setting_types.AmountText = Field(
        "10m", description="CPU that the pod of an MPS daemon requests."
    )
    mps_memory: setting_types.SizeText = Field(
        "128Mi", description="Memory that the pod of an MPS daemon requests."
    )
    pod_namespace: Annotated[str, Field(pattern=rf"{_DNS_NAME}|^$", max_length=63)] = Field(
        "", description="Namespace of the driver's pod, and of the pods of MPS daemons."
    )
    packing: Literal["pack", "spread", "adaptive"] = Field(
        "adaptive",
        description="Order in which partitions are published, and so taken: pack fills one GPU "
        "after the other, spread takes turns, adaptive puts first what destroys least.",
    )
    repacking_seconds: Annotated[float, Field(ge=0, le=3600)] = Field(
        1.0, description="Seconds between two changes of the order of partitions, at least."
    )
    adopt_foreign_mig: bool = Field(
        False,  # noqa: FBT003 - a default
        description="Destroy MIG instances that others made on GPUs with the MIG mode dynamic; "
        "otherwise they are left alone.",
    )
    rescan_seconds: Annotated[float, Field(gt=0, le=3600)] = Field(
        10.0, description="Seconds between looks at the GPUs of the node."
    )
    metrics_address: Annotated[str, Field(pattern=r"^(.*:\d{1,5})?$")] = Field(
        "",
        description="HOST:PORT to serve Prometheus /metrics at, for example :8080 or [::]:8080; "
        "empty: not served.",
    )
    simulate_gpus: str | None = Field(
        None,
        description="Pretend to have GPUs: MODEL:COUNT[,MODEL:COUNT]..., for example "
        "h100-80gb-hbm3:8,t4:1. Nothing real is touched.",
    )
    simulation_dir: pathlib.Path | None = Field(
        None,
        description="Where the state of simulated GPUs is kept. Default: STATE_DIR/simulation.",
    )

    @pydantic.field_validator("library_dirs", "mps_image_pull_secrets", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return [part for part in value.split(",") if part] if isinstance(value, str) else value

    @pydantic.field_validator("gpus", mode="before")
    @classmethod
    def _decode(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value) if value else ()
        except ValueError as error:
            raise ValueError(f"not JSON: {error}") from error

    @property
    def registry(self) -> pathlib.Path:
        """The directory of registration sockets."""
        return self.registry_dir or self.kubelet_root / "plugins_registry"

    @property
    def plugin(self) -> pathlib.Path:
        """The directory of the service socket."""
        return self.plugin_dir or self.kubelet_root / "plugins" / self.driver_name

    @property
    def state(self) -> pathlib.Path:
        """The directory of records."""
        return self.state_dir or self.plugin

    @property
    def mps(self) -> pathlib.Path:
        """Where MPS daemons have their directories."""
        return self.state / "mps"

    @property
    def simulation(self) -> pathlib.Path:
        """The directory of simulated GPUs."""
        return self.simulation_dir or self.state / "simulation"

    @property
    def registration_socket(self) -> pathlib.Path:
        """Named as the Go helper names it."""
        return self.registry / f"{self.driver_name}{self._instance}-reg.sock"

    @property
    def service_socket(self) -> pathlib.Path:
        """Named as the Go helper names it."""
        return self.plugin / f"dra{self._instance}.sock"

    @property
    def _instance(self) -> str:
        return f"-{self.rolling_update_uid}" if self.rolling_update_uid else ""


def add_flags(parser: argparse.ArgumentParser, model: type[Settings]) -> None:
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
) -> T:
    """The settings of an app. `file` is the decoded content of the settings file, if there is one.

    Raises:
        errors.Fatal: a key is unknown, or a value is not allowed; the text names its source.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, value, source in (
        *_from_file(model, file),
        *_from_environment(model, environment),
        *((n, v, f"flag --{n.replace('_', '-')}") for n, v in flags.items() if v is not None),
    ):
        values[name], sources[name] = value, source
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        raise errors.Fatal("; ".join(_explain(e, sources) for e in error.errors())) from error


def _from_file(model: type[Settings], file: Any) -> Iterator[tuple[str, Any, str]]:
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
    model: type[Settings], environment: Mapping[str, str]
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
    return f"{source}{place}: {error['input']!r}: {setting_types.problem(error)}"


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
        "simulate_gpus": "SPEC",
        "gpus": "JSON",
        "shares": "off|memory|N",
    }.get(name, name.rpartition("_")[2].upper())
