"""What the counters in slices admit is what NVML can create, and nothing else."""

import collections
import pathlib
import tempfile

import effort
import hypothesis
import mig_profiles
import pytest
from hypothesis import strategies

from dra_driver import errors
from dra_driver.adapters.nvml import nvml, nvml_mig, nvml_mig_facts
from dra_driver.logic.offering import placements
from dra_driver.sim.gpus import gpu_state, gpus


def machine(directory, model):
    """A GPU of this model in MIG mode: the adapter, its UUID, and the profiles NVML tells."""
    library = gpus.SimulatedNvml(directory, spec=f"{model}:1")
    with gpu_state.open_file(directory).edit() as state:
        gpu = state.gpus[0]
        gpu.mig_enabled = gpu.mig_pending = True
    access = nvml.Nvml(library)
    with access.session() as opened:
        profiles = nvml_mig_facts.profiles(opened, opened.nvmlDeviceGetHandleByUUID(gpu.uuid))
    return nvml_mig.MigNvml(access), gpu.uuid, profiles


def suffices(profiles, spots):
    """Whether the counters are enough for all of them, as the scheduler adds them up."""
    known = {profile.id: profile for profile in profiles}
    used = collections.Counter()
    for spot in spots:
        used.update(placements.consumption(profiles, known[spot.profile_id], spot.placement))
    limits = placements.limits(profiles)
    return all(amount <= limits[name] for name, amount in used.items())


@pytest.mark.parametrize("model", mig_profiles.CAPABLE)
@hypothesis.settings(max_examples=effort.examples(25), deadline=None)
@hypothesis.given(data=strategies.data())
def test_nvml_creates_what_the_counters_admit_and_refuses_the_rest(model, data):
    with tempfile.TemporaryDirectory() as directory:
        adapter, gpu, profiles = machine(pathlib.Path(directory), model)
        every = strategies.sampled_from(mig_profiles.spots(profiles))
        there = {}
        for spot in data.draw(strategies.lists(every, min_size=1, max_size=12)):
            if spot in there and data.draw(strategies.booleans()):
                assert adapter.destroy(gpu, there.pop(spot))
            elif suffices(profiles, [*there, spot]):
                there[spot] = adapter.create(gpu, spot)
            else:
                with pytest.raises(nvml_mig.NoRoom):
                    adapter.create(gpu, spot)
        found = adapter.state(gpu).instances
        assert {instance.spot: instance.gi for instance in found} == there


@pytest.mark.parametrize("model", mig_profiles.CAPABLE)
def test_every_layout_that_leaves_no_room_can_be_created_and_is_full(tmp_path, model):
    adapter, gpu, profiles = machine(tmp_path, model)
    basic = tuple(profile for profile in profiles if profile.index < 5)
    for layout in sorted(placements.maximal_layouts(basic)):
        made = [adapter.create(gpu, spot) for spot in layout]
        for spot in mig_profiles.spots(basic):
            with pytest.raises(errors.Retryable):
                adapter.create(gpu, spot)
        assert all(adapter.destroy(gpu, gi) for gi in made)
