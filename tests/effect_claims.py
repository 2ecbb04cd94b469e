"""For each effect in the list a claim that needs it, and how to see that it works.

What holds for all effects is tested with these, and not by name: a new effect needs a case here.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import sharing_claims
import sharing_node

from dra_driver.apps.effects import (
    effect,
    instances,
    metadata,
    passthrough,
    sharing,
    time_slices,
)
from dra_driver.model import bindings, quantities

Host = sharing_node.Node
GPU, PARTITION = sharing_claims.GPU, sharing_claims.PARTITION
CHEATING = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}
"""What a client sets that wants more than its claim has."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A claim, by what it is allocated to and its configs, and what is true while it is prepared.

    `before` is what the node's first card is set to by somebody else; `steps` are what is done to
    hardware and daemons in a prepare and in an unprepare, in that order. `is_quick`: it takes no
    time to make it. `told` is what the claim's status tells, by device.
    """

    device: str
    configs: tuple[dict[str, Any], ...]
    works: Callable[[Host, Any], bool]
    prepared: tuple[str, ...]
    unprepared: tuple[str, ...]
    before: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_quick: bool = False
    told: Callable[[Host], Mapping[str, Any]] = lambda _host: {}


def _is_cut(host: Host, ref: Any) -> bool:
    [made] = host.record(ref).partitions
    return {made.uuid} == host.mig_uuids()


def _as_nvidia_smi_calls_it(host: Host) -> Mapping[str, Any]:
    [gi] = host.card().gpu_instances
    [ci] = gi.compute_instances
    return {
        PARTITION: {
            "uuid": ci.uuid,
            "parentUUID": host.uuid(),
            "profile": "1g.10gb",
            "placement": f"{gi.start}:{gi.size}",
            "gpuInstanceId": gi.id,
            "computeInstanceId": ci.id,
        }
    }


def _is_long(host: Host, ref: Any) -> bool:
    return host.card().time_slice == sharing_node.LONG and bool(host.record(ref))


def _is_limited(host: Host, ref: Any) -> bool:
    assert host.gets(ref, **CHEATING) == (30, 4)
    return host.mode() == sharing_node.EXCLUSIVE


def _what_a_process_may_take(_host: Host) -> Mapping[str, Any]:
    limit = quantities.parse("4Gi")
    return {GPU: {"activeThreadPercentage": 30, "deviceMemoryLimit": limit}}


def _is_handed_over(host: Host, ref: Any) -> bool:
    [binding] = bindings.of(host.record(ref))
    _, mounts = host.edits(ref, sharing_claims.FOR_VM)
    group = f"/dev/vfio/{binding.group}"
    assert mounts == {group: str(host.simulation / group.lstrip("/"))}
    # It is read by what it has, whether NVML sees it or not.
    return pathlib.Path(mounts[group]).exists() and host.driver(2) == "vfio-pci"


def _where_it_is(host: Host) -> Mapping[str, Any]:
    address = host.card(2).pci_address
    group = host.pci.function(address).group
    facts = {"pciBusID": address, "iommuGroup": group, "boundTo": "vfio-pci"}
    return {sharing_claims.FOR_VM: facts}


def _is_described(host: Host, ref: Any) -> bool:
    [device] = host.described_in_containers(ref)
    assert device["attributes"]["uuid"] == {"string": host.uuid()}
    return bool(device["name"] == GPU)


EVERYWHERE = (metadata.Metadata,)
"""What every claim needs."""
CASES: Mapping[type[effect.Effect], Case] = {
    instances.Instances: Case(
        PARTITION,
        (),
        _is_cut,
        ("nvml set_mode", "nvml create", "nvml create_compute"),
        ("nvml destroy_compute", "nvml destroy", "nvml set_mode"),
        is_quick=True,
        told=_as_nvidia_smi_calls_it,
    ),
    time_slices.TimeSlices: Case(
        GPU,
        (sharing_claims.time_slicing("Long"),),
        _is_long,
        ("set_time_slice",),
        ("set_time_slice",),
        before={"time_slice": sharing_node.SHORT},
        is_quick=True,
    ),
    sharing.Sharer: Case(
        GPU,
        (
            sharing_claims.mps_gpu(
                defaultActiveThreadPercentage=30, defaultPinnedDeviceMemoryLimit="4Gi"
            ),
        ),
        _is_limited,
        ("start",),
        ("retire", "remove"),
        # What nobody has open is forgotten, as far as the kernel's driver forgets.
        before={"persistence_mode": False},
        told=_what_a_process_may_take,
    ),
    passthrough.Passthrough: Case(
        sharing_claims.FOR_VM,
        (),
        _is_handed_over,
        ("load", "nvml set_persistence", "allow", "unbind", "bind"),
        ("allow", "unbind", "bind", "nvml set_persistence"),
        is_quick=True,
        told=_where_it_is,
    ),
    metadata.Metadata: Case(
        GPU,
        (),
        _is_described,
        ("write .metadata.json.new",),
        ("remove metadata.json",),
        is_quick=True,
    ),
}
NAMES = [kind.__name__ for kind in CASES]
"""Of the cases, for the names of tests."""


def everything(users: sharing_claims.Claims) -> Any:
    """A claim that needs all effects: MPS on a partition, another card in time slices, and a third
    for a virtual machine.
    """
    return users.give(
        PARTITION,
        sharing_claims.OTHER_GPU,
        sharing_claims.FOR_VM,
        configs=(
            sharing_claims.mps_mig("r0", defaultActiveThreadPercentage=30),
            sharing_claims.time_slicing("Long", "r1"),
        ),
    )


def has_everything(host: Host, ref: Any) -> bool:
    """Whether all of it works."""
    assert host.gets(ref, PARTITION, **CHEATING)[0] == 30
    is_sliced = host.card(1).time_slice == sharing_node.LONG
    return _is_cut(host, ref) and is_sliced and _is_handed_over(host, ref)
