"""Classes of which no node sees a device."""

from explain_scene import (
    A,
    claim,
    device_class,
    explain,
    gpu,
    held,
    pool,
    request,
    wanted,
)

VFIO = device_class(f"{A}.type == 'vfio'", name="vfio.gpu.nvidia.com")
GPUS = device_class(f"{A}.type == 'gpu'")
NO_VFIO = (
    "no node offers devices of class vfio.gpu.nvidia.com, which are for virtual machines. Switch "
    "them on (`--vfio on`, `vfio` in `gpus`, `settings.vfio` of the chart) where nodes have an "
    "IOMMU that is on; where they are, the log of the driver on the node says what it lacks. In a "
    "container ask for class gpu.nvidia.com"
)


def reasons(*bodies):
    return explain("claim/mine", *bodies).reasons


def test_a_claim_for_vfio_devices_is_told_how_there_may_be_some():
    asked = claim("mine", request(of_class="vfio.gpu.nvidia.com"))
    nodes = [pool("a", gpu("x", type="gpu")), pool("b", gpu("y", type="gpu"))]
    assert reasons(VFIO, *nodes, asked) == (f'request "gpu": {NO_VFIO}',)


def of_ours(node, *devices):
    return pool(node, *devices, driver="gpu.nvidia.com")


def test_what_keeps_gpus_from_virtual_machines_is_told_as_slices_tell_it():
    asked = claim("mine", request(of_class="vfio.gpu.nvidia.com"))
    off = [of_ours(name, gpu("x", type="gpu", vfioHurdle="IOMMUOff")) for name in "abcdefg"]
    foreign = gpu("x", type="gpu", vfioHurdle="ForeignDeviceInGroup")
    newer = of_ours("y", gpu("x", type="gpu", vfioHurdle="SomethingNew"))
    of_others = pool("w", gpu("x", type="gpu", vfioHurdle="NoDriver"))
    nodes = [*off, of_ours("z", foreign, gpu("y", type="gpu")), newer, of_others]
    domain = "gpu.nvidia.com"
    ours = f"device.driver == '{domain}' && device.attributes['{domain}'].type == 'vfio'"
    [told] = reasons(device_class(ours, name="vfio.gpu.nvidia.com"), *nodes, asked)
    assert told == (
        'request "gpu": no node offers devices of class vfio.gpu.nvidia.com, which are for virtual '
        "machines. It is on, and GPUs cannot be handed over: something else is in its IOMMU group "
        "(z); the IOMMU is off (a, b, c, d, e and 2 more); SomethingNew (y). In a container ask "
        "for class gpu.nvidia.com"
    )


def test_where_another_driver_offers_vfio_devices_they_are_as_any_others():
    asked = claim("mine", request(of_class="vfio.gpu.nvidia.com"))
    nodes = [pool("a", gpu("x", type="gpu")), pool("b", gpu("y", type="vfio"))]
    about = explain("claim/mine", VFIO, *nodes, asked)
    assert (about.verdict, about.reasons) == ("fits", ())
    # In use: for the time being, and not for good.
    assert reasons(VFIO, *nodes, held("theirs", "b/y"), asked) == ()


def test_a_class_that_fits_no_device_is_named():
    asked = claim("mine", request(of_class="typo"))
    odd = device_class(f"{A}.type == 'gpus'", name="typo")
    assert reasons(odd, pool("a", gpu("x", type="gpu")), asked) == (
        'request "gpu": no node sees a device of class typo',
    )


def test_of_requests_and_alternatives_those_are_named_whose_class_is_empty():
    alternatives = [
        {"name": "card", **wanted()},
        {"name": "vm", **wanted(of_class="vfio.gpu.nvidia.com")},
    ]
    asked = claim("mine", request(name="plain"), {"name": "one", "firstAvailable": alternatives})
    found = reasons(VFIO, GPUS, pool("a", gpu("x", type="gpu")), asked)
    assert found == (f'request "one/vm": {NO_VFIO}',)


def test_where_nothing_is_published_at_all_that_is_told_instead():
    assert reasons(VFIO, claim("mine", request(of_class="vfio.gpu.nvidia.com"))) == ()


def test_a_device_for_which_an_expression_fails_is_not_of_the_class():
    none = device_class(f"{A}.type == 'gpus'", name="none")
    odd = device_class(f"{A}.numa == 0", name="odd")
    asked = claim("mine", request(of_class="none"), request(of_class="odd", name="near"))
    assert reasons(none, odd, pool("a", gpu("x", type="gpu")), asked) == (
        'request "gpu": no node sees a device of class none',
        'request "near": no node sees a device of class odd',
    )
