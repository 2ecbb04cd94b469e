"""What the doctor says of sick GPUs."""

import dataclasses

import mig_cards
import pytest

from dra_driver.logic.doctor import health_diagnosis
from dra_driver.logic.health import meaning
from dra_driver.model import health

GPU = mig_cards.gpu(mig_cards.H100)
SINCE = "2026-11-30T10:00:00Z"


def found(*conditions):
    return health_diagnosis.findings([GPU], conditions, "NVML", node="node-1")


def seen(since=SINCE, **facts):
    looked = meaning.of_facts(GPU.uuid, health.Facts(**facts), meaning.Policy())
    return [health.Condition(finding, since) for finding in looked.findings]


def xid(number, spot=None):
    event = health.Event(health.EventKind.XID, GPU.uuid, number)
    return health.Condition(meaning.of_event(event, spot, meaning.Policy()), SINCE)


def test_a_node_whose_gpus_are_well_is_fine_and_one_without_is_no_news():
    [fine] = found()
    assert (fine.level, fine.cause) == ("fine", "the driver complains of no GPU")
    assert health_diagnosis.findings([], (), "NVML", node="n") == []


def test_each_thing_is_told_with_its_gpu_since_when_and_what_to_do_the_gravest_first():
    first, second = found(xid(31), *seen(recovery=2))
    assert (first.level, second.level) == ("problem", "note")
    assert first.cause == (
        "GPU 0 (NVIDIA H100 80GB HBM3) since 2026-11-30T10:00:00Z: the driver wants the node "
        "rebooted"
    )
    assert first.remedy == "kubectl drain node-1, and reboot the node"


def test_what_is_wrong_with_an_instance_names_its_place():
    [one] = found(xid(95, mig_cards.spot(GPU, "1g.10gb", 2)))
    assert ", its instance at 2:1 since" in one.cause


def test_what_this_look_has_found_first_has_no_time():
    [one] = found(*seen(since="", recovery=1))
    assert one.cause == "GPU 0 (NVIDIA H100 80GB HBM3): the driver wants the GPU reset"
    assert f"nvidia-smi --gpu-reset -i {GPU.uuid} on the node" in one.remedy


def test_the_same_thing_is_told_once_by_an_event_and_by_a_look():
    event = health.Event(health.EventKind.DRAM_RETIREMENT_FAILURE, GPU.uuid)
    told = health.Condition(meaning.of_event(event, None, meaning.Policy()), SINCE)
    assert len(found(told, *seen(remap_failed=True))) == 1


@pytest.mark.parametrize("key", list(health.Key))
def test_there_is_something_to_do_about_everything(key):
    finding = health.Finding(GPU.uuid, key, "", "NoSchedule", "what")
    [one] = found(health.Condition(finding, SINCE))
    assert one.remedy
    assert "{" not in one.remedy


def test_the_health_of_another_gpu_is_not_this_ones():
    other = dataclasses.replace(xid(79).finding, gpu="GPU-other")
    assert [one.level for one in found(health.Condition(other, SINCE))] == ["fine"]


def test_a_gpu_that_nvml_does_not_list_is_told_where_a_virtual_machine_had_it():
    stranded = meaning.stranded("GPU-gone", "it has no driver", meaning.Policy())
    lost = meaning.lost("GPU-other", meaning.Policy())
    known = [health.Condition(one, SINCE) for one in (stranded, lost)]
    [one] = health_diagnosis.unlisted([GPU], known, "PCI bus", node="node-1")
    assert (one.level, one.looked_at) == ("problem", "PCI bus")
    assert one.cause == f"GPU GPU-gone since {SINCE}: it has no driver"
    assert "kubectl drain node-1" in one.remedy
    here = health.Condition(meaning.stranded(GPU.uuid, "x", meaning.Policy()), SINCE)
    assert health_diagnosis.unlisted([GPU], [here], "PCI bus", node="n") == []
