"""NVML of a real machine, replayed: an object with the functions of `pynvml`.

The recordings lie beside the repository and not in it; tests that need one skip without it.
"""

import json
import pathlib
import types

import pynvml
import pytest

# ruff: noqa: N802, N803, N815 - the names are those of pynvml

RECORDINGS = pathlib.Path(__file__).parents[2] / "shared" / "gpus" / "recorded"


class RecordedNvml:
    """Answers each function as the machine did, errors included."""

    NVMLError = pynvml.NVMLError
    NVML_INIT_FLAG_NO_GPUS = pynvml.NVML_INIT_FLAG_NO_GPUS
    NVML_GPU_INSTANCE_PROFILE_COUNT = pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT
    c_nvmlGpuInstancePlacement_t = pynvml.c_nvmlGpuInstancePlacement_t

    def __init__(self, recording: dict) -> None:
        self._system = recording["system"]
        self._devices = recording["devices"]

    def nvmlInitWithFlags(self, flags):
        assert flags == self.NVML_INIT_FLAG_NO_GPUS

    def nvmlShutdown(self):
        pass

    def nvmlDeviceGetCount(self):
        return len(self._devices)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self._devices[index]

    def nvmlDeviceGetGpuInstanceProfileInfo(self, device, profile, version=2):
        assert version == 2
        return _answer(device["gpuInstanceProfiles"][str(profile)]["info"])

    def nvmlDeviceGetGpuInstancePossiblePlacements(
        self, device, profileId, placementsRef, countRef
    ):
        found = next(
            profile["placements2v"]
            for profile in device["gpuInstanceProfiles"].values()
            if profile["info"].get("id") == profileId
        )
        countRef._obj.value = len(found)
        if placementsRef is not None:
            for place, recorded in zip(placementsRef, found, strict=True):
                place.start, place.size = recorded["start"], recorded["size"]

    def __getattr__(self, name):
        if name in self._system:
            return lambda: _answer(self._system[name])
        if any(name in device for device in self._devices):
            # With another argument, it is where the bindings are to put the answer first.
            return lambda device, _place=None: _answer(device[name])
        raise AttributeError(name)


def load(name: str) -> RecordedNvml:
    """The recording of this name, or the test is skipped."""
    path = RECORDINGS / f"{name}.nvml.json"
    if not path.exists():
        pytest.skip(f"no recording {path}")
    return RecordedNvml(json.loads(path.read_text()))


def _answer(value):
    if isinstance(value, dict):
        if "nvmlError" in value:
            raise pynvml.NVMLError(value["nvmlError"])
        return types.SimpleNamespace(**value)
    return value
