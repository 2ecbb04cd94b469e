"""Settings of health: what a sick GPU means, and what is done about it."""

from typing import Annotated

import pydantic
from pydantic import Field

from dra_driver.settings import base, types


class Health(base.Settings):
    """What withdraws a card, for how long, and whether it may be reset."""

    health_effects: tuple[types.HealthEffect, ...] = Field(
        (),
        description="Other effects than usual, as KEY:EFFECT or KEY=VALUE:EFFECT: for example "
        "xid=94:NoSchedule, thermal:NoSchedule, memory=remap-pending:None. An effect is None (it "
        "is told) or NoSchedule (the device is withdrawn); docs/health.md has the usual ones.",
    )
    health_evict: tuple[types.HealthCause, ...] = Field(
        (),
        description="What also ends pods that have the device and do not tolerate it (NoExecute), "
        "as KEY or KEY=VALUE: for example recovery, gpu-lost, xid=79; only what withdraws a device "
        "does.",
    )
    health_hold_seconds: Annotated[float, Field(ge=0, le=3600)] = Field(
        30.0,
        description="Seconds for which the cause of a taint has to stay away before it goes.",
    )
    recovery: types.Recovery = Field(
        "off",
        description="What is done where the NVIDIA driver asks for a reset of a GPU: reset does it "
        "once no claim has any device of the card; off leaves it to others.",
    )
    reboot_condition: Annotated[
        str, Field(pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$")
    ] = Field(
        "",
        description="Type of a condition of the Node that tells whether a GPU needs a reboot of "
        "the node, for example GPUNeedsReboot; empty: none is written.",
    )

    @pydantic.field_validator("health_effects", "health_evict", mode="before")
    @classmethod
    def _split_causes(cls, value: object) -> object:
        return types.split(value)
