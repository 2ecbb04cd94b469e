"""CDI: prepared devices to the document that a container runtime reads.

One spec a claim, kind `k8s.<driver>/claim`, device names `<claim uid>-<device>`: the peer's names.
Source: CDI specification, https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dra_driver.model import claims, driver

Json = dict[str, Any]

CDI_VERSION = "0.5.0"
"""The lowest version with all fields that are used (`hostPath` of a device node), so that runtimes
with an older CDI library take the specs too."""

READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")


@dataclasses.dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = READ_ONLY


@dataclasses.dataclass(frozen=True, slots=True)
class Hook:
    """A program of the host that the runtime runs while it creates the container."""

    path: str
    args: tuple[str, ...]
    env: tuple[str, ...] = ()
    name: str = "createContainer"


@dataclasses.dataclass(frozen=True, slots=True)
class Edits:
    """What is changed in a container."""

    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    device_nodes: tuple[driver.DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()

    def and_also(self, other: "Edits") -> "Edits":
        """Both; variables of `other` win."""
        return Edits(
            {**self.env, **other.env},
            self.device_nodes + other.device_nodes,
            self.mounts + other.mounts,
            self.hooks + other.hooks,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Injection:
    """The edits that each device brings, by `device_key`, and those common to all of them."""

    common: Edits
    devices: Mapping[str, Edits]


def kind(driver_name: str) -> str:
    """The CDI kind of claims."""
    return f"k8s.{driver_name}/claim"


def device_key(device: str, share_id: str | None = None) -> str:
    """What tells a device, or one share of it, from others in a claim's spec."""
    return device if share_id is None else f"{device}-{share_id}"


def parse_device_key(key: str) -> tuple[str, str | None]:
    """Device and share id of a key."""
    match = _SHARE.fullmatch(key)
    return (match["device"], match["share"]) if match else (key, None)


_SHARE = re.compile(
    r"(?P<device>.+)-(?P<share>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.IGNORECASE
)
"""Share ids are UUIDs."""


def device_id(driver_name: str, uid: claims.ClaimUid | str, key: str) -> str:
    """The fully qualified CDI name that the kubelet hands to the runtime."""
    return f"{kind(driver_name)}={uid}-{key}"


def file_name(driver_name: str, uid: claims.ClaimUid | str) -> str:
    """The spec file of a claim."""
    return f"k8s.{driver_name}-claim_{uid}.json"


def claim_uid(driver_name: str, name: str) -> str | None:
    """The claim that a spec file is of; None for a file that is not ours."""
    prefix = f"k8s.{driver_name}-claim_"
    if not (name.startswith(prefix) and name.endswith(".json")):
        return None
    return name.removeprefix(prefix).removesuffix(".json")


def device_keys(uid: str, text: str) -> tuple[str, ...]:
    """The keys of devices in the text of a claim's spec file; none where it is damaged."""
    try:
        devices = json.loads(text)["devices"]
        return tuple(device["name"].removeprefix(f"{uid}-") for device in devices)
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


def edits(uid: str, text: str) -> Mapping[str, Edits]:
    """Variables and mounts of the devices in the text of a claim's spec file, by key; none where it
    is damaged.
    """
    try:
        devices = json.loads(text)["devices"]
        return {
            device["name"].removeprefix(f"{uid}-"): _parse_fields(device["containerEdits"])
            for device in devices
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def node_paths(uid: str, text: str) -> Mapping[str, tuple[str, ...]]:
    """What containers are given below `/dev` by a claim's spec file, by device key; none where it
    is damaged. Mounts count too.
    """
    try:
        return {
            device["name"].removeprefix(f"{uid}-"): tuple(_paths(device["containerEdits"]))
            for device in json.loads(text)["devices"]
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _paths(edits: Json) -> Iterator[str]:
    paths = [node["path"] for node in edits.get("deviceNodes", ())]
    paths += [mount["containerPath"] for mount in edits.get("mounts", ())]
    yield from (path for path in paths if path.startswith("/dev/"))


def spec(driver_name: str, uid: claims.ClaimUid | str, injection: Injection) -> str:
    """The text of a claim's spec file; equal input gives equal bytes."""
    document: Json = {
        "cdiVersion": CDI_VERSION,
        "kind": kind(driver_name),
        "devices": [
            {"name": f"{uid}-{name}", "containerEdits": _format_edits(uid, name, edits)}
            for name, edits in sorted(injection.devices.items())
        ],
    }
    common = _format_fields(injection.common)
    if common:
        document["containerEdits"] = common
    # A line for each field: to indent a hundred mounts takes five times as long as all the rest.
    lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in document.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _format_edits(uid: str, name: str, edits: Edits) -> Json:
    # A device without edits is no valid device: the variable says at least where it is from.
    marker = f"DRA_CLAIM_{uid}_{name}".upper().replace("-", "_")
    return _format_fields(edits) or {"env": [f"{marker}={name}"]}


def _format_fields(edits: Edits) -> Json:
    fields: Json = {
        "env": [f"{key}={value}" for key, value in sorted(edits.env.items())],
        "deviceNodes": [_format_node(node) for node in edits.device_nodes],
        "mounts": [
            {
                "hostPath": mount.host_path,
                "containerPath": mount.container_path,
                "options": list(mount.options),
            }
            for mount in edits.mounts
        ],
        "hooks": [_format_hook(hook) for hook in edits.hooks],
    }
    return {key: value for key, value in fields.items() if value}


def _parse_fields(fields: Json) -> Edits:
    mounts = [
        Mount(mount["hostPath"], mount["containerPath"], tuple(mount["options"]))
        for mount in fields.get("mounts", ())
    ]
    env = dict(variable.split("=", 1) for variable in fields.get("env", ()))
    return Edits(env=env, mounts=tuple(mounts))


def _format_node(node: driver.DeviceNode) -> Json:
    return {
        "path": node.path,
        "hostPath": node.host_path,
        "type": "c",
        "major": node.major,
        "minor": node.minor,
        "fileMode": node.mode,
        "permissions": "rw",
    }


def _format_hook(hook: Hook) -> Json:
    body: Json = {"hookName": hook.name, "path": hook.path, "args": list(hook.args)}
    if hook.env:
        body["env"] = list(hook.env)
    return body
