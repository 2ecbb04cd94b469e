"""What a setting can be, where that is more than a plain type."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import Field
from pydantic.alias_generators import to_camel

from dra_driver import errors
from dra_driver.model import devices, fabric, health, mig, quantities, shares

DNS_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
ObjectName = Annotated[str, Field(pattern=DNS_NAME, max_length=253)]
ObjectNameOrNone = Annotated[str, Field(pattern=rf"{DNS_NAME}|^$", max_length=253)]


def split(value: object) -> object:
    """Parts of a text that are separated by commas, as flags and variables have lists."""
    return [part for part in value.split(",") if part] if isinstance(value, str) else value


def _shares(text: str) -> str:
    if text != "off":
        try:
            shares.parse_count(text)
        except errors.Rejected as error:
            raise ValueError(str(error)) from error
    return text


def _word(value: object) -> str:
    # YAML 1.1 reads an `off` without quotes as false.
    return "off" if value is False else str(value)


SharesText = Annotated[str, pydantic.BeforeValidator(_word), pydantic.AfterValidator(_shares)]
"""`off`, `memory`, or a number of shares."""


def _mode(value: object) -> object:
    # As above, and an `on` as true.
    return {False: "off", True: "on"}.get(value, value) if isinstance(value, bool) else value


MigMode = Annotated[mig.Mode, pydantic.BeforeValidator(_mode)]
"""`dynamic`, `static` or `off`."""


VfioMode = Annotated[devices.VfioMode, pydantic.BeforeValidator(_mode)]
"""`off`, `on` or `only`."""


Recovery = Annotated[Literal["off", "reset"], pydantic.BeforeValidator(_word)]
"""What is done where the driver asks for a reset of a GPU."""


def _fabric_manager(text: str) -> str:
    try:
        return str(fabric.parse_address(text)) if text else text
    except errors.Rejected as error:
        raise ValueError(str(error)) from error


FabricManagerAddress = Annotated[str, pydantic.AfterValidator(_fabric_manager)]
"""`unix:PATH`, an IPv4 address with a port, or nothing."""


def _cause(text: str) -> str:
    try:
        health.parse_cause(text)
    except errors.Rejected as error:
        raise ValueError(str(error)) from error
    return text


def _effect(text: str) -> str:
    try:
        health.parse_effect(text)
    except errors.Rejected as error:
        raise ValueError(str(error)) from error
    return text


HealthCause = Annotated[str, pydantic.AfterValidator(_cause)]
"""`recovery`, `xid=79`: what can be wrong with a GPU."""
HealthEffect = Annotated[str, pydantic.AfterValidator(_effect)]
"""`xid=94:NoSchedule`: a cause, and the effect of its taint."""


def _amount(text: str) -> str:
    try:
        amount = quantities.parse(text).value
    except errors.Rejected as error:
        raise ValueError(str(error)) from error
    if amount <= 0:
        raise ValueError("more than 0 is needed")
    return text


def _size(text: str) -> str:
    if quantities.parse(_amount(text)).value < 2**20:
        raise ValueError("at least 1Mi is needed")
    return text


AmountText = Annotated[str, pydantic.AfterValidator(_amount)]
"""A quantity above 0."""
SizeText = Annotated[str, pydantic.AfterValidator(_size)]
"""A quantity of bytes, from 1Mi on."""

# A field has the name of the module.
_Enforcement = shares.Enforcement


class GpuRule(pydantic.BaseModel):
    """Settings of those GPUs that a CEL expression matches, as one of a DeviceClass would."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    selector: Annotated[str, Field(min_length=1)]
    mig_mode: MigMode | None = None
    shares: SharesText | None = None
    share_enforcement: _Enforcement | None = None
    vfio: VfioMode | None = None

    @pydantic.model_validator(mode="after")
    def _says_something(self) -> Self:
        if {self.mig_mode, self.shares, self.share_enforcement, self.vfio} == {None}:
            raise ValueError("a rule needs migMode, shares, shareEnforcement or vfio")
        return self


def problem(error: Mapping[str, Any]) -> str:
    """What an entry of `ValidationError.errors()` means, in words of ours where it has none."""
    match error["type"]:
        case "string_pattern_mismatch":
            return _form(error["ctx"]["pattern"])
        case "extra_forbidden":
            known = ", ".join(to_camel(name) for name in GpuRule.model_fields)
            return f"this key is unknown; known are {known}"
        case "value_error":
            text = str(error["ctx"]["error"])
            return text.removeprefix(f"{error['input']!r}: ")
    return str(error["msg"])


def _form(pattern: str) -> str:
    if r":\d" in pattern:
        return "write HOST:PORT, for example :8080 or [::]:8080"
    if "_.-" in pattern:
        return (
            "allowed are letters and digits, and inside hyphens, dots and underscores; at most 63"
        )
    if r"\." in pattern:
        return "allowed are lower-case letters and digits, and inside hyphens and dots"
    return "allowed are letters, digits and hyphens, at most 63"
