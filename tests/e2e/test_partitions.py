"""MIG instances that are made for a pod, and shares of a card."""

import pytest
from e2e_site import DRIVER, exactly

A, C = f"device.attributes['{DRIVER}']", f"device.capacity['{DRIVER}']"
MIG = "mig.nvidia.com"


def profile(name, text):
    return exactly(name, MIG, f"{A}.profile == '{text}'")


def on_first_node(scratch):
    return {"nodeSelector": scratch.site.only(scratch.site.nodes[0])}


@pytest.mark.covers("bats dynmig: 1 MIG", "bats mig: allocate")
def test_a_partition_is_made_for_a_pod(scratch):
    cores = f"{C}.multiprocessors.compareTo(quantity('10')) > 0"
    memory = f"{C}.memory.compareTo(quantity('9Gi')) > 0"
    scratch.template("one", exactly("mig", MIG, cores, memory))
    scratch.pod("pod", {"mig": "template/one"})
    scratch.wait_running("pod")
    [seen] = scratch.sees("pod")
    assert seen.startswith("MIG-")


@pytest.mark.covers("bats dynmig: 2 MIGs")
def test_containers_have_partitions_of_their_own(scratch):
    scratch.template("two", profile("small", "1g.10gb"), profile("large", "3g.40gb"))
    uses = {name: [{"name": "migs", "request": name}] for name in ("small", "large")}
    scratch.pod("pod", {"migs": "template/two"}, containers=uses)
    scratch.wait_running("pod")
    seen = [scratch.sees("pod", name) for name in uses]
    assert [len(one) for one in seen] == [1, 1]
    assert seen[0] != seen[1]


@pytest.mark.covers("e2e/dra: must consume and free up counters", "bats mig: exclusivity")
def test_a_card_is_given_out_whole_or_in_partitions(scratch):
    place = on_first_node(scratch)
    cards = f"{A}.architecture == 'Hopper' && {A}.type == 'gpu'"
    scratch.template("parts", profile("large", "7g.80gb"))
    scratch.template("cards", exactly("gpu", DRIVER, cards, count=2))
    scratch.pod("part", {"mig": "template/parts"}, **place)
    scratch.wait_running("part")
    scratch.pod("whole", {"gpu": "template/cards"}, **place)
    scratch.wait_unschedulable("whole")
    scratch.delete_pod("part")
    scratch.wait_running("whole")
    assert len(scratch.sees("whole")) == 2


def share(memory):
    shared = f"'enforcement' in {A}"
    return exactly("gpu", DRIVER, shared, capacity={"requests": {"memory": memory, "cores": "40"}})


@pytest.mark.covers(
    "bats consumable: memory", "ginkgo: consumable memory",
    "e2e/dra: must allow multiple allocations and consume capacity",
)  # fmt: skip
def test_claims_share_a_card_up_to_its_memory(scratch):
    place = on_first_node(scratch)
    scratch.template("some", share("6Gi"))
    for name in ("pod-1", "pod-2"):
        scratch.pod(name, {"gpu": "template/some"}, **place)
    scratch.wait_running("pod-1", "pod-2")
    assert scratch.allocated("pod-1") == scratch.allocated("pod-2")
    assert scratch.sees("pod-1") == scratch.sees("pod-2")
    scratch.pod("pod-3", {"gpu": "template/some"}, **place)
    scratch.wait_unschedulable("pod-3")
    scratch.delete_pod("pod-1")
    scratch.wait_running("pod-3")


def sharing(kind, strategy, **fields):
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": kind,
        "sharing": {"strategy": strategy, **fields},
    }
    return [{"opaque": {"driver": DRIVER, "parameters": parameters}}]


@pytest.mark.covers(
    "bats sharing: TimeSlicing", "bats sharing: MPS", "e2e/dra: claim and class parameters"
)
@pytest.mark.parametrize(
    ("strategy", "fields"),
    [
        ("TimeSlicing", {"timeSlicingConfig": {"interval": "Short"}}),
        ("MPS", {"mpsConfig": {"defaultActiveThreadPercentage": 50,
                               "defaultPinnedDeviceMemoryLimit": "4Gi"}}),
    ],
)  # fmt: skip
def test_containers_share_a_card_as_its_config_says(scratch, strategy, fields):
    whole = f"{A}.type == 'gpu' && !('enforcement' in {A}) && {A}.architecture != 'Volta'"
    config = sharing("GpuConfig", strategy, **fields)
    scratch.template("one", exactly("gpu", DRIVER, whole), config=config)
    uses = {"one": [{"name": "gpu"}], "two": [{"name": "gpu"}]}
    scratch.pod("pod", {"gpu": "template/one"}, containers=uses)
    scratch.wait_running("pod")
    assert scratch.sees("pod", "one") == scratch.sees("pod", "two")
