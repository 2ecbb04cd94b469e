"""Pods that ask for a GPU for a virtual machine, and are kept from it by what others have."""

from explain_scene import A, claim, device_class, explain, gpu, held, pool, request

VFIO = device_class(f"{A}.type == 'vfio'", name="vfio.gpu.nvidia.com")
GPUS = device_class(f"{A}.type == 'gpu'")


def taking(name, **attributes):
    counters = {"cards": {"value": "1"}}
    consumed = {"consumesCounters": [{"counterSet": "gpu-0-counter-set", "counters": counters}]}
    return gpu(name, extra=consumed, **attributes)


def nodes():
    """One GPU that can be had in both ways."""
    sets = [{"name": "gpu-0-counter-set", "counters": {"cards": {"value": "1"}}}]
    devices = (taking("gpu-0", type="gpu"), taking("gpu-vfio-0", type="vfio"))
    return [
        pool("a", count=2, sharedCounters=sets) | {"metadata": {"name": "sets"}},
        pool("a", *devices, count=2),
    ]


def groups(*bodies):
    (report,) = explain("claim/mine", VFIO, GPUS, *nodes(), *bodies).reports
    return [one for one in report.requests[0].groups if one.hurdle != "not of class"]


def test_whoever_has_the_gpu_is_named_to_who_wants_it_for_a_virtual_machine():
    asked = claim("mine", request(of_class="vfio.gpu.nvidia.com"))
    found = [
        one for one in groups(held("theirs", "a/gpu-0", pods=("train",)), asked) if one.holders
    ]
    [group] = found
    assert group.devices == ("gpu.example.com/a/gpu-vfio-0",)
    assert group.holders == ("claim default/theirs (pod train)",)
    assert group.values == ("gpu-0 draws on the same counters",)


def test_a_virtual_machine_that_has_the_gpu_is_named_to_who_wants_it():
    found = [
        one
        for one in groups(held("vm", "a/gpu-vfio-0", pods=("virt-launcher",)), claim("mine"))
        if one.holders
    ]
    [group] = found
    assert group.devices == ("gpu.example.com/a/gpu-0",)
    assert group.holders == ("claim default/vm (pod virt-launcher)",)
    assert group.values == ("gpu-vfio-0 draws on the same counters",)


def test_a_gpu_that_nobody_has_is_free_for_both():
    for of_class in ("vfio.gpu.nvidia.com", "gpu"):
        asked = claim("mine", request(of_class=of_class))
        assert explain("claim/mine", VFIO, GPUS, *nodes(), asked).verdict == "fits"


def nearest(of_class, *devices):
    asked = claim("mine", request(of_class=of_class))
    found = explain("claim/mine", VFIO, GPUS, pool("a", *devices), asked).nearest
    return [miss.change for miss in found]


def test_who_wants_a_gpu_for_a_virtual_machine_is_not_sent_to_what_containers_get():
    for others in ((), (gpu("gpu-vfio-9", type="vfio", taint="gone"),)):
        found = nearest("vfio.gpu.nvidia.com", gpu("gpu-0", type="gpu"), *others)
        assert not any("ask for class" in change for change in found)


def test_a_container_is_not_sent_to_what_virtual_machines_get():
    assert nearest("gpu", gpu("gpu-vfio-0", type="vfio")) == []
