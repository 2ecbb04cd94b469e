"""Shares as an API server stores them, and what a scheduler makes of them."""

import dataclasses
import functools

import api_cluster
import dra_objects
import mig_cards
import pytest

from dra_driver.logic.offering import catalog, publishing
from dra_driver.logic.scheduling import shortfalls
from dra_driver.model import claims, devices, mig, nodes, quantities, slices
from dra_driver.model import shares as share_model

BY_MEMORY, BY_FOUR = share_model.Shares(), share_model.Shares(4)
CLASS = claims.DeviceClass("gpu", (f'device.driver == "{mig_cards.DRIVER}"',))
WHOLE = f"device.attributes['{mig_cards.DRIVER}'].type == 'gpu'"
PART = f"device.attributes['{mig_cards.DRIVER}'].?profile.orValue('') == '3g.40gb'"
NODE = nodes.Node(api_cluster.NODE, {"kubernetes.io/hostname": api_cluster.NODE})


def divided(cards, kind):
    return [dataclasses.replace(card, division=kind) for card in cards]


def cards():
    """Two GPUs to be cut, one cut for good, one that cannot be cut."""
    on = mig_cards.gpu(mig_cards.H100, mig_on=True)
    there = mig_cards.instance(on, "7g.80gb", 0, gi=2)
    fixed = dataclasses.replace(
        on, minor=2, instances=(there,), numa_node=1, pcie_root="pci0000:05"
    )
    plain = dataclasses.replace(mig_cards.gpu(mig_cards.T4), minor=3)
    return [
        *mig_cards.dynamic("h100-80gb-hbm3:2"),
        catalog.card(fixed, mig.Mode.STATIC),
        catalog.card(plain, mig.Mode.DYNAMIC),
    ]


@functools.cache
def cluster():
    return api_cluster.Cluster(kubernetes_version="v1.36.2-sim")


@pytest.fixture(scope="module", autouse=True)
def _closed():
    yield
    cluster().close()
    cluster.cache_clear()


@functools.cache
def stored(kind, spec=None):
    """What the API server has of such a node, in publishing order."""
    found = mig_cards.dynamic(spec) if spec else cards()
    desired = publishing.contents(mig_cards.offer(divided(found, kind)))
    made = cluster()
    owner = publishing.Owner(mig_cards.DRIVER, api_cluster.NODE, made.node_uid())
    for body in publishing.reconcile(owner, desired, []).create:
        made.client.create(made.slice_resource, body)
    bodies = sorted(made.slices(), key=lambda body: body["metadata"]["name"])
    for body in bodies:
        made.client.delete(made.slice_resource, body["metadata"]["name"])
    assert publishing.reconcile(owner, desired, bodies) == publishing.Changes((), (), ())
    return desired, bodies


def published(kind, spec="h100-80gb-hbm3:1"):
    return [slices.parse(body) for body in stored(kind, spec)[1]]


def asks(name, selector=WHOLE, **amounts):
    request = dra_objects.exactly("gpu", selector, extra={"capacity": {"requests": amounts}})
    return dra_objects.claim(request, name=name)


def allocate(*pending, kind=BY_MEMORY, held=()):
    return dra_objects.allocate(pending, *published(kind), node=NODE, classes=[CLASS], held=held)


def results(found):
    assert found.allocations is not None, found.shortfalls
    return [result for one in found.allocations for result in one.results]


def short(found):
    """Where devices fell, in words."""
    assert found.allocations is None
    return [shortfalls.describe(one.fallen) for one in found.shortfalls]


# What is published


@pytest.mark.parametrize("kind", [BY_MEMORY, BY_FOUR, share_model.Shares(1)])
def test_every_slice_is_stored_just_as_it_was_sent(kind):
    desired, bodies = stored(kind)
    assert [
        publishing.dropped(content, body["spec"])
        for content, body in zip(desired, bodies, strict=True)
    ] == [()] * len(desired)
    found = [one for body in bodies for one in slices.parse(body).devices]
    assert {one.name for one in found} >= {"gpu-0", "gpu-2-mig-7g80gb-0-0", "gpu-3"}
    for one in found:
        assert one.extra["allowMultipleAllocations"] is True
        assert one.policies.keys() == one.capacity.keys()


def test_without_shares_nothing_is_different():
    for one in mig_cards.devices_of(mig_cards.offer(divided(cards(), None))):
        body = slices.format_device(one)
        assert "enforcement" not in body["attributes"]
        assert "allowMultipleAllocations" not in body
        assert all(entry.keys() == {"value"} for entry in body["capacity"].values())
        assert not body["capacity"].keys() & {"cores", "shares"}


