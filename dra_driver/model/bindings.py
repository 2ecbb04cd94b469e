"""What is remembered of GPUs that are bound to a VFIO driver for a claim: the part `vfio` of its
record (`prepared.Record.parts`), enough to bind them back.
"""

import dataclasses
from typing import Annotated, Literal

import pydantic

from dra_driver import errors
from dra_driver.model import devices, prepared

PART = "vfio"
VERSION = 1
_OF_FABRIC = frozenset({"module_id", "fabric"})


class _Frozen(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


def _known(value: object) -> object:
    """What is told of a GPU, without what only a newer driver knows of."""
    if not isinstance(value, dict):
        return value
    names = {field.name for field in dataclasses.fields(devices.Gpu)}
    return {name: one for name, one in value.items() if name in names}


class Function(_Frozen):
    """A PCI function, and the driver that it had before: None was none."""

    address: str
    driver: str | None = None


class Binding(_Frozen):
    """A GPU that a claim has as a VFIO device.

    `functions` are those that are bound for it, the GPU first; none where it was `found` bound by
    somebody else, and stays so. `driver` is the VFIO driver, of the kernel's `module`; None until
    it is known. `persistence`: persistence mode was on before. `facts` is the GPU as NVML told of
    it, which cannot be asked while it is bound.
    """

    device: str
    gpu: str
    address: str
    group: int
    found: bool = False
    module: str | None = None
    driver: str | None = None
    functions: tuple[Function, ...] = ()
    persistence: bool = False
    nodes: tuple[str, ...] = ()
    """The device nodes that containers get, by path on the host."""
    facts: Annotated[devices.Gpu | None, pydantic.BeforeValidator(_known)] = None

    @pydantic.field_serializer("facts", mode="wrap")
    def _without_news(
        self, facts: devices.Gpu | None, write: pydantic.SerializerFunctionWrapHandler
    ) -> object:
        """Without the fabric where it is not asked for: a driver from before refuses the record."""
        written = write(facts)
        if isinstance(written, dict) and written.get("fabric") is None:
            return {name: one for name, one in written.items() if name not in _OF_FABRIC}
        return written


class Content(_Frozen):
    """The content of the part."""

    kind: Literal["bindings"] = "bindings"
    cards: tuple[Binding, ...]


def of(record: prepared.Record) -> tuple[Binding, ...]:
    """What a record tells of bindings; nothing where the part is of a newer driver.

    Raises:
        errors.Rejected: the part is damaged.
    """
    part = record.parts.get(PART)
    if part is None or part.version != VERSION:
        return ()
    try:
        return Content.model_validate(part.content).cards
    except pydantic.ValidationError as error:
        raise errors.Rejected(
            f"claim {record.ref}: part {PART!r} of its record is no list of bindings: {error}"
        ) from error


def into(record: prepared.Record, cards: tuple[Binding, ...]) -> prepared.Record:
    """The record with these bindings; what a newer driver remembers of its own stays."""
    known = record.parts.get(PART)
    if known is not None and known.version != VERSION:
        return record
    parts = {name: part for name, part in record.parts.items() if name != PART}
    if cards:
        content = Content(cards=cards).model_dump(mode="json")
        parts[PART] = prepared.Part(version=VERSION, content=content)
    return record.model_copy(update={"parts": parts})
