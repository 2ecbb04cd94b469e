"""What the kubelet is told of devices."""

import dataclasses

import pytest

from dra_driver.logic.health import conditions
from dra_driver.logic.preparing import device_health, reports
from dra_driver.model import devices, health, prepared, taints

MIG, OTHER_MIG = "gpu-0-mig-1g10gb-19-6", "gpu-1-mig-1g10gb-19-6"
OFFERED = {"gpu-0": "gpu-0", MIG: "gpu-0"}


def record(*names, uid="u1", **fields):
    devices = tuple(
        prepared.PreparedDevice(requests=("gpu",), pool="node-1", device=name, cdi_ids=())
        for name in names
    )
    return prepared.Record(
        uid=uid, namespace="team-a", name=f"claim-{uid}", phase=prepared.Phase.COMPLETED,
        boot_id="boot", devices=devices, **fields,
    )  # fmt: skip


def with_daemon(domain, *names, uid="u1"):
    use = prepared.MpsUse(domain=domain, keys=names, devices=names)
    return record(*names, uid=uid, sharing=prepared.Sharing(mps=(use,)))


def gone(*known):
    """All daemons of these claims are."""
    down = {use.domain: "it is gone" for record in known for use in record.sharing.mps}
    return {record.uid: reports.of_daemons(record, down) for record in known}


def test_all_devices_that_can_be_handed_out_are_told_of_in_order():
    told = device_health.of_node({"gpu-1": "gpu-1", "gpu-0": "gpu-0"}, (), ())
    assert list(told.items()) == [("gpu-0", None), ("gpu-1", None)]


def test_a_device_whose_gpu_is_gone_cannot_be_used():
    told = device_health.of_node({"gpu-0": "gpu-0"}, ("gpu-1", OTHER_MIG), ())
    assert told["gpu-0"] is None
    assert told["gpu-1"] == told[OTHER_MIG] == device_health.GONE


def test_where_no_gpu_answers_the_reason_is_told():
    told = device_health.of_node({}, ("gpu-0",), [record("gpu-0", "gpu-7")], problem="no driver")
    assert told == {"gpu-0": "no driver", "gpu-7": "no driver"}


def test_a_claim_s_device_is_told_of_though_it_is_not_offered():
    held = [record("gpu-0-mig-2g20gb-14-0")]
    assert device_health.of_node(OFFERED, (), held)["gpu-0-mig-2g20gb-14-0"] is None


def test_a_claim_s_device_whose_gpu_does_not_answer_cannot_be_used():
    told = device_health.of_node(OFFERED, (), [record("gpu-1", OTHER_MIG)])
    assert told["gpu-1"] == told[OTHER_MIG] == device_health.SILENT


def test_a_device_whose_daemon_is_down_is_told_with_the_claims_that_have_it():
    known = [with_daemon("d1", "gpu-0", uid="u2"), with_daemon("d1", "gpu-0", uid="u1")]
    told = device_health.of_node(OFFERED, (), known, troubles=gone(*known))
    assert told == {"gpu-0": "it is gone (claims team-a/claim-u1, team-a/claim-u2)", MIG: None}


def test_a_gpu_that_is_gone_is_told_before_a_daemon_that_went_with_it():
    known = [with_daemon("d1", "gpu-1")]
    told = device_health.of_node(OFFERED, ("gpu-1",), known, troubles=gone(*known))
    assert told["gpu-1"] == device_health.GONE


def test_a_daemon_that_no_claim_has_any_more_is_nothing():
    troubles = gone(with_daemon("d1", "gpu-0"))
    assert device_health.of_node(OFFERED, (), (), troubles=troubles) == {
        "gpu-0": None,
        MIG: None,
    }


# With what is wrong with cards


def condition(key, message, effect=taints.NO_SCHEDULE):
    finding = health.Finding(devices.GpuUuid("GPU-1"), health.Key(key), "", effect, message)
    return health.Condition(finding, "2026-11-30T10:00:00Z")