@pytest.mark.parametrize("kind", [BY_MEMORY, BY_FOUR])
def test_shares_change_neither_the_order_nor_the_counters_nor_what_devices_are(kind):
    before, after = mig_cards.offer(cards()), mig_cards.offer(divided(cards(), kind))
    assert [mig_cards.names(content) for content in before] == [
        mig_cards.names(content) for content in after
    ]
    assert [content.counter_sets for content in before] == [
        content.counter_sets for content in after
    ]
    pairs = zip(mig_cards.devices_of(before), mig_cards.devices_of(after), strict=True)
    for plain, shared in pairs:
        assert plain.attributes.items() <= shared.attributes.items()
        assert plain.extra.items() <= shared.extra.items()
        slices_of_it = {name for name in plain.capacity if name.startswith("memorySlice")}
        assert plain.capacity.keys() - slices_of_it <= shared.capacity.keys()
        assert not slices_of_it & shared.capacity.keys()


def test_only_cards_that_are_divided_have_shares():
    first, *others = cards()
    mixed = [dataclasses.replace(first, division=BY_FOUR), *others]
    for one in mig_cards.devices_of(mig_cards.offer(mixed)):
        is_shared = devices.card_of(one.name) == "gpu-0"
        assert one.extra.get("allowMultipleAllocations", False) is is_shared
        assert ("shares" in one.capacity) is is_shared


def test_a_node_without_counters_shares_whole_gpus():
    contents = mig_cards.offer(divided(cards(), BY_MEMORY), layout=publishing.Layout.PLAIN)
    found = {one.name: one for one in mig_cards.devices_of(contents)}
    assert found["gpu-0"].extra == {"allowMultipleAllocations": True}
    assert found["gpu-0"].policies.keys() == found["gpu-0"].capacity.keys()


# What is allocated


def test_two_claims_share_a_gpu_and_a_third_that_is_too_large_is_told_by_how_much():
    first, second, third = (
        asks("a", memory="10Gi", cores="30"),
        asks("b", memory="20Gi", cores="50"),
        asks("c", memory="60Gi", cores="10"),
    )
    found = allocate(first, second)
    one, two = results(found)
    assert (one.device, one.share_id != two.share_id) == (two.device, True)
    assert one.consumed_capacity["memory"] == quantities.parse("10Gi")
    assert two.consumed_capacity["cores"] == quantities.parse("50")
    refused = short(allocate(third, held=found.allocations))
    assert ["memory 50839Mi left < 60Gi" in text for text in refused] == [True], refused
    cores = short(allocate(asks("d", memory="1Gi", cores="21"), held=found.allocations))
    assert ["cores 20 left < 21" in text for text in cores] == [True], cores
    results(allocate(asks("e", memory="49Gi", cores="20"), held=found.allocations))


def test_whoever_asks_for_no_amount_has_the_gpu_alone():
    held = allocate(asks("a"))
    assert results(held)[0].consumed_capacity["cores"] == quantities.parse("100")
    assert allocate(asks("b", memory="1Mi", cores="1"), held=held.allocations).allocations is None
    some = allocate(asks("b", memory="1Mi", cores="1"))
    assert allocate(asks("a"), held=some.allocations).allocations is None


def test_as_many_claims_have_a_share_as_there_are():
    four = [asks(str(number)) for number in range(4)]
    held = allocate(*four, kind=BY_FOUR)
    assert len({result.share_id for result in results(held)}) == 4
    refused = short(allocate(asks("e"), kind=BY_FOUR, held=held.allocations))
    assert ["shares 0 left < 1" in text for text in refused] == [True], refused
    assert allocate(asks("a", shares="5"), kind=BY_FOUR).allocations is None


def test_shares_of_one_partition_take_its_counters_once():
    half = [asks(str(number), PART, memory="10Gi", cores="50") for number in range(4)]
    held = allocate(*half)
    assert len({result.device.device for result in results(held)}) == 2
    # Both halves are cut, and full of cores.
    assert allocate(
        asks("e", PART, memory="1Gi", cores="1"), held=held.allocations
    ).allocations is (None)


def test_shares_of_a_partition_exclude_the_whole_and_the_other_way_round():
    held = allocate(asks("a", PART, memory="1Gi", cores="1"))
    assert allocate(asks("b", memory="1Gi", cores="1"), held=held.allocations).allocations is None
    results(allocate(asks("b", PART, memory="1Gi", cores="99"), held=held.allocations))
    held = allocate(asks("a", memory="1Gi", cores="1"))
    assert allocate(asks("b", PART, memory="1Gi"), held=held.allocations).allocations is None
    results(allocate(asks("b", memory="1Gi", cores="99"), held=held.allocations))
