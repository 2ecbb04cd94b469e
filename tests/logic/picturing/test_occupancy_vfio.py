"""GPUs that virtual machines have, or may have, among the others of a node."""

import gpu_slices
from gpu_slices import T4, held, pod, published, snapshot, whole

from dra_driver.logic.picturing import fitting, occupancy


def the_gpu(*bodies):
    [node] = occupancy.of(snapshot(*bodies)).nodes
    [gpu] = node.gpus
    return gpu


def part(profile, start, minor=0):
    return gpu_slices.name(minor, profile, start)


def drawn(gpu):
    """(start, size, state, profile, claims) of each part."""
    return [
        (p.start, p.size, p.state, p.profile, [who.claim for who in p.held_by]) for p in gpu.parts
    ]


def vfio(minor, *, node="n", model=T4, uuid=True, consumes=True):
    """The GPU for a virtual machine, which takes all that the whole one takes."""
    body = whole(node, minor, model=model)
    place = {"resource.kubernetes.io/pciBusID": {"string": f"0000:{minor:02x}:00.0"}}
    body["attributes"] = place | {
        "type": {"string": "vfio"},
        "uuid": {"string": f"00000000-0000-5000-8000-{minor:012}"},
        "productName": {"string": "TU104GL"},
    }
    if uuid:
        body["attributes"]["gpuUUID"] = {"string": gpu_slices.gpu_uuid(node, minor)}
    if not consumes:
        body.pop("consumesCounters", None)
    return body | {"name": f"gpu-vfio-{minor}"}


CARDS = {"name": "gpu-0-counter-set", "counters": {"cards": {"value": "1"}}}


def uncut():
    """A GPU that cannot be cut, whole or for a virtual machine."""
    entry = [{"counterSet": CARDS["name"], "counters": CARDS["counters"]}]
    both = [whole("n", 0, model=T4), vfio(0)]
    return published("n", *(one | {"consumesCounters": entry} for one in both), sets=(CARDS,))


def test_a_gpu_that_can_be_had_in_both_ways_is_one_gpu():
    gpu = the_gpu(*uncut())
    assert drawn(gpu) == [(0, 1, "free", fitting.WHOLE, [])]
    assert (gpu.name, gpu.free, gpu.is_idle) == ("gpu-0", 1, True)
    assert gpu.largest == fitting.Fit(fitting.WHOLE, 1, (0,))


def test_a_virtual_machine_takes_the_gpu():
    gpu = the_gpu(*uncut(), held("vm", "gpu-vfio-0", pods=("virt-launcher",)), pod("virt-launcher"))
    assert drawn(gpu) == [(0, 1, "taken", fitting.VFIO, ["vm"])]
    assert (gpu.name, gpu.free, gpu.largest, gpu.is_idle) == ("gpu-0", 0, None, False)


def test_a_virtual_machine_takes_all_that_can_be_cut():
    everything = [*gpu_slices.partitions("n", 0), whole("n", 0), vfio(0, model=gpu_slices.H100)]
    bodies = published("n", *everything, sets=(gpu_slices.counter_set(0),))
    gpu = the_gpu(*bodies, held("vm", "gpu-vfio-0"))
    assert drawn(gpu) == [(0, 8, "taken", fitting.VFIO, ["vm"])]
    assert (gpu.free, gpu.largest) == (0, None)
    gpu = the_gpu(*bodies, held("a", part("1g.10gb", 6)))
    assert [one[:4] for one in drawn(gpu)][:2] == [(0, 6, "free", ""), (6, 1, "taken", "1g.10gb")]
    assert gpu.largest.profile == "4g.40gb"


def test_a_gpu_for_virtual_machines_alone_goes_by_the_name_of_its_device():
    gpu = the_gpu(*published("n", vfio(3, uuid=False, consumes=False)))
    assert (gpu.name, gpu.product) == ("gpu-vfio-3", "TU104GL")
    assert drawn(gpu) == [(0, 1, "free", fitting.VFIO, [])]
    assert gpu.largest == fitting.Fit(fitting.VFIO, 1, (0,))


def test_a_device_that_does_not_tell_whose_it_is_is_of_the_gpu_in_its_place():
    """NVIDIA's driver tells places alone, and counts them otherwise than GPUs."""
    there = whole("n", 0, model=T4)
    there["attributes"] |= {"resource.kubernetes.io/pciBusID": {"string": "0000:05:00.0"}}
    gpu = the_gpu(*published("n", there, vfio(5, uuid=False, consumes=False)))
    assert (gpu.name, len(gpu.parts)) == ("gpu-0", 1)


def test_without_a_place_it_is_of_no_gpu_whose_place_is_not_told_either():
    nowhere = vfio(5, uuid=False, consumes=False)
    nowhere["attributes"].pop("resource.kubernetes.io/pciBusID")
    [node] = occupancy.of(snapshot(*published("n", whole("n", 0, model=T4), nowhere))).nodes
    assert [gpu.name for gpu in node.gpus] == ["gpu-0", "gpu-vfio-5"]
