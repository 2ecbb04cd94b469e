"""The GPU models that can be simulated, as facts in package data (`models/<name>.json`)."""

import functools
import importlib.resources
from typing import Annotated

import pydantic

from dra_driver import errors


def _hexadecimal(value: object) -> object:
    return int(value, 16) if isinstance(value, str) else value


PciId = Annotated[int, pydantic.BeforeValidator(_hexadecimal)]
"""Device in the upper half, vendor in the lower, as NVML has it; `0x233010de` in the file."""


class _Facts(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")


class Profile(_Facts):
    """A GPU instance profile. `placements` are (start, size) in memory slices, in NVML's order."""

    nvml_profile: int
    id: int
    name: str
    slices: int
    instances: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    memory_mib: int
    p2p: bool
    placements: tuple[tuple[int, int], ...]


class Model(_Facts):
    """What NVML says of a GPU of this kind. Enums are NVML's numbers; None is not known."""

    name: str
    source: str
    product_name: str
    architecture: int
    brand: int
    compute_capability: tuple[int, int]
    memory_bytes: int
    memory_reserved_bytes: int | None
    pci_device_id: PciId
    pci_subsystem_id: PciId | None
    addressing_mode: int
    cores: int
    memory_bus_width: int
    nvlinks: int
    mig_capable: bool
    mig_mode_change_needs_reset: bool
    gpu_instance_profiles: tuple[Profile, ...]

    def profile(self, profile_id: int) -> Profile:
        """The profile with this id, which must be there."""
        return next(found for found in self.gpu_instance_profiles if found.id == profile_id)


@functools.cache
def names() -> tuple[str, ...]:
    """The names of all models, sorted."""
    folder = importlib.resources.files("dra_driver.sim.gpus") / "models"
    return tuple(sorted(file.name.removesuffix(".json") for file in folder.iterdir()))


@functools.cache
def load(name: str) -> Model:
    """The model of this name.

    Raises:
        errors.Rejected: there is no such model.
    """
    if name not in names():
        raise errors.Rejected(f"GPU model {name!r} is not known; known are: {', '.join(names())}")
    folder = importlib.resources.files("dra_driver.sim.gpus") / "models"
    return Model.model_validate_json((folder / f"{name}.json").read_text(encoding="utf-8"))