def test_what_has_hit_claims_names_them_whatever_else_is_wrong_with_the_device():
    bad = condition("xid", "XID 79", taints.NO_SCHEDULE)
    finding = dataclasses.replace(bad.finding, message="its daemon failed", only_claims=True)
    fault = health.Condition(finding, "2026-11-30T10:00:00Z", ("u1", "u2"))
    known = [record("gpu-0", uid="u2"), record("gpu-0", "gpu-0", uid="u1"), record(MIG, uid="u3")]
    found = device_health.conditions_of(
        conditions.View((bad, fault)),
        {"gpu-0": ("GPU-1", None), MIG: ("GPU-1", None), "gpu-1": ("GPU-2", None)},
        known,
    )
    told = {name: [one.finding.message for one in listed] for name, listed in found.items()}
    assert told == {
        "gpu-0": ["XID 79", "its daemon failed (claims team-a/claim-u1, team-a/claim-u2)"],
        MIG: ["XID 79"],
    }


def test_a_device_that_is_withdrawn_cannot_be_used_and_what_is_wrong_is_told():
    bad = condition("xid", "XID 79: the GPU has fallen off the bus; the node needs a reboot")
    found, notes = device_health.with_conditions({"gpu-0": None, "gpu-1": None}, {"gpu-0": [bad]})
    assert found == {"gpu-0": bad.finding.message, "gpu-1": None}
    assert notes == {}


def test_of_a_device_that_can_be_used_it_is_told_what_only_informs():
    hot = condition("thermal", "the GPU is too hot", taints.NONE)
    found, notes = device_health.with_conditions({"gpu-0": None}, {"gpu-0": [hot]})
    assert found == {"gpu-0": None}
    assert notes == {"gpu-0": "the GPU is too hot"}


def test_what_only_informs_of_a_device_of_which_nothing_is_told_is_not_told():
    hot = condition("thermal", "the GPU is too hot", taints.NONE)
    assert device_health.with_conditions({}, {"gpu-0": [hot]}) == ({}, {})


@pytest.mark.parametrize(
    ("trouble", "listed", "told"),
    [
        ("its daemon is down", [("xid", "XID 79")], "XID 79; its daemon is down"),
        (device_health.GONE, [("gpu-lost", "the GPU is lost")], "the GPU is lost"),
        (device_health.SILENT, [("driver", "no driver")], "no driver"),
        (device_health.GONE, [("xid", "XID 79")], f"XID 79; {device_health.GONE}"),
        ("its daemon is down", [("gpu-lost", "it is lost")], "it is lost; its daemon is down"),
        ("not loaded", [("driver", "no answer: not loaded")], "no answer: not loaded"),
    ],
)
def test_what_is_wrong_besides_is_told_too_and_nothing_twice(trouble, listed, told):
    known = {"gpu-0": [condition(*one) for one in listed]}
    found, notes = device_health.with_conditions({"gpu-0": trouble}, known)
    assert (found, notes) == ({"gpu-0": told}, {})


def test_a_device_with_which_something_else_is_wrong_cannot_be_used_though_its_card_can():
    hot = condition("thermal", "the GPU is too hot", taints.NONE)
    found = device_health.with_conditions({"gpu-0": "its daemon is down"}, {"gpu-0": [hot]})
    assert found == ({"gpu-0": "the GPU is too hot; its daemon is down"}, {})


def test_a_card_that_a_virtual_machine_has_is_neither_gone_nor_silent():
    """Whether NVML answers at all or not, and whether anything of the card is offered."""
    held = [record("gpu-vfio-0")]
    for offered, problem in ((OFFERED, None), ({}, None), ({}, "no driver")):
        told = device_health.of_node(offered, (), held, problem=problem, bound={"gpu-0": "bound"})
        assert told["gpu-vfio-0"] is None
    lost = device_health.of_node({}, ("gpu-vfio-0", "gpu-1"), (), bound={"gpu-0": "bound"})
    assert lost == {"gpu-1": device_health.GONE, "gpu-vfio-0": None}


def test_of_all_devices_of_such_a_card_it_is_said_why_nobody_can_tell():
    names = ["gpu-0", "gpu-vfio-0", "gpu-0-mig-2g20gb-14-0", "gpu-1"]
    assert device_health.unseen(names, {"gpu-0": "bound"}) == dict.fromkeys(names[:3], "bound")


def test_that_a_card_is_stranded_is_not_said_twice():
    stranded = condition("passthrough", "it has no driver")
    found, notes = device_health.with_conditions(
        {"gpu-0": device_health.SILENT}, {"gpu-0": [stranded]}
    )
    assert (found, notes) == ({"gpu-0": "it has no driver"}, {})
