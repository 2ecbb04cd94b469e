"""Opaque parameters -> what they ask for: one path for webhook, plugin and CLI.

What is wrong with a config is told at once, of very much the first. `{}` anywhere is legal and
means defaults.
"""

import dataclasses
import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dra_driver import errors
from dra_driver.model import configs, sharing, texts

Json = dict[str, Any]
_LONGEST_VALUE = 60
"""Characters of a value that a message shows."""


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one field; `message` names it too, with its value and what is allowed."""

    field: str
    message: str

    def __str__(self) -> str:
        """As in messages."""
        return self.message


class InvalidConfig(errors.Rejected):
    """A config that cannot work, with its problems. `subject` says which config it is.

    `problems` are at most `texts.MOST_PROBLEMS`; `left_out` is how many more there are.
    """

    def __init__(self, subject: str, problems: Sequence[Problem], left_out: int = 0) -> None:
        """The text is `<subject>: <problem>; <problem>; and 2 more problems`."""
        self.subject = subject
        self.problems = tuple(problems[: texts.MOST_PROBLEMS])
        self.left_out = left_out + len(problems) - len(self.problems)
        told = texts.joined(tuple(map(str, self.problems)), more=self.left_out)
        super().__init__(f"{subject}: {told}")


def decode(parameters: Mapping[str, Any], *, path: str) -> sharing.Config:
    """The config in `parameters`; `path` is where they are, for messages.

    Raises:
        InvalidConfig: they are no config, or one that cannot work whatever it is applied to.
    """
    kind, problems = _kind(parameters)
    if kind is None:
        raise InvalidConfig(f"config at {path} is invalid", problems)
    # No more than are told: a config of 10 KiB can have a thousand.
    read = configs.read(kind, parameters, texts.MOST_PROBLEMS)
    faults, left_out = (
        (read.faults, read.left_out) if isinstance(read, configs.Refused) else ((), 0)
    )
    problems = (*map(_problem, faults), *_contradictions(kind, parameters))
    if isinstance(read, configs.Refused) or problems:
        raise InvalidConfig(f"{kind} at {path} is invalid", problems, left_out)
    return sharing.Config(kind, _settings(read))


def encode(config: sharing.Config) -> Json:
    """Parameters that say the same, with all defaults written out and no older names."""
    body: Json = {"apiVersion": configs.API_VERSION, "kind": config.kind.value}
    match config.settings:
        case sharing.TimeSlicing(interval):
            body["sharing"] = {
                "strategy": "TimeSlicing",
                "timeSlicingConfig": {"interval": interval.value},
            }
        case sharing.Mps() as mps:
            body["sharing"] = {"strategy": "MPS", "mpsConfig": _encode_mps(mps)}
        case sharing.Vfio(policy, api_device):
            body["iommu"] = {"backendPolicy": policy.value, "enableAPIDevice": api_device}
    return body


def quantity(limit: int) -> str:
    """A memory limit as users write it, in the unit that MPS counts in."""
    return f"{limit // sharing.MEBIBYTE}Mi"


def _encode_mps(mps: sharing.Mps) -> Json:
    body: Json = {
        "multiUser": mps.multi_user,
        "maxClients": mps.max_clients,
        "domain": mps.domain.value,
    }
    if mps.thread_percentage is not None:
        body["defaultActiveThreadPercentage"] = mps.thread_percentage
    if mps.memory_limit is not None:
        body["defaultPinnedDeviceMemoryLimit"] = quantity(mps.memory_limit)
    if mps.per_device:
        body["defaultPerDevicePinnedMemoryLimit"] = {
            key: quantity(limit) for key, limit in sorted(mps.per_device.items())
        }
    return body


def _kind(parameters: object) -> tuple[sharing.Kind | None, tuple[Problem, ...]]:
    if not isinstance(parameters, Mapping):
        return None, (Problem("", f"{_shown(parameters)} is not allowed: write an object"),)
    named = parameters.get("kind")
    if isinstance(named, str) and named in set(sharing.Kind):
        return sharing.Kind(named), ()
    allowed = f"write {', '.join(list(sharing.Kind)[:-1])} or {list(sharing.Kind)[-1]}"
    problems = [_bad("kind", named, allowed)]
    version = parameters.get("apiVersion")
    if version != configs.API_VERSION:
        problems.insert(0, _bad("apiVersion", version, f"write {configs.API_VERSION}"))
    return None, tuple(problems)


def _problem(fault: configs.Fault) -> Problem:
    field = _field(fault.path)
    match fault.reason:
        case configs.Reason.UNKNOWN:
            # The words of Go's strict decoder, which users and scripts look for.
            text = f'strict decoding error: unknown field "{field}"'
            known = ", ".join(fault.allowed)
            return Problem(field, f"{text}: allowed are {known}{_meant(fault)}")
        case configs.Reason.MISSING:
            return _bad(field, None, *fault.allowed)
        case configs.Reason.KEY:
            return Problem(field, f"{field}: this key is not allowed: {fault.allowed[0]}")
        case configs.Reason.VALUE:
            return _bad(field, fault.value, *fault.allowed)


def _field(path: tuple[str, ...]) -> str:
    """`a.b`, and `a.b[key]` for an entry of a map."""
    parts = [_printable(part) for part in path]
    if _PER_DEVICE in path[:-1]:
        return f"{'.'.join(parts[:-1])}[{parts[-1]}]"
    return ".".join(parts)


def _printable(name: str) -> str:
    """A name that a user made up, of any characters and of any length."""
    text = texts.printable(name)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _meant(fault: configs.Fault) -> str:
    lowered = {name.lower(): name for name in fault.allowed}
    alike = difflib.get_close_matches(fault.path[-1].lower(), lowered, n=1, cutoff=0.8)
    return f". Is {lowered[alike[0]]} meant?" if alike else ""


def _contradictions(kind: sharing.Kind, parameters: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong between fields, as far as they can be read at all."""
    shared = _object(parameters, "sharing")
    strategy = shared.get("strategy")
    for other, name in (("TimeSlicing", "mpsConfig"), ("MPS", "timeSlicingConfig")):
        # One that a kind does not have is told of as unknown, and no strategy makes it known.
        unknown = kind is sharing.Kind.MIG and name == "timeSlicingConfig"
        if shared.get(name) is None or unknown:
            continue
        wanted = "MPS" if name == "mpsConfig" else "TimeSlicing"
        if strategy == other:
            yield Problem(
                f"sharing.{name}",
                f"sharing.{name}: not allowed with the strategy {other}: remove it, or write "
                f"strategy {wanted}",
            )
        elif strategy is None:
            yield _bad("sharing.strategy", None, f"write {wanted}, as {name} is given")
    for holder in ("timeSlicingConfig", "mpsConfig"):
        yield from _two_names(f"sharing.{holder}", _object(shared, holder))
    yield from _small_parts(_object(shared, "mpsConfig"))


