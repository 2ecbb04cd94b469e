"""Claims for GPUs for virtual machines: what is planned, and what is in whose way."""

import mig_cards
import pytest

from dra_driver import errors
from dra_driver.logic.offering import catalog
from dra_driver.logic.preparing import contention, planning
from dra_driver.model import claims, devices, prepared, slices

NODE = planning.Node(mig_cards.DRIVER, "node-1")
REF = claims.ClaimRef("team-a", "vm", claims.ClaimUid("0a1b"))
OTHER = claims.ClaimRef("team-b", "other", claims.ClaimUid("ffff"))
CARDS = [
    catalog.passed(
        card,
        devices.VfioMode.ON,
        devices.Passthrough(card.gpu.pci_address, 0x10DE, 0x2330, 12, "pci:"),
    )
    for card in mig_cards.dynamic("h100-80gb-hbm3:2")
]
INVENTORY = {name: offer for card in CARDS for name, offer in card.offers.items()}
PARTITION = "gpu-0-mig-1g10gb-19-3"


def plan(*results):
    allocation = claims.Allocation(tuple(results))
    return planning.plan(REF, claims.ResourceClaim(REF, allocation=allocation), NODE, INVENTORY)


def result(device, **facts):
    return claims.Result("gpu", slices.DeviceId(mig_cards.DRIVER, "node-1", device), **facts)


def holders(wanted, held):
    entry = prepared.PreparedDevice(
        requests=("gpu",), pool="node-1", device=held, cdi_ids=(), kind=planning.kind(held)
    )
    record = prepared.Record(
        uid=OTHER.uid, namespace=OTHER.namespace, name=OTHER.name, phase="completed",
        boot_id="boot-1", devices=(entry,),
    )  # fmt: skip
    return contention.holdings(plan(result(wanted)), REF.uid, [record])


def test_a_device_for_a_virtual_machine_is_told_as_such_and_locks_its_card():
    made = plan(result("gpu-vfio-1"))
    [entry] = made.entries
    assert (entry.kind, entry.device) == ("vfio", "gpu-vfio-1")
    assert entry.cdi_ids == ("k8s.gpu.nvidia.com/claim=0a1b-gpu-vfio-1",)
    assert made.cards == {"gpu-1"}
    assert made.gpus == {"gpu-1": CARDS[1].gpu.uuid}
    assert made.partitions == ()


def test_it_has_no_device_node_of_nvidia_s_driver_that_could_change_its_number():
    made = plan(result("gpu-vfio-1"), result("gpu-0"))
    assert made.minors == {"gpu-0": 0}
    assert made.numbered == {"gpu-0": "gpu-0"}


@pytest.mark.parametrize(
    ("wanted", "held"),
    [
        ("gpu-vfio-0", "gpu-0"), ("gpu-0", "gpu-vfio-0"), ("gpu-vfio-0", PARTITION),
        (PARTITION, "gpu-vfio-0"), ("gpu-vfio-0", "gpu-vfio-0"),
    ],
)  # fmt: skip
def test_it_excludes_everything_else_of_its_card(wanted, held):
    assert holders(wanted, held) == (contention.Holding(wanted, held, OTHER),)


@pytest.mark.parametrize("held", ["gpu-1", "gpu-vfio-1", "gpu-1-mig-1g10gb-19-3"])
def test_it_excludes_nothing_of_other_cards(held):
    assert holders("gpu-vfio-0", held) == ()


def test_somebody_who_only_looks_at_gpus_is_given_none_that_would_be_taken_for_it():
    with pytest.raises(errors.Rejected) as caught:
        plan(result("gpu-vfio-0", admin_access=True))
    assert str(caught.value) == (
        "claim team-a/vm (0a1b): device 'gpu-vfio-0' with adminAccess: a GPU for virtual machines "
        "can be looked at only by who has it. Ask for class gpu.nvidia.com, or without adminAccess"
    )
