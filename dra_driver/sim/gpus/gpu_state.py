"""The simulated GPUs of one node: which there are, and the state that they keep on disk.

`<directory>/gpus.json` outlives the processes that use it, as hardware does: compute modes and MIG
instances are found again by a restarted plugin.
"""

import hashlib
import pathlib
import re
import uuid
from typing import Literal

import pydantic

from dra_driver import errors
from dra_driver.sim import hardware_files
from dra_driver.sim.gpus import gpu_models

FILE = "gpus.json"
MAX_GPUS = 64
"""GPUs of a node: more than any board has, and few enough for one PCI domain."""

MIG = ":mig"
"""After a model: an administrator has switched MIG mode on."""

_PART = re.compile(rf"(?P<model>[^:]+):(?P<count>\d{{1,4}})(?P<mig>{MIG})?")
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "simulated-gpus.dra-driver")


class _State(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")


class Process(_State):
    """A process on a GPU. The instance ids are None outside MIG mode."""

    pid: int
    used_memory_bytes: int
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


class ComputeInstance(_State):
    """A compute instance inside a GPU instance. `uuid` is that of the MIG device.

    `start` is its place in compute slices.
    """

    id: int
    profile_id: int
    uuid: str
    start: int = 0


class GpuInstance(_State):
    """A GPU instance: its profile's id, and its place in memory slices."""

    id: int
    profile_id: int
    start: int
    size: int
    compute_instances: list[ComputeInstance] = []


class Gpu(_State):
    """One card. `model` names the facts that never change; the rest is state.

    `time_slice` is a number as `nvidia-smi compute-policy` takes it, `virtualization` one of
    NVML's. `linked` are the UUIDs of the cards at the other ends of its NVLinks; `resets` counts
    how often it was reset.
    """

    model: str
    minor: int
    uuid: str
    serial: str
    pci_address: str
    compute_mode: int = 0
    time_slice: int = 0
    time_slice_supported: bool = True
    persistence_mode: bool = True
    virtualization: int = 0
    mig_enabled: bool = False
    mig_pending: bool = False
    gpu_instances: list[GpuInstance] = []
    processes: list[Process] = []
    linked: list[str] = []
    resets: int = 0


class Node(_State):
    """The cards of a node and its driver. The versions are those of the recorded machines.

    `driver_loads` counts how often the driver was loaded again since the first time.
    """

    version: Literal[1] = 1
    node: str = ""
    driver_version: str = "580.159.04"
    nvml_version: str = "13.580.159.04"
    cuda_driver_version: int = 13000
    driver_is_loaded: bool = True
    driver_loads: int = 0
    gpus: list[Gpu] = []


def parse_spec(text: str) -> tuple[str, ...]:
    """The model of each GPU in a text such as `h100-80gb-hbm3:8,t4:1`; `none` is no GPU.

    `a100-40gb-sxm4:4:mig` has MIG mode on, for which an administrator resets cards before Hopper;
    such a model ends with `MIG`.

    Raises:
        errors.Rejected: it is no such text, or names a model that is not known.
    """
    if text.strip() == "none":
        return ()
    models: list[str] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        count = int(match["count"]) if match else 0
        if match is None or not 1 <= count <= MAX_GPUS:
            raise errors.Rejected(
                f"simulated GPUs {text!r}: {part.strip()!r} is not MODEL:COUNT with a count of "
                f"1 to {MAX_GPUS}; write for example h100-80gb-hbm3:8,t4:1 (or none), "
                "and a100-40gb-sxm4:4:mig for MIG mode; "
                f"models are: {', '.join(gpu_models.names())}"
            )
        model = gpu_models.load(match["model"])
        if match["mig"] and not model.mig_capable:
            raise errors.Rejected(
                f"simulated GPUs {text!r}: {part.strip()!r}: {model.name} has no MIG; "
                f"write it without {MIG}"
            )
        models += [model.name + (match["mig"] or "")] * count
    if len(models) > MAX_GPUS:
        raise errors.Rejected(
            f"simulated GPUs {text!r}: {len(models)} GPUs in one node, at most {MAX_GPUS}; "
            "use more nodes"
        )
    return tuple(models)


def open_file(directory: pathlib.Path) -> hardware_files.ModelFile[Node]:
    """The file in which the GPUs of this directory are kept."""
    return hardware_files.ModelFile(directory / FILE, Node())


def install(directory: pathlib.Path, models: tuple[str, ...], *, node: str) -> None:
    """Put GPUs of these models into a node.

    A card that is there already stays with its state if its place, model and node are the same.
    Any other place gets a new card, and surplus cards go, as if someone had rebuilt the machine.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with open_file(directory).edit() as state:
        new = [_new_gpu(node, model, slot) for slot, model in enumerate(models)]
        known = {gpu.uuid: gpu for gpu in state.gpus}
        state.node = node
        state.gpus = [known.get(gpu.uuid, gpu) for gpu in new]


def _new_gpu(node: str, model: str, slot: int) -> Gpu:
    has_mig, model = model.endswith(MIG), model.removesuffix(MIG)
    identity = uuid.uuid5(_NAMESPACE, f"{node}/{model}/{slot}")
    digits = int.from_bytes(hashlib.sha256(identity.bytes).digest()[:8], "big") % 10**10
    return Gpu(
        model=model,
        minor=slot,
        uuid=f"GPU-{identity}",
        serial=f"165{digits:010}",
        pci_address=f"0000:{bus(slot):02x}:00.0",
        mig_enabled=has_mig,
        mig_pending=has_mig,
    )


def new_card(model: str, place: Gpu) -> Gpu:
    """A card that nobody has seen, where another one is.

    Raises:
        errors.Rejected: there is no such model.
    """
    identity = uuid.uuid5(_NAMESPACE, f"after/{place.uuid}")
    return Gpu(
        model=gpu_models.load(model).name,
        minor=place.minor,
        uuid=f"GPU-{identity}",
        serial=f"{identity.int % 10**13:013}",
        pci_address=place.pci_address,
    )


def bus(slot: int) -> int:
    """The PCI bus of the card in a slot: rising, with room for a root bus before each pair."""
    return 4 + 3 * slot


def slot(pci_address: str) -> int:
    """The slot of the card at this address."""
    return (int(pci_address.split(":")[1], 16) - 4) // 3
