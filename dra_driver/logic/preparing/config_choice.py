"""Which config is in force for an allocated device.

From low to high: the driver's defaults, configs of the class, configs of the claim; of one source,
later ones win. Nothing is merged. As in NVIDIA's driver, except that an entry for a request covers
the alternatives of that request too, as in Kubernetes' own rule for `requests`.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from dra_driver import errors
from dra_driver.logic.preparing import configs
from dra_driver.model import claims, sharing

DEFAULTS = "defaults"
_SOURCES = (claims.FROM_CLASS, claims.FROM_CLAIM)


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A decoded entry of the allocation's configs, with its position among all of them."""

    config: sharing.Config
    source: str
    position: int
    requests: tuple[str, ...] = ()

    def names(self, result: claims.Result) -> bool:
        """Whether it is for the request of a result, or the request that this is part of."""
        return not {result.request, result.base_request}.isdisjoint(self.requests)


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """The config for a device, and where it came from.

    Devices with the same `position` are set up as one group; None, of the defaults, is no group.
    """

    config: sharing.Config
    source: str = DEFAULTS
    position: int | None = None

    def __str__(self) -> str:
        """As in messages: `GpuConfig, FromClaim, config[1]`."""
        if self.position is None:
            return f"{self.config.kind}, {self.source}"
        return f"{self.config.kind}, {self.source}, config[{self.position}]"


def entries(found: Sequence[claims.OpaqueConfig], driver: str) -> tuple[Entry, ...]:
    """The driver's own entries among the configs of an allocation, the strongest last.

    Raises:
        configs.InvalidConfig: one or more are invalid.
    """
    decoded: list[Entry] = []
    invalid: list[configs.InvalidConfig] = []
    for position, one in enumerate(found):
        if one.driver != driver:
            continue
        path = f"status.allocation.devices.config[{position}]"
        try:
            _check_source(one.source, path)
            config = configs.decode(one.parameters, path=f"{path}.opaque.parameters")
        except configs.InvalidConfig as error:
            invalid.append(error)
            continue
        decoded.append(Entry(config, one.source, position, one.requests))
    if invalid:
        raise _together(invalid)
    return tuple(sorted(decoded, key=lambda entry: _SOURCES.index(entry.source)))


def for_result(
    found: Iterable[Entry], result: claims.Result, device_type: sharing.DeviceType
) -> Choice:
    """The config for an allocated device, from `entries`.

    Raises:
        errors.Rejected: an entry names the request, and is for another type of device.
    """
    wanted = sharing.Kind.of(device_type)
    entry = in_force(found, result, device_type)
    if entry is not None:
        kind = entry.config.kind
        if kind is not wanted:
            raise errors.Rejected(
                f"request {result.request!r}, config[{entry.position}] ({entry.source}): {kind} "
                f"cannot be applied to device {result.device.device} of type {device_type}: "
                f"write a {wanted}, or take the request out of the config's `requests`"
            )
        return Choice(entry.config, entry.source, entry.position)
    defaults = sharing.Vfio() if wanted is sharing.Kind.VFIO else None
    return Choice(sharing.Config(wanted, defaults))


def in_force(
    found: Iterable[Entry], result: claims.Result, device_type: sharing.DeviceType
) -> Entry | None:
    """The strongest entry that applies to a result: it names the request, whatever its kind, or
    names none and is for the type. None where the defaults are in force.
    """
    wanted = sharing.Kind.of(device_type)
    for entry in reversed(tuple(found)):
        if entry.names(result) or (not entry.requests and entry.config.kind is wanted):
            return entry
    return None


def _check_source(source: str, path: str) -> None:
    if source not in _SOURCES:
        raise configs.InvalidConfig(
            f"config at {path} is invalid",
            (
                configs.Problem(
                    "source",
                    f'source: "{source}" is not allowed: Kubernetes writes '
                    f"{' or '.join(_SOURCES)}; a newer kind of source needs a newer driver",
                ),
            ),
        )


def _together(invalid: Sequence[configs.InvalidConfig]) -> configs.InvalidConfig:
    if len(invalid) == 1:
        return invalid[0]
    problems = tuple(
        configs.Problem(error.subject, f"{error.subject}: {problem}")
        for error in invalid
        for problem in error.problems
    )
    left_out = sum(error.left_out for error in invalid)
    return configs.InvalidConfig(f"{len(invalid)} configs are invalid", problems, left_out)
