"""What a simulated GPU can be cut into. Pure: nothing here reads or writes."""

import dataclasses

from dra_driver.sim.gpus import gpu_models, gpu_state

OTHER_PROFILE_IDS = frozenset({6, 10, 21})
"""Profiles that other GPUs have, as a real H100 with driver 580.159.04 tells them apart."""

PROFILE_INDICES = range(17)
"""What that driver takes as the index of a GPU instance profile."""

COMPUTE_SLICES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7, 5: 8, 6: 6}
"""Slices by index of a compute instance profile (`NVML_COMPUTE_INSTANCE_PROFILE_*`)."""

_ENGINES = (
    "multiprocessors",
    "copy_engines",
    "decoders",
    "encoders",
    "jpeg_engines",
    "ofa_engines",
    "memory_mib",
)


@dataclasses.dataclass(frozen=True, slots=True)
class ComputeProfile:
    """A compute instance profile of one GPU instance. Its id is its index, as the vendor has it."""

    id: int
    name: str
    slices: int
    instances: int
    multiprocessors: int


def profile_of(model: gpu_models.Model, profile_id: int) -> gpu_models.Profile | None:
    """The profile with this id; None if the GPU has none."""
    return next((found for found in model.gpu_instance_profiles if found.id == profile_id), None)


def has_room(
    model: gpu_models.Model,
    gpu: gpu_state.Gpu,
    profile: gpu_models.Profile,
    placement: tuple[int, int],
) -> bool:
    """Whether one more instance fits: memory slices, instances of the profile, engines, memory."""
    start, size = placement
    for there in gpu.gpu_instances:
        if start < there.start + there.size and there.start < start + size:
            return False
    return _remaining(model, gpu, profile)


def free_placement(
    model: gpu_models.Model, gpu: gpu_state.Gpu, profile: gpu_models.Profile
) -> tuple[int, int] | None:
    """The first place where one more instance fits."""
    rooms = (place for place in profile.placements if has_room(model, gpu, profile, place))
    return next(rooms, None)


def compute_profiles(
    model: gpu_models.Model, profile: gpu_models.Profile
) -> dict[int, ComputeProfile]:
    """The compute instance profiles that instances of this profile have, by index."""
    single = model.gpu_instance_profiles[0].multiprocessors
    found = {}
    for index, slices in COMPUTE_SLICES.items():
        if slices <= profile.slices:
            spans = slices == profile.slices
            found[index] = ComputeProfile(
                id=index,
                name=f"MIG {profile.name}" if spans else f"MIG {slices}c.{profile.name}",
                slices=slices,
                instances=profile.slices // slices,
                multiprocessors=profile.multiprocessors if spans else slices * single,
            )
    return found


def free_compute_start(
    profile: gpu_models.Profile, instance: gpu_state.GpuInstance, slices: int
) -> int | None:
    """The first compute slice from which that many are free; None if there are not."""
    taken = {
        there.start + offset
        for there in instance.compute_instances
        for offset in range(COMPUTE_SLICES[there.profile_id])
    }
    for start in range(profile.slices - slices + 1):
        if taken.isdisjoint(range(start, start + slices)):
            return start
    return None


def smallest_free(taken: list[int]) -> int:
    """The smallest id that is not taken."""
    return next(number for number in range(len(taken) + 1) if number not in taken)


def _remaining(model: gpu_models.Model, gpu: gpu_state.Gpu, profile: gpu_models.Profile) -> bool:
    there = [model.profile(instance.profile_id) for instance in gpu.gpu_instances]
    if sum(other.id == profile.id for other in there) >= profile.instances:
        return False
    return all(
        sum(getattr(used, engine) for used in [*there, profile]) <= _total(model, engine)
        for engine in _ENGINES
    )


def _total(model: gpu_models.Model, engine: str) -> int:
    """What the GPU has: enough for all instances of any one profile."""
    amounts = [
        int(getattr(profile, engine)) * profile.instances for profile in model.gpu_instance_profiles
    ]
    return max(amounts)
