"""What is offered, as an API server takes it over HTTP."""

import contextlib
import dataclasses

import api_cluster
import mig_cards
import pytest

from dra_driver.logic.offering import catalog, offering, publishing
from dra_driver.model import devices, mig

OLD, NEW = "v1.34.1-sim", "v1.36.2-sim"
COUNTERS, TAINTS = "DRAPartitionableDevices", "DRADeviceTaints"
LAYOUTS = [
    (publishing.Layout.SPLIT, NEW, {}),
    (publishing.Layout.COMBINED, OLD, {"enabled_gates": frozenset({COUNTERS, TAINTS})}),
    (publishing.Layout.PLAIN, OLD, {"enabled_gates": frozenset({TAINTS})}),
]


@contextlib.contextmanager
def cluster(version, **options):
    made = api_cluster.Cluster(kubernetes_version=version, **options)
    try:
        yield made
    finally:
        made.close()


def node():
    """Ten GPUs to be cut, one cut by others, one cut for good, one that cannot be cut."""
    on = mig_cards.gpu(mig_cards.H100, mig_on=True)
    cut = dataclasses.replace(on, minor=10, instances=(mig_cards.instance(on, "3g.40gb", 4, gi=1),))
    whole_gi = mig_cards.instance(on, "7g.80gb", 0, gi=2)
    fixed = dataclasses.replace(
        on, minor=11, instances=(whole_gi,), numa_node=1, pcie_root="pci0000:05"
    )
    plain = dataclasses.replace(mig_cards.gpu(mig_cards.T4), minor=12)
    return [
        *mig_cards.dynamic("h100-80gb-hbm3:10"),
        catalog.card(cut, mig.Mode.DYNAMIC),
        catalog.card(fixed, mig.Mode.STATIC),
        catalog.card(plain, mig.Mode.DYNAMIC),
    ]


@pytest.mark.parametrize(("layout", "version", "options"), LAYOUTS)
def test_every_slice_is_stored_just_as_it_was_sent(layout, version, options):
    gone = dataclasses.replace(mig_cards.gpu(mig_cards.H100), minor=20)
    state = offering.State(lost={"gpu-20": devices.Offer(gone)}, held={"gpu-20"})
    contents = mig_cards.offer(node(), layout=layout, state=state)
    desired = publishing.contents(contents)
    with cluster(version, **options) as made:
        owner = publishing.Owner(mig_cards.DRIVER, api_cluster.NODE, made.node_uid())
        for body in publishing.reconcile(owner, desired, []).create:
            made.client.create(made.slice_resource, body)
        stored = sorted(made.slices(), key=lambda body: body["metadata"]["name"])
        assert publishing.reconcile(owner, desired, stored) == publishing.Changes((), (), ())
        assert [
            publishing.dropped(content, body["spec"])
            for content, body in zip(desired, stored, strict=True)
        ] == [()] * len(desired)
        names = [device.name for device in mig_cards.devices_of(contents)]
        assert api_cluster.device_names(stored) == names


@pytest.mark.parametrize(
    ("layout", "version", "options", "kept"),
    [
        (*LAYOUTS[0], True),
        (*LAYOUTS[1], True),
        (publishing.Layout.COMBINED, OLD, {}, False),
        (publishing.Layout.SPLIT, NEW, {"disabled_gates": frozenset({COUNTERS})}, False),
    ],
)  # fmt: skip
def test_the_probe_tells_whether_counters_are_kept(layout, version, options, kept):
    with cluster(version, **options) as made:
        owner = publishing.Owner(mig_cards.DRIVER, api_cluster.NODE, made.node_uid())
        probe = publishing.counter_probe(owner, layout)
        answer = made.client.create(made.slice_resource, probe, dry_run=True)
        assert ("sharedCounters" in answer["spec"]) is kept
        assert made.slices() == []
