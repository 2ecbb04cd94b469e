"""Tables of MIG profiles: those of the simulated models, and any that hypothesis thinks of."""

import dataclasses
import itertools

from hypothesis import strategies

from dra_driver.model import mig
from dra_driver.sim.gpus import gpu_models

CAPABLE = tuple(name for name in gpu_models.names() if gpu_models.load(name).mig_capable)
ENGINES = ("multiprocessors", "copy_engines", "decoders", "encoders", "jpeg_engines", "ofa_engines")


def of_model(name, indices=range(17)):
    """The profiles of a simulated model that have these NVML indices."""
    return tuple(
        mig.Profile(
            index=one.nvml_profile,
            placements=tuple(itertools.starmap(mig.Placement, one.placements)),
            **{
                field.name: getattr(one, field.name)
                for field in dataclasses.fields(mig.Profile)
                if field.name not in {"index", "placements"}
            },
        )
        for one in gpu_models.load(name).gpu_instance_profiles
        if one.nvml_profile in indices
    )


def profile(name, number, **facts):
    """A profile that takes nothing but memory slices, except what is given."""
    nothing = dict.fromkeys(ENGINES, 0) | {"slices": 1, "instances": 7, "memory_mib": 1}
    places = facts.pop("placements")
    return mig.Profile(
        index=number,
        id=number,
        name=name,
        placements=tuple(itertools.starmap(mig.Placement, places)),
        **{**nothing, **facts},
    )


@strategies.composite
def tables(draw):
    """Up to four profiles of a GPU with at most six memory slices."""
    return tuple(
        profile(
            f"{number}g.1gb",
            number,
            slices=number,
            instances=draw(strategies.integers(1, 3)),
            memory_mib=draw(strategies.integers(1, 9)),
            decoders=draw(strategies.integers(0, 3)),
            ofa_engines=draw(strategies.integers(0, 1)),
            placements=draw(_places(draw(strategies.integers(1, 3)))),
        )
        for number in range(1, 1 + draw(strategies.integers(1, 4)))
    )


def _places(size):
    starts = strategies.lists(strategies.integers(0, 6 - size), min_size=1, unique=True)
    return starts.map(lambda found: [(start, size) for start in sorted(found)])


def spots(profiles):
    """Every partition of a GPU."""
    return [mig.Spot(one.id, place) for one in profiles for place in one.placements]
