"""How simulated cards are: `<directory>/health.json`, beside what they are (`gpu_state`)."""

import pathlib

import pydantic

from dra_driver.sim import hardware_files
from dra_driver.sim.gpus import gpu_models

FILE = "health.json"
AMPERE, HOPPER = 7, 9
"""Architectures as NVML numbers them."""
HEALTHY_FABRIC = 0x1AA
"""The mask of a card with nothing wrong: every doubt is answered with "no" (2), or "none" (1)."""
BAD_ROUTES = (HEALTHY_FABRIC & ~0x30) | 0x10
"""The same, but for routes that are unhealthy."""


class Health(pydantic.BaseModel):
    """One card. `recovery` is what the driver wants, as NVML numbers it."""

    model_config = pydantic.ConfigDict(extra="forbid")

    recovery: int = 0
    remap_pending: bool = False
    remap_failed: bool = False
    retired_pages: int = 0
    retirement_pending: bool = False
    uncorrectable: int = 0
    """Errors since the last reset."""
    uncorrectable_ever: int = 0
    thermal: bool = False
    power_brake: bool = False
    bad_fabric: bool = False
    links_down: list[int] = []

    @property
    def temperature(self) -> int:
        """Degrees Celsius: idle, or above the limit at which cards slow down (89 on an H200)."""
        return 92 if self.thermal else 33


class Cards(pydantic.BaseModel):
    """The cards that are not as new, by UUID."""

    model_config = pydantic.ConfigDict(extra="forbid")

    cards: dict[str, Health] = {}

    def of(self, uuid: str) -> Health:
        """The card with this UUID, to be changed."""
        return self.cards.setdefault(uuid, Health())


def open_file(directory: pathlib.Path) -> hardware_files.ModelFile[Cards]:
    """The file in which it is kept."""
    return hardware_files.ModelFile(directory / FILE, Cards())


def restart(health: Health) -> None:
    """What a reset of the card, or a boot, does for it: repairs that wait for one are made.

    Rows that could not be remapped, and pages that are retired, stay as they are.
    """
    kept = Health(
        remap_failed=health.remap_failed,
        retired_pages=health.retired_pages,
        uncorrectable_ever=health.uncorrectable_ever,
    )
    for name in Health.model_fields:
        setattr(health, name, getattr(kept, name))


def remaps_rows(model: gpu_models.Model) -> bool:
    """Whether it replaces bad rows of memory; older cards retire pages."""
    return model.architecture >= AMPERE


def tells_recovery(model: gpu_models.Model) -> bool:
    """Whether the driver tells what it wants done with it; here the older cards do not."""
    return model.architecture >= AMPERE


def has_fabric(model: gpu_models.Model) -> bool:
    """Whether its NVLinks lead to switches that have to be set up for it."""
    return model.nvlinks > 0 and model.architecture >= HOPPER
