"""Settings of what a node offers: MIG, shares, virtual machines, the order of partitions."""

import json
from typing import Annotated, Literal

import pydantic
from pydantic import Field

from dra_driver.model import devices, mig, shares
from dra_driver.settings import base, types

_Enforcement = shares.Enforcement


class Offering(base.Settings):
    """What cards are handed out as."""

    mig_mode: types.MigMode = Field(
        mig.Mode.DYNAMIC,
        description="What is done with MIG: dynamic makes instances for claims, static uses those "
        "that an administrator made, off hands out whole GPUs only.",
    )
    gpus: tuple[types.GpuRule, ...] = Field(
        (),
        description="Settings for some of the GPUs: a list of objects with `selector`, a CEL "
        "expression over the attributes of the whole GPU, and `migMode`, `shares`, "
        "`shareEnforcement` and `vfio`, or some of them; of each, the first that matches and has "
        "it counts. As a flag or variable: JSON.",
    )
    shares: types.SharesText = Field(
        "off",
        description="Let many claims consume a GPU or a partition: memory (they ask for memory and "
        "cores), or a number of equal shares; off gives each to one claim.",
    )
    share_enforcement: _Enforcement = Field(
        _Enforcement.MPS,
        description="Who sees to it that a share keeps to its limits: MPS, a daemon for each "
        "namespace and device, or None, nobody.",
    )
    vfio: types.VfioMode = Field(
        devices.VfioMode.OFF,
        description="Hand GPUs to virtual machines, as devices of type vfio: on offers each GPU "
        "that can be passed through that way too, only offers it in no other; off in none. Needs "
        "an IOMMU.",
    )
    scheduler_defects: Literal["avoid", "ignore"] = Field(
        "avoid",
        description="What is done where schedulers of the cluster's release fail on what would be "
        "published (see docs/compatibility.md): avoid leaves it out, ignore publishes it, for a "
        "scheduler that has the correction.",
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

    @property
    def shares_any(self) -> bool:
        """Whether many claims may consume some GPU."""
        kinds = (self.shares, *(rule.shares or "off" for rule in self.gpus))
        return any(kind != "off" for kind in kinds)

    @property
    def cuts_any(self) -> bool:
        """Whether some GPU may be had in ways that exclude each other: only those have counters."""
        modes = (self.mig_mode, *(rule.mig_mode for rule in self.gpus))
        return mig.Mode.DYNAMIC in modes or devices.VfioMode.ON in self._vfio_modes

    @property
    def passes_any(self) -> bool:
        """Whether some GPU may be handed to virtual machines."""
        return any(mode not in {None, devices.VfioMode.OFF} for mode in self._vfio_modes)

    @property
    def _vfio_modes(self) -> tuple[devices.VfioMode | None, ...]:
        return (self.vfio, *(rule.vfio for rule in self.gpus))

    @pydantic.field_validator("gpus", mode="before")
    @classmethod
    def _decode(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value) if value else ()
        except ValueError as error:
            raise ValueError(f"not JSON: {error}") from error
