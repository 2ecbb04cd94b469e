"""Which partitions of the NVLink fabric GPUs are in."""

import collections
import dataclasses

import mig_cards
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.logic.passthrough import fabric as partitioning
from dra_driver.model import devices, fabric

HGX = (
    (0, (1, 2, 3, 4, 5, 6, 7, 8)),
    (1, (1, 2, 3, 4)), (2, (5, 6, 7, 8)),
    (3, (1, 3)), (4, (2, 4)), (5, (5, 7)), (6, (6, 8)),
    *((6 + number, (number,)) for number in range(1, 9)),
)  # fmt: skip


def gpu(number, **facts):
    known = dataclasses.replace(
        mig_cards.gpu(mig_cards.H100),
        uuid=devices.GpuUuid(f"GPU-{number}"),
        pci_address=devices.PciAddress(f"0000:{number:02x}:00.0"),
        module_id=number,
    )
    return dataclasses.replace(known, **facts)


def partitions(listed, member=fabric.Member):
    return tuple(fabric.Partition(number, tuple(map(member, gpus))) for number, gpus in listed)


def fabrics(gpus, listed):
    return [one.fabric for one in partitioning.placed(gpus, listed).gpus]


def test_each_gpu_of_a_baseboard_is_in_one_partition_of_each_size():
    found = partitioning.placed([gpu(number) for number in range(1, 9)], partitions(HGX))
    assert found.notes == ()
    assert found.gpus[0].fabric == ((1, 7), (2, 3), (4, 1), (8, 0))
    assert found.gpus[7].fabric == ((1, 14), (2, 6), (4, 2), (8, 0))


def test_sizes_that_there_is_no_attribute_for_are_left_out():
    listed = partitions([(1, (1, 2, 3)), (2, tuple(range(1, 17))), (3, (1, 2))])
    assert fabrics([gpu(1)], listed) == [((2, 3),)]


def test_a_gpu_in_two_partitions_of_a_size_has_none_of_that_size_and_it_is_said():
    listed = partitions([(10, (1, 2)), (11, (1, 3)), (5, (1,))])
    found = partitioning.placed([gpu(1), gpu(2), gpu(3)], listed)
    assert [one.fabric for one in found.gpus] == [((1, 5),), ((2, 10),), ((2, 11),)]
    [note] = found.notes
    assert note == (
        "Fabric Manager has GPU-1 in several partitions of 2 GPUs (10, 11), so it has no attribute "
        "partition2"
    )


def test_the_module_id_decides_whatever_else_is_told():
    listed = partitions([(1, (2,))], lambda n: fabric.Member(n, "GPU-1", "00000000:01:00.0"))
    assert fabrics([gpu(1), gpu(2)], listed) == [(), ((1, 1),)]


def test_a_gpu_whose_module_id_is_not_known_is_known_by_uuid_or_place():
    blind = gpu(10, module_id=None)
    by_uuid = partitions([(1, (3,))], lambda n: fabric.Member(n, "GPU-10"))
    by_place = partitions([(1, (3,))], lambda n: fabric.Member(n, "", "00000000:0A:00.0"))
    by_nothing = partitions([(1, (3,))])
    elsewhere = partitions([(1, (3,))], lambda n: fabric.Member(n, "", "00010000:0A:00.0"))
    assert fabrics([blind], by_uuid) == fabrics([blind], by_place) == [((1, 1),)]
    assert fabrics([blind], by_nothing) == fabrics([blind], elsewhere) == [()]


def test_two_gpus_of_one_module_id_are_in_no_partition_and_it_is_said():
    found = partitioning.placed([gpu(1), gpu(2, module_id=1)], partitions([(4, (1,))]))
    assert [one.fabric for one in found.gpus] == [(), ()]
    assert found.notes == (
        "partition 4 of Fabric Manager is passed over: it cannot be told which GPUs are meant",
    )


def test_a_partition_that_has_a_gpu_twice_is_passed_over():
    found = partitioning.placed([gpu(1), gpu(2)], partitions([(4, (1, 1)), (5, (1, 2))]))
    assert [one.fabric for one in found.gpus] == [((2, 5),), ((2, 5),)]
    assert len(found.notes) == 1


def test_two_partitions_of_one_id_are_passed_over():
    found = partitioning.placed([gpu(1)], partitions([(4, (1,)), (4, (2, 3)), (5, (1, 2))]))
    assert found.gpus[0].fabric == ((2, 5),)
    assert len(found.notes) == 1


def test_what_was_known_before_does_not_count():
    assert fabrics([gpu(1, fabric=((8, 0),))], ()) == [()]


MODULES = st.integers(1, 6)
GPUS = st.lists(st.none() | MODULES, max_size=6).map(
    lambda listed: [gpu(number, module_id=one) for number, one in enumerate(listed, 1)]
)
LISTED = st.lists(
    st.tuples(st.integers(0, 9), st.lists(MODULES, min_size=1, max_size=9)), max_size=6
)


@given(GPUS, LISTED)
def test_gpus_of_equal_attributes_are_of_one_partition_that_is_told_and_no_more_than_fit(
    gpus, told
):
    listed = partitions(told, lambda n: fabric.Member(n, f"GPU-{n}"))
    found = partitioning.placed(gpus, listed)
    assert [dataclasses.replace(one, fabric=None) for one in found.gpus] == gpus
    together = collections.defaultdict(list)
    for one in found.gpus:
        assert [size for size, _ in one.fabric] == sorted({size for size, _ in one.fabric})
        for size, number in one.fabric:
            assert size in partitioning.SIZES
            together[size, number].append(one)
    for (size, number), members in together.items():
        [gpus_of] = [modules for one, modules in told if one == number]
        assert size == len(gpus_of)
        assert len(members) <= size
        for member in members:
            assert (member.module_id or int(member.uuid.removeprefix("GPU-"))) in gpus_of