def _two_names(path: str, body: Mapping[str, Any]) -> Iterator[Problem]:
    for old, new in configs.ALIASES.items():
        if body.get(old) is not None and body.get(new) is not None:
            yield Problem(
                f"{path}.{old}",
                f"{path}.{old}: not allowed together with {new}, of which it is the older name: "
                f"remove {old}",
            )


def _small_parts(mps: Mapping[str, Any]) -> Iterator[Problem]:
    """Limits of which each client gets less than 1 MiB."""
    clients = _named(mps, "maxClients")
    if type(clients) is not int or not 1 <= clients <= configs.MOST_CLIENTS:
        return
    limits: dict[tuple[str, ...], Any] = {
        ("sharing", "mpsConfig", name): mps.get(name) for name in _LIMITS
    }
    for key, limit in _object(mps, _PER_DEVICE).items():
        limits["sharing", "mpsConfig", _PER_DEVICE, str(key)] = limit
    for path, limit in limits.items():
        try:
            promised = configs.mebibytes(limit)
        except errors.Rejected:
            continue
        if promised // clients < sharing.MEBIBYTE:
            field = _field(path)
            yield _bad(
                field,
                limit,
                f"it is for {clients} processes (maxClients), and each needs at least 1Mi: write "
                f"at least {clients}Mi, or a smaller maxClients",
            )


def _bad(field: str, value: object, allowed: str) -> Problem:
    prefix = f"{field}: " if field else ""
    if value is None:
        return Problem(field, f"{prefix}missing: {allowed}")
    return Problem(field, f"{prefix}{_shown(value)} is not allowed: {allowed}")


def _shown(value: object) -> str:
    """A value as JSON has it. What holds other values is only named: it may be large."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    text = json.dumps(value, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = body.get(name)
    return found if isinstance(found, Mapping) else {}


def _named(body: Mapping[str, Any], name: str) -> Any:
    """A field by its name or its older one."""
    names = [name, *(old for old, new in configs.ALIASES.items() if new == name)]
    return next((body[one] for one in names if body.get(one) is not None), None)


def _settings(wire: configs.Wire) -> sharing.Settings | None:
    if isinstance(wire, configs.VfioDeviceConfig):
        iommu = wire.iommu or configs.Iommu()
        policy = sharing.BackendPolicy(iommu.backend_policy or sharing.BackendPolicy.LEGACY_ONLY)
        return sharing.Vfio(policy, api_device=bool(iommu.enable_api_device))
    if wire.sharing is None or wire.sharing.strategy is None:
        return None
    if wire.sharing.strategy == "MPS":
        return _mps(wire.sharing.mps_config or configs.MpsConfig())
    slices = wire.sharing.time_slicing_config or configs.TimeSlicingConfig()
    interval = slices.interval or slices.time_slice or sharing.Interval.DEFAULT
    return sharing.TimeSlicing(sharing.Interval(interval))


def _mps(wire: configs.MpsConfig) -> sharing.Mps:
    # No value of these fields is 0.
    return sharing.Mps(
        thread_percentage=wire.default_active_thread_percentage or wire.active_thread_percentage,
        memory_limit=wire.default_pinned_device_memory_limit or wire.pinned_device_memory_limit,
        per_device=wire.default_per_device_pinned_memory_limit or {},
        multi_user=bool(wire.multi_user),
        max_clients=wire.max_clients or wire.max_connections or 1,
        domain=sharing.Domain(wire.domain or sharing.Domain.CLAIM),
    )


_PER_DEVICE = "defaultPerDevicePinnedMemoryLimit"
_LIMITS = ("defaultPinnedDeviceMemoryLimit", "pinnedDeviceMemoryLimit")
