"""Settings of MPS daemons."""

from typing import Literal

import pydantic
from pydantic import Field

from dra_driver.settings import base, types


class Mps(base.Settings):
    """What runs MPS daemons, and what they may use."""

    mps_shm_size: types.SizeText = Field(
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
    mps_image_pull_secrets: tuple[types.ObjectName, ...] = Field(
        (),
        description="Secrets of the driver's namespace to pull that image with; names separated by "
        "commas.",
    )
    mps_service_account: types.ObjectNameOrNone = Field(
        "",
        description="Service account of the pods of MPS daemons, which get no token of it. "
        "Default: the namespace's own, default.",
    )
    mps_priority_class: types.ObjectNameOrNone = Field(
        "",
        description="Priority class of the pods of MPS daemons. Pods of the classes system-… evict "
        "others from a full node. Default: none, so that others may evict them.",
    )
    mps_cpu: types.AmountText = Field(
        "10m", description="CPU that the pod of an MPS daemon requests."
    )
    mps_memory: types.SizeText = Field(
        "128Mi", description="Memory that the pod of an MPS daemon requests."
    )

    @pydantic.field_validator("mps_image_pull_secrets", mode="before")
    @classmethod
    def _split_secrets(cls, value: object) -> object:
        return types.split(value)
