"""Selectors of parameter objects -> CEL of today.

An attribute that a device lacks makes no condition true, `NotEquals` neither: each is asked for
before it is read.
"""

import dataclasses
from collections.abc import Iterator, Mapping

from dra_driver.logic.cel import quoting
from dra_driver.logic.parameters import globs
from dra_driver.model import parameters, sharing

MIG_ENABLED = "migEnabled"
_MOST = 14
"""Selectors of a request that are of one object: Kubernetes allows 32 in all
(`resource/v1.DeviceSelectorsMaxSize`); there may be two objects, and what is asked beside them."""
_VERSIONS: Mapping[str, str] = {
    "cudaComputeCapability": "cudaComputeCapability",
    "driverVersion": "driverVersion",
    "cudaRuntimeVersion": "cudaDriverVersion",
    "cudaDriverVersion": "cudaDriverVersion",
}
"""What the attribute is called: CUDA's version is that of the NVIDIA driver, as then."""
_UUIDS: Mapping[sharing.DeviceType, tuple[str, ...]] = {
    sharing.DeviceType.GPU: ("uuid",),
    sharing.DeviceType.MIG: ("parentUUID",),
    sharing.DeviceType.VFIO: ("gpuUUID", "uuid"),
}
_GLOBS = frozenset({"productName", "brand", "architecture", "vendorID", "deviceID"})
_MEMORY: Mapping[sharing.DeviceType, str] = {
    sharing.DeviceType.GPU: "memory",
    sharing.DeviceType.VFIO: "addressableMemory",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """One selector of a request: what was written, where, and the CEL for it."""

    field: str
    said: str
    expression: str
    advice: str = ""
    """What may be meant instead, where no device is such."""
    reads: str = ""
    """The attribute or capacity that it is about, if it is about one that many devices share."""

    def __str__(self) -> str:
        """As in messages."""
        return f"{self.field}: {self.said}"


def faults(
    selector: parameters.Selector, device_type: sharing.DeviceType
) -> Iterator[parameters.Fault]:
    """What a selector asks that devices of the type do not tell."""
    for field, each in _properties(selector, "spec.selector"):
        reason = _untold(each, device_type)
        if reason is not None:
            yield parameters.Fault(field, f"{field}: {reason}")


def conditions(
    selector: parameters.Selector, device_type: sharing.DeviceType, driver: str
) -> tuple[Condition, ...]:
    """The selectors of a request for it, which has no `faults`.

    What all has to hold at the top has a selector each, so that one can say which does not.
    """
    field = "spec.selector"
    if (
        isinstance(selector, parameters.Joined)
        and not selector.any
        and len(selector.parts) <= _MOST
    ):
        return tuple(
            _condition(f"{field}.andExpression[{number}]", part, cel, device_type)
            for number, part in enumerate(selector.parts)
            if (cel := expression(part, device_type, driver)) != _TRUE
        )
    cel = expression(selector, device_type, driver)
    return () if cel == _TRUE else (_condition(field, selector, cel, device_type),)


def _condition(
    field: str, selector: parameters.Selector, cel: str, device_type: sharing.DeviceType
) -> Condition:
    reads = ""
    if isinstance(selector, parameters.Property):
        name = selector.name
        if name == "memory":
            reads = _MEMORY[device_type]
        elif name in _GLOBS or name in _VERSIONS:
            reads = _VERSIONS.get(name, name)
    return Condition(field, _said(selector), cel, _advice(selector), reads)


_TRUE = "true"


def expression(selector: parameters.Selector, device_type: sharing.DeviceType, driver: str) -> str:
    """The CEL for a selector that has no `faults`."""
    if isinstance(selector, parameters.Property):
        return _property(selector, device_type, driver)
    parts = [
        f"({cel})" if needed else cel
        for part in selector.parts
        for cel in [expression(part, device_type, driver)]
        for needed in [len(selector.parts) > 1 and (" && " in cel or " || " in cel)]
    ]
    if selector.any:
        return _TRUE if _TRUE in parts else " || ".join(parts)
    return " && ".join(part for part in parts if part != _TRUE) or _TRUE


def _property(asked: parameters.Property, device_type: sharing.DeviceType, driver: str) -> str:
    match asked.name:
        case "migEnabled":
            # A whole GPU is never in MIG mode while a claim has it, a partition's always is.
            is_whole = device_type is sharing.DeviceType.GPU
            return _guarded(driver, "migCapable", "{}") if asked.value and is_whole else _TRUE
        case "memory":
            name, amount = _MEMORY[device_type], quoting.literal(str(asked.value))
            domain = quoting.capacities(driver)
            compared = f"{domain}.{name}.compareTo(quantity({amount}))"
            return f"'{name}' in {domain} && {_compared(compared, asked)}"
        case "uuid":
            text = quoting.literal(str(asked.value))
            ways = [_guarded(driver, name, f"{{}} == {text}") for name in _UUIDS[device_type]]
            return ways[0] if len(ways) == 1 else " || ".join(f"({way})" for way in ways)
        case "index":
            return _guarded(driver, "index", f"{{}} == {asked.value}")
        case name if name in _VERSIONS:
            version = quoting.literal(str(asked.value))
            compared = f"{{}}.compareTo(semver({version}))"
            return _guarded(driver, _VERSIONS[name], _compared(compared, asked))
        case name:
            return _glob(driver, name, str(asked.value))


def _glob(driver: str, name: str, pattern: str) -> str:
    attributes = quoting.attributes(driver)
    condition = globs.condition(quoting.attribute(driver, name), pattern)
    guard = f"'{name}' in {attributes}"
    return guard if condition is None else f"{guard} && {condition}"


def _guarded(driver: str, name: str, condition: str) -> str:
    """The condition of an attribute, `{}` in it, where the device has that."""
    read = condition.replace("{}", quoting.attribute(driver, name), 1)
    return f"'{name}' in {quoting.attributes(driver)} && {read}"


def _compared(comparison: str, asked: parameters.Property) -> str:
    operator = asked.operator or parameters.Operator.EQUALS
    return f"{comparison} {operator.symbol} 0"


def _untold(asked: parameters.Property, device_type: sharing.DeviceType) -> str | None:
    """Why devices of the type cannot be selected by the property; None where they can."""
    if device_type is not sharing.DeviceType.MIG:
        return None
    match asked.name, asked.value:
        case "index", _:
            return "a partition does not tell the index of its GPU: write its uuid"
        case "memory", _:
            return (
                "a partition tells its own memory, and not that of its GPU: write the productName"
            )
        case "migEnabled", False:
            return "a GPU that is not cut has no partitions: leave it out, or write true"
    return None


def _properties(
    selector: parameters.Selector, field: str
) -> Iterator[tuple[str, parameters.Property]]:
    if isinstance(selector, parameters.Property):
        yield f"{field}.{selector.name}", selector
        return
    name = "orExpression" if selector.any else "andExpression"
    for number, part in enumerate(selector.parts):
        yield from _properties(part, f"{field}.{name}[{number}]")


def _said(selector: parameters.Selector) -> str:
    """What was written, in a few words."""
    if isinstance(selector, parameters.Joined):
        count = len(selector.parts)
        return f"{'one' if selector.any else 'all'} of {count}"
    value = selector.value if not isinstance(selector.value, bool) else str(selector.value).lower()
    return " ".join(filter(None, (selector.name, selector.operator, str(value))))


def _advice(selector: parameters.Selector) -> str:
    """A glob that is no part of a name was found anywhere in it at first."""
    if isinstance(selector, parameters.Joined) or selector.name not in _GLOBS:
        return ""
    value = str(selector.value)
    return "" if "*" in value else f"; *{value}* is found anywhere in it"
